"""The server's half of rounds on an encrypted item table (``client.table``): it only adds."""

import hmac
from collections.abc import Iterable
from enum import Enum

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.messages.plan_parties import ServerHalf
from secure_fedrec.protection.paillier.messages.plans import Plan
from secure_fedrec.protection.paillier.messages.tables import split_table, updaters
from secure_fedrec.protection.paillier.messages.uploads import UploadSum
from secure_fedrec.protection.paillier.scheme.vectors import EncryptedVector
from secure_fedrec.protection.session import Identity, Parcel, Role, refusals_of
from secure_fedrec.protection.session.envelope import Envelope


class _Server(Enum):
    UPDATES = "two updates of the table"
    UPLOADS = "uploads"
    ABORTED = "nothing more: the updaters disagreed"
    HANDED_ON = "nothing more: another cohort has the table"


class TableServer(ServerHalf):
    """The server's half, over all rounds. It starts with round 0, in which the table is made.

    Args:
        plan: the agreement.
        identity: the server's.
        earlier: the half of another cohort whose table and rounds this one goes on with; it must
            await uploads, and is not used afterwards.

    Raises:
        ConfigError: another arrangement, or an earlier table of another key, roster or layout.
        ProtocolError: the earlier cohort's round is not over.
    """

    def __init__(
        self, plan: Plan, identity: Identity, earlier: "TableServer | None" = None
    ) -> None:
        super().__init__(plan, identity, Role.SERVER, holder="clients", round_=0)
        self._sum = UploadSum(plan)
        self._updates: dict[int, tuple[bytes, EncryptedVector]] = {}
        self._table: tuple[bytes, EncryptedVector] | None = None
        self._state = _Server.UPDATES
        self._driven = 0
        self._hands_out = True
        self.finished = False
        """Whether the last round that ``step`` began has produced a table."""
        if earlier is not None:
            self._take_over(earlier)

    @classmethod
    def going_on(cls, plan: Plan, identity: Identity, round_: int, held: bytes) -> "TableServer":
        """The half of a round whose table is sent to clients by other means: it asks for uploads.

        Args:
            plan: the agreement.
            identity: the server's.
            round_: the round.
            held: its table, as ``held`` was; b"" in round 1, whose table every client knows.

        Raises:
            WireError: the bytes are not such a table, or under another key.
        """
        server = cls(plan, identity)
        server.round, server._hands_out = round_, False
        server._table = split_table(held, plan) if held else None
        server._state = _Server.UPLOADS
        return server

    @property
    def held(self) -> bytes:
        """The table of the previous round, with its digest; b"" before the first."""
        if self._table is None:
            return b""
        digest, vector = self._table
        return digest + vector.to_bytes()

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Begin a round; or take what is awaited, all of it, and go on (``Party.step``).

        In round 0 the two clients that make the first table are prompted.

        A refused message does not change the state.

        Raises:
            ProtocolError: something is missing, and it says what was refused (``receive``); or the
                two updaters disagree.
        """
        clients, pair = self._plan.clients, updaters(self._plan.clients, self.round)
        if self.finished or not self._driven:
            self.finished, self._driven = False, self._driven + 1
            if not self.round:
                return self._ask(pair, Kind.UPDATE, b"")
            if not self._hands_out:
                return self._ask(clients, Kind.UPLOAD, b"")
            return self._ask(clients, Kind.TABLE, self.table())
        before, refused = self._state, refusals_of(inbox, self.receive)
        if self._state in (before, _Server.ABORTED):
            updates = f"{len(self._updates)} of 2 updates of the table came"
            missing = self._sum.describe_missing() if before is _Server.UPLOADS else updates
            raise ProtocolError(f"round {self.round}: {missing}{refused}")
        if self._state is _Server.UPDATES:
            return self._ask(pair, Kind.SUMS, self.sums())
        self.finished = True
        return []

    def receive(self, data: bytes) -> None:
        """Take the next message.

        Raises:
            WireError: the bytes are not such a message.
            ProtocolError: it is not of the kind awaited now, repeated, or from the wrong sender; or
                the two updaters disagree, and then the server aborts for good.
        """
        if self._state is _Server.UPLOADS:
            self._sum.add(self._read(data, Kind.UPLOAD, Role.CLIENT))
            if not self._sum.missing:
                self._updates = {}
                self._state = _Server.UPDATES
        elif self._state is _Server.UPDATES:
            self._take_update(self._read(data, Kind.UPDATE, Role.CLIENT))
        else:
            raise ProtocolError(f"round {self.round}: the server awaits {self._state.value}")

    def table(self) -> bytes:
        """The encrypted table of the round, for every client.

        Raises:
            ProtocolError: the table does not exist yet, or the round is past it.
        """
        if self._state is not _Server.UPLOADS or self._table is None:
            raise ProtocolError(f"round {self.round}: the server awaits {self._state.value}")
        return self._seal(Kind.TABLE, self.held)

    def sums(self) -> bytes:
        """The encrypted sums of the round, for its two updaters.

        Raises:
            ProtocolError: uploads are missing; the message counts them.
        """
        if self._state is not _Server.UPDATES or not self.round:
            raise ProtocolError(f"round {self.round}: {self._sum.describe_missing()}")
        return self._seal(Kind.SUMS, self._sum.to_bytes())

    def _take_over(self, earlier: "TableServer") -> None:
        if earlier._plan.table_context != self._plan.table_context:
            raise ConfigError("paillier.table", "(earlier)", "is of another key, roster or layout")
        if earlier._state is not _Server.UPLOADS:
            raise ProtocolError(
                f"round {earlier.round}: the table is not handed on; the server awaits "
                f"{earlier._state.value}"
            )
        # Its uploads could be replayed in the same round.
        if earlier._driven and not earlier.finished:
            raise ProtocolError(f"round {earlier.round}: the table is not handed on in mid-round")
        self._table, self.round = earlier._table, earlier.round
        self._state, earlier._state = _Server.UPLOADS, _Server.HANDED_ON

    def _take_update(self, sent: Envelope) -> None:
        first, second = updaters(self._plan.clients, self.round)
        number = sent.sender.number
        if number not in (first, second) or number in self._updates:
            raise ProtocolError(f"round {self.round}: no update of {sent.sender} is awaited")
        self._updates[number] = split_table(sent.body, self._plan)
        if len(self._updates) < 2:
            return
        if not hmac.compare_digest(self._updates[first][0], self._updates[second][0]):
            self._state = _Server.ABORTED
            raise ProtocolError(
                f"round {self.round}: clients {first} and {second} computed different tables"
            )
        self._table = self._updates[first]
        self._sum = UploadSum(self._plan)
        self.round += 1
        self._state = _Server.UPLOADS
