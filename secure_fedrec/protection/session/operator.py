"""The operator's key, and the list of parties that it signs a roster of.

Layout of the key's file, version 1: "SFOP" | u8 version | 32 Ed25519 private key | 32 SHA-256 over
all before it. The list is text, a party a line: its name, such as ``server``, ``client:3`` or
``denoiser:0``, a space, and its public key as 64 hexadecimal digits; "#" begins a comment.
"""

import struct
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.files import replace_file
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.session.nodes import Node, Role
from secure_fedrec.protection.session.roster import read_private

_FILE = struct.Struct("<4sB32s")
_MAGIC, _VERSION = b"SFOP", 1
_ROLES = {role.name.lower(): role for role in Role}


def save_operator(key: Ed25519PrivateKey, path: Path) -> None:
    """Write the file, for its owner only.

    Raises:
        OSError: it cannot be written.
    """
    body = _FILE.pack(_MAGIC, _VERSION, key.private_bytes_raw())
    replace_file(path, body + sha256(body).digest(), private=True, durable=True)


def load_operator(path: Path) -> Ed25519PrivateKey:
    """Read the file.

    Raises:
        ConfigError: the file is missing, readable by others than its owner, or not an operator's
            key.
    """
    data = read_private(path, "operator.file")
    body, digest = data[:-32], data[-32:]
    if len(body) != _FILE.size or not compare_digest(sha256(body).digest(), digest):
        raise ConfigError("operator.file", str(path), "is not an operator's key, or damaged")
    magic, version, key = _FILE.unpack(body)
    if magic != _MAGIC or version != _VERSION:
        raise ConfigError("operator.file", str(path), "is not an operator's key of this version")
    return Ed25519PrivateKey.from_private_bytes(key)


def node_named(name: str) -> Node:
    """A party by the name that it has in lists.

    Raises:
        ConfigError: the party is unknown.
    """
    role, sign, number = name.partition(":")
    if role not in _ROLES or (sign and not number.isdecimal()):
        raise ConfigError("party", name, "is not a role and a number", tuple(_ROLES))
    if not sign and _ROLES[role] not in (Role.SERVER, Role.AUTHORITY):
        raise ConfigError("party", name, f"has a number, as in {role}:0")
    return Node(_ROLES[role], int(number or 0))


def name_of(node: Node) -> str:
    """Inverse of ``node_named``."""
    role = node.role.name.lower()
    return role if node.role in (Role.SERVER, Role.AUTHORITY) else f"{role}:{node.number}"


def read_parties(path: Path) -> dict[Node, bytes]:
    """Public keys by party, from a list; empty if the list is missing.

    Raises:
        ConfigError: a line is not an entry of a list, or a party stands there twice.
    """
    if not path.exists():
        return {}
    found: dict[Node, bytes] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2:
            raise ConfigError(f"{path}:{number}", line, "must be a party and its public key")
        node = node_named(words[0])
        if node in found:
            raise ConfigError(f"{path}:{number}", words[0], "is listed twice")
        found[node] = public_key(words[1])
    return found


def write_parties(path: Path, parties: Mapping[Node, bytes]) -> None:
    """Write a list, parties in order.

    Raises:
        OSError: it cannot be written.
    """
    lines = [f"{name_of(node)} {key.hex()}\n" for node, key in sorted(parties.items())]
    replace_file(path, "".join(lines).encode())


def public_key(text: str) -> bytes:
    """A public key from hexadecimal digits.

    Raises:
        ConfigError: the text does not have 64 digits.
    """
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ConfigError("key", text, "must be 64 hexadecimal digits")
    return key


def read_public_key(path: Path) -> bytes:
    """The public key in a file; other content, such as a private key, is not shown.

    Raises:
        ConfigError: the file cannot be read, or does not hold a public key.
    """
    with suppress(OSError, UnicodeError, ConfigError):
        return public_key(path.read_text(encoding="ascii").strip())
    raise ConfigError("key", str(path), "must be a file of a public key: 64 hexadecimal digits")
