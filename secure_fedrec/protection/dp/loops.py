"""Compiled inner loops of the noise layer; ``sampler``, ``rotation`` and ``rounding`` call them."""

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray, WordArray
from secure_fedrec.core.compiled import compiled_loop


@compiled_loop
def invert(
    words: WordArray, high: WordArray, guide: IntArray, shift: int, draws: IntArray, ties: IntArray
) -> int:
    """Table inversion: the first magnitude whose threshold exceeds the word; its sign from bit 0.

    Where the 63 bits of a word equal the upper bits of a threshold the lower bits decide; such
    places are written to ``ties`` (the first ``len(ties)`` of them) and left for the caller.

    Args:
        words: uint64[N], uniform.
        high: uint64[K + 1], see ``NoiseTable``.
        guide: int64[2^g + 1], first magnitude to look at for each value of the top g bits.
        shift: 63 - g.
        draws: int64[N], written.
        ties: int64[...], written.

    Returns:
        Number of ties.
    """
    found = 0
    for place in range(len(words)):
        word = words[place] >> np.uint64(1)
        cell = word >> np.uint64(shift)
        first, last = guide[cell], guide[cell + np.uint64(1)]
        # The answer is in [first, last]: a few steps of bisection in the tails, none in the middle.
        while first < last:
            middle = (first + last) // 2
            if high[middle] < word:
                first = middle + 1
            else:
                last = middle
        if high[first] == word:
            if found < len(ties):
                ties[found] = place
            found += 1
        draws[place] = -first if words[place] & np.uint64(1) else first
    return found


@compiled_loop
def hadamard(values: FloatArray) -> None:
    """In place, ``values = H values / sqrt(n)`` for the Walsh-Hadamard matrix; n a power of two."""
    size = len(values)
    half = 1
    while half < size:
        for start in range(0, size, 2 * half):
            for place in range(start, start + half):
                one, other = values[place], values[place + half]
                values[place] = one + other
                values[place + half] = one - other
        half *= 2
    shrink = 1.0 / np.sqrt(float(size))
    for place in range(size):
        values[place] *= shrink


@compiled_loop
def round_up_or_down(values: FloatArray, words: WordArray, integers: IntArray) -> None:
    """Round each value up with the probability of its fractional part.

    Magnitudes are below 2^31 (the caller's check). The probability is the fraction cut to 53 bits.
    """
    for place in range(len(values)):
        floor = np.floor(values[place])
        above = (values[place] - floor) * 9007199254740992.0
        up = np.float64(words[place] >> np.uint64(11)) < above
        integers[place] = np.int64(floor) + (1 if up else 0)
