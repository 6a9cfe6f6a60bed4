"""Drawing from a noise table: AES-256 in counter mode under a fresh key of the operating system.

Each call draws its own key. No state is kept between calls, so two processes forked from one cannot
draw the same noise, and the draws of different calls are independent.

The number of steps of a draw depends on its magnitude (a few steps of bisection in the tails), and
table look-ups touch memory that depends on it. An adversary who can time single draws or watch the
caches of the client's machine is outside the threat model; one who sees messages is not.
"""

import secrets

import numpy as np

from secure_fedrec.core.arrays import IntArray, WordArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.protection.dp.tables import NoiseTable
from secure_fedrec.protection.keystream import Keystream

_CHUNK = 2**15  # words at a time: 256 KiB stay in the second-level cache
_MOST_TIES = 64


def secret_words(count: int) -> WordArray:
    """uint64[count], uniform: AES-256-CTR under a fresh key of the operating system."""
    out = np.empty(count, dtype="<u8")
    Keystream(secrets.token_bytes(32)).fill(out.data)
    return out


def draw_noise(table: NoiseTable, count: int) -> IntArray:
    """Independent draws of the table's noise.

    Args:
        table: see ``noise_table``.
        count: how many.

    Returns:
        int64[count], in ring units.
    """
    draws = np.empty(count, dtype=np.int64)
    words = secret_words(count)
    for start in range(0, count, _CHUNK):
        part = slice(start, start + _CHUNK)
        look_up(table, words[part], draws[part])
    return draws


def look_up(table: NoiseTable, words: WordArray, draws: IntArray) -> None:
    """The draws for given words; ties are decided by 64 further secret bits each."""
    shift = 64 - len(table.guide).bit_length()
    ties = np.empty(_MOST_TIES, dtype=np.int64)
    found = invert(words, table.high, table.guide, shift, draws, ties)
    if found > len(ties):
        ties = np.empty(found, dtype=np.int64)
        invert(words, table.high, table.guide, shift, draws, ties)
    for place, low in zip(ties[:found].tolist(), secret_words(found).tolist(), strict=True):
        magnitude = _settle(table, int(words[place]) >> 1, low)
        draws[place] = -magnitude if int(words[place]) & 1 else magnitude


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


def _settle(table: NoiseTable, high: int, low: int) -> int:
    """The first magnitude with (high, low) < threshold; several may share their upper bits."""
    magnitude = int(np.searchsorted(table.high, np.uint64(high), side="left"))
    while (high << 64) + low >= table.threshold(magnitude):
        magnitude += 1
    return magnitude
