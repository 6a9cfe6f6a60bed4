"""The post-quantum half of the hybrid key agreement: HPKE (RFC 9180) on MLKEM768-X25519.

An ML-KEM ciphertext is randomised by the sender, so a shared secret cannot be computed again from
one side's private key, as dropout recovery needs. Both halves of a pair are therefore arranged so
that either client's secret field element gives it back:

- of two neighbours the one with the lower number derives r from its own element, and
- seals r to the other's KEM key, which is derived from the other's element. The server keeps the
  sealed r and opens it if it ever recovers the other's element. A hash of r stands behind the seal:
  the receiver compares it, and a party that recovers either element sees whether that gives the
  same r.

The pair key is HKDF(X25519 || r): secret as long as one of the two holds. Channels carry shares, so
they are hybrid as well; each direction seals a fresh secret to the receiver's channel KEM key.
Authenticity depends on the Ed25519 signatures, which an attacker would have to break during the
round.

HPKE in base mode does not authenticate the sender: any party with the public key can seal a secret
of its own. A fresh channel secret is authenticated by use, since the channel key also takes the
X25519 secret of two signed keys. The sealed r is authenticated by the box of shares that its sender
puts into the same channel: its SHA-256 is associated data of that box (``pairs``).

A pair secret that does not open or is not that of its hash, or whose box does not open, makes its
receiver leave the round: its mask could not cancel, or would be known to others. A corrupt client
can make its neighbours leave, and so end the round, but it cannot harm a client's privacy or cause
a wrong sum.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking.envelope import Context
from secure_fedrec.protection.masking.messages.keys import derive
from secure_fedrec.protection.masking.messages.shamir import encode_element

_MLKEM_PUBLIC = 1184
PUBLIC_BYTES = _MLKEM_PUBLIC + 32
SEALED_BYTES = 1120 + 32 + 16
"""Encapsulated key, 32 sealed bytes and the tag."""
PAIR_SEAL_BYTES = SEALED_BYTES + 32
"""A sealed pair secret, and its hash."""

_MLKEM_SEED = 64
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class KemKey:
    """A private key of the hybrid KEM, derived from a secret of its owner.

    Args:
        secret: root key material.
        purpose: "mask-kem" or "channel-kem".
        context: the round.
        owner: the client it belongs to.
    """

    __slots__ = ("_private", "public")

    def __init__(self, secret: bytes, purpose: str, context: Context, owner: int) -> None:
        number = owner.to_bytes(4, "little")
        seeds = derive(secret, purpose, context, number, size=_MLKEM_SEED + 32)
        mlkem = MLKEM768PrivateKey.from_seed_bytes(seeds[:_MLKEM_SEED])
        x25519 = X25519PrivateKey.from_private_bytes(seeds[_MLKEM_SEED:])
        self._private = MLKEM768X25519PrivateKey(mlkem, x25519)
        self.public = mlkem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw()

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """Inverse of ``seal_to``.

        Raises:
            ProtocolError: it was sealed to another key or for another purpose, or was altered.
        """
        try:
            return _SUITE.decrypt(sealed, self._private, info)
        except (InvalidTag, ValueError):
            raise ProtocolError("a sealed secret does not open") from None


def seal_to(public: bytes, secret: bytes, info: bytes) -> bytes:
    """Seal 32 bytes to a KEM key.

    Args:
        public: ``PUBLIC_BYTES`` bytes.
        secret: 32 bytes.
        info: what the secret is for; the receiver must name the same.

    Returns:
        ``SEALED_BYTES`` bytes.

    Raises:
        ProtocolError: the public key is malformed.
    """
    try:
        key = MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(public[:_MLKEM_PUBLIC]),
            X25519PublicKey.from_public_bytes(public[_MLKEM_PUBLIC:]),
        )
        return _SUITE.encrypt(secret, key, info)
    except ValueError:
        raise ProtocolError("a malformed KEM key") from None


def require_usable(public: bytes) -> None:
    """Refuse a KEM key to which nothing can be sealed.

    Raises:
        ProtocolError: the key is malformed.
    """
    seal_to(public, bytes(32), b"")


def pair_secret(element: int, context: Context, higher: int) -> bytes:
    """r: what the lower of two neighbours contributes to their pair key."""
    return derive(encode_element(element), "pair", context, higher.to_bytes(4, "little"))
