"""Signed messages: sender, content, round and agreement.

The envelope of every protocol whose messages are signed whole, version 2, little-endian:

    u8 version | u8 protocol | u8 kind | u8 role | u32 sender | u64 round | 32 context
    | body | 64 Ed25519 signature

The signature covers a domain string and everything before it. ``context`` is the hash of all that
the parties agreed on beforehand, so a message of another protocol, federation, cohort, key or
layout is refused before its body is read. Masking, whose server signs a step once for all clients
and whose uploads carry MACs, has an envelope of its own (``masking.envelope``).
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.session.nodes import Node, node_of
from secure_fedrec.protection.session.roster import Identity, Roster, signed_by

_VERSION = 2
_HEAD = struct.Struct("<BBBBIQ32s")
_DOMAIN = b"secure-fedrec|v2|session|message|"

SIGNATURE_BYTES = 64
"""Bytes at the end of a message."""

ENVELOPE_BYTES = _HEAD.size + SIGNATURE_BYTES
"""Bytes of a message beside its body."""


class Family(IntEnum):
    """Protocols that share the envelope; the number is their code on the wire."""

    PAILLIER = 1
    SHARES = 2
    PLAIN = 3
    HOSTS = 4
    BAGS = 5
    ROUTING = 6
    DENOISING = 7
    PEERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A message whose signature was checked.

    Args:
        kind: code of its kind.
        sender: the party that signed it.
        body: its content, not looked at yet.
    """

    kind: int
    sender: Node
    body: bytes


def is_of(data: bytes, family: Family) -> bool:
    """Whether bytes claim to be a message of a protocol."""
    return data[:2] == bytes([_VERSION, family])


@dataclass(frozen=True, slots=True)
class SignedMessages:
    """The messages of one protocol in one round, all under one agreement.

    Args:
        family: the protocol.
        kinds: its kinds of messages.
        roster: verification keys of all parties.
        round: the round in progress.
        context: hash of the agreement, 32 bytes.
    """

    family: Family
    kinds: type[IntEnum]
    roster: Roster
    round: int
    context: bytes

    def seal(self, kind: int, body: bytes, by: Identity) -> bytes:
        """Sign a message of a kind."""
        node = by.node
        head = _HEAD.pack(
            _VERSION, self.family, kind, node.role, node.number, self.round, self.context
        )
        return head + body + by.key.sign(_DOMAIN + head + body)

    def read(self, data: bytes) -> Envelope:
        """Read a message of any kind: form first, then agreement, signature and round.

        Args:
            data: exactly the bytes that ``seal`` made.

        Raises:
            WireError: the bytes are not a message, or of an unknown kind.
            ProtocolError: a message of another protocol, agreement or round, of a party that is not
                on the roster, or not signed by its sender.
        """
        if len(data) < ENVELOPE_BYTES:
            raise WireError(f"message of {len(data)} bytes is shorter than an empty one")
        version, protocol, kind, role, number, stated, agreed = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise WireError(f"message of version {version}; this is version {_VERSION}")
        if protocol != self.family:
            raise WireError("message of another protocol")
        sender = node_of(role, number)
        if agreed != self.context:
            raise ProtocolError(f"a message of {sender} belongs to another agreement")
        signed, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
        if not signed_by(self.roster.key_of(sender), _DOMAIN + signed, signature):
            raise ProtocolError(f"a message of {sender} has a bad signature")
        if stated != self.round:
            raise ProtocolError(
                f"round {self.round}: got a message of {sender} from round {stated}"
            )
        if kind not in set(self.kinds):
            raise WireError(f"a message of an unknown kind: {kind}")
        return Envelope(kind=kind, sender=sender, body=data[_HEAD.size : -SIGNATURE_BYTES])

    def open(self, data: bytes, kind: IntEnum) -> tuple[Node, bytes]:
        """Sender and body of a message of one kind.

        Raises:
            WireError: the bytes are not a message.
            ProtocolError: it is of another kind or agreement, or not signed by its sender.
        """
        found = self.read(data)
        if found.kind != kind:
            raise ProtocolError(f"expected {kind.name}, got {self.kinds(found.kind).name}")
        return found.sender, found.body
