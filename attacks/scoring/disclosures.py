"""What an attack knows to be right: whom it exposes, counted in persons, and who judges it.

A proof is not an average: one client whose vector is read off a sum is exposed, whatever a mean
over all pairs says. A client without a name is one all the same: what is tied to the right
pseudonym is exposed.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attacks.scoring.measures import (
    COUNT,
    LEADS,
    SHARE,
    Context,
    Exposed,
    Figures,
    Measure,
    Page,
    Scale,
    records,
)
from attacks.scoring.scored import Scored, is_honest
from attacks.scoring.truth import Case
from attacks.scoring.vectors import VECTOR_ERROR
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.wire import Truth

_POOLED = "what is known from any round counts once"


def _counted(unit: Any = COUNT) -> Scale:
    return Scale(unit, "0: nobody is certain by guessing", "exposes nobody", _POOLED)


MEASURES = records(
    "certain disclosures",
    clients_exposed=Measure(
        "Clients exposed",
        "Number of clients of whom an interaction, a rating or the private vector is known for "
        "certain, and is true; under their names, or together under one pseudonym.",
        _counted(),
        Exposed("clients_exposed_share", "largest_profile", floor=10.0),
        LEADS,
        words="knows beyond doubt interactions, ratings or the private vector of "
        "{clients_exposed:.0f} of {clients_judged:.0f} clients",
        said=(0.0, math.inf),
    ),
    largest_profile=Measure(
        "Largest profile exposed",
        "Share of its rated items that are known for certain, of the client who loses most.",
        _counted(SHARE),
        Context("clients_exposed is graded by it", floor=0.3),
    ),
    interactions_exposed=Measure(
        "Interactions exposed",
        "Number of pairs of a client and a rated item that are known for certain, and are true.",
        _counted(),
        Context("it is graded as clients_exposed is", floor=10.0),
    ),
    likely_exposed=Measure(
        "Clients likely exposed",
        "Number of clients of whom something true is claimed whose certainty is not proven, of "
        "those who are not exposed for certain.",
        _counted()._replace(chance="not known: a claim without proof may be right by luck"),
        Context("its certainty is not proven", floor=1.0),
    ),
    disclosures_wrong=Measure(
        "Certain claims that are false",
        "Number of interactions, ratings and vectors that are claimed for certain and are false.",
        _counted()._replace(chance="0: certain means that fewer than 2^-20 are expected"),
        Context(
            "it is a fault of the attack if it is not 0", floor="no attack is planted to be wrong"
        ),
        Page(listed=False),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Disclosures:
    """What is known from one round, of clients with or without a name.

    Args:
        round: which round.
        names: int64[G], the client of each; -1 where it is a pseudonym.
        vectors: float64[G, d], private vectors at the start of the round; zero where none is known.
        solved: bool[G], whether the vector is claimed for certain.
        whose: int64[P], which of them each interaction is of.
        items: int64[P].
        ratings: float64[P], NaN where none is claimed.
        certain: bool[P], whether the interaction is.
        table: private table whose rows begin with the vectors.
        directions: whether vectors are claimed up to their lengths and their sides.
    """

    round: int
    names: IntArray
    vectors: FloatArray
    solved: BoolArray
    whose: IntArray
    items: IntArray
    ratings: FloatArray
    certain: BoolArray
    table: str = "user_vectors"
    directions: bool = False

    @classmethod
    def of_vectors(
        cls, round_: int, names: IntArray, vectors: FloatArray, *, directions: bool = False
    ) -> "Disclosures":
        """Certain vectors alone: int64[G] names, -1 where there is none, and float64[G, d]."""
        none, known = np.zeros(0, dtype=np.int64), np.ones(len(names), dtype=bool)
        return cls(
            round=round_,
            names=names,
            vectors=vectors,
            solved=known,
            whose=none,
            items=none,
            ratings=none.astype(np.float64),
            certain=none.astype(bool),
            directions=directions,
        )

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
    """Such knowledge of several rounds.

    Args:
        parts: one per round.
    """

    parts: tuple[Disclosures, ...]

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by the ratings and the recorded private vectors."""
        train = case.truth.train
        if train is not None:
            yield score_disclosures(self, train, case.truth.recorded, case.corrupted)


