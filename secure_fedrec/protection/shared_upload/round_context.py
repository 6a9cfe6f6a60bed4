"""The settings that all parties of a round agree on before it, and the names under which they sign.

The context's digest stands in the header of every message and in every key derivation: a message of
another round, ring, roster or floor is refused, also if correctly signed.
"""

import struct
from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.routing.sealing import Kem, labelled, require_kem
from secure_fedrec.protection.session import Node, Role, Roster

DOMAIN = b"secure-fedrec|hardened-denoisers|v1"
"""Prefix of hashed data and of data from which keys are derived."""
LEAST_FLOOR = 2
"""A sum over one client is that client's upload."""

_SETTINGS = struct.Struct("<BBBBdIIIII16s")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundContext:
    """One round.

    Args:
        codec: the ring.
        n_items: rows of the shared table.
        width: values per row.
        floor: fewest clients over which anything is summed.
        kem: key encapsulation of the sealed seeds.
        roster: the parties that take part.
        round: number of the round, from 1.
        round_id: 16 bytes that never occur twice.

    Raises:
        ConfigError: a field is out of range, or the floor is above the number of clients.
        SumBudgetError: a sum over all clients could leave the ring.
    """

    codec: FixedPoint
    n_items: int
    width: int
    floor: int
    roster: Roster
    round: int
    round_id: bytes
    kem: str = "x25519"
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        mechanism = require_kem("protection.kem", self.kem)
        if not self.roster.count(Role.DENOISER):
            raise ConfigError("roster", 0, "needs a denoiser")
        clients = self.roster.count(Role.CLIENT)
        for key, value, least, most in (
            ("n_items", self.n_items, 1, 2**31 - 1),
            ("width", self.width, 1, 2**16 - 1),
            ("protection.floor", self.floor, LEAST_FLOOR, clients),
            ("round", self.round, 1, 2**32 - 1),
            ("round_id", len(self.round_id), 16, 16),
        ):
            if not least <= value <= most:
                raise ConfigError(key, value, f"must be between {least} and {most}")
        self.codec.require_budget(clients)
        codec = self.codec
        numbers = self.n_items, self.width, self.floor, self.round, 0
        settings = _SETTINGS.pack(
            codec.bits, codec.fraction_bits, mechanism.code, 0, codec.clip, *numbers, self.round_id
        )
        digest = sha256(labelled(DOMAIN, b"context", settings, self.roster.hash)).digest()
        object.__setattr__(self, "digest", digest)

    @property
    def denoisers(self) -> int:
        """How many there are."""
        return self.roster.count(Role.DENOISER)

    @property
    def clients(self) -> int:
        """Clients of the roster, numbered from 0."""
        return self.roster.count(Role.CLIENT)

    def require_key(self, node: Node, identity: Ed25519PrivateKey) -> None:
        """Check that a party signs with the key that the roster lists.

        Raises:
            ProtocolError: the party has another key, or is not listed.
        """
        mine = identity.public_key().public_bytes_raw()
        if node not in self.roster or self.roster.key_of(node) != mine:
            raise ProtocolError(f"the roster has another key for {node}")

    @property
    def mechanism(self) -> Kem:
        """The key encapsulation of the sealed seeds."""
        return require_kem("protection.kem", self.kem)
