"""The message of a client's vectors, under its name and signature.

"SFBG", then an envelope (``session.envelope``, family ``BAGS``) whose body is, for every bag in
order, u32 vectors | their words, packed to the ring's bits; little-endian.
"""

from collections.abc import Mapping
from enum import IntEnum
from hashlib import sha256

import numpy as np

from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import pack, packed_size, unpack
from secure_fedrec.protection.bags.embedded import LayeredBags
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.session import Identity
from secure_fedrec.protection.session.envelope import Family, SignedMessages
from secure_fedrec.uploads import SetBlock

MAGIC = b"SFBG"


_DOMAIN = b"secure-fedrec|v1|bags|"


class BagKind(IntEnum):
    """Kinds of messages."""

    VECTORS = 1


def messages_of(at: Standing) -> SignedMessages:
    """All messages of an attempt, with the context to which they are bound."""
    context = sha256(_DOMAIN + at.series + at.roster.hash + at.statement.digest).digest()
    return SignedMessages(Family.BAGS, BagKind, at.roster, at.serial, context)


def seal_vectors(
    channel: LayeredBags, at: Standing, identity: Identity, given: Mapping[str, SetBlock]
) -> bytes:
    """The message of a client's vectors by bag.

    Raises:
        WireError: vectors have no values.
        EncodingError: a value cannot be encoded.
    """
    body = b"".join(encode_vectors(channel, name, given[name]) for name in channel.bags)
    return MAGIC + messages_of(at).seal(BagKind.VECTORS, body, identity)


def encode_vectors(channel: LayeredBags, name: str, given: SetBlock) -> bytes:
    """One client's vectors for a bag.

    Raises:
        WireError: its vectors have no values.
        EncodingError: a value cannot be encoded.
    """
    words = channel.protect(name, given).values
    if words is None:
        raise WireError(f"bag {name!r}: vectors without values")
    packed = pack(np.ascontiguousarray(words).reshape(-1), channel.codec.bits)
    return len(words).to_bytes(4, "little") + bytes(packed)


def decode_vectors(channel: LayeredBags, body: bytes) -> dict[str, SetBlock]:
    """The vectors of one client by bag.

    Raises:
        WireError: another length, or more vectors than a client may give.
    """
    found, start, bits = {}, 0, channel.codec.bits
    for name, shape in channel.bags.items():
        count = int.from_bytes(body[start : start + 4], "little")
        end = start + 4 + packed_size(count * shape.width, bits)
        if count > shape.most or end > len(body):
            raise WireError(f"bag {name!r}: {count} vectors in {len(body)} bytes")
        words = unpack(body[start + 4 : end], count * shape.width, bits)
        found[name] = SetBlock(
            indptr=np.array([0, count]), values=words.reshape(count, shape.width)
        )
        start = end
    if start != len(body):
        raise WireError("bytes behind the last bag")
    return found
