"""Rounds of denoisers behind mixes whose parties are elsewhere (``protection.hosting``).

A denoiser is at the host of the client that it is, a mix has a host of its own. Exchanges of an
attempt, with L mixes:

    KEYS      mixes and denoisers make keys of the attempt               (routing.hosted)
    UPLOADS   every ordinary client: its rows to the server, and its virtual ones in cells
    MIX-0 ... each mix in turn, once it has the cells of all
    RECEIPTS  denoisers open their cells, and sign lists of what came
    SEEN      every client looks for its cells in all lists, and signs which lists it has seen
    SUMS      denoisers that see every client's signature, and one set of lists: their sums

Nobody's sum is released while a client misses a cell: a mix that put its own in the place of all
but one client's would learn nothing. The sum is of all clients of the attempt, or there is none.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray, RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.group_sums import pick
from secure_fedrec.protection.hosting import Desk, NoHelpers, Standing, require_recorded
from secure_fedrec.protection.once import Once
from secure_fedrec.protection.plain import ServerSum, accumulate
from secure_fedrec.protection.routed_attempt import Named, RoutedAttempt
from secure_fedrec.protection.routing.directory import Directory
from secure_fedrec.protection.routing.endpoint import Endpoint, cells_needed, send
from secure_fedrec.protection.routing.hosted import (
    UNSIGNED,
    HostedMix,
    Kind,
    PathEnd,
    cells_for,
    mixes_of,
    require_seen,
    seen,
)
from secure_fedrec.protection.routing.receipts import SentCells
from secure_fedrec.protection.routing.sealing import OpeningKey
from secure_fedrec.protection.session import (
    SERVER,
    Identity,
    Node,
    Parcel,
    Party,
    Role,
    from_server,
    refusals_of,
)
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Step, Wire

if TYPE_CHECKING:
    from secure_fedrec.protection.masking import Journal
    from secure_fedrec.protection.routed_denoisers import RoutedDenoisers


class RoutedClient:
    """An ordinary client of one attempt.

    Args:
        attempt: the attempt.
        identity: its key.
        block: its rows.
        virtual: bool[n], which are virtual.
    """

    def __init__(
        self, attempt: RoutedAttempt, identity: Identity, block: RowBlock, virtual: BoolArray
    ) -> None:
        self.node = identity.node
        self._attempt = attempt
        self._course = attempt.course
        self._identity = identity
        self._rows = block, virtual
        self._sent: SentCells | None = None

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Upon all keys the rows and the cells; upon all lists that they were seen (``Party``).

        Raises:
            ProtocolError: it is refused, or a cell of this client is in no list.
        """
        if self._attempt.collector.binding.is_denoiser[self.node.number]:
            raise ProtocolError(f"{self.node} denoises, and sends no rows")
        if self._sent is None:
            return self._upload(self._course.directory(inbox))
        return [seen(self._course, self._sent, inbox, self._identity)]

    def _upload(self, directory: Directory) -> list[Parcel]:
        attempt, course, (block, virtual) = self._attempt, self._course, self._rows
        self._sent = SentCells(directory, batch=course.serial)
        message = attempt.encode(pick(block, np.ones(1, dtype=bool), virtual), Step.NOISE)
        group = int(attempt.collector.binding.group[self.node.number])
        cells = send(
            [message],
            recipient=attempt.numbers.index(group),
            cells=cells_needed([message], directory.config.capacity),
            directory=directory,
            sent=self._sent,
        )
        first = course.mixes[0]
        sealed = course.seal(Kind.CELLS, cells_for(first, cells), self._identity)
        return [
            attempt.named(Named.UPLOAD, block, self._identity),
            Parcel(self.node, first, Kind.CELLS.name, sealed),
        ]


