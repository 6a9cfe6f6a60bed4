"""What a client must not forget: which rounds it has begun, and what it has revealed.

Two different answers to one round could open a client's mask, so a client that crashed and came
back must not answer again from fresh keys. The journal is written, and on disk, before the message
that it records is handed out. It holds no secret in clear: a reveal is stored as the encrypted
message that was sent.

Rounds are numbered by the first 8 bytes of their identity, and a journal begins each number at most
once, in ascending order. A round that was begun but not revealed when the process died is lost to
this client: the keys were never stored.
"""

import fcntl
import os
import struct
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Protocol

from secure_fedrec.errors import CheckpointError, ProtocolError

__all__ = ["FileJournal", "Journal", "MemoryJournal"]

_MAGIC = b"SFMJ\x01"
_STATE = struct.Struct("<5sIQ16sI")
_NO_ROUND = bytes(16)


class Journal(Protocol):
    """Where a client records what it commits to."""

    def begin(self, round_id: bytes, *, roster_version: int, epoch: int) -> None:
        """Record that keys of a round are about to be advertised.

        Args:
            round_id: 16 bytes.
            roster_version: version of the roster.
            epoch: epoch of the beacon, 0 for a round without one.

        Raises:
            ProtocolError: the round's number, or the epoch, is not beyond the last, or the roster
                is older than the last.
        """
        ...

    def reveal(self, round_id: bytes, message: bytes) -> None:
        """Record a REVEAL message that is about to be sent.

        Raises:
            ProtocolError: the round is not the last one begun, or something was revealed in it.
        """
        ...

    def revealed(self, round_id: bytes) -> bytes | None:
        """The REVEAL message of a round, if it was the last one begun and revealed."""
        ...


class MemoryJournal:
    """A journal that dies with the process: for simulations and tests."""

    def __init__(self) -> None:
        self._roster_version = 0
        self._epoch = 0
        self._round_id = _NO_ROUND
        self._message = b""

    def begin(self, round_id: bytes, *, roster_version: int, epoch: int) -> None:
        """Record that keys of a round are about to be advertised (``Journal.begin``)."""
        number, last = _number(round_id), _number(self._round_id)
        if number <= last:
            raise ProtocolError(f"round {number} is not beyond round {last}, the last one begun")
        if roster_version < self._roster_version:
            raise ProtocolError(
                f"roster {roster_version} is older than roster {self._roster_version}"
            )
        if epoch and epoch <= self._epoch:
            raise ProtocolError(f"epoch {epoch} allows no second attempt")
        self._save(round_id, roster_version, epoch or self._epoch, b"")

    def reveal(self, round_id: bytes, message: bytes) -> None:
        """Record a REVEAL message that is about to be sent (``Journal.reveal``)."""
        if round_id != self._round_id:
            raise ProtocolError("a reveal must belong to the last round begun")
        if self._message:
            raise ProtocolError("a round is revealed once")
        self._save(round_id, self._roster_version, self._epoch, message)

    def revealed(self, round_id: bytes) -> bytes | None:
        """The REVEAL message of a round, if there is one (``Journal.revealed``)."""
        return self._message if self._message and round_id == self._round_id else None

    def _save(self, round_id: bytes, roster_version: int, epoch: int, message: bytes) -> None:
        self._round_id = round_id
        self._roster_version = roster_version
        self._epoch = epoch
        self._message = message


class FileJournal(MemoryJournal):
    """A journal in a file, on disk before ``begin`` or ``reveal`` return.

    The file is replaced as a whole, so a crash leaves the old state or the new one. A lock beside
    it keeps a second process out; ``close`` releases it, and nothing is written without it.

    Layout: magic and version | u32 roster version | u64 epoch | 16 round id | u32 size of the
    message | message | 32 SHA-256 over all before it.

    Args:
        path: the file; made, for its owner only, by the first ``begin``.

    Raises:
        CheckpointError: the file is damaged, or another process holds it.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self._path = Path(path)
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._lock: int | None = lock
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise CheckpointError(f"{self._path}: another process holds this journal") from None
        try:
            if self._path.exists():
                self._load(self._path.read_bytes())
        except CheckpointError:
            self.close()
            raise

    @property
    def interrupted(self) -> bool:
        """Whether the last round was begun and not revealed: after a restart it is lost."""
        return self._round_id != _NO_ROUND and not self._message

    def begin(self, round_id: bytes, *, roster_version: int, epoch: int) -> None:
        """Record that keys of a round are about to be advertised (``Journal.begin``).

        Raises:
            CheckpointError: the journal was closed.
        """
        self._require_open()
        super().begin(round_id, roster_version=roster_version, epoch=epoch)

    def reveal(self, round_id: bytes, message: bytes) -> None:
        """Record a REVEAL message that is about to be sent (``Journal.reveal``).

        Raises:
            CheckpointError: the journal was closed.
        """
        self._require_open()
        super().reveal(round_id, message)

    def close(self) -> None:
        """Release the lock; a second time does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _require_open(self) -> None:
        if self._lock is None:
            # Another process may have gone on from the file, with rounds that are not known here.
            raise CheckpointError(f"{self._path}: this journal was closed")

    def _load(self, data: bytes) -> None:
        body, digest = data[:-32], data[-32:]
        if len(body) < _STATE.size or not compare_digest(sha256(body).digest(), digest):
            raise CheckpointError(f"{self._path}: the journal is damaged")
        magic, version, epoch, round_id, size = _STATE.unpack_from(body)
        message = body[_STATE.size :]
        if magic != _MAGIC or len(message) != size:
            raise CheckpointError(f"{self._path}: not a journal of this version")
        super()._save(round_id, version, epoch, message)

    def _save(self, round_id: bytes, roster_version: int, epoch: int, message: bytes) -> None:
        state = _STATE.pack(_MAGIC, roster_version, epoch, round_id, len(message))
        body = state + message
        fresh = self._path.with_name(self._path.name + ".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body + sha256(body).digest())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        super()._save(round_id, roster_version, epoch, message)


def _number(round_id: bytes) -> int:
    return int.from_bytes(round_id[:8], "little")
