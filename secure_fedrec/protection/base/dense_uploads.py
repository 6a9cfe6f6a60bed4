"""Rounds of hidden uploads: every client sends the same rows, so no row number tells anything.

A client's rows become words of one public layout: d values for each of k items, and a count word
per item (1 where it has a row, 0 elsewhere). How the words are hidden, and how their sum comes out,
is what masking and encryption differ in; what they have in common is here.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Protocol

import numpy as np

from secure_fedrec.core.arrays import IndexArray, IntArray, RingArray
from secure_fedrec.core.spill import Kept, Spill
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.table import (
    ServerSum,
    TableCollector,
    TableSession,
    client_messages,
)
from secure_fedrec.traits import Traits
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Messages, Step, Wire

_CHUNK_BYTES = 2 * 2**20
"""Bytes of words that are hidden and sent at a time, which fit a core's cache."""
_HELD_BYTES = 2**28
"""Memory for the rows of a round that have to wait; the others go to a file."""

HIDDEN = Traits(virtual_rows=None, reports=None, uploads="dense", noise=None, denoising="none")
"""Traits of hidden uploads."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DenseLayout:
    """The public meaning of the words of a hidden upload.

    Args:
        items: int32[k], ascending row numbers of the shared table.
        width: values per item; 0 asks for the counts alone.
    """

    items: IndexArray
    width: int

    @property
    def length(self) -> int:
        """Words per client: k * width values, then k counts."""
        return len(self.items) * (self.width + 1)

    def split(self, words: RingArray, codec: FixedPoint) -> Aggregate:
        """Values [k, width] and counts int64[k] in [length] ring words."""
        cut = len(self.items) * self.width
        ring = words[:cut].reshape(len(self.items), self.width)
        return Aggregate(ring=ring, counts=codec.to_integers(words[cut:]), codec=codec)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DenseWords:
    """Words of some clients.

    Args:
        clients: int64[B].
        words: [B, layout.length] ring words.
        layout: meaning of the words.
    """

    clients: IntArray
    words: RingArray
    layout: DenseLayout

    def message(self, *, round_: int, step: Step, codec: FixedPoint, sizes: IntArray) -> Messages:
        """The clients' messages: public row numbers, hidden values, hidden counts."""
        size, items, width = len(self.clients), self.layout.items, self.layout.width
        cut = len(items) * width
        block = RowBlock(
            indptr=np.arange(size + 1) * len(items),
            rows=np.tile(items, size),
            values=self.words[:, :cut].reshape(size * len(items), width),
            counts=codec.to_integers(self.words[:, cut:].reshape(-1)),
        )
        return client_messages(round_, self.clients, block, sizes, step=step)


def show_words(
    wire: Wire,
    found: Iterable[tuple[int, int, RingArray]],
    layout: DenseLayout,
    *,
    round_: int,
    step: Step,
    codec: FixedPoint,
) -> None:
    """Record the hidden words of clients, each as it was read of one message.

    Args:
        wire: wire of the record.
        found: client, size of its message, and [layout.length] words.
        layout: meaning of the words.
        round_: the round.
        step: what the messages are for.
        codec: the ring.
    """
    for client, size, words in found:
        seen = DenseWords(clients=np.array([client]), words=words[None], layout=layout)
        shown = seen.message(round_=round_, step=step, codec=codec, sizes=np.array([size]))
        wire.show(shown, origins=seen.clients)


class Gathered:
    """The encoded rows of a round's clients, each still at its client.

    A simulation hands them over batch by batch. Where hiding does not depend on the other clients
    they are processed at once; otherwise they are stored here until all have arrived, mostly in a
    file.

    Args:
        table: sizes and ring.
        round_: the round in progress.
        expected: int64[P], clients that must each submit exactly once, in this order.
    """

    def __init__(self, table: TableCollector, round_: int, expected: IntArray) -> None:
        self.clients = expected
        self._table = table
        self._round = round_
        self._parts: list[tuple[RowBlock, Kept]] = []
        self._spill = Spill(_HELD_BYTES)
        self._submitted = 0

    def accept(self, clients: IntArray, block: RowBlock) -> None:
        """Record which clients submit next.

        Raises:
            ProtocolError: not the clients whose turn it is, or rows without values.
            WireError: rows of another width, or that the table does not have.
        """
        due = self.clients[self._submitted : self._submitted + len(clients)]
        if not np.array_equal(due, clients):
            raise ProtocolError(f"round {self._round}: clients submit once each, in order")
        require_rows(self._table, block)
        self._submitted += len(clients)

    def keep(self, block: RowBlock) -> None:
        """Hold the rows of the clients that were accepted last, for as long as the round lasts."""
        words: RingArray = np.zeros((0, 0)) if block.values is None else block.values
        self._parts.append((replace(block, values=None), self._spill.put(words)))

    def require_complete(self) -> None:
        """Check that every client has submitted.

        Raises:
            ProtocolError: a client has not submitted.
        """
        if self._submitted != len(self.clients):
            raise ProtocolError(
                f"round {self._round}: no rows from client {int(self.clients[self._submitted])}; "
                "the round is abandoned"
            )

    def words(self, layout: DenseLayout) -> Iterator[DenseWords]:
        """The clients' words in a layout, a few clients at a time."""
        first = 0
        for block in self._kept():
            clients = self.clients[first : first + len(block)]
            yield from words_of(self._table, clients, block, layout)
            first += len(block)

    def _kept(self) -> Iterator[RowBlock]:
        for block, words in self._parts:
            yield replace(block, values=self._spill.get(words))


