"""The envelope of every message, version 5.

All numbers are little-endian:

    u8 version | u8 kind | u32 sender | 16 round id | 32 config hash | 32 roster hash
    | 32 cohort hash | u32 size of head | head | proof | payload

What others than the receiver must be able to check is signed: the proof is the sender's Ed25519
signature (RFC 8032) over a label and all that stands before it. The payload of a signed message is
data that differs per receiver and proves itself (signed advertisements, encrypted boxes, Merkle
paths), so the server signs a step once, whatever the number of clients.

Messages that only the server checks, SHARES (whose boxes authenticate themselves to the
neighbours), UPLOAD and REVEAL, carry a 16-byte AES-256-GMAC over header, head and payload, under a
key that comes from the two parties' signed channel keys and serves this one message. It costs a
fraction of a signature, and for a vector of 4 MB a fifth of the hash that a signature would need.
The part of an UPLOAD that neighbours must be able to check is signed inside its head.

Decoding is strict: truncated and trailing bytes, other versions, unknown kinds and unsorted lists
are refused with ``ProtocolError``.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from hmac import compare_digest
from types import MappingProxyType
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session.nodes import SERVER_NUMBER
from secure_fedrec.protection.session.roster import signed_by
from secure_fedrec.protection.session.statement import labelled_hash

VERSION = 5
"""Version of the wire: version 1 had no signature over the sharers in UPLOAD and SURVIVORS, and no
generation of the journal in ADVERTISE; version 2 had no committee in its configuration; in version
3 the public state was not signed with the sharers, and a curious server asked for CONFIRM; in
version 4 signatures covered the public state alone of the statement, and masks nothing of it."""

SERVER = SERVER_NUMBER
"""Sender number of the server; no client may have it."""

SIGNATURE_BYTES = 64
MAC_BYTES = 16
_SIGNATURE_LABEL = b"secure-fedrec|v1|masking|message|"
_HEADER = struct.Struct("<BBI16s32s32s32sI")
_ROUND = slice(6, 14)
_NONCE = bytes(12)  # each MAC key serves one message
_MAC_KEY_BYTES = 32


class Kind(IntEnum):
    """What a message is; R0 to R6 are the steps of the round."""

    SETUP = 1
    """R0, server to client: configuration, cohort, the server's channel key."""
    ADVERTISE = 2
    """R1, client to server: public keys of the round."""
    KEYS = 3
    """R1, server to client: clients that advertised, and the neighbours' advertisements."""
    SHARES = 4
    """R2, client to server: encrypted shares for each neighbour."""
    BOXES = 5
    """R2, server to client: clients that shared, and the neighbours' shares."""
    UPLOAD = 6
    """R3, client to server: the masked vector."""
    SURVIVORS = 7
    """R4, server to client: clients whose vectors are in the sum."""
    CONFIRM = 8
    """R4, client to server: signature on that set; against an active server only."""
    QUORUM = 9
    """R4, server to client: enough signatures on one and the same set; as CONFIRM."""
    REVEAL = 10
    """R5, client to server: own self-mask seed and one share per neighbour."""
    RESULT = 11
    """R6, server to client: digest of the sum, root of the transcript, receipt."""


