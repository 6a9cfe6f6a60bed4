"""Keys of a round: fresh secrets, key agreement, and derivation with domain separation.

Every key is derived by HKDF-SHA256 (RFC 5869) with the round's identity as salt and an ``info``
that names the purpose and, with length prefixes, all that the key is bound to. No key has two uses.

A client's mask key pair comes from a uniform field element s (``shamir``): the secret that its
neighbours hold shares of *is* that element, and the server can check a recovered one against the
public key that the client signed.
"""

import secrets
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking.envelope import MAC_PURPOSES, Context
from secure_fedrec.protection.masking.messages.shamir import PRIME, encode_element

SERVER_PURPOSES: Final = (*MAC_PURPOSES.values(), "reveal-box")
"""Purposes of keys between a client and the server, in the order in which they are derived."""

TAG_BYTES = 16
_KEY_BYTES = 32
# A box key encrypts exactly one message, so its nonce can be constant.
_NONCE = bytes(12)
_LOW_ORDER = frozenset(
    (
        0,
        1,
        PRIME - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
)
"""Coordinates of the points of order 1, 2, 4 and 8 on Curve25519 and its twist."""


def fresh_key() -> bytes:
    """32 bytes from the operating system's generator; the root of every ephemeral key."""
    return secrets.token_bytes(32)


def fresh_element() -> int:
    """A uniform element of the field, from the operating system's generator."""
    while True:
        element = int.from_bytes(fresh_key(), "little") >> 1
        if element < PRIME:
            return element


def derive(secret: bytes, purpose: str, context: Context, *parts: bytes, size: int = 32) -> bytes:
    """A key for one purpose.

    Args:
        secret: input key material.
        purpose: purpose of the key.
        context: the round; its identity is the salt, its hashes are bound.
        parts: further values that the key is bound to, in a fixed order.
        size: bytes wanted.
    """
    hashes = context.config_hash + context.roster_hash + context.cohort_hash
    bound = (b"secure-fedrec|v1|masking", purpose.encode(), hashes, *parts)
    info = b"".join([len(part).to_bytes(2, "little") + part for part in bound])
    return HKDF(algorithm=SHA256(), length=size, salt=context.round_id, info=info).derive(secret)


def mask_private_key(element: int, context: Context, owner: int) -> X25519PrivateKey:
    """The X25519 key that a client's secret field element stands for."""
    raw = derive(encode_element(element), "mask-key", context, _number(owner))
    return X25519PrivateKey.from_private_bytes(raw)


def exchange(private: X25519PrivateKey, public: bytes) -> bytes:
    """X25519 (RFC 7748).

    Raises:
        ProtocolError: the public key has low order, so the result would not depend on ours.
    """
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise ProtocolError("a public key of low order") from None


def require_usable(public: bytes) -> None:
    """Refuse a public key of low order, for any receiver.

    Raises:
        ProtocolError: the key has low order.
    """
    # RFC 7748: the highest bit does not count, and coordinates need not be reduced.
    if int.from_bytes(public, "little") % 2**255 % PRIME in _LOW_ORDER:
        raise ProtocolError("a public key of low order")


def channel_key(
    shared: bytes, context: Context, *, sender: tuple[int, bytes], receiver: tuple[int, bytes]
) -> bytes:
    """Key of one direction of a channel; it encrypts one message.

    Args:
        shared: X25519 secret of both ends, and what the sender sealed beside it.
        context: the round.
        sender: its number and its public channel key.
        receiver: likewise.
    """
    numbers = _number(sender[0]), _number(receiver[0])
    return derive(shared, "channel", context, *numbers, sender[1], receiver[1])


def server_keys(
    shared: bytes, context: Context, client: int, publics: tuple[bytes, bytes]
) -> dict[str, bytes]:
    """Keys of a client's messages to the server, one for each purpose and its only message.

    Args:
        shared: X25519 secret of the client's and the server's channel keys.
        context: the round.
        client: the client.
        publics: the client's and the server's public channel key.

    Returns:
        Key by purpose, one of ``SERVER_PURPOSES``: consecutive blocks of one HKDF output.
    """
    size = _KEY_BYTES * len(SERVER_PURPOSES)
    block = derive(shared, "server", context, _number(client), *publics, size=size)
    return {
        purpose: block[_KEY_BYTES * place :][:_KEY_BYTES]
        for place, purpose in enumerate(SERVER_PURPOSES)
    }


def pair_key(shared: bytes, context: Context, one: int, other: int, stated: bytes) -> bytes:
    """Key of the mask that two clients share.

    Args:
        shared: X25519 secret of their mask keys, and what was sealed beside it.
        context: the round.
        one: one of the two.
        other: the other one; which is which does not matter.
        stated: digest of the round's statement: masks of two statements do not cancel.
    """
    numbers = _number(min(one, other)), _number(max(one, other))
    return derive(shared, "pair-mask", context, *numbers, stated)


def self_key(element: int, context: Context, owner: int, stated: bytes) -> bytes:
    """Key of the mask that a client puts on its own vector (arguments: ``pair_key``)."""
    return derive(encode_element(element), "self-mask", context, _number(owner), stated)


def seal_box(key: bytes, message: bytes, header: bytes | memoryview) -> bytes:
    """AES-256-GCM of the only message under this key; ``header`` is authenticated with it."""
    return AESGCM(key).encrypt(_NONCE, message, header)


def open_box(key: bytes, box: bytes | memoryview, header: bytes | memoryview) -> bytes:
    """Inverse of ``seal_box``.

    Raises:
        ProtocolError: the box was not made with this key, or box or header were altered.
    """
    try:
        return AESGCM(key).decrypt(_NONCE, box, header)
    except InvalidTag:
        raise ProtocolError("a box does not open") from None


def _number(client: int) -> bytes:
    return client.to_bytes(4, "little")
