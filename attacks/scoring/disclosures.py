"""Claims that an attack calls certain: the clients that they expose, and their scoring.

Proofs are not averaged: a client whose vector is read from a sum is exposed, whatever the mean over
all pairs. Clients without names count as well: what is linked to the right pseudonym is exposed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from attacks.scoring.gains import Figures
from attacks.scoring.truth import Case, Scored, is_honest
from attacks.scoring.vectors import VECTOR_ERROR
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, nobody
from secure_fedrec.data import RatingTable
from secure_fedrec.wire import Truth

Open: TypeAlias = Literal["nothing", "side", "length"]
"""The unknown part of a vector: nothing, its sign, or its sign and its length."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Disclosures:
    """Disclosures from one round, about clients with or without a name.

    Args:
        round: which round.
        names: int64[G], the client of each; -1 where it is a pseudonym.
        vectors: float64[G, d], private vectors at the start of the round; zero where none is known.
        solved: bool[G], whether the vector is claimed for certain.
        whose: int64[P], the client of each interaction.
        items: int64[P].
        ratings: float64[P], NaN where none is claimed.
        certain: bool[P], whether the interaction is.
        people: int64[G], which person each pseudonym is, over all parts; by default each is a
            different person.
        up_to: what is unknown of vectors: nothing, their sign, or their sign and their length.
    """

    round: int
    names: IntArray
    vectors: FloatArray
    solved: BoolArray
    whose: IntArray
    items: IntArray
    ratings: FloatArray
    certain: BoolArray
    people: IntArray | None = None
    up_to: Open = "nothing"

    @classmethod
    def of_vectors(
        cls, round_: int, names: IntArray, vectors: FloatArray, *, up_to: Open = "nothing"
    ) -> "Disclosures":
        """Only certain vectors: int64[G] names, -1 without a name, and float64[G, d]."""
        nothing, known = cls.named(round_, nobody(), nobody()), np.ones(len(names), dtype=bool)
        return replace(nothing, names=names, vectors=vectors, solved=known, up_to=up_to)

    @classmethod
    def named(cls, round_: int, clients: IntArray, items: IntArray) -> "Disclosures":
        """Certain interactions of clients under their names: int64[P] each."""
        names, whose = np.unique(clients, return_inverse=True)
        return cls(
            round=round_,
            names=names.astype(np.int64),
            vectors=np.zeros((len(names), 0)),
            solved=np.zeros(len(names), dtype=bool),
            whose=whose.reshape(-1).astype(np.int64),
            items=items,
            ratings=np.full(len(items), np.nan),
            certain=np.ones(len(items), dtype=bool),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DisclosureClaim:
    """Disclosures from several rounds.

    Args:
        parts: one per round.
    """

    parts: tuple[Disclosures, ...]

    def scored(self, case: Case) -> Iterator[Scored]:
        """Count the exposed clients, by the ratings and the recorded private vectors."""
        train = case.truth.train
        if train is None:
            return
        sizes = [len(part.names) for part in self.parts]
        firsts = np.cumsum(sizes) - sizes
        placed = zip(self.parts, firsts.tolist(), strict=True)
        found = [_judged(part, train, case.truth.recorded, first) for part, first in placed]
        own = np.array(sorted(case.corrupted), dtype=np.int64)
        pairs, true, certain, people = (
            np.concatenate([np.zeros(0, dtype=np.int64), *(each[name] for each in found)])
            for name in ("pairs", "true", "certain", "people")
        )
        whose = pairs // train.n_items
        true = (true > 0) & ~np.isin(whose, own)
        known = true & (certain > 0)
        by_vector = {client for each in found for client in each["by_vector"].tolist()} - {
            *case.corrupted
        }
        exposed = by_vector | {*whose[known].tolist()}
        rated, honest = train.counts(), is_honest(np.arange(train.n_clients), case.corrupted)
        profiles = np.unique(np.stack([people[known], pairs[known]]), axis=1)
        _, first, told = np.unique(profiles[0], return_index=True, return_counts=True)
        owners = profiles[1][first] // train.n_items
        judged, interactions = int(honest.sum()), len(np.unique(pairs[known]))
        figures: Figures = {
            "clients_exposed": float(len(exposed)),
            "clients_judged": float(judged),
            "clients_exposed_share": len(exposed) / max(1, judged),
            "largest_profile": float((told / np.maximum(rated[owners], 1)).max(initial=0.0)),
            "interactions_exposed": float(interactions),
            "vectors_exposed": float(len(by_vector)),
            "likely_exposed": float(len({*whose[true].tolist()} - exposed)),
            "disclosures_wrong": float(sum(int(each["wrong"]) for each in found)),
        }
        yield Scored(
            figures=figures,
            units={"clients": judged, "pairs": int(rated[honest].sum()), "positives": interactions},
            details={"exposed_clients": sorted(exposed), "clients": figures["clients_judged"]},
        )


def _judged(
    part: Disclosures, train: RatingTable, recorded: Truth, first: int
) -> Mapping[str, Any]:
    """Claims as pairs of a true client and an item, with the vectors behind them."""
    private = recorded.columns(part.round, "private-user_vectors")
    values = np.full((train.n_clients, part.vectors.shape[1]), np.nan)
    if private is not None:  # bias rows have more columns than vectors
        table = np.asarray(private["values"], dtype=np.float64)
        told = table.reshape(len(table), -1)[:, : part.vectors.shape[1]]
        values = np.full((len(table), part.vectors.shape[1]), np.nan)
        values[:, : told.shape[1]] = told
    clients = _true_clients(part, train, values)
    actual, solved = values[clients], part.solved & (private is not None)
    right = solved & (_apart(part.vectors, actual, part) < VECTOR_ERROR)
    rated = train.clients.astype(np.int64) * train.n_items + train.items
    order = np.argsort(rated)

    def holds(owners: IntArray, claims: IntArray) -> BoolArray:
        pairs = owners * train.n_items + part.items[claims]
        place = order[np.minimum(np.searchsorted(rated, pairs, sorter=order), len(order) - 1)]
        told = part.ratings[claims]
        as_told = np.isnan(told) | (told == train.ratings[place])
        return np.asarray((rated[place] == pairs) & as_told)

    owners = clients[part.whose]
    true = holds(owners, np.arange(len(owners)))
    # Clients with equal vectors share a pseudonym: a claim about it is true if it is true of any of
    # them.
    by_vector = ((part.names < 0) & part.vectors.any(axis=1))[part.whose]
    for claim in np.flatnonzero(~true & by_vector).tolist():
        equals = np.flatnonzero((values == values[owners[claim]]).all(axis=1))
        for other in equals[holds(equals, np.full(len(equals), claim))][:1]:
            owners[claim], true[claim] = other, True
    pairs = owners * train.n_items + part.items
    people = first + np.arange(len(clients)) if part.people is None else part.people
    return {
        "pairs": pairs,
        "true": true,
        "certain": part.certain,
        # A name is one person in all parts; pseudonyms of different parts are joined where the
        # attack joins them.
        "people": np.where(part.names >= 0, -1 - part.names, people)[part.whose],
        "by_vector": clients[right],
        "wrong": (solved & ~right).sum() + (part.certain & ~true).sum(),
    }


def _true_clients(part: Disclosures, train: RatingTable, values: FloatArray) -> IntArray:
    """The true client of each: the named one, or that with the closest vector or most true claims.

    If several clients are possible, the one that rated the fewest other items is taken.
    """
    clients = part.names.copy()
    for who in np.flatnonzero(clients < 0).tolist():
        off = _apart(part.vectors[who], values, part)
        if part.vectors[who].any() and not np.isnan(off).all():
            clients[who] = int(np.nanargmin(off))
            continue
        mine = part.whose == who
        # Uncertain claims count only without certain ones.
        mine &= part.certain | ~(mine & part.certain).any()
        claimed = np.full(train.n_items, np.inf)
        claimed[part.items[mine]] = part.ratings[mine]
        told = claimed[train.items]
        true = np.isnan(told) | (told == train.ratings)
        votes = np.bincount(train.clients[true], minlength=train.n_clients)
        clients[who] = int((votes - train.counts() / (train.n_items + 1)).argmax())
    return clients


def _apart(vectors: FloatArray, actual: FloatArray, part: Disclosures) -> FloatArray:
    """Relative error of vectors as the true ones: float64[B]."""
    sizes = np.maximum(np.linalg.norm(actual, axis=1), 1e-300)
    if part.up_to != "length":
        off = np.linalg.norm(vectors - actual, axis=1)
        if part.up_to == "side":
            off = np.minimum(off, np.linalg.norm(vectors + actual, axis=1))
        return np.asarray(off / sizes)
    lengths = np.maximum(np.linalg.norm(vectors, axis=-1), 1e-300)
    along = np.abs((vectors * actual).sum(axis=1)) / sizes / lengths
    return np.asarray(np.sqrt(np.maximum(2.0 - 2.0 * along, 0.0)))
