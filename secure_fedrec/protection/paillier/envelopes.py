"""Signed messages: who says what, in which round, under which agreement.

Every message of the interactive halves is one envelope, version 1, little-endian:

    "SFPE" | u8 version | u8 kind | u8 role | u8 0 | u32 sender | u64 round | context [32]
    u64 body length | body | Ed25519 signature [64]

The signature covers a domain string and everything before it. ``context`` is the hash of all that
the parties agreed on beforehand (``plans``), so a message of another federation, cohort, key or
layout is refused before its body is read.
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.protection.session.nodes import Node as Party
from secure_fedrec.protection.session.nodes import Role

__all__ = [
    "ENVELOPE_BYTES",
    "SIGNATURE_BYTES",
    "Envelope",
    "Identity",
    "Kind",
    "Party",
    "Role",
    "Roster",
    "open_envelope",
]

_MAGIC = b"SFPE"
_VERSION = 1
_HEAD = struct.Struct("<4sBBBBIQ32sQ")
SIGNATURE_BYTES = 64
"""Bytes at the end of a message."""

_SIGNATURE_DOMAIN = b"secure-fedrec|v1|paillier|message|"
_ROSTER_DOMAIN = b"secure-fedrec|v1|paillier|roster|"
_ROSTER_ENTRY = struct.Struct("<BI32s")

ENVELOPE_BYTES = _HEAD.size + SIGNATURE_BYTES
"""Bytes of a message beside its body."""


class Kind(IntEnum):
    """What a message is for; the number is its code on the wire."""

    MASK_KEY = 1
    """Client to server: its X25519 public key of the round."""
    MASK_KEYS = 2
    """Server to clients: all of these messages."""
    UPLOAD = 3
    """Client to server: encrypted vectors."""
    SUMS = 4
    """Server to the key holder: encrypted sums."""
    RESULT = 5
    """Authority to server: the sums."""
    TABLE = 6
    """Server to clients: the encrypted item table and the digest both updaters gave for it."""
    UPDATE = 7
    """Updating client to server: the next table, encrypted anew, and its digest."""


class Identity:
    """A party with its signing key.

    Args:
        party: who it is.
        key: its long-term Ed25519 key.
    """

    __slots__ = ("_key", "party")

    def __init__(self, party: Party, key: Ed25519PrivateKey) -> None:
        self.party = party
        self._key = key

    @classmethod
    def generate(cls, party: Party) -> "Identity":
        """A new identity, from the operating system's randomness."""
        return cls(party, Ed25519PrivateKey.generate())

    def __repr__(self) -> str:
        return f"Identity({self.party})"

    @property
    def public(self) -> bytes:
        """The verification key, 32 bytes, for the roster."""
        return self._key.public_key().public_bytes_raw()

    def seal(self, kind: Kind, *, round_: int, context: bytes, body: bytes) -> bytes:
        """Sign a message."""
        head = _HEAD.pack(
            _MAGIC,
            _VERSION,
            kind,
            self.party.role,
            0,
            self.party.number,
            round_,
            context,
            len(body),
        )
        return head + body + self._key.sign(_SIGNATURE_DOMAIN + head + body)


class Roster:
    """Everybody's verification key.

    The roster is the root of what the protocol believes. Against an active server it must come
    from somebody else.

    Args:
        keys: Ed25519 verification key of each party, 32 bytes each.

    Raises:
        ConfigError: a key that is none, one key for two parties, or no server.
    """

    __slots__ = ("_keys", "digest")

    def __init__(self, keys: Mapping[Party, bytes]) -> None:
        if Party(Role.SERVER) not in keys:
            raise ConfigError("paillier.roster", len(keys), "names no server")
        if len(set(keys.values())) != len(keys):
            raise ConfigError("paillier.roster", len(keys), "one key stands for two parties")
        if any(len(key) != 32 for key in keys.values()):
            raise ConfigError("paillier.roster", len(keys), "a key does not have 32 bytes")
        ordered = sorted(keys.items())
        self._keys = {party: Ed25519PublicKey.from_public_bytes(key) for party, key in ordered}
        entries = b"".join(_ROSTER_ENTRY.pack(p.role, p.number, key) for p, key in ordered)
        self.digest = hashlib.sha256(_ROSTER_DOMAIN + entries).digest()
        """SHA-256 of all entries in order."""

    def __contains__(self, party: Party) -> bool:
        """Whether a party is listed."""
        return party in self._keys

    def require_signed(self, party: Party, signed: bytes, signature: bytes) -> None:
        """Check a signature.

        Raises:
            ProtocolError: the party is not listed, or did not sign this.
        """
        if party not in self._keys:
            raise ProtocolError(f"{party} is not in the roster")
        try:
            self._keys[party].verify(signature, _SIGNATURE_DOMAIN + signed)
        except InvalidSignature:
            raise ProtocolError(f"a message of {party} has a bad signature") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A message whose signature was checked.

    Args:
        kind: what it is for.
        sender: who signed it.
        body: its content, not looked at yet.
    """

    kind: Kind
    sender: Party
    body: bytes


def open_envelope(data: bytes, *, roster: Roster, round_: int, context: bytes) -> Envelope:
    """Read one message of a round.

    Args:
        data: exactly the bytes that ``Identity.seal`` made.
        roster: everybody's verification key.
        round_: the round in progress.
        context: hash of the agreement.

    Raises:
        WireError: the bytes are no message.
        ProtocolError: a message of another agreement or round, of a party that is not in the
            roster, or not signed by its sender.
    """
    if len(data) < ENVELOPE_BYTES:
        raise WireError(f"message of {len(data)} bytes is shorter than an empty one")
    magic, version, kind, role, zero, number, stated, agreed, size = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or zero:
        raise WireError("message has an unknown format or version")
    if kind not in set(Kind) or role not in set(Role):
        raise WireError("message has an unknown kind or role")
    if len(data) != ENVELOPE_BYTES + size:
        raise WireError(f"message of {len(data)} bytes declares a body of {size}")
    try:
        sender = Party(Role(role), number)
    except ConfigError:
        raise WireError(f"message of a {Role(role).name.lower()} numbered {number}") from None
    if agreed != context:
        raise ProtocolError(f"a message of {sender} belongs to another agreement")
    signed, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    roster.require_signed(sender, signed, signature)
    if stated != round_:
        raise ProtocolError(f"round {round_}: got a message of {sender} from round {stated}")
    return Envelope(kind=Kind(kind), sender=sender, body=data[_HEAD.size : -SIGNATURE_BYTES])
