"""Whether two independently learned spaces arrange users similarly (FURL, figures 4, 5).

The axes of two independently trained embeddings are unrelated, so the similarities *between users*
are compared instead of vectors: the representational similarity correlation is the rank correlation
of the cosines of all pairs of users in one space with those in the other. There are two controls
that are unrelated to the users: the same vectors in another order, and random vectors.
"""

from dataclasses import dataclass

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.evaluation.ranking import midranks

_CONFIDENCE = 0.95
_FEWEST_USERS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityReport:
    """Correlation of two spaces beside its controls.

    Args:
        correlation: representational similarity correlation, -1 to 1.
        low: lower end of the 95 % bootstrap interval over users.
        high: upper end.
        permuted: the largest correlation met with the users of one space permuted.
        untrained: the largest met between the first space and random vectors.
    """

    correlation: float
    low: float
    high: float
    permuted: float
    untrained: float


def representational_similarity(first: FloatArray, second: FloatArray) -> float:
    """Spearman correlation of the cosines of all pairs of users in two spaces.

    Args:
        first: float64[U, d], U at least 3.
        second: float64[U, e].

    Raises:
        ValueError: the spaces have different users, or one has a zero vector, which has no
            direction, or only equal cosines, which have no order.
    """
    if len(first) != len(second) or len(first) < 3:
        raise ValueError(f"{len(first)} and {len(second)} users: need as many, at least 3")
    left, right = np.triu_indices(len(first), 1)
    return _spearman(_cosines(first)[left, right], _cosines(second)[left, right])


def compare_representations(
    first: FloatArray, second: FloatArray, *, seed: int, resamples: int = 200, controls: int = 20
) -> SimilarityReport:
    """The correlation of two spaces, its interval over users, and its controls.

    Args:
        first: float64[U, d], U at least 10.
        second: float64[U, e].
        seed: seed of resampling and controls.
        resamples: bootstrap samples of users; a pair of copies of one user does not count.
        controls: permutations, and sets of random vectors, that are tried.

    Raises:
        ValueError: as for ``representational_similarity``, or there are too few users to resample.
    """
    if len(first) < _FEWEST_USERS:
        raise ValueError(f"{len(first)} users: an interval needs at least {_FEWEST_USERS}")
    rng = np.random.default_rng(seed)
    correlation = representational_similarity(first, second)
    one, other = _cosines(first), _cosines(second)
    drawn = [
        _resampled(one, other, rng.integers(len(first), size=len(first))) for _ in range(resamples)
    ]
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    permuted = [
        representational_similarity(first, second[rng.permutation(len(second))])
        for _ in range(controls)
    ]
    untrained = [
        representational_similarity(first, rng.standard_normal(second.shape))
        for _ in range(controls)
    ]
    return SimilarityReport(
        correlation=correlation,
        low=float(low),
        high=float(high),
        permuted=max(permuted),
        untrained=max(untrained),
    )


def _resampled(one: FloatArray, other: FloatArray, users: IntArray) -> float:
    left, right = np.triu_indices(len(users), 1)
    distinct = users[left] != users[right]
    pairs = users[left[distinct]], users[right[distinct]]
    return _spearman(one[pairs], other[pairs])


def _cosines(vectors: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(vectors, axis=1)
    if not lengths.all() or not np.isfinite(lengths).all():
        user = int(np.flatnonzero(~(lengths > 0) | ~np.isfinite(lengths))[0])
        raise ValueError(f"the vector of user {user} has no direction")
    unit = vectors / lengths[:, None]
    return np.asarray(unit @ unit.T)


def _spearman(one: FloatArray, other: FloatArray) -> float:
    ranks = [midranks(values) for values in (one, other)]
    centred = [values - values.mean() for values in ranks]
    scale = np.sqrt(np.sum(centred[0] ** 2) * np.sum(centred[1] ** 2))
    if not scale:
        raise ValueError("all cosines of a space are equal")
    return float(np.sum(centred[0] * centred[1]) / scale)
