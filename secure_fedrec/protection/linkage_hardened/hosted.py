"""Rounds of linkage-hardened denoisers whose parties are elsewhere (``protection.hosting``).

A denoiser is at the host of the client that was recruited for it, a mix has a host of its own.
Exchanges are those of denoisers behind mixes (``protection.routed_hosted``), with one more: upon
every client's word denoisers tell which rows they hold (ROW_SET), and upon all sets their sums
(FAKES). The halves are those of ``client``, ``denoiser`` and ``server``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.hosting import (
    Desk,
    NoHelpers,
    Standing,
    joined_clients,
    require_recorded,
)
from secure_fedrec.protection.linkage_hardened.client import LinkageClient
from secure_fedrec.protection.linkage_hardened.denoiser import LinkageDenoiser
from secure_fedrec.protection.linkage_hardened.server import LinkageServer
from secure_fedrec.protection.once import Once
from secure_fedrec.protection.routing.directory import Directory
from secure_fedrec.protection.routing.endpoint import Endpoint
from secure_fedrec.protection.routing.hosted import (
    UNSIGNED,
    Course,
    HostedMix,
    PathEnd,
    cells_for,
    course_context,
    mixes_of,
    require_seen,
    seen,
)
from secure_fedrec.protection.routing.hosted import Kind as Path
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
from secure_fedrec.protection.shared_upload.context import DOMAIN, LEAST_FLOOR, RoundContext
from secure_fedrec.protection.shared_upload.messages import Kind, open_envelope
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Wire

if TYPE_CHECKING:
    from secure_fedrec.protection.linkage_hardened.collector import LinkageHardened
    from secure_fedrec.protection.masking import Journal

_DOMAIN = b"linkage-hardened"


@dataclass(frozen=True, slots=True, eq=False)
class LinkageAttempt:
    """What all parties of an attempt know.

    Args:
        collector: sizes, ring, settings.
        at: the attempt.
    """

    collector: "LinkageHardened"
    at: Standing

    @property
    def course(self) -> Course:
        """The paths of the attempt."""
        at, collector = self.at, self.collector
        members = at.clients.astype("<u4").tobytes()
        serial = at.serial.to_bytes(8, "little")
        return Course(
            config=collector.config.routing,
            serial=at.serial,
            context=course_context(at.series, at.roster, _DOMAIN, serial, at.state, members),
            roster=at.roster,
            senders=tuple(at.clients.tolist()),
            recipients=tuple(Node(Role.DENOISER, n) for n in range(collector.config.count)),
        )

    @property
    def context(self) -> RoundContext:
        """The round, as the halves know it."""
        collector, at = self.collector, self.at
        attempt = at.series + at.state + at.serial.to_bytes(8, "little")
        return RoundContext(
            codec=collector.codec,
            n_items=collector.n_items,
            width=collector.width,
            floor=LEAST_FLOOR,
            roster=at.roster,
            round=at.round,
            round_id=sha256(DOMAIN + b"|hosted-linkage|" + attempt).digest()[:16],
            kem=collector.config.kem,
        )


class HostedLinkageClient:
    """A client of one attempt.

    Args:
        attempt: the attempt.
        identity: its key.
        block: its rows.
        virtual: bool[n], which are virtual.
    """

    def __init__(
        self, attempt: LinkageAttempt, identity: Identity, block: RowBlock, virtual: BoolArray
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
            ProtocolError, WireError: it is refused, or a cell of this client is in no list.
            ConfigError: more virtual rows than cells.
        """
        if self._sent is not None:
            return [seen(self._course, self._sent, inbox, self._identity)]
        block, virtual = self._rows
        if block.values is None:
            raise WireError("rows without values cannot be shared")
        half = LinkageClient(
            self._attempt.context,
            self.node.number,
            self._identity.key,
            directory=self._course.directory(inbox),
            cells=self._attempt.collector.config.cells,
        )
        sent, first = half.send(block.rows, block.values, virtual), self._course.mixes[0]
        self._sent = sent.noted
        cells = self._course.seal(Path.CELLS, cells_for(first, sent.cells), self._identity)
        return [
            Parcel(self.node, SERVER, Kind.UPLOAD.name, sent.upload),
            Parcel(self.node, first, Path.CELLS.name, cells),
        ]


