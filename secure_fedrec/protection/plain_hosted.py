"""Rounds without protection whose clients are elsewhere (``protection.hosting``).

Every client sends its rows under its name and signature. Body of the one message, little-endian:
u32 rows | rows x i32, ascending | the words, packed to the ring's bits, row by row.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.core.packing import pack, packed_size, unpack
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.hosting import NoHelpers, Standing, joined_clients, read_each
from secure_fedrec.protection.session import (
    SERVER,
    Identity,
    Node,
    Parcel,
    Role,
    from_server,
    refusals_of,
)
from secure_fedrec.protection.session.envelope import Family, open_envelope, seal
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Wire

if TYPE_CHECKING:
    from secure_fedrec.protection.masking import Journal
    from secure_fedrec.protection.plain import ServerSum, TableCollector

_DOMAIN = b"secure-fedrec|v1|plain|"


class _Kind(IntEnum):
    UPLOAD = 1


class PlainClient:
    """A client of one attempt.

    Args:
        collector: sizes and ring.
        at: the attempt.
        identity: its key.
        block: its rows.
    """

    def __init__(
        self, collector: "TableCollector", at: Standing, identity: Identity, block: RowBlock
    ) -> None:
        self.node = identity.node
        self._at = at
        self._identity = identity
        self._body = _encoded(collector, block)
        self._sent = False

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Send the rows, once (``Party.step``).

        Raises:
            ProtocolError: they were sent.
        """
        if self._sent or inbox:
            raise ProtocolError(f"{self.node} has sent its rows, or is told what it never awaits")
        self._sent = True
        data = seal(
            Family.PLAIN,
            _Kind.UPLOAD,
            self._body,
            sender=self.node,
            key=self._identity.key,
            round_=self._at.serial,
            context=_context(self._at),
        )
        return [Parcel(self.node, SERVER, _Kind.UPLOAD.name, data)]


class PlainServer:
    """The server of one attempt: adds up the rows of those who are heard.

    Args:
        collector: sizes and ring.
        at: the attempt.
        total: where rows are added.
    """

    node = SERVER

    def __init__(self, collector: "TableCollector", at: Standing, total: "ServerSum") -> None:
        self._collector = collector
        self._at = at
        self._total = total
        self._heard: list[int] = []
        self.stage = "CREATED"
        self.finished = False

    @property
    def hub(self) -> "PlainServer":
        """Itself."""
        return self

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Ask everybody; add up what came (``Party.step``).

        Raises:
            ProtocolError: nobody was heard, or the round is over.
        """
        if self.finished:
            raise ProtocolError("the round is over")
        if self.stage == "CREATED":
            self.stage = _Kind.UPLOAD.name
            clients = self._at.clients.tolist()
            return from_server((Node(Role.CLIENT, n) for n in clients), "INVITE", b"")
        why = refusals_of(inbox, self._receive)
        if not self._heard:
            raise ProtocolError(f"no client was heard{why}")
        self.stage, self.finished = "DONE", True
        return []

    def aggregate(self) -> Aggregate:
        """Sums and counts."""
        return self._total.aggregate()

    def heard(self) -> IntArray:
        """int64[k]: whose rows are in it."""
        return joined_clients(self._heard)

    def show(self, wire: Wire, arrived: Sequence[bytes], aggregate: Aggregate) -> None:
        """Every row, under its client's name (``hosting.HostedSum``)."""
        for client, size, block in read_each(arrived, self._read):
            self._total.show(wire, client, block, size)
        self._total.show_sum(wire, aggregate)

    def _receive(self, data: bytes) -> None:
        number, block = self._read(data)
        if number in self._heard:
            raise ProtocolError(f"client {number} is not awaited")
        self._total.add(block)
        self._heard.append(number)

    def _read(self, data: bytes) -> tuple[int, RowBlock]:
        """Client and rows of an upload.

        Raises:
            ProtocolError, WireError: it is none, or of nobody who was invited.
        """
        found = open_envelope(
            data,
            family=Family.PLAIN,
            kinds=_Kind,
            roster=self._at.roster,
            round_=self._at.serial,
            context=_context(self._at),
        )
        number = found.sender.number
        if found.sender.role is not Role.CLIENT or number not in self._at.clients:
            raise ProtocolError(f"{found.sender} is not awaited")
        return number, _decoded(self._collector, found.body)


class HostedPlain(NoHelpers):
    """Halves of rounds without protection.

    Args:
        collector: whose rounds they are.
        total: makes an empty sum of a round.
    """

    def __init__(self, collector: "TableCollector", total: "type[ServerSum]") -> None:
        self._collector = collector
        self._total = total

    def hub(self, at: Standing, identity: Identity, generations: dict[bytes, int]) -> PlainServer:
        """The server's side (``hosting.Hosting``)."""
        total = self._total(self._collector, at.round, at.clients)
        return PlainServer(self._collector, at, total)

    def half(
        self,
        at: Standing,
        identity: Identity,
        journal: "Journal",
        block: RowBlock,
        virtual: BoolArray,
    ) -> PlainClient:
        """A client's half (``hosting.Hosting``)."""
        return PlainClient(self._collector, at, identity, block)


def _context(at: Standing) -> bytes:
    return sha256(_DOMAIN + at.series + at.roster.hash + at.state).digest()


def _encoded(collector: "TableCollector", block: RowBlock) -> bytes:
    if block.values is None:
        raise WireError("rows without values cannot be summed")
    rows = np.ascontiguousarray(block.rows, dtype="<i4").tobytes()
    words = pack(np.ascontiguousarray(block.values).reshape(-1), collector.codec.bits)
    return len(block.rows).to_bytes(4, "little") + rows + bytes(words)


def _decoded(collector: "TableCollector", body: bytes) -> RowBlock:
    """The rows of one client.

    Raises:
        WireError: another length, or rows that do not ascend or are not of the table.
    """
    count, width, bits = int.from_bytes(body[:4], "little"), collector.width, collector.codec.bits
    end = 4 + 4 * count
    if len(body) != end + packed_size(count * width, bits):
        raise WireError(f"an upload of {len(body)} bytes declares {count} rows")
    rows = np.frombuffer(body, dtype="<i4", count=count, offset=4).astype(np.int32)
    if count and (np.any(rows[1:] <= rows[:-1]) or rows[0] < 0 or rows[-1] >= collector.n_items):
        raise WireError(f"row numbers must ascend and stay below {collector.n_items}")
    words = unpack(body[end:], count * width, bits).reshape(count, width)
    return RowBlock(indptr=np.array([0, count]), rows=rows, values=words)
