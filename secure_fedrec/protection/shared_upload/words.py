"""Uniform ring words.

They are drawn at word width (32 or 64 bits) and cut to the ring's b bits: Z_2^w -> Z_2^b maps
uniform words to uniform ring elements.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.fixedpoint import FixedPoint


class Keystream:
    """Uniform ring elements from AES-256 in counter mode.

    Args:
        key: 32 secret bytes that are used for nothing else; the counter starts at zero.
    """

    __slots__ = ("_encryptor",)

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def draw(self, rows: int, width: int, codec: FixedPoint) -> RingArray:
        """The next [rows, width] elements of the ring of ``codec``."""
        size = rows * width * codec.dtype().nbytes
        out = bytearray(size + 15)  # pyca asks for a spare block less one byte
        self._encryptor.update_into(bytes(size), out)
        words = np.frombuffer(out, f"<u{codec.dtype().nbytes}", rows * width)
        return codec.reduce(words.reshape(rows, width).astype(codec.dtype, copy=False))
