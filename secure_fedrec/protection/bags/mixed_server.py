"""Bags behind mixes of rounds whose parties are elsewhere (``base.hosting``).

Every mix has a host of its own, and all paths end at the server. A client hands in its cells with
its upload, so the bags hold vectors of exactly the clients in the sum. Exchanges beside those of
the sum, with L mixes:

    KEYS        mixes make keys of the attempt; beside the clients', where masks need such first
    UPLOAD      the sum's own: every client's upload, and its cells
    MIX-0 ...   each mix in turn, once it has the cells of all; the first beside CONFIRM of masks
    SEEN        the server signs one list of the cells that came; every client looks for its own

Only then is the sum opened. A client cannot be removed from a bag afterwards: sum and bags are of
all clients of the attempt, or the attempt gives neither. The server can read what was forwarded to
it even if the attempt fails; so a first mix forwards only the cells of the same clients in all
attempts of a round. Bags of two sets of clients would show, as a difference, what is in one of the
two only.

The list protects against mixes that drop cells. A server that deviates can leave a cell out of it.
The client that then stays silent is the cell's sender; this costs the server an attempt. The
protocol does not withstand such a server.

What the server sends a client of this is "SFBGMX" | u64 serial | a message of ``routing.hosted``:
the number stands where masks' messages have theirs.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.bags.mixed_messages import BagAttempt
from secure_fedrec.protection.base.hosting import Hosting
from secure_fedrec.protection.routing.directory import Directory
from secure_fedrec.protection.routing.endpoint import Endpoint
from secure_fedrec.protection.routing.hosted import Kind, PathEnd
from secure_fedrec.protection.routing.sealing import OpeningKey
from secure_fedrec.protection.session import SERVER, Hub, Identity, Node, Parcel, Role, from_server
from secure_fedrec.protection.session.envelope import Family, is_of
from secure_fedrec.wire import Wire

_KEYS, _READY, _CELLS, _DONE = "KEYS", "READY", "CELLS", "DONE"


class _ServerEnd(PathEnd):
    """The end of all paths: after all cells it signs a list, and then has ``words`` by bag."""

    def __init__(self, attempt: BagAttempt, identity: Identity) -> None:
        super().__init__(attempt.course, identity)
        self._attempt = attempt

    def _begin(self, directory: Directory, key: OpeningKey) -> None:
        self._end = Endpoint(layers=self._course.config.layers, index=0, max_pieces=1)
        self._end.rotate(directory, key)

    def _answer(self, inbox: Sequence[bytes]) -> list[Parcel]:
        course, mixes, senders = self._course, self._attempt.mixes, len(self._course.senders)
        cells = self._cells(inbox, course.config.layers, course.mixes[-1:])
        if len(cells) != senders * mixes.cells:
            raise ProtocolError(f"{len(cells)} cells came, {senders * mixes.cells} were handed in")
        try:
            messages = [found for found in map(self._end.receive, cells) if found is not None]
            self.words = mixes.read(messages, self._attempt.at.round)
        except WireError as damage:
            raise ProtocolError(f"what came through the mixes is not a vector: {damage}") from None
        for name, shape in mixes.bags.items():
            if len(self.words[name]) > senders * shape.most:
                raise ProtocolError(f"bag {name!r}: more vectors than {senders} clients may give")
        receipt = self._end.receipt(batch=course.serial, identity=self._identity.key)
        return [self._parcel(SERVER, Kind.RECEIPT, receipt)]


class _Paths:
    """The server's side of the bags: awaited messages and the next ones."""

    def __init__(self, attempt: BagAttempt, identity: Identity) -> None:
        self._attempt = attempt
        self._course = course = attempt.course
        self._clients = [Node(Role.CLIENT, number) for number in course.senders]
        self._end = _ServerEnd(attempt, identity)
        passes = [f"MIX-{layer}" for layer in range(course.config.layers)]
        self._stages = iter((_KEYS, _READY, _CELLS, *passes, Kind.SEEN.name, _DONE))
        self._last = passes[-1]
        self._keys: list[bytes] = []
        self.stage = ""

    def step(self, came: Sequence[bytes]) -> list[Parcel]:
        """Take all awaited messages, and continue.

        Raises:
            ProtocolError, WireError: something is missing or refused.
        """
        before, course, mixes = self.stage, self._course, self._course.mixes
        sent: list[Parcel] = []
        if not before:
            self._keys = [parcel.data for parcel in self._end.step([])]
            sent = from_server(mixes, Kind.KEY.name, b"")
        elif before == _KEYS:
            self._keys += came
            self._end.step(self._keys)
        elif before == _READY:
            sent = from_server(mixes, Kind.KEY.name, *self._keys)
            sent += self._attempt.to_clients(Kind.KEY, *self._keys)
        elif before == self._last:
            (receipt,) = self._end.step(came)
            sent = self._attempt.to_clients(Kind.RECEIPT, receipt.data)
        elif before == Kind.SEEN.name:
            course.open_each(came, Kind.SEEN, self._clients)
        self.stage = next(self._stages)
        return sent

    def bags(self) -> dict[str, FloatArray]:
        """The bags, once every client has seen its cells: float64[N, d] each.

        Raises:
            ProtocolError: a client has not seen its cells.
        """
        if self.stage != _DONE:
            raise ProtocolError("not every client has seen its cells")
        codec = self._attempt.mixes.codec
        return {name: codec.decode(words) for name, words in self._end.words.items()}