_KINDS = {int(kind): kind for kind in Kind}
MAC_PURPOSES: Final = MappingProxyType(
    {Kind.SHARES: "shares-mac", Kind.UPLOAD: "upload-mac", Kind.REVEAL: "reveal-mac"}
)
"""Kinds that carry a MAC in the place of a signature, and the purpose of each one's key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What every message of a round is bound to.

    Args:
        round_id: 16 bytes: the round's number (u64) and 8 bytes of the server's choice.
        config_hash: hash of the configuration.
        roster_hash: hash of the roster.
        cohort_hash: hash of the cohort's list.
    """

    round_id: bytes
    config_hash: bytes
    roster_hash: bytes
    cohort_hash: bytes

    def prefix(self, kind: Kind, sender: int, head: bytes) -> bytes:
        """Header and head of a message: what its signature covers."""
        header = _HEADER.pack(
            VERSION,
            kind,
            sender,
            self.round_id,
            self.config_hash,
            self.roster_hash,
            self.cohort_hash,
            len(head),
        )
        return header + head


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A message taken apart; nothing in it has been verified yet.

    Args:
        kind: kind of the message.
        sender: client number, or ``SERVER``.
        context: the round that it names.
        proven: header, head and proof: this message's leaf in a transcript.
        head: what is signed or authenticated beside the header.
        payload: what stands behind the proof.
        proof: signature, or MAC of a kind in ``MAC_PURPOSES``.
    """

    kind: Kind
    sender: int
    context: Context
    proven: bytes
    head: bytes
    payload: memoryview
    proof: bytes

    @classmethod
    def decode(cls, data: bytes) -> "Envelope":
        """Take a message apart.

        Raises:
            ProtocolError: it is too short, of another version, or of an unknown kind.
        """
        if len(data) < _HEADER.size:
            raise ProtocolError(f"a message has a header of {_HEADER.size} bytes, got {len(data)}")
        version, kind, sender, round_id, config, roster, cohort, size = _HEADER.unpack_from(data)
        if version != VERSION:
            raise ProtocolError(f"message of version {version}; this is version {VERSION}")
        if kind not in _KINDS:
            raise ProtocolError(f"unknown kind of message: {kind}")
        end = _HEADER.size + size
        start = end + (MAC_BYTES if kind in MAC_PURPOSES else SIGNATURE_BYTES)
        if len(data) < start:
            raise ProtocolError(f"{_KINDS[kind].name}: truncated")
        view = memoryview(data)
        return cls(
            kind=_KINDS[kind],
            sender=sender,
            context=Context(
                round_id=round_id, config_hash=config, roster_hash=roster, cohort_hash=cohort
            ),
            proven=bytes(view[:start]),
            head=bytes(view[_HEADER.size : end]),
            payload=view[start:],
            proof=bytes(view[end:start]),
        )

    def require_no_payload(self) -> None:
        """Refuse bytes behind the proof, where the kind has none.

        Raises:
            ProtocolError: there are bytes behind the proof.
        """
        if len(self.payload):
            raise ProtocolError(f"{self.kind.name}: {len(self.payload)} trailing bytes")

    def verify(self, public_key: bytes) -> None:
        """Check the signature of the sender.

        Raises:
            ProtocolError: the signature is missing or not by this key.
        """
        signed = self.proven[: -len(self.proof)]
        _verify(public_key, self.kind, self.sender, signed, self.proof)

    def authenticate(self, key: bytes) -> None:
        """Check the MAC of a message for the server alone.

        Raises:
            ProtocolError: the MAC was not made with this key.
        """
        prefix = self.proven[: -len(self.proof)]
        if not compare_digest(_mac(key, prefix, self.payload), self.proof):
            raise ProtocolError(f"{self.kind.name}: bad MAC of client {self.sender}")


def seal(
    key: Ed25519PrivateKey,
    context: Context,
    kind: Kind,
    sender: int,
    head: bytes,
    payload: bytes | memoryview = b"",
) -> bytes:
    """Sign and encode a message."""
    prefix = context.prefix(kind, sender, head)
    return b"".join((prefix, key.sign(_SIGNATURE_LABEL + prefix), payload))


def seal_for_server(
    key: bytes,
    context: Context,
    kind: Kind,
    sender: int,
    head: bytes,
    payload: bytes | memoryview = b"",
) -> bytes:
    """Encode a message with a MAC under a key that serves no other message."""
    prefix = context.prefix(kind, sender, head)
    return b"".join((prefix, _mac(key, prefix, payload), payload))


def verify(
    public_key: bytes, context: Context, kind: Kind, sender: int, head: bytes, signature: bytes
) -> None:
    """Check the signature on a message of which only head and signature were sent.

    Raises:
        ProtocolError: it is not a signature of this message by this key.
    """
    _verify(public_key, kind, sender, context.prefix(kind, sender, head), signature)


def _verify(public_key: bytes, kind: Kind, sender: int, signed: bytes, signature: bytes) -> None:
    if not signed_by(public_key, _SIGNATURE_LABEL + signed, signature):
        name = "the server" if sender == SERVER else f"client {sender}"
        raise ProtocolError(f"{kind.name}: bad signature of {name}")


def _mac(key: bytes, prefix: bytes, payload: bytes | memoryview) -> bytes:
    # The prefix holds its own length, so where it ends is not in doubt.
    if len(payload) == 0 and len(key) == _MAC_KEY_BYTES:  # the same tag in a third of the calls
        return AESGCM(key).encrypt(_NONCE, b"", prefix)
    gmac = Cipher(algorithms.AES256(key), modes.GCM(_NONCE)).encryptor()
    gmac.authenticate_additional_data(prefix)
    gmac.authenticate_additional_data(payload)
    gmac.finalize()
    return gmac.tag


def round_number(data: bytes) -> int:
    """The round's number that an unverified message names; 0 if the bytes are not a message."""
    return int.from_bytes(data[_ROUND], "little")


def encode_ids(ids: IntArray) -> bytes:
    """u32 client numbers, one after the other."""
    return ids.astype("<u4").tobytes()


def cohort_hash(cohort: IntArray) -> bytes:
    """Hash of the clients of a round (int64[n], ascending)."""
    return labelled_hash("cohort", encode_ids(cohort))
