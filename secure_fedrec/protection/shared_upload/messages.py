"""The messages of a round: bodies in the envelope of ``session``, little-endian.

    ADVERT     HPKE public key of this round                                    denoiser to clients
    SHARES     u32 n | u32 row numbers [n] | words [n * (d + 1)]                client to server
    SEED       u32 denoiser | HPKE box of (32 bytes seed | u32 n | u32 row numbers [n])
                                                                                client to denoiser
    HELD       u32 n | (u32 client | 32 bytes support digest) [n]               denoiser to server
    PROPOSAL   as HELD: the set of clients to sum over                          server to denoisers
    CONSENT    32 bytes digest of the proposal's body                           denoiser to server
    AGREEMENT  the CONSENT messages of all denoisers, one each                 server to denoisers
    SUMS       as SHARES: sums of a denoiser's shares over the agreed set       denoiser to server

Row numbers and client numbers ascend. The last of the d + 1 words of a row is its count word. Every
message has one encoding, and anything else is refused.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from hashlib import sha256
from itertools import pairwise

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.arrays import IndexArray, IntArray, RingArray
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.base.row_numbers import decode_row_numbers, encode_row_numbers
from secure_fedrec.protection.routing.sealing import labelled
from secure_fedrec.protection.session import Identity, Node, Role
from secure_fedrec.protection.session.envelope import (
    ENVELOPE_BYTES,
    Envelope,
    Family,
    SignedMessages,
)
from secure_fedrec.protection.shared_upload.round_context import DOMAIN, RoundContext
from secure_fedrec.wire.words import pack_words, unpack_words

_COUNT = struct.Struct("<I")
_MEMBER = struct.Struct("<I32s")
SEED_BYTES = 32

Members = dict[int, bytes]
"""Support digest by client, ascending."""


class Kind(IntEnum):
    """Type of a message."""

    ADVERT = 1
    SHARES = 2
    SEED = 3
    HELD = 4
    PROPOSAL = 5
    CONSENT = 6
    AGREEMENT = 7
    SUMS = 8
    # 9 to 11 have been in use, and are not given to other messages.


_SENDERS = dict.fromkeys((Kind.SHARES, Kind.SEED), Role.CLIENT) | dict.fromkeys(
    (Kind.ADVERT, Kind.HELD, Kind.CONSENT, Kind.SUMS), Role.DENOISER
)


def sign(
    kind: Kind, sender: int, body: bytes, *, context: RoundContext, identity: Ed25519PrivateKey
) -> bytes:
    """A message in its envelope."""
    by = Identity(Node(_SENDERS.get(kind, Role.SERVER), sender), identity)
    return _messages_of(context).seal(kind, body, by)


def open_envelope(data: bytes, kind: Kind, *, context: RoundContext) -> Envelope:
    """Check an envelope (``session.envelope.SignedMessages``).

    Raises:
        WireError: the bytes are not an envelope.
        ProtocolError: another kind, round or context, a sender who is not on the roster or has
            another role, or a signature that is not the sender's.
    """
    found = _messages_of(context).read(data)
    if found.kind != kind or found.sender.role is not _SENDERS.get(kind, Role.SERVER):
        name = Kind(found.kind).name
        raise ProtocolError(f"expected {kind.name}, got {name} of {found.sender}")
    return found


def _messages_of(context: RoundContext) -> SignedMessages:
    return SignedMessages(Family.SHARES, Kind, context.roster, context.round, context.digest)


def encode_rows(rows: IndexArray, words: RingArray, context: RoundContext) -> bytes:
    """Body of SHARES and SUMS; ``words`` is [n, d + 1]."""
    return encode_row_numbers(rows) + pack_words(words, context.codec)


def decode_rows(body: bytes, context: RoundContext, *, width: int) -> tuple[IndexArray, RingArray]:
    """Row numbers int32[n] and words [n, width].

    Raises:
        WireError: the bytes are not as ``encode_rows`` writes them.
    """
    rows, place = decode_row_numbers(body, context.n_items)
    return rows, unpack_words(body[place:], len(rows), width, context.codec)


def decode_seed(plaintext: bytes, context: RoundContext) -> tuple[bytes, IndexArray]:
    """Seed and row numbers.

    Raises:
        WireError: no seed with the numbers of its rows.
    """
    rows, place = decode_row_numbers(plaintext[SEED_BYTES:], context.n_items)
    if len(plaintext) != SEED_BYTES + place:
        raise WireError(f"a seed of {len(plaintext)} bytes names {len(rows)} rows")
    return plaintext[:SEED_BYTES], rows


def encode_members(members: Members) -> bytes:
    """Body of HELD and PROPOSAL."""
    entries = [_MEMBER.pack(client, members[client]) for client in sorted(members)]
    return _COUNT.pack(len(entries)) + b"".join(entries)


def decode_members(body: bytes, context: RoundContext) -> Members:
    """Clients and their support digests.

    Raises:
        WireError: another length, clients that do not ascend or are not on the roster.
    """
    if len(body) < _COUNT.size:
        raise WireError("a set of clients is shorter than its count")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _MEMBER.size:
        raise WireError(f"a set of {len(body)} bytes declares {count} clients")
    entries = list(_MEMBER.iter_unpack(body[_COUNT.size :]))
    clients = [client for client, _ in entries]
    ascending = all(one < other for one, other in pairwise(clients))
    if not ascending or (clients and clients[-1] >= context.clients):
        raise WireError("clients of a set must ascend and be on the roster")
    return dict(entries)


def support_digest(client: int, rows: IndexArray, context: RoundContext) -> bytes:
    """Digest by which server and denoisers check that a client told all of them the same rows."""
    parts = (_COUNT.pack(client), encode_row_numbers(rows))
    return sha256(labelled(DOMAIN, b"support", context.digest, *parts)).digest()


def set_digest(body: bytes, context: RoundContext) -> bytes:
    """Digest that CONSENT signs: of the proposal's body."""
    return sha256(labelled(DOMAIN, b"set", context.digest, body)).digest()