class RoutedDenoiser(PathEnd):
    """A denoiser of one attempt, at the host of the client that it is.

    Args:
        attempt: the attempt.
        identity: its key.
        own: the rows of that client, which reach the server inside its sums alone.
    """

    def __init__(self, attempt: RoutedAttempt, identity: Identity, own: RowBlock) -> None:
        super().__init__(attempt.course, identity)
        self._attempt = attempt
        collector = attempt.collector
        self._values: RingArray = np.zeros(
            (collector.n_items, collector.width), dtype=collector.codec.dtype
        )
        self._counts = np.zeros(collector.n_items, dtype=np.int64)
        self._touched = np.zeros(collector.n_items, dtype=bool)
        self._add(own, sign=-1)
        self._list = b""

    def _begin(self, directory: Directory, key: OpeningKey) -> None:
        index = self._course.recipients.index(self.node)
        self._end = Endpoint(layers=self._course.config.layers, index=index)
        self._end.rotate(directory, key)

    def _answer(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Upon cells a list of receipts; upon every client's word the sums."""
        if self._list:
            return [self._release(inbox)]
        course = self._course
        messages = self._messages(self._cells(inbox, course.config.layers, course.mixes[-1:]))
        due = self._attempt.due(self.node.number)
        if len(messages) != due:
            raise ProtocolError(f"{len(messages)} messages came to {self.node}, {due} are due")
        for message in messages:
            self._add(self._attempt.decode(message, Step.NOISE), sign=1)
        self._list = self._end.receipt(batch=course.serial, identity=self._identity.key)
        return [self._parcel(SERVER, Kind.RECEIPT, self._list)]

    def _messages(self, cells: Sequence[bytes]) -> list[bytes]:
        found: list[bytes] = []

        def take(cell: bytes) -> None:
            whole = self._end.receive(cell)
            if whole is not None:
                found.append(whole)

        why = refusals_of(cells, take)
        try:
            self._end.require_whole()
        except ProtocolError as missing:
            raise ProtocolError(f"{missing}{why}") from None
        return found

    def _release(self, inbox: Sequence[bytes]) -> Parcel:
        """The sums, once every client has found its cells in the very lists of this attempt."""
        require_seen(self._course, inbox, self.node, self._list)
        rows = np.flatnonzero(self._touched).astype(np.int32)
        block = RowBlock(
            indptr=np.array([0, len(rows)]),
            rows=rows,
            values=self._attempt.collector.codec.reduce(self._values[rows]),
            counts=self._counts[rows],
        )
        return self._attempt.named(Named.SUMS, block, self._identity)

    def _add(self, block: RowBlock, *, sign: int) -> None:
        accumulate(self._values, self._counts, block.rows, block, sign=sign)
        self._touched[block.rows] = True


class RoutedServer:
    """The server of one attempt (a ``Hub``, and its own ``HostedSum``).

    Args:
        attempt: the attempt.
    """

    node = SERVER

    def __init__(self, attempt: RoutedAttempt) -> None:
        self._attempt = attempt
        self._course = course = attempt.course
        self._total = ServerSum(attempt.collector, attempt.at.round, attempt.senders)
        self._clients = [Node(Role.CLIENT, number) for number in course.senders]
        passes = [f"MIX-{layer}" for layer in range(course.config.layers)]
        self._stages = iter(("KEYS", "UPLOADS", *passes, "RECEIPTS", "SEEN", "SUMS", "DONE"))
        self._lists: list[bytes] = []
        self.stage = "CREATED"

    @property
    def hub(self) -> "RoutedServer":
        """Itself."""
        return self

    @property
    def finished(self) -> bool:
        """Whether the sums are taken off."""
        return self.stage == "DONE"

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Take what is awaited, all of it, and go on (``Party.step``).

        Raises:
            ProtocolError: something is missing; it says what was refused.
        """
        came, before = list(inbox), self.stage
        course, denoisers = self._course, self._course.recipients
        sent: list[Parcel] = []
        if before == "CREATED":
            sent = from_server((*course.mixes, *denoisers), Kind.KEY.name, b"")
        elif before == "KEYS":
            course.directory(came)  # refuses what the others would
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

    def aggregate(self) -> Aggregate:
        """Sums and counts of the real rows."""
        return self._total.aggregate()

    def heard(self) -> IntArray:
        """int64[k]: every client of the attempt."""
        return self._attempt.at.clients

    def show(self, wire: Wire, arrived: Sequence[bytes], aggregate: Aggregate) -> None:
        """These rounds are not recorded (``hosting.HostedSum``).

        Raises:
            ConfigError: always.
        """
        require_recorded(HostedDenoisers(self._attempt.collector))

    def _rows(self, came: Sequence[bytes], kind: Named, due: Sequence[Node]) -> list[RowBlock]:
        """The rows of each of some parties.

        Raises:
            ProtocolError: one is missing; it says what was refused.
        """
        found: dict[Node, RowBlock] = {}

        def take(data: bytes) -> None:
            sender, block = self._attempt.read(data, kind)
            if sender not in due or sender in found:
                raise ProtocolError(f"no {kind.name} of {sender} is awaited")
            found[sender] = block

        why = refusals_of(came, take)
        missing = [node for node in due if node not in found]
        if missing:
            raise ProtocolError(f"no {kind.name} of {missing[0]}{why}")
        return [found[node] for node in due]


class HostedDenoisers(NoHelpers):
    """Halves of rounds of denoisers behind mixes.

    Args:
        collector: whose rounds they are.
    """

    whole = True
    unrecorded = UNSIGNED

    def __init__(self, collector: "RoutedDenoisers") -> None:
        self._collector = collector

    def hub(self, at: Standing, identity: Identity, generations: dict[bytes, int]) -> RoutedServer:
        """The server's side (``hosting.Hosting``).

        Raises:
            ProtocolError: its batch would hold the cells of one sender alone, or of nobody.
        """
        attempt = RoutedAttempt(self._collector, at)
        if not len(attempt.senders):
            raise ProtocolError("no client and its denoiser are there")
        self._collector.require_senders(at.round, len(attempt.senders))
        return RoutedServer(attempt)

    def half(
        self,
        at: Standing,
        identity: Identity,
        journal: "Journal",
        block: RowBlock,
        virtual: BoolArray,
    ) -> Party:
        """A client's half (``hosting.Hosting``)."""
        attempt = RoutedAttempt(self._collector, at)
        self._collector.require_senders(at.round, len(attempt.senders))
        half = RoutedClient(attempt, identity, block, virtual)
        return Once(half, journal, at.serial, at.roster)

    def exempt(self, client: int) -> bool:
        """Denoisers draw no virtual items: their rows reach the server only inside sums."""
        return bool(self._collector.binding.is_denoiser[client])

    def helpers(self) -> dict[Node, Node]:
        """The denoisers at their clients' hosts, and the mixes on their own."""
        recruited = enumerate(self._collector.binding.denoisers.tolist())
        found = {Node(Role.DENOISER, number): Node(Role.CLIENT, at) for number, at in recruited}
        return found | {mix: mix for mix in mixes_of(self._collector.routing.routing)}

    def helper(self, at: Standing, identity: Identity, desk: Desk) -> Party:
        """The half of a mix or of a denoiser (``hosting.Hosting``).

        Raises:
            ProtocolError: a denoiser whose client takes no part.
        """
        attempt = RoutedAttempt(self._collector, at)
        if identity.node.role is Role.MIX:
            return HostedMix(attempt.course, identity)
        if desk.own is None:
            raise ProtocolError(f"the client that {identity.node} is takes no part")
        half = RoutedDenoiser(attempt, identity, desk.own)
        return Once(half, desk.journal, at.serial, at.roster)
