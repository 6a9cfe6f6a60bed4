"""Parting the records of every user into training, validation and test.

Records are ordered by raw words of a PCG64 generator, which are fixed for all numpy versions, and
sorted by (user, item) before a word is given to each: the parts depend on the seed and on the
records, not on the order of a file.
"""

from typing import Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.data.splits import random_words
from secure_fedrec.settings import Settings, Share

TRAIN: Final = 0
VALIDATION: Final = 1
TEST: Final = 2
"""Codes of the parts, places in ``organisations.PARTS``."""

# Keeps this split unrelated to other uses of the same seed (see ``splits``).
_PURPOSE: Final = 3


class SplitShares(Settings, section="data"):
    """How much of every user's records is held out.

    Args:
        test: share of a user's records that are held out to measure on.
        validation: share of the others that are held out to stop training by.

    Raises:
        ConfigError: a share is out of range.
    """

    test: Share = 0.2
    validation: Share = 0.1


def draw_parts(
    users: IntArray,
    items: IntArray,
    *,
    shares: SplitShares,
    seed: int,
    held_out: BoolArray | None = None,
) -> IntArray:
    """Part the records of each user at random.

    Counts are rounded to the nearest integer, halves up. A user keeps at least one training
    record.

    Args:
        users: int64[N], user in the whole data set.
        items: int64[N], item in the whole data set; no pair twice.
        shares: how much is held out.
        seed: seed of the draw, at least 0.
        held_out: bool[N], the test records where a data set names them; nothing else is then drawn
            for test, and users without any other record have no training record.

    Returns:
        int64[N], ``TRAIN``, ``VALIDATION`` or ``TEST``.

    Raises:
        ConfigError: the seed is negative.
    """
    by_pair = np.lexsort((items, users))
    words = np.empty(len(users), dtype=np.uint64)
    words[by_pair] = random_words(seed, _PURPOSE, len(users))
    parts = np.full(len(users), TRAIN, dtype=np.int64)
    if held_out is None:
        _hold_out(parts, users, words, shares.test, TEST)
    else:
        parts[held_out] = TEST
    _hold_out(parts, users, words, shares.validation, VALIDATION)
    return parts


def _hold_out(parts: IntArray, users: IntArray, words: np.ndarray, share: float, code: int) -> None:
    """Gives ``code`` to a share of every user's training records: those of smallest word."""
    free = np.flatnonzero(parts == TRAIN)
    if not len(free):
        return
    order = free[np.lexsort((words[free], users[free]))]
    _, first, inverse, counts = np.unique(
        users[order], return_index=True, return_inverse=True, return_counts=True
    )
    wanted = np.minimum(np.floor(share * counts + 0.5).astype(np.int64), counts - 1)
    rank = np.arange(len(order)) - first[inverse]
    parts[order[rank < wanted[inverse]]] = code
