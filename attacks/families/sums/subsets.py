"""Subset sums: which of a few known rows add up to a known sum.

Small ones are tried one by one; up to ``MOST_ROWS`` rows, the sums of two halves are matched
(Horowitz and Sahni 1974). A match of fingerprints is checked in the words themselves.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray, WordArray
from secure_fedrec.fixedpoint import FixedPoint

MOST_SUBSETS = 5000
MOST_ROWS = 24
"""Rows among which a subset is searched by halves: 2^12 sums each."""

_MASK = 2**64 - 1


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
