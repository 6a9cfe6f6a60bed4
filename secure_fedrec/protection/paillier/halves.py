"""What the halves of both Paillier protocols have in common."""

from collections.abc import Sequence
from enum import Enum

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.paillier.envelopes import Envelope, Identity, Kind, Role, seal
from secure_fedrec.protection.paillier.plans import Plan
from secure_fedrec.protection.session import Node, Parcel, from_server

__all__ = ["Half", "other_protocol"]


class Half:
    """One party of a plan, in a round.

    Args:
        plan: the agreement.
        identity: who it is.
        role: what it must be in the plan.
        round_: the round in progress.

    Raises:
        ConfigError: it has no part in the plan.
    """

    _state: Enum

    def __init__(self, plan: Plan, identity: Identity, role: Role, round_: int) -> None:
        plan.require_party(identity, role)
        self.node = identity.node
        self.round = round_
        """The round in progress."""
        self._plan = plan
        self._identity = identity

    @property
    def stage(self) -> str:
        """What is awaited."""
        return self._state.name

    def _read(self, data: bytes, kind: Kind, sender: Role) -> Envelope:
        return self._plan.read(data, round_=self.round, awaits=kind, sender=sender)

    def _seal(self, kind: Kind, body: bytes, round_: int | None = None) -> bytes:
        """A message of the round in progress, or of the one that is named."""
        number, context = self.round if round_ is None else round_, self._plan.context
        return seal(self._identity, kind, round_=number, context=context, body=body)

    def _require(self, state: Enum) -> None:
        """Check that the step is the next one."""
        if self._state is not state:
            raise ProtocolError(
                f"round {self.round}: {self.node} refuses the step {state.value}; its next step is "
                f"{self._state.value}"
            )

    @staticmethod
    def _to_clients(clients: Sequence[int], kind: Kind, data: bytes) -> list[Parcel]:
        return from_server((Node(Role.CLIENT, client) for client in clients), kind.name, data)


def other_protocol(plan: Plan, holder: str) -> ConfigError:
    """Refusal of a plan whose key somebody else holds."""
    key, found = "protection.paillier.holder", plan.holding.holder
    return ConfigError(key, found, "is not this protocol's", [holder])
