"""The parties that may take part and their signing keys, listed and signed by an operator.

A party pins the operator's public key. The server relays the roster but cannot change it; if the
operator is the server, it can enrol parties of its own, and only the honest-but-curious claims
hold.

The operator also signs a floor of the round numbers, from its own knowledge of where the federation
is: how far ahead a server may jump is counted from it (``session.journal``), so that a
newcomer can join at a high number and no server can use up all numbers at once.

Layout, version 3: u8 version | u32 roster version | u64 round floor | u32 parties
| parties x (u8 role, u32 number, 32 key) | 64 Ed25519 signature of the operator; little-endian.
Parties ascend by role and number, and the one server comes first. A file holds exactly that.

A party's own signing key is in a file for its owner alone. Layout, version 1: "SFID" | u8 version
| u8 role | u32 number | 32 Ed25519 private key | 32 SHA-256 over all before it; little-endian.
"""

import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.core.files import replace_file
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.session.nodes import SERVER, SERVER_NUMBER, Node, Role, named

_FILE = struct.Struct("<4sBBI32s")
_MAGIC, _FILE_VERSION = b"SFID", 1


class Identity:
    """A party with its signing key.

    Args:
        node: who it is; a number is a client's, or ``nodes.SERVER_NUMBER``.
        key: Ed25519 private key.

    Attributes:
        number: in messages that name clients and the server alone.
        public: the 32 bytes that the roster lists.

    Raises:
        ConfigError: the party is unknown.
    """

    __slots__ = ("key", "node", "number", "public")

    def __init__(self, node: Node | int, key: Ed25519PrivateKey) -> None:
        self.node = named(node)
        self.key = key
        server = self.node.role is Role.SERVER
        self.number = SERVER_NUMBER if server else self.node.number
        self.public = key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, node: Node | int) -> "Identity":
        """A new identity, from the operating system's randomness."""
        return cls(node, Ed25519PrivateKey.generate())

    def __repr__(self) -> str:
        return f"Identity({self.node})"

    def save(self, path: Path) -> None:
        """Write the file atomically, for its owner only.

        Raises:
            OSError: it cannot be written.
        """
        node = self.node
        body = _FILE.pack(
            _MAGIC, _FILE_VERSION, node.role, node.number, self.key.private_bytes_raw()
        )
        replace_file(path, body + sha256(body).digest(), private=True, durable=True)

    @classmethod
    def load(cls, path: Path) -> "Identity":
        """Read the file.

        Raises:
            ConfigError: it is missing, others than its owner may read it, or it is not such a file.
        """
        data = read_private(path, "identity.file")
        body, digest = data[:-32], data[-32:]
        if len(body) != _FILE.size or not compare_digest(sha256(body).digest(), digest):
            raise ConfigError("identity.file", str(path), "is not an identity, or damaged")
        magic, version, role, number, key = _FILE.unpack(body)
        if magic != _MAGIC or version != _FILE_VERSION or role not in set(Role):
            raise ConfigError("identity.file", str(path), "is not an identity of this version")
        return cls(Node(Role(role), number), Ed25519PrivateKey.from_private_bytes(key))


