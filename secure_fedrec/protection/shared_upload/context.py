"""What all parties of a round agree on before it, and the names under which they sign.

The context's digest stands in the header of every message and in every key derivation: a message of
another round, ring, roster or floor is refused, whoever signed it.
"""

import struct
from dataclasses import dataclass, field
from hashlib import sha256

from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.routing.sealing import Kem, labelled, require_kem

__all__ = ["DOMAIN", "LEAST_FLOOR", "Roster", "RoundContext"]

DOMAIN = b"secure-fedrec|hardened-denoisers|v1"
"""Both hardened forms of denoisers share contexts and envelopes; their messages have own types."""
LEAST_FLOOR = 2
"""A sum over one client is that client's upload."""

_KEY_BYTES = 32
_SETTINGS = struct.Struct("<BBBBdIIIII16s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Ed25519 public keys of the parties, pinned by all of them beforehand.

    Args:
        server: key of the server.
        denoisers: keys of the denoisers, in order of their numbers.
        clients: keys of the clients, in order of their numbers.

    Raises:
        ConfigError: no denoiser, no client, a key of another size, or one that occurs twice.
    """

    server: bytes
    denoisers: tuple[bytes, ...]
    clients: tuple[bytes, ...]
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        keys = (self.server, *self.denoisers, *self.clients)
        if not self.denoisers or not self.clients:
            raise ConfigError("roster", len(keys), "needs a server, a denoiser and a client")
        if any(len(key) != _KEY_BYTES for key in keys):
            raise ConfigError("roster", "...", f"an Ed25519 public key has {_KEY_BYTES} bytes")
        if len(set(keys)) != len(keys):
            raise ConfigError("roster", "...", "a key stands for two parties")
        groups = [b"".join(group) for group in ((self.server,), self.denoisers, self.clients)]
        digest = sha256(labelled(DOMAIN, b"roster", *groups)).digest()
        object.__setattr__(self, "digest", digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundContext:
    """One round.

    Args:
        codec: the ring.
        n_items: rows of the shared table.
        width: values per row.
        floor: fewest clients over which anything is summed.
        kem: key encapsulation of the sealed seeds.
        roster: who takes part.
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
        clients = len(self.roster.clients)
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
        settings = _SETTINGS.pack(
            self.codec.bits,
            self.codec.fraction_bits,
            mechanism.code,
            0,
            self.codec.clip,
            self.n_items,
            self.width,
            self.floor,
            self.round,
            0,
            self.round_id,
        )
        digest = sha256(labelled(DOMAIN, b"context", settings, self.roster.digest)).digest()
        object.__setattr__(self, "digest", digest)

    @property
    def mechanism(self) -> Kem:
        """The key encapsulation of the sealed seeds."""
        return require_kem("protection.kem", self.kem)
