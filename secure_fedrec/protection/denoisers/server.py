"""The server of a round of denoisers behind mixes."""

from collections.abc import Iterable, Sequence
from functools import partial

from typing_extensions import override

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.base.hosting import HostedSum
from secure_fedrec.protection.base.table import ServerSum, accumulate
from secure_fedrec.protection.denoisers.messages import Named, RoutedAttempt
from secure_fedrec.protection.routing.hosted import UNSIGNED, Kind
from secure_fedrec.protection.session import SERVER, Node, Parcel, Role, from_server, one_of_each
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Wire


class RoutedServer(HostedSum):
    """The server of one attempt (a ``Hub``, and its own ``HostedSum``).

    Args:
        attempt: the attempt.
    """

    node = SERVER

    def __init__(self, attempt: RoutedAttempt) -> None:
        self.hub = self
        self._attempt = attempt
        self._course = course = attempt.course
        self._total = ServerSum(attempt.collector, attempt.at.round, attempt.senders)
        self._clients = [Node(Role.CLIENT, number) for number in course.senders]
        passes = [f"MIX-{layer}" for layer in range(course.config.layers)]
        self._stages = iter(("KEYS", "UPLOADS", *passes, "RECEIPTS", "SEEN", "SUMS", "DONE"))
        self._lists: list[bytes] = []
        self.stage = "CREATED"

    @property
    def finished(self) -> bool:
        """Whether the sums are taken off."""
        return self.stage == "DONE"

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Take all awaited messages, and continue (``Party.step``).

        Raises:
            ProtocolError: something is missing; it says what was refused.
        """
        came, before = list(inbox), self.stage
        course, denoisers = self._course, self._course.recipients
        sent: list[Parcel] = []
        if before == "CREATED":
            sent = from_server((*course.mixes, *denoisers), Kind.KEY.name, b"")
        elif before == "KEYS":
            course.directory(came)  # refuses keys that the other hosts would refuse
            ends = (*self._clients, *course.mixes, *denoisers)
            sent = from_server(ends, Kind.KEY.name, *came)
        elif before == "UPLOADS":
            for block in self._rows(came, Named.UPLOAD, self._clients):
                self._total.add(block)
        elif before == "RECEIPTS":
            course.open_each(came, Kind.RECEIPT, denoisers)
            self._lists = came
            sent = from_server(self._clients, Kind.RECEIPT.name, *came)
        elif before == "SEEN":
            course.open_each(came, Kind.SEEN, self._clients)
            sent = from_server(denoisers, Kind.SEEN.name, *self._lists, *came)
        elif before == "SUMS":
            total = self._total
            for block in self._rows(came, Named.SUMS, denoisers):
                accumulate(total.ring, total.counts, block.rows, block, sign=-1)
        self.stage = next(self._stages)
        return sent

    @override
    def aggregate(self) -> Aggregate:
        """Sums and counts of the real rows."""
        return self._total.aggregate()

    @override
    def heard(self) -> IntArray:
        """int64[k]: every client of the attempt."""
        return self._attempt.at.clients

    @override
    def show(self, wire: Wire, arrived: Sequence[bytes], aggregate: Aggregate) -> None:
        """These rounds are not recorded.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("--record", True, UNSIGNED)

    def _rows(self, came: Sequence[bytes], kind: Named, due: Sequence[Node]) -> list[RowBlock]:
        """The rows of each of some parties.

        Raises:
            ProtocolError: a party is missing; the message says what was refused.
        """
        read = partial(self._attempt.read, kind=kind)
        return list(one_of_each(came, read, due, kind.name).values())
