"""Messages, columnar: one batch carries the messages that many parties send in one step.

A message knows its round, its step, its sender *as the receiver sees it* (an identity, or unknown
on an anonymous channel), its receiver, its payload and its size in bytes. ``encode_rows`` and
``decode_rows`` are the byte layout of a row message, version 1, little-endian:

    u8 version | u8 step | u8 flags | u8 bytes per value | u32 round | u32 rows | u16 width | u16 0
    u32 row numbers [rows] | i32 counts [rows] if flag 1 | values [rows * width]

``encode_set`` and ``decode_set`` are that of vectors for a bag, whose number stands for its name:

    u8 version | u8 BAG | u8 bag | u8 bytes per value | u32 round | u32 vectors | u16 width | u16 0
    values [vectors * width]

Inside one process batches travel as arrays; sizes are those of this layout.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TypeVar

import numpy as np

from secure_fedrec.core.arrays import IntArray, WordArray
from secure_fedrec.core.kernels import segments
from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import Block, DenseBlock, RowBlock, SetBlock
from secure_fedrec.wire.words import pack_words, require_words, unpack_words

NOBODY = -1
"""Sender number of a message whose receiver cannot tell who sent it."""

_VERSION = 1
_HEADER = struct.Struct("<BBBBIIHH")
_HAS_COUNTS = 1

_Segmented = TypeVar("_Segmented", bound=RowBlock | SetBlock)


class Step(IntEnum):
    """Purpose of a message; the number is its code on the wire."""

    MODEL = 0
    """Server to clients: the public table of the round."""
    UPLOAD = 1
    """Client to server: rows of this round."""
    NOISE = 2
    """Ordinary client to denoiser: its virtual rows (FedRec++ eq. 8)."""
    DENOISE = 3
    """Denoiser to server: sums of virtual rows less its own rows (FedRec++ eq. 9)."""
    AGGREGATE = 4
    """Not sent: the values that the server (or an adversary that corrupts it) has after the
    round."""
    SHARE = 5
    """Client to denoiser, under its name: additive shares of all its rows, rated and virtual."""
    COUNTS = 6
    """Client to server: which rows it has, hidden, before the rows themselves."""
    BAG = 7
    """Client to server: vectors for a bag, of which only the set shall be known."""
    PEER = 8
    """Client to client, under its name: rows that are not summed."""
    PART = 9
    """Server to some clients: parts of the public state that only these clients are sent."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parties:
    """The senders or receivers of a batch of messages.

    Args:
        role: "server", "client" or "denoiser".
        ids: int64[B], number of the party inside its role (0 for the server, ``NOBODY`` where the
            other end cannot tell).
    """

    role: str
    ids: IntArray

    @classmethod
    def server(cls, messages: int) -> "Parties":
        """The server, once per message."""
        return cls(role="server", ids=np.zeros(messages, dtype=np.int64))

    @classmethod
    def anonymous(cls, role: str, messages: int) -> "Parties":
        """A party of that role whose identity is unknown."""
        return cls(role=role, ids=np.full(messages, NOBODY, dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Messages:
    """A batch of messages of one step.

    Args:
        round: round the messages belong to, from 1.
        step: their purpose.
        senders: senders as the receivers see them.
        receivers: receivers.
        payload: a ``RowBlock`` or ``SetBlock`` with one segment per message, or one ``DenseBlock``
            sent to all.
        sizes: int64[B], bytes per message.
        tags: uint64[B], arrival order on an anonymous channel (random, tells nothing else); None
            where messages arrive under a name.
        bag: name of the bag that the vectors of a ``SetBlock`` are for; None with other payloads.

    Raises:
        WireError: columns of different lengths, or a payload that is not a block, or none for the
            step.
    """

    round: int
    step: Step
    senders: Parties
    receivers: Parties
    payload: Block
    sizes: IntArray
    tags: WordArray | None = None
    bag: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.payload, RowBlock | SetBlock | DenseBlock):
            raise WireError(f"a message carries a block, not {type(self.payload).__name__}")
        for_bag = isinstance(self.payload, SetBlock)
        if for_bag != (self.step is Step.BAG) or for_bag != (self.bag is not None):
            raise WireError(f"a {self.step.name} message with a {type(self.payload).__name__}")
        count = len(self.sizes)
        if len(self.senders.ids) != count or len(self.receivers.ids) != count:
            raise WireError("senders, receivers and sizes must have one entry per message")
        if not isinstance(self.payload, DenseBlock) and len(self.payload) != count:
            raise WireError(f"{len(self.payload)} segments for {count} messages")
        if self.tags is not None and len(self.tags) != count:
            raise WireError(f"{len(self.tags)} tags for {count} messages")

    def __len__(self) -> int:
        """Number of messages."""
        return len(self.sizes)

    def select(self, which: IntArray) -> "Messages":
        """The messages at some positions, in that order; a position may repeat."""
        payload: Block = self.payload
        if not isinstance(payload, DenseBlock):
            payload = select_segments(payload, which)
        return replace(
            self,
            senders=Parties(role=self.senders.role, ids=self.senders.ids[which]),
            receivers=Parties(role=self.receivers.role, ids=self.receivers.ids[which]),
            payload=payload,
            sizes=self.sizes[which],
            tags=None if self.tags is None else self.tags[which],
        )


def select_segments(block: _Segmented, which: IntArray) -> _Segmented:
    """The segments of some parties, in the order asked."""
    take, indptr = segments(block.indptr, which)
    columns = {name: getattr(block, name, None) for name in ("rows", "values", "counts")}
    chosen = {name: column[take] for name, column in columns.items() if column is not None}
    return replace(block, indptr=indptr, **chosen)


def message_sizes(block: RowBlock, *, width: int, codec: FixedPoint) -> IntArray:
    """Bytes of each party's row message in the layout above: int64[B]."""
    per_row = 4 + (4 if block.counts is not None else 0) + width * codec.bytes_per_value
    return _HEADER.size + per_row * block.lengths


def encode_rows(block: RowBlock, *, round_: int, step: Step, codec: FixedPoint) -> bytes:
    """Bytes of one party's row message.

    Raises:
        WireError: not exactly one party, or values that are not ring words of ``codec``.
    """
    if len(block) != 1:
        raise WireError(f"a message has one sender, the block holds {len(block)}")
    if block.values is None or block.values.dtype != codec.dtype:
        raise WireError("only ring words of the agreed codec are sent")
    _require_canonical(block, codec)
    rows, width = block.values.shape
    flags = _HAS_COUNTS if block.counts is not None else 0
    header = _HEADER.pack(_VERSION, step, flags, codec.bytes_per_value, round_, rows, width, 0)
    counts = b"" if block.counts is None else block.counts.astype("<i4").tobytes()
    return header + block.rows.astype("<u4").tobytes() + counts + pack_words(block.values, codec)


def set_sizes(block: SetBlock, *, width: int, codec: FixedPoint) -> IntArray:
    """Bytes of each party's message for a bag in the layout above: int64[B]."""
    return _HEADER.size + width * codec.bytes_per_value * block.lengths


def encode_set(block: SetBlock, *, round_: int, bag: int, codec: FixedPoint) -> bytes:
    """Bytes of one party's vectors for the bag of a number, below 256.

    Raises:
        WireError: not exactly one party, or values that are not ring words of ``codec``.
    """
    if len(block) != 1:
        raise WireError(f"a message has one sender, the block holds {len(block)}")
    if block.values is None or block.values.dtype != codec.dtype:
        raise WireError("only ring words of the agreed codec are sent")
    require_words(block.values, codec)
    vectors, width = block.values.shape
    size = codec.bytes_per_value
    header = _HEADER.pack(_VERSION, Step.BAG, bag, size, round_, vectors, width, 0)
    return header + pack_words(block.values, codec)


def _require_canonical(block: RowBlock, codec: FixedPoint) -> None:
    """Refuse what ``decode_rows`` would refuse, or could not read back."""
    rows, values, counts = block.rows, block.values, block.counts
    if np.any(rows[1:] <= rows[:-1]) or (len(rows) and rows[0] < 0):
        raise WireError("row numbers must ascend from 0")
    if counts is not None and np.any(counts != counts.astype(np.int32)):
        raise WireError("a count does not fit 32 bits")
    if values is not None:
        require_words(values, codec)


def decode_rows(data: bytes, *, codec: FixedPoint, n_rows: int) -> tuple[int, Step, RowBlock]:
    """Read one row message, accepting exactly what ``encode_rows`` writes.

    Args:
        data: the message.
        codec: the agreed ring.
        n_rows: rows of the shared table.

    Returns:
        (round, step, block with one segment).

    Raises:
        WireError: anything that is not a canonical message: wrong version, flags or length, row
            numbers out of range or not ascending, words outside the ring.
    """
    if len(data) < _HEADER.size:
        raise WireError(f"message of {len(data)} bytes is shorter than its header")
    version, step, flags, size, round_, rows, width, zero = _HEADER.unpack_from(data)
    if version != _VERSION or zero or flags not in (0, _HAS_COUNTS):
        raise WireError("message has an unknown version or flags")
    if step not in set(Step) or size != codec.bytes_per_value:
        raise WireError("message has an unknown step or another ring")
    per_row = 4 + 4 * flags + width * size
    if len(data) != _HEADER.size + rows * per_row:
        raise WireError(f"message of {len(data)} bytes declares {rows} rows of width {width}")
    ids = np.frombuffer(data, "<u4", rows, _HEADER.size)
    if np.any(ids[1:] <= ids[:-1]) or (rows and ids[-1] >= n_rows):
        raise WireError(f"row numbers must ascend and stay below {n_rows}")
    place = _HEADER.size + 4 * rows
    counts = np.frombuffer(data, "<i4", rows, place).astype(np.int64) if flags else None
    values = unpack_words(data[place + 4 * rows * flags :], rows, width, codec)
    indptr = np.array([0, rows], dtype=np.int64)
    block = RowBlock(indptr=indptr, rows=ids.astype(np.int32), values=values, counts=counts)
    return round_, Step(step), block


def decode_set(
    data: bytes, *, codec: FixedPoint, widths: Sequence[int]
) -> tuple[int, int, SetBlock]:
    """Read one message for a bag, accepting exactly what ``encode_set`` writes.

    Args:
        data: the message.
        codec: the agreed ring.
        widths: values per vector of each bag, by its number.

    Returns:
        (round, number of the bag, block with one segment).

    Raises:
        WireError: anything that is not a canonical message: wrong version, step or length, a bag
            that does not exist or has another width, words outside the ring.
    """
    if len(data) < _HEADER.size:
        raise WireError(f"message of {len(data)} bytes is shorter than its header")
    version, step, bag, size, round_, vectors, width, zero = _HEADER.unpack_from(data)
    if version != _VERSION or zero:
        raise WireError("message has an unknown version")
    if step != Step.BAG or size != codec.bytes_per_value:
        raise WireError("message is for no bag, or has another ring")
    if bag >= len(widths) or width != widths[bag]:
        raise WireError(f"message for bag {bag} of width {width}, which does not exist")
    if len(data) != _HEADER.size + vectors * width * size:
        raise WireError(f"message of {len(data)} bytes declares {vectors} vectors of width {width}")
    values = unpack_words(data[_HEADER.size :], vectors, width, codec)
    return round_, bag, SetBlock(indptr=np.array([0, vectors], dtype=np.int64), values=values)
