"""Sealing a byte string to a public key: HPKE (RFC 9180), base mode, one message per encapsulation.

Two key encapsulations are offered: X25519, and the hybrid of ML-KEM-768 and X25519, which stays
secret while either is secure. Key derivation is HKDF-SHA256, encryption AES-256-GCM.

Base mode authenticates no sender. The purpose of a box (protocol, place, epoch, ...) is in
``info``, which both ends compute and neither sends: a box opened under any other ``info`` fails
like a damaged one. ``info`` is written by ``labelled``, so that no two lists of parts collide.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, TypeAlias

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

from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.settings import OneOf

_TAG_BYTES = 16
_MLKEM_BYTES = 1184


@dataclass(frozen=True, slots=True, kw_only=True)
class Kem:
    """A key encapsulation mechanism and its sizes.

    Args:
        name: as configured.
        code: its number in encoded messages.
        public_bytes: size of a public key.
        encapsulated_bytes: size of the encapsulated key in front of a box.
        suite: HPKE with this mechanism.
    """

    name: str
    code: int
    public_bytes: int
    encapsulated_bytes: int
    suite: Suite

    @property
    def overhead(self) -> int:
        """Bytes by which a box is longer than its content."""
        return self.encapsulated_bytes + _TAG_BYTES


def _kem(name: str, code: int, public_bytes: int, mechanism: KEM) -> Kem:
    return Kem(
        name=name,
        code=code,
        public_bytes=public_bytes,
        encapsulated_bytes=mechanism.enc_length(),
        suite=Suite(mechanism, KDF.HKDF_SHA256, AEAD.AES_256_GCM),
    )


KEMS: Mapping[str, Kem] = MappingProxyType(
    {
        "x25519": _kem("x25519", 1, 32, KEM.X25519),
        "mlkem768-x25519": _kem("mlkem768-x25519", 2, _MLKEM_BYTES + 32, KEM.MLKEM768_X25519),
    }
)
"""Key encapsulations by name."""

KemName: TypeAlias = Annotated[str, OneOf(KEMS, "unknown key encapsulation")]
"""A setting that names a key encapsulation."""


def require_kem(key: str, name: str) -> Kem:
    """The mechanism of that name.

    Raises:
        ConfigError: the library does not offer the mechanism; ``key`` names the setting.
    """
    if name not in KEMS:
        raise ConfigError(key, name, "unknown key encapsulation", KEMS)
    return KEMS[name]


def labelled(*parts: bytes) -> bytes:
    """Join parts, each behind its length (u32), so that different lists give different strings."""
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


class SealingKey:
    """A public key.

    Args:
        kem: its mechanism.
        data: 32 bytes (X25519), or 1184 bytes (ML-KEM-768) followed by 32 (X25519).

    Raises:
        WireError: these bytes are not public key of that mechanism, or one to which nothing can be
            sealed (a point of small order).
    """

    __slots__ = ("_key", "data", "kem")

    def __init__(self, kem: Kem, data: bytes) -> None:
        if len(data) != kem.public_bytes:
            raise WireError(f"a {kem.name} key has {kem.public_bytes} bytes, got {len(data)}")
        self.kem = kem
        self.data = bytes(data)
        try:
            self._key = self._load()
            # A point of small order is found out by the key agreement alone.
            kem.suite.encrypt(b"", self._key, info=b"")
        except ValueError as damage:
            raise WireError(f"not a {kem.name} public key: {damage}") from damage

    def seal(self, plaintext: bytes, info: bytes) -> bytes:
        """Encapsulated key, ciphertext and tag: ``len(plaintext) + kem.overhead`` bytes."""
        return self.kem.suite.encrypt(plaintext, self._key, info=info)

    def _load(self) -> X25519PublicKey | MLKEM768X25519PublicKey:
        point = X25519PublicKey.from_public_bytes(self.data[-32:])
        if len(self.data) == 32:
            return point
        lattice = MLKEM768PublicKey.from_public_bytes(self.data[:_MLKEM_BYTES])
        return MLKEM768X25519PublicKey(lattice, point)


class OpeningKey:
    """A private key; make it with ``generate``.

    Args:
        kem: its mechanism.
        point: the X25519 half.
        lattice: the ML-KEM-768 half of the hybrid; None for X25519 only.
    """

    __slots__ = ("_key", "kem", "public")

    def __init__(
        self, kem: Kem, point: X25519PrivateKey, lattice: MLKEM768PrivateKey | None
    ) -> None:
        self.kem = kem
        self._key: X25519PrivateKey | MLKEM768X25519PrivateKey = point
        data = point.public_key().public_bytes_raw()
        if lattice is not None:
            self._key = MLKEM768X25519PrivateKey(lattice, point)
            data = lattice.public_key().public_bytes_raw() + data
        self.public = SealingKey(kem, data)

    @classmethod
    def generate(cls, kem: Kem) -> "OpeningKey":
        """A fresh key from the operating system's generator."""
        hybrid = kem.public_bytes > 32
        lattice = MLKEM768PrivateKey.generate() if hybrid else None
        return cls(kem, X25519PrivateKey.generate(), lattice)

    def open(self, box: bytes, info: bytes) -> bytes:
        """Open a box.

        Raises:
            ProtocolError: the box is damaged, or was sealed to another key or for another purpose.
        """
        try:
            return self.kem.suite.decrypt(box, self._key, info=info)
        except (InvalidTag, ValueError) as damage:
            raise ProtocolError("a sealed box fails authentication") from damage