class HostedLinkageDenoiser(PathEnd):
    """A denoiser of one attempt.

    Args:
        attempt: the attempt.
        identity: its key.
    """

    def __init__(self, attempt: LinkageAttempt, identity: Identity) -> None:
        super().__init__(attempt.course, identity)
        self._attempt = attempt
        self._list = b""
        self._told = False

    def _begin(self, directory: Directory, key: OpeningKey) -> None:
        number, attempt = self.node.number, self._attempt
        self._end = Endpoint(layers=self._course.config.layers, index=number, max_pieces=1)
        self._end.rotate(directory, key)
        cells = attempt.collector.config.cells
        self._half = LinkageDenoiser(
            attempt.context, number, self._identity.key, endpoint=self._end, cells=cells
        )

    def _answer(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Upon cells a list; upon every client's word the rows held; upon all sets the sums."""
        course, half = self._course, self._half
        if not self._list:
            cells = self._cells(inbox, course.config.layers, course.mixes[-1:])
            refusals_of(cells, half.receive)  # who sent what is refused misses it in the list
            batch = self._attempt.context.round
            self._list = self._end.receipt(batch=batch, identity=self._identity.key)
            return [self._parcel(SERVER, Path.RECEIPT, self._list)]
        if not self._told:
            require_seen(course, inbox, self.node, self._list)
            self._told = True
            return [Parcel(self.node, SERVER, Kind.ROW_SET.name, half.close())]
        sets = ordered(inbox, Kind.ROW_SET, self._attempt.context)
        return [Parcel(self.node, SERVER, Kind.FAKES.name, half.release(sets))]


class HostedLinkageServer:
    """The server of one attempt (a ``Hub``, and its own ``HostedSum``).

    Args:
        attempt: the attempt.
    """

    node = SERVER

    def __init__(self, attempt: LinkageAttempt) -> None:
        self._attempt = attempt
        self._course = course = attempt.course
        self._half = LinkageServer(attempt.context, cells=attempt.collector.config.cells)
        self._clients = [Node(Role.CLIENT, number) for number in course.senders]
        passes = [f"MIX-{layer}" for layer in range(course.config.layers)]
        after = ("RECEIPTS", "SEEN", Kind.ROW_SET.name, Kind.FAKES.name, "DONE")
        self._stages = iter(("KEYS", "UPLOADS", *passes, *after))
        self._lists: list[bytes] = []
        self._sum: Aggregate | None = None
        self.stage = "CREATED"

    @property
    def hub(self) -> "HostedLinkageServer":
        """Itself."""
        return self

    @property
    def finished(self) -> bool:
        """Whether the sums are taken off."""
        return self._sum is not None

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Take what is awaited, all of it, and go on (``Party.step``).

        Raises:
            ProtocolError, WireError: something is missing or refused.
        """
        came, before = list(inbox), self.stage
        course, context = self._course, self._attempt.context
        denoisers = course.recipients
        sent: list[Parcel] = []
        if before == "CREATED":
            sent = from_server((*course.mixes, *denoisers), Path.KEY.name, b"")
        elif before == "KEYS":
            course.directory(came)  # refuses what the others would
            ends = (*self._clients, *course.mixes, *denoisers)
            sent = from_server(ends, Path.KEY.name, *came)
        elif before == "UPLOADS":
            self._take(came)
        elif before == "RECEIPTS":
            course.open_each(came, Path.RECEIPT, denoisers)
            self._lists = came
            sent = from_server(self._clients, Path.RECEIPT.name, *came)
        elif before == "SEEN":
            course.open_each(came, Path.SEEN, self._clients)
            sent = from_server(denoisers, Path.SEEN.name, *self._lists, *came)
        elif before == Kind.ROW_SET.name:
            sets = ordered(came, Kind.ROW_SET, context)
            sent = from_server(denoisers, Kind.ROW_SET.name, *sets)
        elif before == Kind.FAKES.name:
            self._sum = self._half.finish(ordered(came, Kind.FAKES, context))
        self.stage = next(self._stages)
        return sent

    def aggregate(self) -> Aggregate:
        """Sums and counts of the real rows.

        Raises:
            ProtocolError: the round has not come to its end.
        """
        if self._sum is None:
            raise ProtocolError("the round ended without sums")
        return self._sum

    def heard(self) -> IntArray:
        """int64[k]: every client of the attempt."""
        return joined_clients(sorted(self._half.heard))

    def show(self, wire: Wire, arrived: Sequence[bytes], aggregate: Aggregate) -> None:
        """These rounds are not recorded (``hosting.HostedSum``).

        Raises:
            ConfigError: always.
        """
        require_recorded(HostedLinkage(self._attempt.collector))

    def _take(self, came: Sequence[bytes]) -> None:
        """Every client's upload.

        Raises:
            ProtocolError: one is missing; it says what was refused.
        """
        why = refusals_of(came, self._half.receive)
        missing = sorted({*self._course.senders} - self._half.heard)
        if missing or len(self._half.heard) != len(self._course.senders):
            raise ProtocolError(f"no upload from clients {missing[:5]}{why}")


class HostedLinkage(NoHelpers):
    """Halves of rounds of linkage-hardened denoisers.

    Args:
        collector: whose rounds they are.
    """

    whole = True
    unrecorded = UNSIGNED

    def __init__(self, collector: "LinkageHardened") -> None:
        self._collector = collector

    def hub(
        self, at: Standing, identity: Identity, generations: dict[bytes, int]
    ) -> HostedLinkageServer:
        """The server's side (``hosting.Hosting``).

        Raises:
            ProtocolError: fewer clients than the least floor, who would not fill a batch.
        """
        if len(at.clients) < LEAST_FLOOR:
            raise ProtocolError(f"{len(at.clients)} clients are there, below {LEAST_FLOOR}")
        return HostedLinkageServer(LinkageAttempt(self._collector, at))

    def half(
        self,
        at: Standing,
        identity: Identity,
        journal: "Journal",
        block: RowBlock,
        virtual: BoolArray,
    ) -> Once:
        """A client's half (``hosting.Hosting``).

        Raises:
            ConfigError: more virtual rows than cells.
        """
        fakes = np.array([np.count_nonzero(virtual)])
        self._collector.config.require_cells(np.array([identity.number]), fakes)
        attempt = LinkageAttempt(self._collector, at)
        half = HostedLinkageClient(attempt, identity, block, virtual)
        return Once(half, journal, at.serial, at.roster)

    def helpers(self) -> dict[Node, Node]:
        """The denoisers at their clients' hosts, and the mixes on their own."""
        recruited = enumerate(self._collector.denoisers.tolist())
        found = {Node(Role.DENOISER, number): Node(Role.CLIENT, at) for number, at in recruited}
        return found | {mix: mix for mix in mixes_of(self._collector.config.routing)}

    def helper(self, at: Standing, identity: Identity, desk: Desk) -> Party:
        """The half of a mix or of a denoiser (``hosting.Hosting``)."""
        attempt = LinkageAttempt(self._collector, at)
        if identity.node.role is Role.MIX:
            return HostedMix(attempt.course, identity)
        return HostedLinkageDenoiser(attempt, identity)


def ordered(came: Iterable[bytes], kind: Kind, context: RoundContext) -> list[bytes]:
    """One message of every denoiser, in their order.

    Raises:
        ProtocolError: one is missing; it says what was refused.
    """
    found: dict[int, bytes] = {}

    def take(data: bytes) -> None:
        found.setdefault(open_envelope(data, kind, context=context).sender.number, data)

    why = refusals_of(came, take)
    missing = [number for number in range(context.denoisers) if number not in found]
    if missing:
        raise ProtocolError(f"no {kind.name} of denoiser {missing[0]}{why}")
    return [found[number] for number in range(context.denoisers)]
