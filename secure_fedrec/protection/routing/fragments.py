"""Messages cut into pieces of one size, and put together again at the recipient.

What a recipient finds inside a cell, version 1, little-endian:

    u8 version | u8 kind | u16 0 | u32 index | u32 count | u32 length | 16 bytes message id
    payload [length] | zeros to the end

All pieces but the last of a message are full. A cover piece (``Kind.DUMMY``, ``Kind.LOOP``) has no
payload. Every piece has exactly one encoding; other bytes are refused.
"""

import secrets
import struct
from dataclasses import dataclass, field
from enum import IntEnum

from secure_fedrec.errors import ProtocolError, WireError

_VERSION = 1
_HEADER = struct.Struct("<BBHIII16s")
FRAGMENT_HEADER_BYTES = _HEADER.size


class Kind(IntEnum):
    """What a piece is."""

    DATA = 1
    """Part of a message."""
    DUMMY = 2
    """Fills a sender's cells up to a public number; its recipient drops it."""
    LOOP = 3
    """Sent by a party to itself, to see that it returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """One piece.

    Args:
        kind: kind of the piece.
        message: 16 random bytes, the same for all pieces of a message.
        index: its place in the message.
        count: pieces of the message.
        payload: the bytes it carries.
    """

    kind: Kind
    message: bytes
    index: int
    count: int
    payload: bytes


def cut(message: bytes, capacity: int) -> list[Fragment]:
    """Cut a message into pieces of at most ``capacity`` bytes; an empty message makes one piece."""
    name = secrets.token_bytes(16)
    parts = [message[at : at + capacity] for at in range(0, len(message), capacity)] or [b""]
    return [
        Fragment(kind=Kind.DATA, message=name, index=index, count=len(parts), payload=part)
        for index, part in enumerate(parts)
    ]


def cover(kind: Kind) -> Fragment:
    """A piece without a message."""
    return Fragment(kind=kind, message=secrets.token_bytes(16), index=0, count=1, payload=b"")


def encode_fragment(fragment: Fragment, capacity: int) -> bytes:
    """Bytes of the layout above: ``FRAGMENT_HEADER_BYTES + capacity`` of them."""
    numbers = fragment.index, fragment.count, len(fragment.payload)
    header = _HEADER.pack(_VERSION, fragment.kind, 0, *numbers, fragment.message)
    return header + fragment.payload.ljust(capacity, b"\0")


def decode_fragment(data: bytes, capacity: int) -> Fragment:
    """Read a piece, accepting exactly what ``encode_fragment`` writes for ``cut`` and ``cover``.

    Raises:
        WireError: anything else.
    """
    if len(data) != _HEADER.size + capacity:
        raise WireError(f"a fragment has {_HEADER.size + capacity} bytes, got {len(data)}")
    version, kind, zero, index, count, length, message = _HEADER.unpack_from(data)
    if version != _VERSION or zero or kind not in set(Kind):
        raise WireError("a fragment of an unknown version or kind")
    if index >= count or length > capacity:
        raise WireError(f"fragment {index} of {count} with {length} bytes")
    alone = count == 1
    if kind != Kind.DATA and not (alone and length == 0):
        raise WireError("a cover fragment carries a payload")
    last = index == count - 1
    if not (length == capacity if not last else length > 0 or alone):
        raise WireError(f"fragment {index} of {count} has {length} bytes of {capacity}")
    if data[_HEADER.size + length :].strip(b"\0"):
        raise WireError("a fragment is padded with other bytes than zeros")
    payload = data[_HEADER.size : _HEADER.size + length]
    return Fragment(kind=Kind(kind), message=message, index=index, count=count, payload=payload)


@dataclass(slots=True)
class _Unfinished:
    count: int
    capacity: int
    parts: dict[int, bytes] = field(default_factory=dict)


class Reassembler:
    """Puts messages together at the recipient, whatever order their pieces arrive in.

    Senders are anonymous and may declare any number of pieces, so memory is used for pieces that
    arrived, not for announced ones. A piece that completes its message is not stored: messages of
    one piece always pass.

    Args:
        limit: most bytes of pieces held at once, each counted with its header.
        max_pieces: most pieces of a message.
    """

    def __init__(self, limit: int, *, max_pieces: int) -> None:
        self._limit = limit
        self._max_pieces = max_pieces
        self._held = 0
        self._messages: dict[bytes, _Unfinished] = {}

    @property
    def unfinished(self) -> int:
        """Messages of which a piece is missing."""
        return len(self._messages)

    def add(self, fragment: Fragment, capacity: int) -> bytes | None:
        """Take a piece; the message, once it is whole.

        Raises:
            ProtocolError: the message has more pieces than may be, or than there is room for; or
                the piece came twice, disagrees with an earlier one, or would exceed the limit. It
                is dropped.
        """
        begun = self._messages.get(fragment.message) or _Unfinished(fragment.count, capacity)
        if (begun.count, begun.capacity) != (fragment.count, capacity):
            raise ProtocolError("two fragments of a message disagree about its length")
        # All pieces but the last to come must find room.
        most = min(self._max_pieces, 1 + self._limit // (_HEADER.size + capacity))
        if fragment.count > most:
            raise ProtocolError(f"a message of {fragment.count} fragments; at most {most} may be")
        if fragment.index in begun.parts:
            raise ProtocolError(f"fragment {fragment.index} of a message came twice")
        if len(begun.parts) + 1 < begun.count:
            self._hold(fragment, begun)
            return None
        self._messages.pop(fragment.message, None)
        self._held -= sum(_HEADER.size + len(part) for part in begun.parts.values())
        begun.parts[fragment.index] = fragment.payload
        return b"".join(begun.parts[index] for index in range(begun.count))

    def _hold(self, fragment: Fragment, begun: _Unfinished) -> None:
        held = self._held + _HEADER.size + len(fragment.payload)
        if held > self._limit:
            raise ProtocolError(f"unfinished messages would hold more than {self._limit} bytes")
        self._held = held
        begun.parts[fragment.index] = fragment.payload
        self._messages[fragment.message] = begun
