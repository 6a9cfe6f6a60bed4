"""Public randomness by epoch: a host's source of it, and the signer it trusts.

What a server must not choose (a ring of clients, a committee, who is in a cohort) is drawn from a
value that no party knows before the keys of its round are fixed: the beacon of the round's epoch. A
host gets beacons by a way that no relay or server controls, and checks their signatures. Any public
beacon can be put in (``Beacon``). By default it is the roster's operator, who publishes one file an
epoch; the host's owner fetches them (``SignedBeacon``), as a whole: written elsewhere, then moved.

Layout of a file, version 2, little-endian: "SFBN" | u8 version | u64 epoch | 32 federation
(``Statement.federation``, the same under every version of its roster) | 32 value | 64 Ed25519
signature of the operator over a label and all before it. Its name is the epoch with the suffix
".beacon".
"""

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.files import replace_file
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.session.roster import signed_by

_BODY = struct.Struct("<4sBQ32s32s")
_MAGIC, _VERSION = b"SFBN", 2
_LABEL = b"secure-fedrec|v1|beacon|"
_SUFFIX = ".beacon"


class Beacon(Protocol):
    """A source of public randomness."""

    def values(self) -> Mapping[int, bytes]:
        """All verified values published so far: 32 bytes by epoch, from 1 on.

        Raises:
            ConfigError: something in it is not signed as it has to be.
        """


@runtime_checkable
class Asked(Protocol):
    """Capability of a source: it is told when a value is due, and may publish it then."""

    def ask(self, epoch: int) -> None:
        """Told that the keys of an epoch's round are present."""


class SignedBeacon:
    """Values that an operator signed, as files in a folder.

    Args:
        folder: where the host's owner puts the files that the operator publishes.
        operator: public key, from the operator itself.
        federation: 32 bytes that name the federation.
    """

    def __init__(self, folder: Path, *, operator: bytes, federation: bytes) -> None:
        self._folder = folder
        self._operator = operator
        self._federation = federation
        self._known: dict[int, bytes] = {}

    def values(self) -> Mapping[int, bytes]:
        """All that was published so far (``Beacon``); a file that was read is not read again.

        Raises:
            ConfigError: a file is damaged, not the operator's, of another federation or epoch than
                its name says, or cannot be read.
        """
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            epoch = int(path.stem) if path.stem.isdecimal() else 0
            if epoch not in self._known:
                self._known[epoch] = self._read(path, epoch)
        return dict(self._known)

    def _read(self, path: Path, epoch: int) -> bytes:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigError("beacon", str(path), f"cannot be read: {error.strerror}") from None
        body, signature = data[: _BODY.size], data[_BODY.size :]
        if len(body) != _BODY.size or not signed_by(self._operator, _LABEL + body, signature):
            raise ConfigError("beacon", str(path), "is not signed by the roster's operator")
        magic, version, named, federation, value = _BODY.unpack(body)
        if magic != _MAGIC or version != _VERSION:
            raise ConfigError("beacon", str(path), f"is not a beacon of version {_VERSION}")
        if federation != self._federation or named != epoch or not epoch:
            raise ConfigError("beacon", str(path), "is of another federation or epoch")
        return bytes(value)


def publish(folder: Path, operator: Ed25519PrivateKey, *, federation: bytes, epoch: int) -> Path:
    """Draw and sign the value of an epoch, as the operator; the file.

    Args:
        folder: where it is put; made if it is missing.
        operator: its key.
        federation: 32 bytes that name the federation.
        epoch: at least 1; once its value is published no round can begin under it.

    Raises:
        ConfigError: the epoch has a value already, or is not a valid epoch.
        OSError: the file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{epoch}{_SUFFIX}"
    if epoch < 1 or path.exists():
        raise ConfigError("beacon.epoch", epoch, "must be at least 1, and have no value yet")
    body = _BODY.pack(_MAGIC, _VERSION, epoch, federation, os.urandom(32))
    replace_file(path, body + operator.sign(_LABEL + body), durable=True)
    return path