def score_disclosures(
    claim: DisclosureClaim, train: RatingTable, recorded: Truth, corrupted: frozenset[int]
) -> Scored:
    """Count whom a claim exposes.

    Args:
        claim: what is known.
        train: the ratings.
        recorded: private vectors by round.
        corrupted: the adversary's own clients; they are not exposed to it.
    """
    rated = train.clients.astype(np.int64) * train.n_items + train.items
    rating_of = dict(zip(rated.tolist(), train.ratings.tolist(), strict=True))
    known: set[int] = set()
    by_vector: set[int] = set()
    likely: set[int] = set()
    wrong = 0
    for part in claim.parts:
        private = recorded.columns(part.round, f"private-{part.table}")
        values = None if private is None else np.asarray(private["values"], dtype=np.float64)
        clients = _true_clients(part, train, values)
        if values is not None and part.solved.any():
            right = _right(part, clients, values) & part.solved
            by_vector |= set(clients[right].tolist())
            wrong += int((part.solved & ~right).sum())
        pairs = _pairs(train, clients[part.whose], part.items)
        told = zip(pairs.tolist(), part.ratings.tolist(), part.certain.tolist(), strict=True)
        for pair, rating, certain in told:
            true = pair in rating_of and (math.isnan(rating) or rating == rating_of[pair])
            if not certain:
                likely |= {pair // train.n_items} if true else set()
            elif true:
                known.add(pair)
            else:
                wrong += 1
    own = set(corrupted)
    known = {pair for pair in known if pair // train.n_items not in own}
    exposed = (by_vector | {pair // train.n_items for pair in known}) - own
    everybody = np.flatnonzero(is_honest(np.arange(train.n_clients), corrupted))
    sizes = np.maximum(train.counts(), 1)
    told_of = np.bincount(np.array(sorted(known), dtype=np.int64) // train.n_items, minlength=1)
    profiles = told_of / sizes[: len(told_of)]
    figures: dict[str, float | None] = {
        "clients_exposed": float(len(exposed)),
        "clients_judged": float(len(everybody)),
        "clients_exposed_share": len(exposed) / max(1, len(everybody)),
        "largest_profile": float(profiles.max(initial=0.0)),
        "interactions_exposed": float(len(known)),
        "likely_exposed": float(len(likely - exposed - own)),
        "disclosures_wrong": float(wrong),
    }
    count = int(sizes[everybody].sum())
    return Scored(
        figures=figures,
        units={"clients": len(everybody), "pairs": count, "positives": len(known)},
        details=_who(figures, exposed),
    )


def _who(figures: Figures, exposed: set[int]) -> Mapping[str, Any]:
    return {"exposed_clients": sorted(exposed), "clients": figures["clients_judged"]}


def _pairs(train: RatingTable, clients: IntArray, items: IntArray) -> IntArray:
    return clients.astype(np.int64) * train.n_items + items


def _true_clients(part: Disclosures, train: RatingTable, values: FloatArray | None) -> IntArray:
    """Who each is: the one named, or whose vector is closest, or who rated most of the items."""
    clients = part.names.copy()
    width = part.vectors.shape[1]
    by_item = np.argsort(train.items, kind="stable")
    ends = np.searchsorted(train.items[by_item], np.arange(train.n_items + 1))
    for who in np.flatnonzero(clients < 0).tolist():
        vector = part.vectors[who]
        if values is not None and vector.any():
            actual = values.reshape(len(values), -1)[:, :width]
            clients[who] = int(np.argmin(_errors(vector, actual, directions=part.directions)))
            continue
        items = part.items[part.whose == who]
        raters = [train.clients[by_item[ends[i] : ends[i + 1]]] for i in items.tolist()]
        votes = np.bincount(np.concatenate([np.zeros(0, dtype=np.int64), *raters]), minlength=1)
        clients[who] = int(votes.argmax())
    return clients


def _errors(vector: FloatArray, actual: FloatArray, *, directions: bool) -> FloatArray:
    """Relative error of a vector as each of the true ones: float64[n]."""
    sizes = np.maximum(np.linalg.norm(actual, axis=1), 1e-300)
    if directions:
        vector, actual, sizes = vector / np.linalg.norm(vector), actual / sizes[:, None], sizes**0
        actual = actual * np.where(actual @ vector < 0, -1.0, 1.0)[:, None]
    return np.asarray(np.linalg.norm(actual - vector, axis=1) / sizes)


def _right(part: Disclosures, clients: IntArray, values: FloatArray) -> BoolArray:
    """Whether each vector is its client's, to the relative error of every claimed one: bool[G]."""
    actual = values.reshape(len(values), -1)[:, : part.vectors.shape[1]]
    return np.array(
        [
            _errors(vector, actual[client][None], directions=part.directions)[0] < VECTOR_ERROR
            for vector, client in zip(part.vectors, clients.tolist(), strict=True)
        ],
        dtype=bool,
    )