def signed_by(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature of a message is by this key; a malformed key has signed nothing."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def read_private(path: Path, key: str) -> bytes:
    """A secret file, if only its owner may read it.

    Args:
        path: the file.
        key: names the setting in an error.

    Raises:
        ConfigError: it cannot be read, is not a file, or is open to others.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) or mode & 0o077:
            raise ConfigError(key, str(path), "must be a file that only its owner may read (0600)")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(key, str(path), f"cannot be read: {error.strerror}") from None


_VERSION = 3
_DOMAIN = b"secure-fedrec|v1|session|roster|"
_HEAD = struct.Struct("<BIQI")
_ENTRY = np.dtype([("role", "u1"), ("number", "<u4"), ("key", "u1", (32,))])
_SIGNATURE_BYTES = 64

_Columns = tuple[IntArray, npt.NDArray[np.uint8]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Roster:
    """The parties of a federation.

    Make it with ``Roster.sign`` (the operator) or ``Roster.decode`` (all others).

    Args:
        version: grows with every change; clients refuse an older one.
        round_floor: a round number that the federation has reached.
        operator: Ed25519 public key of the operator.
        encoded: the signed bytes.
    """

    version: int
    round_floor: int
    operator: bytes
    encoded: bytes
    _columns: Mapping[Role, _Columns] = field(repr=False)

    @classmethod
    def sign(
        cls,
        operator: Ed25519PrivateKey,
        *,
        version: int,
        server: bytes,
        clients: Mapping[int, bytes],
        denoisers: Mapping[int, bytes] | None = None,
        round_floor: int = 0,
    ) -> "Roster":
        """List parties and sign the list.

        Args:
            operator: the operator's key.
            version: at least 1.
            server: public key of the server.
            clients: public key of each client, by number.
            denoisers: of each denoiser.
            round_floor: a round number that the federation has reached.

        Raises:
            ConfigError: a number, a key, the version or the floor is out of range, or two parties
                share a key.
        """
        ordered = sorted(clients)
        if not ordered or not 0 <= ordered[0] <= ordered[-1] < 2**32 - 1:
            raise ConfigError("roster.clients", ordered[:3], "must be numbers from 0 to 2^32 - 2")
        listed = {SERVER: server} | {Node(Role.CLIENT, n): clients[n] for n in ordered}
        listed |= {Node(Role.DENOISER, n): key for n, key in (denoisers or {}).items()}
        return cls.of(operator, listed, version=version, round_floor=round_floor)

    @classmethod
    def of(
        cls,
        operator: Ed25519PrivateKey,
        keys: Mapping[Node, bytes],
        *,
        version: int = 1,
        round_floor: int = 0,
    ) -> "Roster":
        """As ``sign``, of any parties: the server and at least one client among them.

        Raises:
            ConfigError: as ``sign``; or no server, or no client.
        """
        if not 1 <= version < 2**32:
            raise ConfigError("roster.version", version, "must be between 1 and 2^32 - 1")
        if not 0 <= round_floor < 2**63:
            raise ConfigError("roster.round_floor", round_floor, "must be between 0 and 2^63 - 1")
        if SERVER not in keys:
            raise ConfigError("roster.server", len(keys), "names no server")
        if not any(node.role is Role.CLIENT for node in keys):
            raise ConfigError("roster.clients", 0, "names no client")
        own = operator.public_key().public_bytes_raw()
        if any(key == own and node.role is Role.CLIENT for node, key in keys.items()):
            problem = "is the key of a party on the list: who signs it is not one of its clients"
            raise ConfigError("roster.operator", own.hex(), problem)
        distinct = set(keys.values())
        if any(len(key) != 32 for key in distinct):
            raise ConfigError("roster.keys", "...", "a key does not have 32 bytes")
        if len(distinct) != len(keys):
            raise ConfigError("roster.keys", "...", "one key stands for two parties")
        entries = np.zeros(len(keys), dtype=_ENTRY)
        for entry, (node, key) in zip(entries, sorted(keys.items()), strict=True):
            entry["role"], entry["number"] = node.role, node.number
            entry["key"] = np.frombuffer(key, dtype=np.uint8)
        body = _HEAD.pack(_VERSION, version, round_floor, len(entries)) + entries.tobytes()
        encoded = body + operator.sign(_DOMAIN + body)
        return cls.decode(encoded, operator=operator.public_key().public_bytes_raw())

    @classmethod
    def decode(cls, encoded: bytes, *, operator: bytes) -> "Roster":
        """Read a roster signed by the pinned operator key.

        Raises:
            ProtocolError: the signature is not the operator's, or the layout is malformed.
        """
        body, signature = encoded[:-_SIGNATURE_BYTES], encoded[-_SIGNATURE_BYTES:]
        if not signed_by(operator, _DOMAIN + body, signature):
            raise ProtocolError("the roster is not signed by the pinned operator key")
        if body[:1] != bytes([_VERSION]):
            raise ProtocolError(f"this is version {_VERSION} of the roster's layout")
        if len(body) < _HEAD.size:
            raise ProtocolError("roster: truncated")
        _, version, round_floor, count = _HEAD.unpack_from(body)
        if len(body) != _HEAD.size + count * _ENTRY.itemsize:
            raise ProtocolError(f"roster: {len(body)} bytes declare {count} parties")
        if not version or round_floor >= 2**63:
            raise ProtocolError("a roster's version or its floor of round numbers is out of range")
        entries = np.frombuffer(body, _ENTRY, count, _HEAD.size)
        return cls(
            version=version,
            round_floor=round_floor,
            operator=operator,
            encoded=encoded,
            _columns=_columns(entries),
        )

    def save(self, path: Path) -> None:
        """Write the signed bytes atomically.

        Raises:
            OSError: they cannot be written.
        """
        replace_file(path, self.encoded)

    @classmethod
    def load(cls, path: Path, *, operator: bytes, least_version: int = 1) -> "Roster":
        """Read a file of ``save``.

        Args:
            path: the file.
            operator: the pinned key.
            least_version: the last one known; an older roster is refused. Only this detects an old
                roster: without it every version that the operator signed is accepted, including one
                with keys that were withdrawn since.

        Raises:
            ConfigError: it cannot be read.
            ProtocolError: it is malformed, not signed by that key, or older.
        """
        try:
            encoded = path.read_bytes()
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
            raise ConfigError("roster.file", str(path), problem) from None
        roster = cls.decode(encoded, operator=operator)
        if roster.version < least_version:
            raise ProtocolError(f"roster {roster.version} is older than roster {least_version}")
        return roster

    @property
    def hash(self) -> bytes:
        """Hash that every message is bound to; it does not cover the signature."""
        body = self.encoded[:-_SIGNATURE_BYTES]
        return sha256(_DOMAIN + self.operator + body).digest()

    @property
    def server(self) -> bytes:
        """Public key of the server."""
        return bytes(self._columns[Role.SERVER][1][0])

    @property
    def numbers(self) -> IntArray:
        """int64[N], client numbers, ascending."""
        return self._columns[Role.CLIENT][0]

    def count(self, role: Role) -> int:
        """How many parties have a role."""
        return len(self._columns[role][0])

    def nodes(self) -> list[Node]:
        """All parties, in order."""
        return [
            Node(role, number)
            for role, (numbers, _) in self._columns.items()
            for number in numbers.tolist()
        ]

    def __contains__(self, node: Node) -> bool:
        """Whether a party is listed."""
        numbers = self._columns[node.role][0]
        return bool(np.any(numbers == node.number))

    def key_of(self, node: Node | int) -> bytes:
        """Public key of a party; a number is a client's.

        Raises:
            ProtocolError: the roster does not list it.
        """
        if isinstance(node, Node):
            role, number = node.role, node.number
        else:
            role, number = Role.CLIENT, node
        numbers, keys = self._columns[role]
        place = int(np.searchsorted(numbers, number))
        if place == len(numbers) or numbers[place] != number:
            raise ProtocolError(f"{role.name.lower()} {number} is not on the roster")
        return bytes(keys[place])

    def require_listed(self, identity: Identity) -> None:
        """Check that a party may take part with the key that it has.

        Raises:
            ConfigError: it is not listed, as after its key was withdrawn, or with another key.
        """
        node = identity.node
        if node not in self:
            problem = f"is not on roster {self.version}: left out of it, or not listed yet"
            raise ConfigError("site.identities", str(node), problem)
        if self.key_of(node) != identity.public:
            problem = f"has another key than the one on roster {self.version}"
            raise ConfigError("site.identities", str(node), problem)

    def keys_of(self, cohort: IntArray) -> dict[int, bytes]:
        """Public key of each client of a cohort (int64[n]), by number.

        Raises:
            ProtocolError: the roster does not list one.
        """
        numbers, keys = self._columns[Role.CLIENT]
        strangers = cohort[~np.isin(cohort, numbers)]
        if len(strangers):
            raise ProtocolError(f"client {strangers[0]} is not on the roster")
        chosen = keys[np.searchsorted(numbers, cohort)]
        return {number: bytes(key) for number, key in zip(cohort.tolist(), chosen, strict=True)}


def _columns(entries: npt.NDArray[np.void]) -> Mapping[Role, _Columns]:
    """Numbers and keys by role.

    Raises:
        ProtocolError: parties that do not ascend, do not exist or share a key, or no server, or no
            client.
    """
    roles = entries["role"].astype(np.int64)
    numbers = entries["number"].astype(np.int64)
    keys = np.ascontiguousarray(entries["key"])
    if np.any(np.diff((roles << 32) | numbers) <= 0) or np.any(numbers == 2**32 - 1):
        raise ProtocolError("roster: parties must ascend")
    if not np.isin(roles, list(Role)).all() or len(np.unique(keys, axis=0)) != len(keys):
        raise ProtocolError("a roster lists known roles, and no key twice")
    found = {role: (numbers[roles == role], keys[roles == role]) for role in Role}
    if any(found[role][0].any() for role in (Role.SERVER, Role.AUTHORITY)):
        raise ProtocolError("roster: a server or an authority has no number")
    if not len(found[Role.SERVER][0]) or not len(found[Role.CLIENT][0]):
        raise ProtocolError("a roster lists a server and at least one client")
    return found
