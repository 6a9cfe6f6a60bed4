"""Ring words in the clear, one vector after the other, as they are sent in a message."""

from collections.abc import Sequence

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import WireError
from secure_fedrec.protection.paillier.scheme.slots import SlotLayout
from secure_fedrec.wire.words import pack_words, unpack_words


def words_bytes(layouts: Sequence[SlotLayout]) -> int:
    """Size of one vector per layout."""
    return sum(layout.length * layout.codec.bytes_per_value for layout in layouts)


def write_words(vectors: Sequence[RingArray], layouts: Sequence[SlotLayout]) -> bytes:
    """Concatenated vectors of ring words."""
    pairs = zip(vectors, layouts, strict=True)
    return b"".join(pack_words(vector, layout.codec) for vector, layout in pairs)


def read_words(data: bytes, layouts: Sequence[SlotLayout]) -> tuple[RingArray, ...]:
    """Read what ``write_words`` wrote, one vector per layout.

    Raises:
        WireError: another length, or a word outside its ring.
    """
    if len(data) != words_bytes(layouts):
        raise WireError(f"ring words of {len(data)} bytes, expected {words_bytes(layouts)}")
    found = []
    for layout in layouts:
        mine, data = data[: words_bytes([layout])], data[words_bytes([layout]) :]
        found.append(unpack_words(mine, layout.length, 1, layout.codec).reshape(-1))
    return tuple(found)
