"""The plan that all parties agree on before the first message.

Each party builds the plan from its own configuration and does not take it from the server. Every
message carries the hash of the plan, so parties that do not agree refuse one another at once.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.paillier.key_holders import KeyHolding
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.scheme.keys import PublicKey
from secure_fedrec.protection.paillier.scheme.slots import SlotLayout
from secure_fedrec.protection.session import Identity, Role, Roster
from secure_fedrec.protection.session import Node as Party
from secure_fedrec.protection.session.envelope import Envelope, Family, SignedMessages

_CONTEXT_DOMAIN = b"secure-fedrec|v3|paillier|context|"
_TABLE_DOMAIN = b"secure-fedrec|v1|paillier|table-context|"
_SMALLEST_COHORT = 3  # of two, each knows the other's upload from the sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The agreement.

    Args:
        holding: which parties hold the key, and against which parties.
        key: the public key.
        roster: verification keys of all parties.
        clients: numbers of the clients of the cohort, ascending; every one takes part.
        layouts: layouts of the vectors that each client uploads, in order.
        table: layout of the item table, which is encrypted but never added; only where the clients
            hold the key.
        minimum: fewest clients in a sum that this party accepts; each party has its own.
        federation: distinguishes this series of rounds from every other under the same keys, in
            which round numbers begin anew; 16 bytes of the operating system's generator, say.
        attempt: distinguishes attempts at one round, where it may be begun again; a table is valid
            in all of them.

    Raises:
        ConfigError: fewer clients than the minimum, a minimum below 3, a client or a key holder
            that is not in the roster, clients that do not ascend, or layouts whose kind or budget
            does not fit.
    """

    holding: KeyHolding
    key: PublicKey
    roster: Roster
    clients: tuple[int, ...]
    layouts: tuple[SlotLayout, ...]
    table: SlotLayout | None = None
    minimum: int = _SMALLEST_COHORT
    federation: bytes = b""
    attempt: bytes = b""

    def __post_init__(self) -> None:
        if self.minimum < _SMALLEST_COHORT:
            raise ConfigError(
                "protection.paillier.minimum",
                self.minimum,
                f"must be at least {_SMALLEST_COHORT}: of two clients each knows the other's "
                "upload from the sum",
            )
        if len(self.clients) < self.minimum:
            problem = f"the cohort is below the minimum of {self.minimum}"
            raise ConfigError("protection.paillier.clients", len(self.clients), problem)
        if any(left >= right for left, right in zip(self.clients, self.clients[1:], strict=False)):
            raise ConfigError("protection.paillier.clients", self.clients, "must ascend")
        self._require_listed()
        self._require_layouts()

    def _require_listed(self) -> None:
        parties = [Party(Role.CLIENT, number) for number in self.clients]
        if self.holding.holder == "authority":
            parties.append(Party(Role.AUTHORITY))
        for party in parties:
            if party not in self.roster:
                raise ConfigError("paillier.roster", str(party), "is not in the roster")

    def _require_layouts(self) -> None:
        if not self.layouts:
            raise ConfigError("paillier.layouts", (), "there is nothing to sum")
        for layout in self.layouts:
            layout.slots(self.key.bits)  # refuses a key without room
            if layout.whole_ring != self.holding.masked:
                raise ConfigError(
                    "paillier.layouts", layout, "its kind of slots differs from the key holding"
                )
            if layout.budget < len(self.clients):
                problem = f"{len(self.clients)} clients would overspend it"
                raise ConfigError("paillier.budget", layout.budget, problem)
        if (self.table is not None) != (self.holding.holder == "clients"):
            raise ConfigError(
                "paillier.table", self.table, "an encrypted table goes with a key held by clients"
            )
        if self.table is not None and self.table.budget != 1:
            raise ConfigError(
                "paillier.table", self.table.budget, "a table is never added: budget 1"
            )

    @property
    def table_layout(self) -> SlotLayout:
        """Layout of the item table.

        Raises:
            ConfigError: the plan does not have one.
        """
        if self.table is None:
            raise ConfigError("paillier.table", None, "a key held by clients goes with a table")
        return self.table

    @property
    def context(self) -> bytes:
        """SHA-256 over the whole agreement; a party's own minimum is not part of it."""
        holding = self.holding
        parts = [
            holding.holder.encode(),
            holding.adversary.encode(),
            bytes([holding.masked]),
            self.key.key_id,
            self.roster.hash,
            struct.pack(f"<{len(self.clients)}I", *self.clients),
            *(layout.to_bytes() for layout in self.layouts),
            b"" if self.table is None else self.table.to_bytes(),
            self.federation,
            self.attempt,
        ]
        return _digest(_CONTEXT_DOMAIN, parts)

    @property
    def table_context(self) -> bytes:
        """SHA-256 over key, roster, table layout and federation: equal for all cohorts."""
        table = b"" if self.table is None else self.table.to_bytes()
        return _digest(_TABLE_DOMAIN, [self.key.key_id, self.roster.hash, table, self.federation])

    def require_party(self, identity: Identity, role: Role) -> None:
        """Check that an identity may play a part.

        Raises:
            ConfigError: the role is wrong, or the client is outside the cohort.
        """
        party = identity.node
        inside = role is not Role.CLIENT or party.number in self.clients
        if party.role is not role or not inside or party not in self.roster:
            raise ConfigError("paillier.identity", str(party), "has no part in this plan")

    def messages(self, round_: int) -> SignedMessages:
        """All messages of a round."""
        return SignedMessages(Family.PAILLIER, Kind, self.roster, round_, self.context)

    def read(self, data: bytes, *, round_: int, awaits: Kind, sender: Role) -> Envelope:
        """Open the one kind of message that a state accepts.

        Raises:
            WireError: the bytes are not a message.
            ProtocolError: a message of another agreement, round, kind or role, of a client outside
                the cohort, or with a bad signature.
        """
        found = self.messages(round_).read(data)
        if found.kind != awaits or found.sender.role is not sender:
            raise ProtocolError(
                f"round {round_} awaits {awaits.name} from a {sender.name.lower()}, got "
                f"{Kind(found.kind).name} from {found.sender}"
            )
        if sender is Role.CLIENT and found.sender.number not in self.clients:
            raise ProtocolError(f"{found.sender} is not in the cohort")
        return found


def _digest(domain: bytes, parts: Sequence[bytes]) -> bytes:
    digest = hashlib.sha256(domain)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()
