"""The server of a plain round on hosts."""

from collections.abc import Iterable, Sequence

from typing_extensions import override

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.base.hosting import HostedSum, Standing, joined_clients, read_each
from secure_fedrec.protection.base.table import ServerSum, TableCollector
from secure_fedrec.protection.plain.messages import PlainKind, decode_upload, messages_of
from secure_fedrec.protection.session import SERVER, Node, Parcel, Role, from_server, refusals_of
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Wire


class PlainServer(HostedSum):
    """The server of one attempt: adds up the rows of the clients that answer.

    Args:
        collector: sizes and ring.
        at: the attempt.
        total: where rows are added.
    """

    node = SERVER

    def __init__(self, collector: TableCollector, at: Standing, total: ServerSum) -> None:
        self.hub = self
        self._collector = collector
        self._at = at
        self._total = total
        self._heard: list[int] = []
        self.stage = "CREATED"
        self.finished = False

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Ask all clients; add up the rows that came (``Party.step``).

        Raises:
            ProtocolError: no client was heard, or the round is over.
        """
        if self.finished:
            raise ProtocolError("the round is over")
        if self.stage == "CREATED":
            self.stage = PlainKind.UPLOAD.name
            clients = self._at.clients.tolist()
            return from_server((Node(Role.CLIENT, n) for n in clients), "INVITE", b"")
        why = refusals_of(inbox, self._receive)
        if not self._heard:
            raise ProtocolError(f"no client was heard{why}")
        self.stage, self.finished = "DONE", True
        return []

    @override
    def aggregate(self) -> Aggregate:
        """Sums and counts."""
        return self._total.aggregate()

    @override
    def heard(self) -> IntArray:
        """int64[k]: clients whose rows are in the sum."""
        return joined_clients(self._heard)

    @override
    def show(self, wire: Wire, arrived: Sequence[bytes], aggregate: Aggregate) -> None:
        """Every row, under its client's name."""
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
            ProtocolError, WireError: it is not a message of this round, or its sender was not
                invited.
        """
        sender, body = messages_of(self._at).open(data, PlainKind.UPLOAD)
        if sender.role is not Role.CLIENT or sender.number not in self._at.clients:
            raise ProtocolError(f"{sender} is not awaited")
        return sender.number, decode_upload(self._collector, body)
