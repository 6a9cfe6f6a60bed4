"""Solve exact sums over few clients, which are equations, for vectors and interactions.

Reading order: ``round_sums`` (the equations), ``decoded`` (what is found, and when it is certain),
``vector_matches`` (what fits within tolerances), ``state``, ``unknown_raters`` and
``known_raters`` (the searches), ``participation`` and ``pseudonyms`` (which client it is).
"""

from collections.abc import Callable, Mapping, Sequence
from math import comb, log2
from typing import Any, TypeAlias

import numpy as np

from attacks.base import Claim, Claims, Control, SuiteAttack, common_rounds, need
from attacks.families.sums.decoded import BUDGET, SURE_BITS, Decoded
from attacks.families.sums.known_raters import look_up, merge, reduce, refine, solve
from attacks.families.sums.participation import came, deduce, name_alone, of_one, unseen
from attacks.families.sums.pseudonyms import Part, names_of, people_of
from attacks.families.sums.readable import told_by_words
from attacks.families.sums.round_sums import (
    MOST_RATERS,
    RoundSums,
    TableStep,
    noise_bound,
    of_aggregate,
    of_step,
)
from attacks.families.sums.state import State
from attacks.families.sums.unknown_raters import lone_rows, propagate, same_pairs
from attacks.families.sums.vector_matches import cost
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from attacks.scoring.item_sets import ItemSets
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.rows import Rows
from attacks.scoring.virtual_rows import UnmaskedClaim
from attacks.view.coalition import Presence, others_cohort, others_counts, own_clients
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import FloatArray, IntArray, nobody
from secure_fedrec.errors import MissingExtraError
from secure_fedrec.wire import Step, View

Known: TypeAlias = Callable[[View, int], Mapping[int, FloatArray]]
"""Private vectors of clients, float64[d] by client, that the adversary knows at a round's start."""


def first_vectors(view: View, round_: int) -> Mapping[int, FloatArray]:
    """The initial private vectors of clients that take part for the first time."""
    cohorts = [came(view, earlier) for earlier in range(1, round_ + 1)]
    seen = [cohort for cohort in cohorts if cohort is not None]
    if len(seen) < round_ and round_ > 1:
        return {}
    there = seen.pop() if seen else np.arange(int(view.public["n_clients"]))
    new = np.setdiff1d(there, np.concatenate([nobody(), *seen])).tolist()
    vectors = view.first_vectors(view.table(round_).shape[1]) if new else None
    return {} if vectors is None else {client: vectors[client] for client in new}


