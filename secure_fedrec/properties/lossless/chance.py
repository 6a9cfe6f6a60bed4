"""How much information numbers hold: whether an explanation may fit a difference by chance.

Rows of whole stars are often equal between clients, and a difference of a star or two usually
equals some client's row, whatever its cause. So a fit counts by the bits of information in the
fitting numbers.
"""

from math import comb, log2

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray, WordArray

SURE = 5.0
"""Bits beyond those that identify the client: a chance of one in 32."""

_COUNT = log2(3)
"""Bits of a count that may be one less, equal, or one more."""


def numbers(values: WordArray, bits: int) -> FloatArray:
    """Bits of each row's numbers (uint64[N, d], modulo 2^bits), in their largest common unit."""
    mask = np.uint64(2**bits - 1)
    sizes = np.minimum(values & mask, (0 - values) & mask)
    together = int(np.bitwise_or.reduce(sizes, axis=None))
    unit = np.uint64(max(together & -together, 1))
    found: FloatArray = np.log2(1 + (sizes // unit).astype(np.float64)).sum(axis=1)
    return found


def alike(rows: WordArray | IntArray) -> float:
    """Bits that distinguish two rows, from the share of equal pairs; infinite without any."""
    _, often = np.unique(rows, axis=0, return_counts=True)
    pairs, equal = comb(len(rows), 2), sum(comb(each, 2) for each in often.tolist())
    return log2(pairs / equal) if equal else float("inf")


def sums(difference: WordArray, bits: int, apart: float) -> float:
    """Bits of a difference, counts in its last column.

    Args:
        difference: uint64[m, d + 1].
        bits: bits of the ring.
        apart: most bits of the values of a row, see ``alike``.
    """
    differs, values = difference.any(axis=1), difference[:, :-1]
    if not values.shape[1]:  # without values, only which vectors differ counts
        return float(apart * np.count_nonzero(differs))
    told = np.where(differs, np.minimum(numbers(values, bits), apart), 0.0)
    return float(told.sum() + _COUNT * np.count_nonzero(difference[:, -1]))


def places(differing: int, rows: int) -> float:
    """Bits of the choice of differing rows among all rows."""
    return log2(comb(rows, differing))
