"""Ring words on the wire: only the low b bits of each travel.

Values follow one another without gaps, least significant bit first; the bits left over in the last
byte are zero, so a vector has exactly one encoding.
"""

import math

import numpy as np

from secure_fedrec.core.arrays import RingArray, WordArray
from secure_fedrec.errors import ProtocolError


def word_type(bits: int) -> type[np.uint32] | type[np.uint64]:
    """Array type that holds elements of Z_2^bits."""
    return np.uint32 if bits <= 32 else np.uint64


def packed_size(length: int, bits: int) -> int:
    """Bytes of ``length`` packed values."""
    return (length * bits + 7) // 8


def pack(words: RingArray, bits: int) -> memoryview:
    """Encode the low bits of ring words; higher bits are ignored.

    Args:
        words: contiguous uint32[d] (bits <= 32) or uint64[d].
        bits: ring width b, 1 to 64.

    Returns:
        ``packed_size(d, bits)`` bytes; they share memory with ``words`` where nothing is cut.
    """
    if bits == 8 * words.itemsize:
        return words.astype(f"<u{words.itemsize}", copy=False).view(np.uint8).data
    period = _period(bits)
    values = np.zeros((-(-len(words) // period), period), dtype=np.uint64)
    values.reshape(-1)[: len(words)] = words
    values &= np.uint64(2**bits - 1)
    packed = np.zeros((len(values), period * bits // 64), dtype="<u8")
    for place in range(period):
        word, shift = divmod(place * bits, 64)
        packed[:, word] |= values[:, place] << np.uint64(shift)
        if shift + bits > 64:
            packed[:, word + 1] |= values[:, place] >> np.uint64(64 - shift)
    return packed.view(np.uint8).reshape(-1)[: packed_size(len(words), bits)].data


def unpack(data: bytes | memoryview, length: int, bits: int) -> RingArray:
    """Decode packed values.

    Returns:
        uint32[length] (bits <= 32) or uint64[length]; read-only where it shares memory with
        ``data``.

    Raises:
        ProtocolError: other than ``packed_size(length, bits)`` bytes, or a bit set in the padding.
    """
    size = packed_size(length, bits)
    if len(data) != size:
        raise ProtocolError(f"{length} values of {bits} bits take {size} bytes, got {len(data)}")
    dtype = np.dtype(word_type(bits))
    if bits == 8 * dtype.itemsize:
        return np.frombuffer(data, dtype=dtype.newbyteorder("<")).astype(dtype, copy=False)
    spare = -length * bits % 8
    if spare and data[-1] >> (8 - spare):
        raise ProtocolError("the padding of a packed vector must be zero")
    return _spread(data, length, bits).astype(dtype, copy=False)


def _spread(data: bytes | memoryview, length: int, bits: int) -> WordArray:
    period = _period(bits)
    groups = -(-length // period)
    padded = np.zeros(groups * period * bits // 8, dtype=np.uint8)
    padded[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    packed = padded.view("<u8").reshape(groups, period * bits // 64)
    values = np.empty((groups, period), dtype=np.uint64)
    for place in range(period):
        word, shift = divmod(place * bits, 64)
        values[:, place] = packed[:, word] >> np.uint64(shift)
        if shift + bits > 64:
            values[:, place] |= packed[:, word + 1] << np.uint64(64 - shift)
    values &= np.uint64(2**bits - 1)
    return values.reshape(-1)[:length]


def _period(bits: int) -> int:
    """The fewest values that fill whole words of 64 bits."""
    return 64 // math.gcd(bits, 64)