def rows_message_bytes(rows: IntArray, width: int, bytes_per_value: int) -> IntArray:
    """Sizes of SHARES or SUMS messages of so many rows with ``width`` words each."""
    per_row = 4 + width * bytes_per_value
    return np.asarray(ENVELOPE_BYTES + _COUNT.size + per_row * rows, dtype=np.int64)


def seed_message_bytes(rows: IntArray, overhead: int) -> IntArray:
    """Sizes of SEED messages for so many rows; ``overhead`` is that of the key encapsulation."""
    fixed = ENVELOPE_BYTES + 2 * _COUNT.size + SEED_BYTES + overhead
    return np.asarray(fixed + 4 * rows, dtype=np.int64)


def agreement_bytes(clients: int, denoisers: int, public_bytes: int) -> dict[Kind, int]:
    """Size of each message by which denoisers show keys and agree on so many clients.

    Args:
        clients: clients of the round.
        denoisers: denoisers.
        public_bytes: public bytes of a key of the round.
    """
    members = ENVELOPE_BYTES + _COUNT.size + clients * _MEMBER.size
    consent = ENVELOPE_BYTES + 32
    return {
        Kind.ADVERT: ENVELOPE_BYTES + public_bytes,
        Kind.HELD: members,
        Kind.PROPOSAL: members,
        Kind.CONSENT: consent,
        Kind.AGREEMENT: ENVELOPE_BYTES + denoisers * consent,
    }


def split_consents(body: bytes, count: int) -> Sequence[bytes]:
    """The CONSENT messages in an AGREEMENT.

    Raises:
        WireError: the number of messages is not ``count``.
    """
    size = ENVELOPE_BYTES + 32
    if len(body) != count * size:
        raise WireError(f"an agreement of {len(body)} bytes does not hold {count} consents")
    return [body[at : at + size] for at in range(0, len(body), size)]
