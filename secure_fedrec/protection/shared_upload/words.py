"""Ring words as random numbers and as bytes.

Masks are drawn at word width (32 or 64 bits) and cut to the ring's b bits: Z_2^w -> Z_2^b maps
uniform words to uniform ring elements. Only the bytes that hold the low b bits travel.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import FixedPoint

__all__ = ["Keystream", "pack_words", "unpack_words"]


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


def pack_words(words: RingArray, codec: FixedPoint) -> bytes:
    """The low bytes of ring elements, little-endian: ``words.size * codec.bytes_per_value``."""
    whole = codec.dtype().nbytes
    little = np.ascontiguousarray(words).astype(f"<u{whole}", copy=False)
    return little.reshape(-1, 1).view(np.uint8)[:, : codec.bytes_per_value].tobytes()


def unpack_words(data: bytes, rows: int, width: int, codec: FixedPoint) -> RingArray:
    """What ``pack_words`` packed: [rows, width].

    Raises:
        WireError: the data has another length, or a word lies outside the ring.
    """
    size, whole = codec.bytes_per_value, codec.dtype().nbytes
    if len(data) != rows * width * size:
        raise WireError(f"{len(data)} bytes are not {rows} x {width} words of {size} bytes")
    raw = np.zeros((rows * width, whole), dtype=np.uint8)
    raw[:, :size] = np.frombuffer(data, np.uint8).reshape(-1, size)
    words: RingArray = raw.view(f"<u{whole}").reshape(rows, width).astype(codec.dtype)
    if words.size and int(words.max()) >= 2**codec.bits:
        raise WireError(f"a word lies outside the ring of 2^{codec.bits}")
    return words
