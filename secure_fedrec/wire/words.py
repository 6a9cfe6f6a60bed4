"""Ring words inside a message: the bytes that hold the low b bits of each, little-endian."""

import numpy as np

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import FixedPoint, pack, unpack


def pack_words(words: RingArray, codec: FixedPoint) -> bytes:
    """``words.size * codec.bytes_per_value`` bytes."""
    whole = np.ascontiguousarray(words).reshape(-1)
    return pack(whole, 8 * codec.bytes_per_value).tobytes()


def unpack_words(data: bytes, rows: int, width: int, codec: FixedPoint) -> RingArray:
    """Inverse of ``pack_words``: [rows, width].

    Raises:
        WireError: the data has another length, or a word lies outside the ring.
    """
    size = codec.bytes_per_value
    if len(data) != rows * width * size:
        raise WireError(f"{len(data)} bytes are not {rows} x {width} words of {size} bytes")
    words = unpack(data, rows * width, 8 * size).astype(codec.dtype).reshape(rows, width)
    require_words(words, codec)
    return words


def require_words(words: RingArray, codec: FixedPoint) -> None:
    """Refuse words outside the ring.

    Raises:
        WireError: a word lies outside the ring.
    """
    if words.size and int(words.max()) >= 2**codec.bits:
        raise WireError(f"a word lies outside the ring of 2^{codec.bits}")
