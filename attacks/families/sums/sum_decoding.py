"""Exact sums over few clients are equations: whose vectors and interactions stand behind them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import comb, log2
from typing import Any, TypeAlias

import numpy as np

from attacks.base import Claims, Control, SuiteAttack, need, require_seen
from attacks.families.sums.decoding import MOST_RATERS, decode
from attacks.families.sums.round_sums import BUDGET, SURE_BITS, Decoded, RoundSums, Spread
from attacks.families.sums.table_steps import TableStep
from attacks.families.sums.vector_matches import cost
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from attacks.scoring.vectors import VECTOR_ERROR
from attacks.view.coalition import others_sum, own_clients, words_of
from attacks.view.knowledge import Knowledge
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Step, View

Known: TypeAlias = Callable[[View, int], Mapping[int, FloatArray]]
"""Private vectors of clients, float64[d] by client, that the adversary knows at a round's start."""

_SINGLE = 2.0**-22
"""Error of a few steps in single precision."""


def vectors_of_seed(seed: int | None) -> Known:
    """What follows from the seed of a run: the private vectors before the first round of PMF.

    Args:
        seed: of the run; None, of which nothing follows, for an adversary that does not know it.
    """

    def known(view: View, round_: int) -> Mapping[int, FloatArray]:
        told = view.public["algorithm"]
        if seed is None or round_ != 1 or told["name"] != "pmf":
            return {}
        settings = {key: value for key, value in told.items() if key not in ("name", "traits")}
        clients = np.arange(int(view.public["n_clients"]))
        nobody = np.zeros(len(clients) + 1, dtype=np.int64)
        vault = Vault(indptr=nobody, items=np.zeros(0, dtype=np.int32), ratings=np.zeros(0))
        PMF(PMFConfig(**settings)).initialise(vault, Streams.from_seed(seed))
        vectors = vault.read("user_vectors", clients)
        return dict(zip(clients.tolist(), vectors, strict=True))

    return known