class SumDecoding(SuiteAttack):
    """Solves exact sums over few clients as equations.

    Game: Given sums and counts per item, tell private vectors, and which items one client rated.
    Adversary: Honest-but-curious server; or clients, who see the steps of the public table.
    Needs: Sums free of virtual rows: the aggregate, or public tables before and after a round, with
        payloads, exact, of rows of a matrix factorization or of changes along score vectors with
        two or more sampled negatives for each rated item; or counts alone, of the aggregate or of
        public biases, and who uploaded.
    Statistic: A row of one rater lies along its vector; rows of one client are collinear, and the
        rating scale gives the length. Two items of the same two raters give both vectors;
        subtracting a known vector's part from a row of two gives the other's row. Known vectors, no
        more than a row has values, are solved for; subsets of more are looked up and matched by
        halves, up to a
        budget, or reduced as lattices. Of changes along score
        vectors, rows of one client alone are grouped, and rated items lie on the smaller side. A
        fit is certain if it holds 20 bits more than the search had to choose among. A readable row
        that equals the sum of an item with count 1 is real, and all other rows of that item are
        virtual. Counts are equations in the bits of each client: 0 clears all clients that took
        part, and differences of two cohorts concern only clients that came or went; bits that are
        equal in all solutions of an item's equations are found, up to a budget. If a single client
        came, or was left out, its items are found, without a name if participants are not seen. A
        pseudonym is named if only one client can have rated all of its items. Uploads of the
        adversary's own clients are subtracted first.
    Reference: Singletons in published aggregates; subset sums by halves, Horowitz and Sahni 1974;
        statistical disclosure from changing cohorts, Danezis 2003.
    Limits: Other clients stay pseudonyms, which are joined over rounds with the same cohort. Pairs
        of raters are found only if each of the two rates all their common items equally; parallel
        known vectors do not name a client. With noise in the sums, or where values hold fewer
        informative bits than the subsets have, nothing is certain; Langevin noise in the rows, of
        public size, widens the tolerance, and nothing can be claimed if it is larger than the
        vectors. With biases, only directions of rows of one rater are found, and no ratings; of
        changes along score vectors, only rows of a single client are read. Clients read only steps
        of PMF without noise and without virtual rows. Sums of co-occurrences, whose rows are not a
        client's, are taken apart by co-occurrence-persons. Searches stop when the budget is spent.

    Args:
        known: private vectors known beforehand; at a client's first round the initial vectors, for
            an adversary that knows the seed.
        budget: sums that may be formed or looked up, over all rounds.
    """

    name = "sum-decoding"
    control = Control(measure="clients_exposed", on="sums", breaks="lone rows")

    def __init__(self, known: Known | None = None, *, budget: float = BUDGET) -> None:
        self._known, self._budget = known, budget

    def claim(self, view: View) -> Claims:
        """Claim what the sums of all recorded rounds prove."""
        knowledge = Knowledge.of(view)
        virtual = "the sums still contain the virtual rows as noise: none is exact"
        need(knowledge.sums_are_real, virtual)
        if not view.sees(Step.AGGREGATE):
            return self._of_steps(view, knowledge)
        if not knowledge.hidden:
            need(knowledge.rated_only, "clients send rows of items that they have not rated")
            none = "no round has payloads of both uploads and aggregate"
            rounds = common_rounds(view, Step.AGGREGATE, Step.UPLOAD, payload=True, otherwise=none)
            return told_by_words(view, knowledge, rounds)
        need(view.rounds(Step.AGGREGATE), "no round has both uploads and an aggregate")
        why = _unsolvable(view, knowledge)
        payloads = set[int]() if why else {*view.payload_rounds(Step.AGGREGATE)}
        if knowledge.factorized and not why:
            payloads &= {*view.payload_rounds(Step.MODEL)}
            why = "" if payloads else "no round has payloads of its sum and of the table before it"
        found = [(round_, of_aggregate(view, round_)) for round_ in sorted(payloads)]
        clear = [(r, sums) for r, sums in found if sums is not None and not _drowned(view, r, sums)]
        if found and not clear and any(noise_bound(view, round_) for round_, _ in found):
            why = "rows carry noise that drowns the vectors"
        parts = self._solved(view, clear)
        counted = _counted(view, knowledge)
        need(parts or counted, why or "no round has both uploads and an aggregate")
        if counted:
            presence = Presence.read(view, knowledge, counted)
            return _with_counts(view, knowledge, presence, parts, why)
        rounds = tuple(part.round for part in parts)
        return _claims(rounds, parts, {}, _disclosed(parts, people_of(parts, rounds), {}))

    def _of_steps(self, view: View, knowledge: Knowledge) -> Claims:
        """The clients' view: steps of the public table, and the items that moved."""
        need(view.public["algorithm"]["name"] == "pmf", "the steps of this algorithm are not read")
        need(view.sees(Step.MODEL), "the view holds no public table")
        need(knowledge.exact, "the table moved by noise as well")
        steps = [TableStep.read(view, round_) for round_ in view.payload_rounds(Step.MODEL)]
        known = [step for step in steps if step is not None]
        counted = _counted(view, knowledge)
        none = "no round has the tables before and after it and the adversary's own rows: "
        need(known or counted, f"{none}see recording.payload_rounds and recording.payload_senders")
        others = np.setdiff1d(np.arange(int(view.public["n_clients"])), sorted(own_clients(view)))
        why = _unsolvable(view, knowledge)
        sums = [] if why else [(each.round, of_step(view, each)) for each in known]
        parts, rounds = self._solved(view, sums), tuple(step.round for step in known)
        presence = Presence.read(view, knowledge, counted) if counted else None
        if presence is not None and not unseen(view, presence.clients):
            return _with_counts(view, knowledge, presence, parts, why)
        moved = np.mean([step.moved for step in known], axis=0)
        nothing = ItemSets.empty(len(others), len(moved))
        seen = Rows(listed=nothing, values=np.zeros(0, dtype=bool), rest=moved > 0)
        claim = RatedSetClaim(
            clients=others,
            scores=Rows(listed=nothing, values=np.zeros(0), rest=moved),
            visible=seen,
            predicted=seen if len(others) == 1 else None,
        )
        people = people_of(parts, [part.round for part in parts])
        both = zip(parts, people, strict=True)
        names = {int(who): name_alone(view, part.round) for part, whose in both for who in whose}
        every = knowledge.constant and not unseen(view)
        one = of_one(view, {step.round: step.moved for step in known}, all_rated=every)
        told = _disclosed(parts, people, names, *one)
        details = {"clients_left": len(others), "items_moved": int((moved > 0).sum())}
        return _claims(rounds, parts, details | {"unsolved": why}, claim, told)

    def _solved(self, view: View, sums: Sequence[tuple[int, RoundSums]]) -> list[Part]:
        parts: list[Part] = []
        own, known_of = own_clients(view), self._known or first_vectors
        for round_, each in sums:
            # Without a rating scale each vector has an unknown factor.
            beforehand = known_of(view, round_) if len(each.levels) else {}
            told = {c: v for c, v in beforehand.items() if c not in own}
            known = [(vector, 1e-15 * float(np.abs(vector).sum())) for vector in told.values()]
            stages = parts[-1].found.stages if parts else 0
            found = decode(each, known, stages=stages, budget=self._budget / len(sums))
            if Knowledge.of(view).scored_rows:
                found.keep_smaller_side(each.rows, log2(int(view.public["negatives"])))
            parts.append(Part(round_, each, found, tuple(told)))
        return parts


