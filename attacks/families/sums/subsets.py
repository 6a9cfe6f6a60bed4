"""Subset sums: which of a few known rows add up to a known sum.

Small ones are tried one by one; up to ``MOST_ROWS`` rows, the sums of two halves are matched
(Horowitz and Sahni 1974). A match of fingerprints is checked in the words themselves.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray, WordArray
from secure_fedrec.fixedpoint import FixedPoint

MOST_SUBSETS = 5000
MOST_ROWS = 24
"""Rows among which a subset is searched by halves: 2^12 sums each."""

_MASK = 2**64 - 1
_AT_ONCE = 2**18  # numbers in a table of subsets, and in the sums of a block


def find_subset(
    members: Sequence[int],
    count: int,
    *,
    prints: Sequence[int] | Mapping[int, int],
    words: RingArray,
    total: RingArray,
    target: int,
    codec: FixedPoint,
    halves: bool,
) -> tuple[int, ...] | None:
    """The members whose rows add up to a sum, or None.

    Args:
        members: positions of the candidate rows.
        count: how many of them stand behind the sum.
        prints: linear fingerprint of each row, by its position.
        words: [N, d] ring words of every row.
        total: [d] ring words of the sum.
        target: fingerprint of the sum.
        codec: the ring.
        halves: also search where there are too many subsets to try; the rows must hold so many bits
            that no other subset of ``MOST_ROWS`` of them has the same sum by chance.
    """
    if not 0 <= count <= len(members):
        return None
    if comb(len(members), count) <= MOST_SUBSETS:
        for subset in combinations(members, count):
            if sum(prints[p] for p in subset) & _MASK == target:
                return subset
        return None
    if not halves or len(members) > MOST_ROWS:
        return None
    for chosen in _by_halves([prints[p] for p in members], count, target):
        subset = tuple(np.asarray(members)[chosen].tolist())
        found = codec.to_integers(words[list(subset)]).sum(axis=0)
        if np.array_equal(codec.from_integers(found), total):
            return subset
    return None


def table_of_subsets(size: int, count: int) -> IntArray | None:
    """Every subset of so many places, in the order of ``itertools.combinations``.

    Returns:
        int64[C, count]; None where there are more than are tried, or more than a table holds.
    """
    subsets = comb(size, count)
    if subsets > MOST_SUBSETS or subsets * count > _AT_ONCE:
        return None
    return _table(size, count)


@lru_cache(maxsize=32)
def _table(size: int, count: int) -> IntArray:
    subsets = list(combinations(range(size), count))
    return np.array(subsets, dtype=np.int64).reshape(len(subsets), count)


def first_subsets(prints: WordArray, targets: WordArray, table: IntArray) -> IntArray:
    """For each of many sums, the first subset that ``find_subset`` tries and whose rows add up.

    Args:
        prints: uint64[N, size], fingerprints of the candidate rows of each sum.
        targets: uint64[N], fingerprints of the sums.
        table: the subsets (``table_of_subsets``).

    Returns:
        int64[N], its place in the table; -1 where there is none.
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


def _by_halves(prints: Sequence[int], count: int, target: int) -> list[IntArray]:
    """Places of every subset of that size whose fingerprints add up to the target."""
    middle = len(prints) // 2
    left, right = _sums(prints[:middle]), _sums(prints[middle:])
    order = np.argsort(left, kind="stable")
    wanted = np.uint64(target) - right  # modulo 2^64
    first = np.searchsorted(left[order], wanted, side="left")
    last = np.searchsorted(left[order], wanted, side="right")
    found = []
    for other in np.flatnonzero(last > first).tolist():
        for place in order[first[other] : last[other]].tolist():
            marks = place | other << middle
            if marks.bit_count() == count:
                found.append(np.flatnonzero([marks >> k & 1 for k in range(len(prints))]))
    return found


def _sums(prints: Sequence[int]) -> WordArray:
    """uint64[2^n]: the sum of every subset, modulo 2^64; bit k of a place stands for print k."""
    sums = np.zeros(1, dtype=np.uint64)
    for each in prints:
        sums = np.concatenate([sums, sums + np.uint64(each)])
    return sums
