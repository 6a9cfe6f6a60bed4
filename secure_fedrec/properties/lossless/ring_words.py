"""Encoded rows as unsigned words, counts in the last column."""

import numpy as np

from secure_fedrec.core.arrays import IntArray, WordArray
from secure_fedrec.fixedpoint import FixedPoint


def words_of(values: IntArray, counts: IntArray) -> WordArray:
    """uint64[N, d + 1], counts in the last column."""
    return np.column_stack([values, counts]).astype(np.int64).view(np.uint64)


def reduced(words: WordArray, ring: FixedPoint) -> WordArray:
    """Sums modulo 2^bits; counts as they are."""
    found = words.copy()
    found[:, :-1] &= np.uint64(2**ring.bits - 1)
    return found
