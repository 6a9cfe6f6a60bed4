"""Long-term signing keys: one per party, on disk for their owner alone.

Layout of a file, version 1: "SFID" | u8 version | u8 role | u32 number | 32 Ed25519 private key
| 32 SHA-256 over all before it; little-endian.
"""

import stat
import struct
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from secure_fedrec.core.files import replace_file
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.session.nodes import SERVER_NUMBER, Node, Role, named

_FILE = struct.Struct("<4sBBI32s")
_MAGIC, _VERSION = b"SFID", 1


class Identity:
    """A party with its signing key.

    Args:
        node: who it is; a number is a client's, or ``nodes.SERVER_NUMBER``.
        key: Ed25519 private key.

    Attributes:
        number: in messages that name clients and the server alone.
        public: the 32 bytes that the roster lists.

    Raises:
        ConfigError: there is no such party.
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
        """Write the file, for its owner only, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        node = self.node
        body = _FILE.pack(_MAGIC, _VERSION, node.role, node.number, self.key.private_bytes_raw())
        replace_file(path, body + sha256(body).digest(), private=True, durable=True)

    @classmethod
    def load(cls, path: Path) -> "Identity":
        """Read the file.

        Raises:
            ConfigError: it is missing, others than its owner may read it, or it is no such file.
        """
        data = read_private(path, "identity.file")
        body, digest = data[:-32], data[-32:]
        if len(body) != _FILE.size or not compare_digest(sha256(body).digest(), digest):
            raise ConfigError("identity.file", str(path), "is no identity, or damaged")
        magic, version, role, number, key = _FILE.unpack(body)
        if magic != _MAGIC or version != _VERSION or role not in set(Role):
            raise ConfigError("identity.file", str(path), "is no identity of this version")
        return cls(Node(Role(role), number), Ed25519PrivateKey.from_private_bytes(key))


def signed_by(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature of a message is by this key; a malformed key has signed nothing."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def read_private(path: Path, key: str) -> bytes:
    """A secret file, if nobody but its owner may read it.

    Args:
        path: the file.
        key: names the setting in an error.

    Raises:
        ConfigError: it cannot be read, is no file, or is open to others.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) or mode & 0o077:
            raise ConfigError(key, str(path), "must be a file that only its owner may read (0600)")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(key, str(path), f"cannot be read: {error.strerror}") from None
