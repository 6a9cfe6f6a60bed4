"""Figures of claimed private vectors: their closeness, and the clients that they identify.

A vector is *re-identified* if, of the private vectors of all clients, the true one points closest
in its direction. Directions are compared because a vector read from several training steps is more
accurate in direction than in length. If several clients have equal vectors (as all do before the
first training), the adversary guesses among them, and the probability of a right guess counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from attacks.base import need
from attacks.scoring.chance import beside_sums, hit_interval, hit_null, unit
from attacks.scoring.gains import Figures, Gain, Persons, interval_figures
from attacks.scoring.truth import ALL_CORRUPTED, Case, Scored, is_honest, require_finite
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import RatingTable

VECTOR_ERROR = 1e-3
"""A vector counts as recovered to a relative error below this."""

_CELLS = 1 << 20
"""Number of cosines held at once, which fit in a processor's cache."""

_DENSE = 3

_TIE = 1e-12  # cosines of equal vectors differ by rounding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VectorClaim:
    """Private vectors of clients at the start of a round.

    Args:
        round: which round.
        clients: int64[B].
        vectors: float64[B, d].
        table: name of the private table whose rows begin with them.
        of_items: whether that table holds a row per item of every client instead, and the vector
            is their mean over the client's training items.
        told: bool[B], clients about which something is known. For the others a random direction is
            drawn, and they do not count as persons. None for all.
    """

    round: int
    clients: IntArray
    vectors: FloatArray
    table: str = "user_vectors"
    of_items: bool = False
    told: BoolArray | None = None

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by the private vectors that were recorded.

        - ``user_vector_share``: recovered to a relative error below 1e-3;
        - ``user_vector_cosine``: the median over clients of the cosine to the true vector;
        - ``vector_cosine``: its mean; ``_chance``: the mean cosine to the other clients' vectors;
          ``_lift``: the mean over clients of the difference;
        - ``reidentified_share``; ``_chance``: one over the number of clients; ``_lift``.

        The adversary's own clients are neither judged nor candidates.

        Raises:
            ValueError: a claimed vector is not finite.
        """
        train, seed = case.truth.train, case.seed
        columns = case.truth.recorded.columns(self.round, f"private-{self.table}")
        if columns is None or (self.of_items and train is None):
            unknown = (
                "user_vector_share",
                "user_vector_cosine",
                "vector_cosine",
                "reidentified_share",
            )
            yield Scored(figures=dict.fromkeys(unknown), units={})
            return
        honest = is_honest(self.clients, case.corrupted)
        need(honest.any(), ALL_CORRUPTED)
        values = columns["values"]
        if self.of_items and train is not None:
            values = _means(values, train)
        everybody = np.arange(len(values))
        candidates = everybody[is_honest(everybody, case.corrupted)]
        actual = values.reshape(len(everybody), -1)[candidates, : self.vectors.shape[1]]
        claimed = self.vectors[honest]
        require_finite("claimed vectors", claimed)
        own = np.searchsorted(candidates, self.clients[honest])
        rng = np.random.default_rng(seed)
        shuffled = rng.permutation(len(candidates))[own]
        told = claimed.any(axis=1)
        if self.told is not None:
            told &= self.told[honest]
            claimed = np.where(self.told[honest][:, None], claimed, rng.normal(size=claimed.shape))
        compared = _compared(unit(claimed), unit(actual.astype(float)), own, shuffled)
        to_own, sums, odds, dealt, to_next = compared
        size = len(candidates)
        direction, gains = beside_sums("vector_cosine", to_own, sums, size, seed=seed, span=2.0)
        figures = _closeness(claimed, actual[own]) | direction
        chance = 1.0 / len(candidates)
        share = hit_interval(odds, seed=seed)
        figures |= {**interval_figures("reidentified_share", share), "reidentified_chance": chance}
        yield Scored(
            figures=figures,
            gains={
                **gains,
                "reidentified_lift": Gain(odds - chance, guesses=True),
                "reidentified_clients": _named(to_own[told], to_next[told], size, claimed.shape[1]),
            },
            units={"clients": len(own), "pairs": len(own) * len(candidates), "positives": len(own)},
            null_control=hit_null("reidentified_share", dealt, chance),
        )


def _named(to_own: FloatArray, to_next: FloatArray, size: int, width: int) -> Persons:
    """Clients whose own vector is the only closest one to the claimed vector.

    Model: each candidate is equally likely to be the closest, and the distance of the next one
    gives the density of candidates near a claim, in at most three dimensions.

    Args:
        to_own: float64[B], cosine of each claim to its client's vector.
        to_next: float64[B], to the closest other one.
        size: number of candidates.
        width: width of a vector.
    """
    away, beside = (np.maximum(1.0 - each, _TIE) for each in (to_own, to_next))
    # 1 - cosine grows with the squared distance.
    nearer = np.minimum(0.5 * np.log(away / beside), 0.0)
    odds = min(width - 1, _DENSE) * nearer * (size > 1) - np.log(size)
    return Persons(to_own > to_next + _TIE, odds, guesses=True)


def _means(tables: FloatArray, train: RatingTable) -> FloatArray:
    """Mean of every client's rows over its training items: float64[n, d] of [n, m, d]."""
    means = np.zeros((len(tables), tables.shape[2]))
    np.add.at(means, train.clients, tables[train.clients, train.items])
    return np.asarray(means / np.maximum(train.counts(), 1)[:, None])


def _closeness(claimed: FloatArray, actual: FloatArray) -> Figures:
    """Relative error and cosine, as one number each."""
    size = np.linalg.norm(actual, axis=1)
    error = np.linalg.norm(claimed - actual, axis=1)
    product = size * np.linalg.norm(claimed, axis=1)
    along, cosine = (claimed * actual).sum(axis=1), np.zeros(len(size))
    np.divide(along, product, out=cosine, where=product > 0)
    return {
        "user_vector_share": float(np.mean(error < VECTOR_ERROR * size)),
        "user_vector_cosine": float(np.median(cosine)),
    }


def _compared(
    claimed: FloatArray, actual: FloatArray, own: IntArray, shuffled: IntArray
) -> tuple[FloatArray, ...]:
    """Each claim compared with all candidates, in batches that fit in memory.

    Returns:
        float64[B] each: cosine to the own vector, sum of all cosines, probability of naming the own
        client and a shuffled one, cosine to the closest other vector.
    """
    # No block of a single row: the library multiplies it by another loop, with other last bits.
    blocks = max(1, min(len(claimed) // 2, len(claimed) * len(actual) // _CELLS))
    bounds = np.linspace(0, len(claimed), blocks + 1).astype(np.int64).tolist()
    parts = []
    for block in (slice(*each) for each in pairwise(bounds)):
        cosines = claimed[block] @ actual.T
        closest = cosines >= cosines.max(axis=1, keepdims=True) - _TIE
        among = np.count_nonzero(closest, axis=1)
        odds = [closest[np.arange(len(among)), each[block]] / among for each in (own, shuffled)]
        cosines[np.arange(len(among)), own[block]] = -1.0
        parts.append([*odds, cosines.max(axis=1)])
    # Row by row, since the last bits of a library's product depend on the block.
    to_own = (claimed * actual[own]).sum(axis=1)
    parallel = np.abs(to_own) > 1.0 - _TIE  # rounding alone must not tell equal ones apart
    to_own = np.where(parallel, np.sign(to_own), to_own)
    sums = (claimed * actual.sum(axis=0)).sum(axis=1)
    return (to_own, sums, *(np.concatenate(each) for each in zip(*parts, strict=True)))
