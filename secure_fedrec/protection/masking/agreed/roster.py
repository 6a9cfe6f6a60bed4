"""Who may take part: client numbers and signing keys, listed and signed by an operator.

A client pins the operator's public key. The server relays the roster but cannot change it; if the
operator is the server, nothing stops it from enrolling clients of its own, and only the
honest-but-curious claim is left.

The operator also signs a floor of the round numbers, from its own knowledge of where the federation
is: how far ahead a server may jump is counted from it (``journal``), so that a newcomer can join at
a high number and no server can use up all numbers at once.

Layout: u8 version | u32 roster version | u64 round floor | 32 server key | u32 clients
| clients x (u32 number, 32 key) | 64 Ed25519 signature of the operator.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking.agreed.formats import (
    SERVER,
    SIGNATURE_BYTES,
    Reader,
    encode_ids,
    labelled_hash,
)

__all__ = ["Roster", "cohort_hash"]

_VERSION = 2
_LABEL = b"secure-fedrec|v1|masking|roster|"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Roster:
    """The clients of a federation.

    Make it with ``Roster.sign`` (the operator) or ``Roster.decode`` (everybody else).

    Args:
        version: grows with every change; clients refuse an older one.
        round_floor: a round number that the federation has reached.
        server: Ed25519 public key of the server.
        operator: Ed25519 public key of the operator.
        numbers: int64[N], client numbers, ascending.
        keys: uint8[N, 32], their Ed25519 public keys.
        encoded: the signed bytes.
    """

    version: int
    round_floor: int
    server: bytes
    operator: bytes
    numbers: IntArray
    keys: npt.NDArray[np.uint8]
    encoded: bytes

    @classmethod
    def sign(
        cls,
        operator: Ed25519PrivateKey,
        *,
        version: int,
        server: bytes,
        clients: dict[int, bytes],
        round_floor: int = 0,
    ) -> "Roster":
        """List clients and sign the list.

        Args:
            operator: the operator's key.
            version: at least 1.
            server: public key of the server.
            clients: public key of each client, by number.
            round_floor: a round number that the federation has reached.

        Raises:
            ConfigError: a number, a key, the version or the floor is out of range, or two clients
                share a key.
        """
        if not 1 <= version < 2**32:
            raise ConfigError("roster.version", version, "must be between 1 and 2^32 - 1")
        if not 0 <= round_floor < 2**63:
            raise ConfigError("roster.round_floor", round_floor, "must be between 0 and 2^63 - 1")
        ordered = sorted(clients)
        if not ordered or not 0 <= ordered[0] <= ordered[-1] < SERVER:
            raise ConfigError("roster.clients", ordered[:3], "must be numbers from 0 to 2^32 - 2")
        keys = [clients[number] for number in ordered]
        if any(len(key) != 32 for key in (server, *keys)) or len(set(keys)) != len(keys):
            raise ConfigError("roster.clients", "(keys)", "must be distinct 32-byte keys")
        entries = b"".join(
            number.to_bytes(4, "little") + key for number, key in zip(ordered, keys, strict=True)
        )
        head = bytes([_VERSION]) + version.to_bytes(4, "little")
        head += round_floor.to_bytes(8, "little") + server
        body = head + len(keys).to_bytes(4, "little") + entries
        encoded = body + operator.sign(_LABEL + body)
        return cls.decode(encoded, operator=operator.public_key().public_bytes_raw())

    @classmethod
    def decode(cls, encoded: bytes, *, operator: bytes) -> "Roster":
        """Read a roster signed by the pinned operator key.

        Raises:
            ProtocolError: the signature is not the operator's, or the layout is malformed.
        """
        body, signature = encoded[:-SIGNATURE_BYTES], encoded[-SIGNATURE_BYTES:]
        try:
            Ed25519PublicKey.from_public_bytes(operator).verify(signature, _LABEL + body)
        except (InvalidSignature, ValueError):
            raise ProtocolError("the roster is not signed by the pinned operator key") from None
        reader = Reader(body, "roster")
        if reader.number(1) != _VERSION:
            raise ProtocolError(f"this is version {_VERSION} of the roster's layout")
        version, round_floor = reader.number(4), reader.number(8)
        server, count = reader.take(32), reader.number(4)
        entries = np.frombuffer(reader.take(36 * count), dtype=np.uint8).reshape(count, 36)
        reader.finish()
        ids = Reader(entries[:, :4].tobytes(), "roster").ids(count)
        keys = np.ascontiguousarray(entries[:, 4:])
        if not count or len(np.unique(keys, axis=0)) != count:
            raise ProtocolError("a roster lists at least one client, and no key twice")
        if not version or round_floor >= 2**63:
            raise ProtocolError("a roster's version or its floor of round numbers is out of range")
        return cls(
            version=version,
            round_floor=round_floor,
            server=server,
            operator=operator,
            numbers=ids,
            keys=keys,
            encoded=encoded,
        )

    @property
    def hash(self) -> bytes:
        """What every message is bound to; the signature is not part of it."""
        return labelled_hash("roster", self.operator, self.encoded[:-SIGNATURE_BYTES])

    def key_of(self, number: int) -> bytes:
        """Public key of a client.

        Raises:
            ProtocolError: the roster does not list it.
        """
        place = int(np.searchsorted(self.numbers, number))
        if place == len(self.numbers) or self.numbers[place] != number:
            raise ProtocolError(f"client {number} is not on the roster")
        return bytes(self.keys[place])

    def keys_of(self, cohort: IntArray) -> dict[int, bytes]:
        """Public key of each client of a cohort (int64[n]), by number.

        Raises:
            ProtocolError: the roster does not list one.
        """
        strangers = cohort[~np.isin(cohort, self.numbers)]
        if len(strangers):
            raise ProtocolError(f"client {strangers[0]} is not on the roster")
        keys = self.keys[np.searchsorted(self.numbers, cohort)]
        return {number: bytes(key) for number, key in zip(cohort.tolist(), keys, strict=True)}


def cohort_hash(cohort: IntArray) -> bytes:
    """Hash of the clients of a round (int64[n], ascending)."""
    return labelled_hash("cohort", encode_ids(cohort))