def words_of(
    table: TableCollector, clients: IntArray, block: RowBlock, layout: DenseLayout
) -> Iterator[DenseWords]:
    """The words of some clients' rows in a layout, a few clients at a time."""
    step = max(1, _CHUNK_BYTES // max(1, layout.length * 8))
    for start in range(0, len(block), step):
        stop = min(len(block), start + step)
        yield DenseWords(
            clients=clients[start:stop],
            words=_spread(table, block, start, stop, layout),
            layout=layout,
        )


def words_of_one(
    table: TableCollector, client: int, block: RowBlock, layout: DenseLayout
) -> DenseWords:
    """The words of one client.

    Args:
        table: sizes and ring.
        client: its number.
        block: its encoded rows, one segment.
        layout: meaning of the words.

    Raises:
        ProtocolError: rows without values.
        WireError: rows of another width, or that the table does not have.
    """
    require_rows(table, block)
    (words,) = words_of(table, np.array([client]), block, layout)
    return words


def require_rows(table: TableCollector, block: RowBlock) -> None:
    """Check that rows fit a table.

    Raises:
        ProtocolError: rows without values.
        WireError: rows of another width, or that the table does not have.
    """
    if block.values is None:
        raise ProtocolError("rows without values cannot be summed")
    inside = not len(block.rows) or 0 <= block.rows.min() <= block.rows.max() < table.n_items
    if not inside or block.values.shape[1] != table.width:
        raise WireError(f"rows are {table.width} wide, with numbers below {table.n_items}")


def _spread(
    table: TableCollector, block: RowBlock, start: int, stop: int, layout: DenseLayout
) -> RingArray:
    if block.values is None:
        raise ProtocolError("rows without values cannot be summed")
    bounds = block.indptr[start : stop + 1]
    rows = slice(int(bounds[0]), int(bounds[-1]))
    owners = np.repeat(np.arange(stop - start), np.diff(bounds))
    place = np.full(table.n_items, -1, dtype=np.int64)
    place[layout.items] = np.arange(len(layout.items))
    places = place[block.rows[rows]]
    sent = places >= 0
    words = np.zeros((stop - start, layout.length), dtype=table.codec.dtype)
    cut = len(layout.items) * layout.width
    values = words[:, :cut].reshape(stop - start, len(layout.items), layout.width)
    values[owners[sent], places[sent]] = block.values[rows][sent][:, : layout.width]
    words[owners[sent], cut + places[sent]] = 1
    return words


class Hider(Protocol):
    """One way of hiding the words of a round and of opening their sum."""

    @property
    def size(self) -> int:
        """Bytes that a client sends."""

    def hide(self, part: DenseWords) -> RingArray:
        """Words as they are sent: [B, length]."""

    def open(self, total: RingArray) -> RingArray:
        """The sum of the plain words, given the sum of the words sent: [length] each.

        Words are summed modulo their word size and cut to the ring afterwards.
        """


class DenseSum(ServerSum):
    """The server's side: adds hidden words up as they come.

    Args:
        layout: meaning of the words.
        session: the round in progress; each of its clients must send exactly one message.
        step: the step whose messages it adds.
    """

    def __init__(self, layout: DenseLayout, session: TableSession, step: Step) -> None:
        shape = len(layout.items), layout.width
        super().__init__(session.collector, session.round, session.order, step, shape)
        self._items = layout.items

    def add(self, block: object) -> None:
        """Add the words of some clients; hidden counts wrap as the ring's words do.

        Raises:
            ProtocolError: words are not in the agreed layout.
        """
        if (
            not isinstance(block, RowBlock)
            or block.values is None
            or block.counts is None
            or block.values.shape != (len(block) * len(self._items), self.ring.shape[1])
            or not np.array_equal(block.rows, np.tile(self._items, len(block)))
        ):
            raise self._heard.refusal("got an upload that is not in the agreed layout")
        values = block.values.reshape(len(block), *self.ring.shape)
        self.ring += values.sum(axis=0, dtype=self.ring.dtype)
        self.counts += block.counts.reshape(len(block), len(self._items)).sum(axis=0)

    @property
    def total(self) -> RingArray:
        """The sum of the words, not yet cut to the ring: [layout.length]."""
        return np.concatenate([self.ring.reshape(-1), self._codec.from_integers(self.counts)])


def layout_hash(layout: DenseLayout, codec: FixedPoint) -> bytes:
    """Identity of a dense layout in a ring."""
    head = struct.pack("<HHI", codec.bits, codec.fraction_bits, layout.width)
    return sha256(b"secure-fedrec|v1|hidden-sum|" + head + layout.items.tobytes()).digest()
