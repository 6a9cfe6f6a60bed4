"""Uniform ring words.

They are drawn at word width (32 or 64 bits) and cut to the ring's b bits: Z_2^w -> Z_2^b maps
uniform words to uniform ring elements.
"""

import numpy as np

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.keystream import Keystream


class UniformWords:
    """Uniform ring elements from AES-256 in counter mode.

    Args:
        key: 32 secret bytes that are used for nothing else; the counter starts at zero.
    """

    def __init__(self, key: bytes) -> None:
        self._stream = Keystream(key)

    def draw(self, rows: int, width: int, codec: FixedPoint) -> RingArray:
        """The next [rows, width] elements of the ring of ``codec``.

        Raises:
            ValueError: the stream has ended, after 2^36 bytes.
        """
        words = np.empty((rows, width), dtype=f"<u{codec.dtype().nbytes}")
        self._stream.fill(words.data)
        return codec.reduce(words.astype(codec.dtype, copy=False))
