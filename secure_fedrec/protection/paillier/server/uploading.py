"""The server whose sums an authority opens."""

from collections.abc import Iterable
from enum import Enum

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.messages.plan_parties import ServerHalf
from secure_fedrec.protection.paillier.messages.plans import Plan
from secure_fedrec.protection.paillier.messages.uploads import UploadSum
from secure_fedrec.protection.paillier.scheme.pairwise import MASK_KEY_BYTES
from secure_fedrec.protection.paillier.scheme.words import read_words
from secure_fedrec.protection.session import AUTHORITY, SERVER, Identity, Parcel, Role, refusals_of


class _Server(Enum):
    KEYS = "mask keys"
    UPLOADS = "uploads"
    RESULT = "the authority's result"
    DONE = "nothing more"


class UploadingServer(ServerHalf):
    """The server's half of one round: it adds ciphertexts and holds no key.

    Args:
        plan: the agreement.
        identity: the server's.
        round_: the round.
    """

    def __init__(self, plan: Plan, identity: Identity, round_: int) -> None:
        super().__init__(plan, identity, Role.SERVER, holder="authority", round_=round_)
        self._keys: dict[int, bytes] = {}
        self._sum = UploadSum(plan)
        self._result: tuple[RingArray, ...] = ()
        self._state = _Server.KEYS if plan.holding.masked else _Server.UPLOADS
        self._begun = False

    @property
    def finished(self) -> bool:
        """Whether the authority has answered."""
        return self._state is _Server.DONE

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Prompt the clients; or take what is awaited, all of it, and go on (``Party.step``).

        A refused message does not change the state.

        Raises:
            ProtocolError: something is missing; it says what was refused (``receive``).
        """
        if not self._begun:
            self._begun = True
            kind = Kind.MASK_KEY if self._state is _Server.KEYS else Kind.UPLOAD
            return self._ask(self._plan.clients, kind, b"")
        before, refused = self._state, refusals_of(inbox, self.receive)
        if self._state is before:
            uploading = before is _Server.UPLOADS
            missing = self._sum.describe_missing() if uploading else f"{before.value} are missing"
            raise ProtocolError(f"round {self.round}: {missing}{refused}")
        if self._state is _Server.UPLOADS:
            return self._ask(self._plan.clients, Kind.MASK_KEYS, self.mask_keys())
        if self._state is _Server.RESULT:
            return [Parcel(SERVER, AUTHORITY, Kind.SUMS.name, self.sums())]
        return []

    def receive(self, data: bytes) -> None:
        """Take the next message.

        Raises:
            WireError: the bytes are not such a message.
            ProtocolError: it is not of the kind awaited now, repeated, or from the wrong sender.
        """
        if self._state is _Server.KEYS:
            self._take_key(data)
        elif self._state is _Server.UPLOADS:
            self._sum.add(self._read(data, Kind.UPLOAD, Role.CLIENT))
            if not self._sum.missing:
                self._state = _Server.RESULT
        elif self._state is _Server.RESULT:
            body = self._read(data, Kind.RESULT, Role.AUTHORITY).body
            self._result = read_words(body, self._plan.layouts)
            self._state = _Server.DONE
        else:
            raise ProtocolError(f"round {self.round} is over")

    def mask_keys(self) -> bytes:
        """All mask keys, for every client.

        Raises:
            ProtocolError: some are missing, or the round has no masks.
        """
        if len(self._keys) < len(self._plan.clients):
            raise ProtocolError(f"round {self.round}: there are not all mask keys")
        return self._seal(Kind.MASK_KEYS, b"".join(self._keys[c] for c in self._plan.clients))

    def sums(self) -> bytes:
        """The encrypted sums, for the authority.

        Raises:
            ProtocolError: uploads are missing; the message counts them.
        """
        if self._state in (_Server.KEYS, _Server.UPLOADS):
            raise ProtocolError(f"round {self.round}: {self._sum.describe_missing()}")
        return self._seal(Kind.SUMS, self._sum.to_bytes())

    def result(self) -> tuple[RingArray, ...]:
        """Ring words of each vector's sum.

        Raises:
            ProtocolError: the authority did not answer yet.
        """
        if self._state is not _Server.DONE:
            raise ProtocolError(f"round {self.round} awaits {self._state.value}")
        return self._result

    def _take_key(self, data: bytes) -> None:
        found = self._read(data, Kind.MASK_KEY, Role.CLIENT)
        if len(found.body) != MASK_KEY_BYTES:
            raise ProtocolError(f"{found.sender} sent a mask key of {len(found.body)} bytes")
        if found.sender.number in self._keys:
            raise ProtocolError(f"round {self.round}: {found.sender} sent a second mask key")
        self._keys[found.sender.number] = data
        if len(self._keys) == len(self._plan.clients):
            self._state = _Server.UPLOADS