def _unsolvable(view: View, knowledge: Knowledge) -> str:
    """Why rows of the sums cannot be used as equations in vectors; empty if they can."""
    why = ""
    if not knowledge.exact:
        why = "noise is in the sums: they are not exact equations"
    elif float(view.public["algorithm"].get("temperature") or 0.0) and not knowledge.factorized:
        why = "rows carry noise"
    elif knowledge.scored_rows:
        several = int(view.public.get("negatives", 0)) >= 2
        why = "" if several else "positives are not outnumbered by sampled negatives"
    elif not knowledge.factorized:
        why = "rows are neither those of a matrix factorization nor along score vectors"
    elif not view.sees(Step.MODEL):
        why = "the view holds no public table"
    return why


def _drowned(view: View, round_: int, sums: RoundSums) -> bool:
    """Whether Langevin noise leaves all rows of a round too few bits for a certain fit."""
    noisy = noise_bound(view, round_) > 0.0
    return noisy and sums.spread.bits(float(sums.errors.min(initial=np.inf))) < SURE_BITS


def _counted(view: View, knowledge: Knowledge) -> tuple[int, ...]:
    """Rounds with known participants and known counts per item."""
    step = Step.AGGREGATE if view.sees(Step.AGGREGATE) else Step.MODEL
    rounds = view.rounds(step) if knowledge.rated_only and view.sees(step) else ()
    seen = (round_ for round_ in rounds if others_cohort(view, round_) is not None)
    return tuple(round_ for round_ in seen if others_counts(view, round_) is not None)


def _with_counts(
    view: View, knowledge: Knowledge, presence: Presence, parts: Sequence[Part], why: str
) -> Claims:
    """Conclusions about each client, and names if only one is possible."""
    came = dict(zip(presence.rounds, map(bytes, presence.present), strict=True))
    cohorts = came if knowledge.constant else dict[int, bytes]()
    people = people_of(parts, [cohorts.get(part.round, part.round) for part in parts])
    verdicts, names = deduce(presence, knowledge), dict[int, int]()
    certain = knowledge.exact and not unseen(view, presence.clients)
    # A named pseudonym settles its items, which may settle other counts, and so on.
    while certain and presence.copies == 1 and verdicts.consistent:
        names, rated = names_of(parts, people, presence, verdicts.possible)
        further = deduce(presence, knowledge, rated | verdicts.rated)
        if not further.consistent or further.settles_as(verdicts):
            break
        verdicts = further
    nothing = ItemSets.empty(len(presence.clients), presence.visible.shape[1])
    claim = RatedSetClaim(
        clients=presence.clients,
        scores=presence.rows(verdicts.scores(presence, knowledge), nothing),
        visible=presence.rows(presence.visible, nothing),
        predicted=presence.rows(verdicts.rated, nothing),
    )
    group, items = np.nonzero(verdicts.rated & certain)
    whose = presence.clients.reshape(-1, max(1, presence.copies))[group].reshape(-1)
    named = Disclosures.named(presence.rounds[0], whose, np.repeat(items, presence.copies))
    excluded = presence.visible & ~verdicts.possible
    made: tuple[Claim, ...] = (claim, _disclosed(parts, people, names, named))
    if knowledge.virtual_rows and presence.shown:
        shown = presence.visible
        made += (UnmaskedClaim(clients=presence.clients, visible=shown, proven=excluded),)
    details = {
        "tail_items": int((presence.counts == 1).any(axis=0).sum()),
        "pairs_proven_real": int(verdicts.rated.sum()) * presence.copies,
        "pairs_excluded": int(excluded.sum()) * presence.copies,
        "pseudonyms_named": len(names),
        "cohorts": len(np.unique(presence.present, axis=0)),
        "counts_exact": knowledge.exact,
        "counts_consistent": verdicts.consistent,
        "counts_beyond_budget": verdicts.undecided,
    }
    return _claims(presence.rounds, parts, details | {"unsolved": why}, *made)


