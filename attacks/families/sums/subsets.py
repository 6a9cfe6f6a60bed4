"""Subset sums: finds which of a few known rows add up to a known sum.

Small ones are tried one by one; up to ``MOST_ROWS`` rows, the sums of two halves are matched
(Horowitz and Sahni 1974). A match of fingerprints is checked in the words themselves.
"""

from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import IntArray, RingArray, WordArray
from secure_fedrec.fixedpoint import FixedPoint

MOST_SUBSETS = 5000
MOST_ROWS = 24
"""Rows among which a subset is searched by halves: 2^12 sums each."""

_AT_ONCE = 2**18  # numbers in a table of subsets, and in the sums of a block


def subset_by_halves(
    rows: tuple[WordArray, RingArray],
    count: int,
    total: tuple[np.uint64, RingArray],
    codec: FixedPoint,
) -> IntArray | None:
    """Rows that add up to a sum, int64[count]; None if there are none, or too many to search.

    Assumes that rows hold enough bits that no other subset has the same sum by chance.

    Args:
        rows: fingerprints of the candidates, uint64[K], linear ones, and their words [K, d].
        count: how many of them stand behind the sum.
        total: fingerprint and words [d] of the sum.
        codec: the ring.
    """
    (prints, words), (target, summed) = rows, total
    for chosen in _by_halves(prints, count, target) if len(prints) <= MOST_ROWS else ():
        found = codec.to_integers(words[chosen]).sum(axis=0)
        if np.array_equal(codec.from_integers(found), summed):
            return chosen
    return None


def table_of_subsets(size: int, count: int) -> IntArray | None:
    """Every subset of so many places, in the order of ``itertools.combinations``.

    Returns:
        int64[C, count]; None where there are more than are tried.
    """
    subsets = comb(size, count)
    if subsets > MOST_SUBSETS:
        return None
    return (_table if subsets * count <= _AT_ONCE else _table.__wrapped__)(size, count)


@lru_cache(maxsize=32)
def _table(size: int, count: int) -> IntArray:
    subsets = list(combinations(range(size), count))
    return np.array(subsets, dtype=np.int64).reshape(len(subsets), count)


def first_subsets(prints: WordArray, targets: WordArray, table: IntArray) -> IntArray:
    """For each of many sums, the first subset whose rows add up.

    Args:
        prints: uint64[N, size], fingerprints of the candidate rows of each sum.
        targets: uint64[N], fingerprints of the sums.
        table: the subsets (``table_of_subsets``).

    Returns:
        int64[N], its place in the table; -1 if it does not occur.
    """
    found = np.empty(len(targets), dtype=np.int64)
    step = max(1, _AT_ONCE // len(table))
    for start in range(0, len(targets), step):
        piece = slice(start, start + step)
        sums = np.zeros((len(targets[piece]), len(table)), dtype=np.uint64)
        for term in table.T:
            sums += prints[piece, term]
        equal = sums == targets[piece, None]
        found[piece] = np.where(equal.any(axis=1), equal.argmax(axis=1), -1)
    return found


def _by_halves(prints: WordArray, count: int, target: np.uint64) -> list[IntArray]:
    """Places of every subset of that size whose fingerprints add up to the target."""
    middle = len(prints) // 2
    left, right = subset_sums(prints[:middle]), subset_sums(prints[middle:])
    order = np.argsort(left, kind="stable")
    wanted = target - right  # modulo 2^64
    first = np.searchsorted(left[order], wanted, side="left")
    last = np.searchsorted(left[order], wanted, side="right")
    found = []
    for other in np.flatnonzero(last > first).tolist():
        for place in order[first[other] : last[other]].tolist():
            marks = place | other << middle
            if marks.bit_count() == count:
                found.append(np.flatnonzero([marks >> k & 1 for k in range(len(prints))]))
    return found


def subset_sums(terms: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Per subset, numbered by the bits of its members: [2^k, ...] of [k, ...]."""
    sums = np.zeros((1, *terms.shape[1:]), dtype=terms.dtype)
    for term in terms:
        sums = np.concatenate([sums, sums + term])
    return sums
