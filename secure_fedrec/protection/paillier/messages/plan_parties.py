"""Common parts of the halves of both arrangements: the party's identity and the agreed plan."""

from collections.abc import Iterable
from enum import Enum

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.messages.plans import Plan
from secure_fedrec.protection.paillier.scheme.encryption import Encryptor
from secure_fedrec.protection.session import SERVER, Identity, Node, Parcel, Role, from_server
from secure_fedrec.protection.session.envelope import Envelope


class Half:
    """One party of a plan.

    Args:
        plan: the agreement.
        identity: the identity of this party.
        role: the part it plays.
        holder: the party that holds the key in this protocol.
        round_: the round in progress.

    Raises:
        ConfigError: the plan is another protocol's, or does not have such a part for this party.
    """

    def __init__(
        self, plan: Plan, identity: Identity, role: Role, *, holder: str, round_: int
    ) -> None:
        found = plan.holding.holder
        if found != holder:
            key = "protection.paillier.holder"
            raise ConfigError(key, found, "is not this protocol's", [holder])
        plan.require_party(identity, role)
        self.node = identity.node
        self.round = round_
        """The round in progress."""
        self._plan = plan
        self._identity = identity

    def _read(self, data: bytes, kind: Kind, sender: Role) -> Envelope:
        return self._plan.read(data, round_=self.round, awaits=kind, sender=sender)

    def _seal(self, kind: Kind, body: bytes) -> bytes:
        return self._plan.messages(self.round).seal(kind, body, self._identity)

    def _parcel(self, kind: Kind, data: bytes) -> Parcel:
        return Parcel(self.node, SERVER, kind.name, data)


class ClientHalf(Half):
    """A client, which takes its steps in a fixed order; the value of a state names the next one.

    Args:
        plan: the agreement; its ``minimum`` is this client's own.
        identity: the identity of this party.
        encryptor: under the plan's key.
        holder: the party that holds the key in this protocol.
        round_: the round in progress.

    Raises:
        ConfigError: as of a ``Half``, or the encryptor is of another key.
    """

    _state: Enum

    def __init__(
        self, plan: Plan, identity: Identity, encryptor: Encryptor, *, holder: str, round_: int
    ) -> None:
        super().__init__(plan, identity, Role.CLIENT, holder=holder, round_=round_)
        if encryptor.key != plan.key:
            raise ConfigError("paillier.encryptor", encryptor.key, "is of another key")
        self._encryptor = encryptor

    def _require(self, state: Enum) -> None:
        if self._state is not state:
            raise ProtocolError(
                f"round {self.round}: {self.node} refuses the step {state.value}; its next step is "
                f"{self._state.value}"
            )


class ServerHalf(Half):
    """The server, which adds ciphertexts; the value of its state names what is due."""

    _state: Enum

    @property
    def stage(self) -> str:
        """What is awaited."""
        return self._state.name

    @staticmethod
    def _ask(clients: Iterable[int], kind: Kind, data: bytes) -> list[Parcel]:
        return from_server((Node(Role.CLIENT, client) for client in clients), kind.name, data)