def _disclosed(
    parts: Sequence[Part], people: Sequence[IntArray], names: Mapping[int, int], *named: Disclosures
) -> DisclosureClaim:
    both = zip(parts, people, strict=True)
    return DisclosureClaim(parts=(*named, *(part.disclosed(whose, names) for part, whose in both)))


def _claims(
    rounds: tuple[int, ...], parts: Sequence[Part], details: Mapping[str, Any], *made: Claim
) -> Claims:
    """The claims, and searches that need an extra that is not installed."""
    lacking = max((part.found.lacking for part in parts), default="")
    searched = _searched(parts) if parts else {}
    return Claims(rounds=rounds, made=made, details={**searched, **details}, not_installed=lacking)


def _searched(parts: Sequence[Part]) -> dict[str, Any]:
    """The extent and cost of the search, and the certainty of its result."""
    found = [part.found for part in parts]
    return {
        "pseudonyms": sum(len(each.sure) for each in found),
        "vectors_solved": sum(len(each.solved) for each in found),
        "sums_explained": sum(len(each.explained) for each in found),
        "largest_sum_explained": max(each.most for each in found),
        "largest_sum_within_reach": max(_within_reach(part) for part in parts),
        "informative_bits_per_row": round(max(_bits(part, 1) for part in parts), 1),
        "candidates_tried_log2": round(log2(1.0 + sum(each.tried for each in found)), 1),
        "sums_formed": int(sum(each.spent for each in found)),
        "sums_budget": int(sum(each.budget for each in found)),
        "sums_beyond_budget": sum(each.beyond for each in found),
        "expected_false_matches": sum(each.false for each in found),
        "vectors_known_beforehand": sum(len(part.names) for part in parts),
    }


def _within_reach(part: Part) -> int:
    """Most known raters of a sum that the bits of a row and the budget allow to find."""
    columns, reach = len(part.found.entries) * len(part.sums.levels), 1
    for raters in range(1, MOST_RATERS + 1) if len(part.sums.levels) else ():
        rows = int((part.sums.counts == raters).sum())
        chosen = log2(max(1.0, rows * float(comb(columns, raters)))) + SURE_BITS
        if cost(columns, raters) <= part.found.budget and _bits(part, 2 * raters) >= chosen:
            reach = raters
    return reach


def _bits(part: Part, errors: int) -> float:
    """Informative bits of a row of one rater, with a tolerance of so many of its errors."""
    return part.sums.spread.bits(float(part.sums.errors.min(initial=np.inf)) * errors)


_PASSES = 20


def decode(
    sums: RoundSums,
    known: Sequence[tuple[FloatArray, float]] = (),
    *,
    stages: int = 0,
    budget: float = BUDGET,
) -> Decoded:
    """Solve a round.

    Args:
        sums: the round.
        known: private vectors that are known beforehand, each with a bound of its error; they are
            the first pseudonyms.
        stages: earlier searches, which share the error probability.
        budget: sums that may be formed or looked up.
    """
    found = Decoded(stages=stages, budget=budget, known=len(known))
    for each in known:
        found.settle(found.add([each]))
    if len(sums.items) < 2:
        return found
    state = State(sums, found)
    solve(state)
    lone_rows(state)
    if not len(sums.levels):
        return found
    merge(state)
    look_up(state, 2)
    same_pairs(state)
    for _ in range(_PASSES):
        before = len(found.entries), len(found.explained)
        merge(state)
        look_up(state, 2)
        propagate(state)
        refine(state)
        if before == (len(found.entries), len(found.explained)):
            break
    for raters in range(3, MOST_RATERS + 1):
        look_up(state, raters)
        refine(state)
    try:
        reduce(state)
    except MissingExtraError as absent:
        found.lacking = str(absent)
    return found