class SumDecoding(SuiteAttack):
    """Solves exact sums over few clients as equations.

    Game: Given sums and counts per item, tell private vectors, and which items one client rated.
    Adversary: Honest-but-curious server; or clients, who see the steps of the public table.
    Needs: The aggregate, or public tables before and after a round, with payloads, exact and free
        of virtual rows; rows of a matrix factorization, or changes along score vectors with two or
        more sampled negatives for each rated item.
    Statistic: A row of one rater lies along its vector; rows of one client are collinear, and the
        rating scale gives the length. Two items of the same two raters give both vectors, a known
        vector taken off a row of two gives the other's row, and subsets of known vectors are looked
        up and matched by halves, up to a budget, or reduced as lattices. Of changes along score
        vectors, rows of one client alone are grouped, and rated items lie on the smaller side. A
        fit is certain if it holds 20 bits more than the search had to choose among.
    Reference: Singletons in published aggregates; subset sums by halves, Horowitz and Sahni 1974.
    Limits: Clients stay pseudonyms: which of the names they are is not told. With noise, or where
        values hold fewer informative bits than the subsets have, nothing is certain. With biases
        directions of rows of one rater are told, and no ratings; of changes along score vectors
        nothing is read but rows of one client alone. Searches end at the budget.

    Args:
        known: private vectors known beforehand; those of the seed for an adversary that knows it.
    """

    name = "sum-decoding"
    control = Control(measure="clients_exposed", on="sums", breaks="lone rows")

    def __init__(self, known: Known | None = None) -> None:
        self._known = known

    def claim(self, view: View) -> Claims:
        """Claim what the sums of all recorded rounds prove."""
        knowledge = Knowledge.of(view)
        known = knowledge.factorized or knowledge.scored_rows
        need(known, "rows are neither those of a matrix factorization nor along score vectors")
        undisturbed = knowledge.sums_are_real and knowledge.exact
        need(undisturbed, "virtual rows or noise are in the sums: none is an exact equation")
        need(float(view.public["algorithm"].get("temperature") or 0.0) == 0.0, "rows carry noise")
        readable = view.sees(Step.UPLOAD) and not knowledge.hidden
        need(not readable, "uploads can be read: nothing has to be decoded")
        if knowledge.scored_rows:
            return _scored(view)
        need(view.sees(Step.MODEL), "the view holds no public table")
        read = _of_sum if view.sees(Step.AGGREGATE) else _of_steps
        found = {r: read(view, r) for r in view.payload_rounds(Step.MODEL)}
        rounds = {round_: sums for round_, sums in found.items() if sums is not None}
        need(rounds, "no round has payloads of its sum and of the public table before it")
        parts: list[_Part] = []
        for round_, sums in rounds.items():
            parts.append(self._decoded(view, round_, sums, parts, BUDGET / len(rounds)))
        claim = DisclosureClaim(parts=tuple(part.disclosed() for part in parts))
        return _claims(parts, claim)

    def _decoded(
        self, view: View, round_: int, sums: RoundSums, before: list["_Part"], budget: float
    ) -> "_Part":
        own = own_clients(view)
        known_of = self._known or vectors_of_seed(view.seed)
        told = {c: v for c, v in known_of(view, round_).items() if c not in own}
        width = sums.rows.shape[1]
        known = [(vector[:width], 1e-15 * float(np.abs(vector).sum())) for vector in told.values()]
        stages = before[-1].found.stages if before else 0
        found = decode(sums, known, stages=stages, budget=budget)
        return _Part(round_, sums, found, tuple(told))


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A round, solved as far as it can be; its first pseudonyms have names."""

    round: int
    sums: RoundSums
    found: Decoded
    names: tuple[int, ...]

    def disclosed(self) -> Disclosures:
        """As a claim; a vector that is known less well than claims are is none."""
        found, width = self.found, self.sums.rows.shape[1]
        size = len(found.entries)
        vectors, solved = np.zeros((size, width)), np.zeros(size, dtype=bool)
        for who, entries in found.entries.items():
            if len(entries) == 1:
                vectors[who] = entries[0].vector
                close = entries[0].error < VECTOR_ERROR * np.linalg.norm(vectors[who])
                # What was known beforehand is exposed by its interactions alone.
                solved[who] = close and who in found.solved and who >= len(self.names)
        names = np.full(size, -1, dtype=np.int64)
        names[: len(self.names)] = self.names
        ties = [(who, row, *told) for (who, row), told in found.ties.items()]
        table = np.array(ties, dtype=np.float64).reshape(-1, 4)
        return Disclosures(
            round=self.round,
            names=names,
            vectors=vectors,
            solved=solved,
            whose=table[:, 0].astype(np.int64),
            items=self.sums.items[table[:, 1].astype(np.int64)],
            ratings=table[:, 2],
            certain=table[:, 3] > 0,
        )

    def within_reach(self) -> int:
        """Most raters of a sum that the bits of a row and the budget would explain, all known."""
        columns = len(self.found.entries) * len(self.sums.levels)
        spread = Spread(self.sums.rows / np.sqrt(self.sums.counts[:, None]), self._scale())
        if not len(self.sums.levels):
            return 1
        reach = 0
        for raters in range(1, MOST_RATERS + 1):
            rows = int((self.sums.counts == raters).sum())
            tolerance = float(self.sums.errors.min()) * raters * 2
            chosen = log2(max(1.0, rows * float(comb(columns, raters)))) + SURE_BITS
            if cost(columns, raters) <= self.found.budget and spread.bits(tolerance) >= chosen:
                reach = raters
        return reach

    def bits(self) -> float:
        """Informative bits of a row of one rater."""
        spread = Spread(self.sums.rows / np.sqrt(self.sums.counts[:, None]), self._scale())
        return spread.bits(float(self.sums.errors.min()))

    def _scale(self) -> float:
        return float(np.abs(self.sums.levels).max(initial=0.0)) or 1.0


def _of_sum(view: View, round_: int) -> RoundSums | None:
    """A round's aggregate, less the adversary's own rows; None if its payload was not kept."""
    found = _read(view, round_)
    return None if found is None else _equations(view, round_, *found)


def _read(view: View, round_: int) -> tuple[IntArray, IntArray, FloatArray] | None:
    """Items of a round's sum, int64[N], their counts and values; None if these were not kept."""
    if round_ not in view.payload_rounds(Step.AGGREGATE):
        return None
    total = others_sum(view, round_, payload=True)
    if total.counts is None:
        return None
    words, codec = words_of(total), view.codec
    # A rater's row is never all zeros: its sum was left out, by a tail floor.
    there = (total.counts > 0) & (words != 0).any(axis=1)
    values = codec.decode(words[there])
    # Values at the limit of the ring stand for others beyond it.
    whole = (np.abs(values) < total.counts[there, None] * codec.bound).all(axis=1)
    items = total.rows[there][whole].astype(np.int64)
    return items, total.counts[there][whole].astype(np.int64), values[whole]


