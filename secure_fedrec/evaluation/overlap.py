"""How similarly two rankings begin: rank-biased overlap (Webber, Moffat and Zobel 2010).

    RBO_ext(S, T, p, k) = (X_k / k) p^k + ((1 - p) / p) sum_{d=1..k} (X_d / d) p^d,

X_d the number of items that both have among their first d. The *extrapolated* form assumes that the
agreement at depth k continues below it, so that two rankings that are equal to depth k score 1:
Fed3CR reads its figure 6 that way ("1 indicates that the lists are completely identical"). The base
form is the sum alone: with p = 0.98 it gives two equal lists of 50 items 1 - p^50 = 0.64. Fed3CR
leaves its p open; 0.98 gives the first 50 ranks the weight that 0.9 gives the first 10 (0.85,
eq. 21 there), and is a parameter here.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import FloatArray, IntArray

DEPTH: Final = 50
"""Items of a ranking that Fed3CR compares."""

PERSISTENCE: Final = 0.98
"""p: probability that a reader goes on from one rank to the next."""


def top_items(scores: npt.NDArray[np.floating], depth: int = DEPTH) -> IntArray:
    """Items with the largest scores, best first; of equal scores the smaller number first.

    Args:
        scores: float[B, m], finite.
        depth: 1 to m.

    Returns:
        int64[B, depth].

    Raises:
        ValueError: there are fewer items, or a score is not finite.
    """
    if not 1 <= depth <= scores.shape[1]:
        raise ValueError(f"a ranking of {scores.shape[1]} items has no depth {depth}")
    if not np.isfinite(scores).all():
        raise ValueError("a score is not finite")
    return np.argsort(-scores, axis=1, kind="stable")[:, :depth].astype(np.int64)


def rank_biased_overlap(
    first: npt.NDArray[np.integer],
    second: npt.NDArray[np.integer],
    *,
    persistence: float = PERSISTENCE,
) -> FloatArray:
    """Extrapolated rank-biased overlap of pairs of rankings.

    Args:
        first: int[B, k], distinct items in each row, best first.
        second: int[B, k].
        persistence: p, 0 < p < 1.

    Returns:
        float64[B], 0 (no common item) to 1 (equal).

    Raises:
        ValueError: the shapes differ, an item occurs twice in a row, or p is out of range.
    """
    if first.shape != second.shape or first.ndim != 2 or not first.shape[1]:
        raise ValueError(f"{first.shape} and {second.shape} rankings cannot be compared")
    if not 0.0 < persistence < 1.0:
        raise ValueError(f"persistence must lie strictly between 0 and 1, not {persistence}")
    for rows in (first, second):
        ordered = np.sort(rows, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            raise ValueError("an item occurs twice in a ranking")
    rows, depth = first.shape
    shared = np.zeros((rows, depth))
    # The item at this place of the first ranking, at any place of the second.
    for place in range(depth):
        row, where = np.nonzero(second == first[:, place : place + 1])
        np.add.at(shared, (row, np.maximum(where, place)), 1.0)
    depths = np.arange(1, depth + 1)
    agreement = np.cumsum(shared, axis=1) / depths
    weights = (1 - persistence) * persistence ** (depths - 1.0)
    return np.asarray(agreement[:, -1] * persistence**depth + (agreement * weights).sum(axis=1))
