"""Ring words in the clear, as they travel inside a message: whole words, little-endian."""

from collections.abc import Sequence

import numpy as np

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import WireError
from secure_fedrec.protection.paillier.slots import SlotLayout

__all__ = ["read_words", "write_words"]


def write_words(vectors: Sequence[RingArray]) -> bytes:
    """Vectors of ring words laid end to end, 4 or 8 bytes a word."""
    return b"".join(
        vector.astype(vector.dtype.newbyteorder("<"), copy=False).tobytes() for vector in vectors
    )


def read_words(data: bytes, layouts: Sequence[SlotLayout]) -> tuple[RingArray, ...]:
    """Read what ``write_words`` wrote, one vector per layout.

    Raises:
        WireError: another length, or a word outside its ring.
    """
    sizes = [layout.length * layout.codec.dtype().nbytes for layout in layouts]
    if len(data) != sum(sizes):
        raise WireError(f"ring words of {len(data)} bytes, expected {sum(sizes)}")
    found, place = [], 0
    for layout, size in zip(layouts, sizes, strict=True):
        dtype = np.dtype(layout.codec.dtype)
        raw = np.frombuffer(data, dtype.newbyteorder("<"), layout.length, place)
        if int(raw.max()) >= 2**layout.codec.bits:
            raise WireError(f"a word lies outside the ring of 2^{layout.codec.bits}")
        found.append(raw.astype(dtype))
        place += size
    return tuple(found)