def _scored(view: View) -> Claims:
    """Changes along score vectors: rows of one client alone, in groups, and rated by their sign.

    Of a client's rows, all rated items lie on one side and all sampled negatives on the other,
    which are several for each: the odds that the larger side is the rated one fall with each row
    that it has more.
    """
    require_seen(view, {Step.AGGREGATE: "aggregate"})
    negatives = int(view.public.get("negatives", 0))
    need(negatives >= 2, "positives are not outnumbered by sampled negatives")
    parts: list[_Part] = []
    for round_ in view.payload_rounds(Step.AGGREGATE):
        read = _read(view, round_)
        if read is None:
            continue
        items, counts, values = read
        none = np.zeros(0)
        sums = RoundSums(
            items=items,
            counts=counts,
            rows=values,
            vectors=np.zeros_like(values),
            levels=none,
            resolution=view.codec.resolution,
            relative=_SINGLE,
        )
        found = decode(sums, stages=parts[-1].found.stages if parts else 0)
        found.keep_smaller_side(sums.rows, log2(negatives))
        parts.append(_Part(round_, sums, found, ()))
    need(parts, "no round has payloads of its sum")
    claim = DisclosureClaim(parts=tuple(part.disclosed() for part in parts))
    return _claims(parts, claim)


def _of_steps(view: View, round_: int) -> RoundSums | None:
    """A step of the public table, as clients see it; counts are the fewest that give ring words."""
    if view.public["algorithm"]["name"] != "pmf":
        return None
    step = TableStep.read(view, round_)
    if step is None:
        return None
    counts = np.zeros(len(step.moved), dtype=np.int64)
    rows = np.zeros(step.change.shape)
    for raters in range(MOST_RATERS, 0, -1):
        sums, whole = step.rows(raters)
        fits = whole & step.moved
        counts[fits], rows[fits] = raters, sums[fits]
    items = np.flatnonzero(counts)
    return _equations(view, round_, items, counts[items], rows[items], counted=False)


def _equations(
    view: View,
    round_: int,
    items: IntArray,
    counts: IntArray,
    values: FloatArray,
    *,
    counted: bool = True,
) -> RoundSums:
    algorithm, public = view.public["algorithm"], view.table(round_)[items]
    scale = [] if algorithm.get("biases") else view.public["rating_levels"]
    pull = float(algorithm["regularization"]) * counts[:, None] * public
    first = round_ == 1 and not algorithm.get("biases")
    return RoundSums(
        items=items,
        counts=counts.astype(np.int64),
        rows=pull - values,
        vectors=public,
        levels=np.asarray(scale, dtype=np.float64),
        resolution=view.codec.resolution,
        bound=float(algorithm.get("init_scale", np.inf)) if first else np.inf,
        counted=counted,
    )


def _claims(parts: list[_Part], claim: DisclosureClaim) -> Claims:
    """What was found, and what an extra that is not installed would have been asked for."""
    return Claims(
        rounds=tuple(part.round for part in parts),
        made=(claim,),
        details=_details(parts),
        not_installed=max(part.found.lacking for part in parts),
    )


def _details(parts: list[_Part]) -> dict[str, Any]:
    """What was searched, at which cost, and how sure the outcome is."""
    found = [part.found for part in parts]
    return {
        "pseudonyms": sum(len(each.sure) for each in found),
        "vectors_solved": sum(len(each.solved) for each in found),
        "sums_explained": sum(len(each.explained) for each in found),
        "largest_sum_explained": max(each.most for each in found),
        "largest_sum_within_reach": max(part.within_reach() for part in parts),
        "informative_bits_per_row": round(max(part.bits() for part in parts), 1),
        "candidates_tried_log2": round(log2(1.0 + sum(each.tried for each in found)), 1),
        "sums_formed": int(sum(each.spent for each in found)),
        "sums_budget": int(BUDGET),
        "sums_beyond_budget": sum(each.beyond for each in found),
        "expected_false_matches": sum(each.false for each in found),
        "vectors_known_beforehand": sum(len(part.names) for part in parts),
    }
