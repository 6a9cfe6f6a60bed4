"""The sum of masked vectors, as they come in.

Adding is limited by memory, not arithmetic: one pass that adds four vectors reads and writes the
sum once instead of four times. So up to three vectors wait for the next one.
"""

from typing import Final

import numpy as np

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.core.compiled import add_four

_AT_ONCE: Final = 4


class RunningSum:
    """A sum modulo the word size.

    Args:
        length: words per vector, d.
        dtype: uint32 or uint64.
    """

    __slots__ = ("_total", "_waiting")

    def __init__(self, length: int, dtype: type[np.uint32] | type[np.uint64]) -> None:
        self._total: RingArray = np.zeros(length, dtype=dtype)
        self._waiting: list[RingArray] = []

    def add(self, words: RingArray) -> None:
        """Take one more vector: [d] of the sum's type, which must not change until it is added.

        Raises:
            ValueError: it has another length or type.
        """
        if words.shape != self._total.shape or words.dtype != self._total.dtype:
            raise ValueError(
                f"the sum is of {self._total.dtype}{self._total.shape}, not "
                f"{words.dtype}{words.shape}"
            )
        self._waiting.append(words)
        if len(self._waiting) == _AT_ONCE:
            add_four(self._total, *self._waiting)
            self._waiting.clear()

    def total(self) -> RingArray:
        """The sum of everything taken so far; the caller may go on with the array in place."""
        for words in self._waiting:
            np.add(self._total, words, out=self._total)
        self._waiting.clear()
        return self._total

    def wipe(self) -> None:
        """Forget the sum and what waits to be added."""
        self._total = np.zeros(0, dtype=self._total.dtype)
        self._waiting.clear()