class MixedBagHub:
    """A hub of sums, whose clients' vectors come through mixes beside them.

    Args:
        hub: that of the sums.
        attempt: the attempt.
        identity: the server's key.
        hosting: hosting of the sums.
    """

    node = SERVER

    def __init__(self, hub: Hub, attempt: BagAttempt, identity: Identity, hosting: Hosting) -> None:
        self._hub = hub
        self._paths = _Paths(attempt, identity)
        self._clients = attempt.at.present
        self._uploads = hosting.uploads
        self._opens = (hosting.opens, _DONE)
        self._held: list[Parcel] | None = None
        self.stage = "CREATED"

    @property
    def finished(self) -> bool:
        """Whether there are sums, and bags of the same clients."""
        return self._hub.finished and self._held is None

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Continue both; the sums wait if bags have to come first (``Hub.step``).

        Raises:
            ProtocolError, WireError: either is aborted.
        """
        hub, paths = self._hub, self._paths
        came: list[bytes] = []
        others = self._others(inbox, came)
        if self._held is None:
            self._held = hub.step(others)
        else:
            for _ in others:
                pass
        uploading = hub.stage == self._uploads
        sent: list[Parcel] = []
        if paths.stage not in (_READY, _DONE):
            sent = paths.step(came)
        if paths.stage == _READY and uploading:
            sent = paths.step(())
        unready = uploading and paths.stage == _KEYS
        if unready or (hub.stage in self._opens and paths.stage != _DONE):
            self.stage = paths.stage
            return sent
        self.stage, held, self._held = hub.stage, self._held, None
        return [*held, *sent]

    def bags(self, clients: IntArray) -> dict[str, FloatArray]:
        """The bags, of the clients in the sum: float64[N, d] each, without order or owner.

        Raises:
            ProtocolError: the sum is of other clients.
        """
        if not np.array_equal(clients, self._clients):
            raise ProtocolError("clients that gave to the bags are not all in the sum")
        return self._paths.bags()

    def show(self, wire: Wire) -> None:
        """Nothing: these rounds are not recorded."""

    @staticmethod
    def _others(inbox: Iterable[bytes], came: list[bytes]) -> Iterator[bytes]:
        for data in inbox:
            if is_of(data, Family.ROUTING):
                came.append(data)
            else:
                yield data
