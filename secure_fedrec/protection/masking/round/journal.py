"""What a client must not forget: which rounds it has begun, and what it has revealed.

Two different answers to one round could open a client's mask, so a client that crashed and came
back must not answer again from fresh keys. Two answers over one public state could show a vector as
a difference, so what was revealed for a state, purpose and layout is revealed once, in whatever
round (``public_state``); before anything was, a failed round may be tried again. The journal is
written, and on disk, before the message that it records is handed out. It holds no secret in clear:
a reveal is stored as the encrypted message that was sent.

Rounds are numbered by the first 8 bytes of their identity, and a journal begins each number at most
once, in ascending order, none more than 2^20 beyond the last one begun or the floor that the
operator signed in the roster: one SETUP cannot use up the numbers that are left. A round that was
begun but not revealed when the process died is lost to this client: the keys were never stored.

A journal's *generation* is the number of rounds that it has begun. It goes out with ADVERTISE,
signed, and peers keep the highest that each signing key has shown. An old copy that was restored
has begun fewer rounds, and cannot show a higher number before it has begun as many again: peers
name its owner and leave the round. A journal belongs to the client that first begins a round in it,
so files that were mixed up are refused. What goes unnoticed is a copy that was taken after the last
ADVERTISE that anybody saw: one reveal may be missing in it, and so the record of one state; and an
old copy that an active server wears in, with set-ups that it passes on to nobody, until it has
begun as many rounds again. So an old copy is not to be put back at all.
"""

import fcntl
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Final, TypeAlias

from secure_fedrec.core.files import replace_file
from secure_fedrec.errors import CheckpointError, ProtocolError
from secure_fedrec.protection.masking.agreed.formats import SERVER

MOST_ROUNDS_AHEAD: Final = 2**20
"""How far a round's number may be beyond the last one begun, or beyond the roster's floor."""

_MAGIC = b"SFMJ\x03"
_STATE = struct.Struct("<5sIIQQ16s16sIII32s")
_SUM_BYTES = 16
_PEER = struct.Struct("<32sQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """All that a journal holds.

    Args:
        owner: number of the client whose journal it is; ``SERVER`` before the first round.
        roster_version, epoch, round_id: of the last round begun.
        generation: rounds begun.
        sum_id: first bytes of the last round's sum hash; empty without a state. Another sum with
            the same ones would be refused for nothing, none is let through.
        message: its REVEAL, empty as long as there is none.
        revealed: ``sum_id`` of every sum that something was revealed for.
        peers: highest generation by signing key.
        ticket: of the state that was saved; empty for none.
    """

    owner: int = SERVER
    roster_version: int = 0
    epoch: int = 0
    generation: int = 0
    round_id: bytes = bytes(16)
    sum_id: bytes = b""
    message: bytes = b""
    revealed: frozenset[bytes] = frozenset()
    peers: Mapping[bytes, int] = field(default_factory=dict)
    ticket: bytes = b""

    def encode(self) -> bytes:
        """The layout of ``FileJournal``, without the hash at its end."""
        state = _STATE.pack(
            _MAGIC,
            self.owner,
            self.roster_version,
            self.epoch,
            self.generation,
            self.round_id,
            self.sum_id,
            len(self.message),
            len(self.revealed),
            len(self.peers),
            self.ticket,
        )
        peers = [_PEER.pack(key, generation) for key, generation in self.peers.items()]
        return b"".join((state, self.message, *sorted(self.revealed), *peers))

    @classmethod
    def decode(cls, body: bytes) -> "_Entries | None":
        """Inverse of ``encode``; None if this is no journal of this version."""
        if len(body) < _STATE.size:
            return None
        magic, owner, version, epoch, generation, *rest = _STATE.unpack_from(body)
        round_id, sum_id, *counts = rest
        size, sums, peers, ticket = counts
        start = _STATE.size + size
        end = start + sums * _SUM_BYTES
        if magic != _MAGIC or len(body) != end + peers * _PEER.size:
            return None
        return cls(
            owner=owner,
            roster_version=version,
            epoch=epoch,
            generation=generation,
            round_id=round_id,
            sum_id=sum_id if any(sum_id) else b"",
            message=body[_STATE.size : start],
            revealed=frozenset(body[at : at + _SUM_BYTES] for at in range(start, end, _SUM_BYTES)),
            peers=dict(_PEER.iter_unpack(body[end:])),
            ticket=ticket if any(ticket) else b"",
        )


class MemoryJournal:
    """Where a client records what it commits to.

    This one dies with the process: for simulations and tests. Another one overrides ``_save``.
    """

    def __init__(self) -> None:
        self._held = _Entries()

    def begin(
        self,
        round_id: bytes,
        *,
        roster_version: int,
        epoch: int,
        round_floor: int = 0,
        sum_hash: bytes = b"",
        owner: int = SERVER,
    ) -> int:
        """Record that keys of a round are about to be advertised.

        Args:
            round_id: 16 bytes.
            roster_version: version of the roster.
            epoch: epoch of the beacon, 0 for a round without one.
            round_floor: round number that the roster's operator signed.
            sum_hash: what would be revealed for (``public_state.sum_hash``); empty without a state.
            owner: number of the client whose journal it is.

        Returns:
            The journal's generation: rounds that it has begun, this one included.

        Raises:
            ProtocolError: the round's number, or the epoch, is not beyond the last; the number is
                too far beyond it; the roster is older than the last; something was revealed for
                the same state, purpose and layout; or it is another client's journal. Nothing was
                stored.
        """
        held, sum_id = self._held, sum_hash[:_SUM_BYTES]
        if held.owner not in (SERVER, owner):
            raise ProtocolError(f"this is the journal of client {held.owner}")
        _require_next(_number(round_id), _number(held.round_id), round_floor)
        if roster_version < held.roster_version:
            raise ProtocolError(
                f"roster {roster_version} is older than roster {held.roster_version}"
            )
        if epoch and epoch <= held.epoch:
            raise ProtocolError(f"epoch {epoch} allows no second attempt")
        if sum_id in held.revealed:
            raise ProtocolError(
                "this client has revealed for this public state, purpose and layout already; the "
                "model must move on before it does again"
            )
        begun = replace(
            held,
            owner=owner,
            roster_version=roster_version,
            epoch=epoch or held.epoch,
            generation=held.generation + 1,
            round_id=round_id,
            sum_id=sum_id,
            message=b"",
            ticket=b"",
        )
        self._save(begun)
        return begun.generation

    def see(self, round_id: bytes, peers: Mapping[int, tuple[bytes, int]]) -> None:
        """Record the generations that peers have advertised.

        Args:
            round_id: 16 bytes.
            peers: signing key and generation by client number.

        Raises:
            ProtocolError: the round is not the last one begun, or a generation is not beyond the
                last of its key, which names the client. Nothing was stored.
        """
        held = self._held
        if round_id != held.round_id:
            raise ProtocolError("KEYS: a later round was begun")
        old = [n for n, (key, shown) in peers.items() if shown <= held.peers.get(key, 0)]
        if old:
            raise ProtocolError(
                f"KEYS: an old journal: clients {old[:5]} have shown a later generation of their "
                "journals than the one they advertise"
            )
        self._save(replace(held, peers={**held.peers, **dict(peers.values())}))

    def reveal(self, round_id: bytes, message: bytes) -> None:
        """Record a REVEAL message that is about to be sent.

        Raises:
            ProtocolError: the round is not the last one begun, or something was revealed in it.
        """
        held = self._held
        if round_id != held.round_id:
            raise ProtocolError("a reveal must belong to the last round begun")
        if held.message:
            raise ProtocolError("a round is revealed once")
        sums = held.revealed | {held.sum_id} if held.sum_id else held.revealed
        self._save(replace(held, message=message, revealed=sums, ticket=b""))

    def revealed(self, round_id: bytes) -> bytes | None:
        """The REVEAL message of a round, if it was the last one begun and revealed."""
        return self._held.message or None if round_id == self._held.round_id else None

    def park(self, round_id: bytes, ticket: bytes) -> None:
        """Record the only saved state that the round may be gone on with, by its hash (``saved``).

        Raises:
            ProtocolError: the round is not the last one begun, or something was revealed in it.
        """
        if round_id != self._held.round_id or self._held.message:
            raise ProtocolError("a state is saved in the last round begun, and before its reveal")
        self._save(replace(self._held, ticket=ticket))

    @property
    def parked(self) -> bool:
        """Whether a saved state may be gone on with, so that no half in memory may."""
        return self._held.ticket != b""

    def require_ticket(self, round_id: bytes, ticket: bytes, *, owner: int) -> None:
        """Check that a state may be gone on with; nothing is stored.

        Raises:
            ProtocolError: it is another client's journal, or it holds no ticket for this state.
        """
        held = self._held
        if held.owner != owner:
            raise ProtocolError(f"this is the journal of client {held.owner}, as is the state")
        if round_id != held.round_id or not compare_digest(ticket, held.ticket):
            raise ProtocolError("a saved state serves once: this one is a copy, or an old one")

    def redeem(self, round_id: bytes, ticket: bytes, *, owner: int) -> None:
        """Strike a state's ticket, before anything of it is used; as ``require_ticket``."""
        self.require_ticket(round_id, ticket, owner=owner)
        self._save(replace(self._held, ticket=b""))

    def _save(self, entries: _Entries) -> None:
        self._held = entries


Journal: TypeAlias = MemoryJournal
"""Any journal: the rules are the same wherever it is kept."""


class FileJournal(MemoryJournal):
    """A journal in a file, on disk before ``begin``, ``see`` or ``reveal`` return.

    The file is replaced as a whole, so a crash leaves the old state or the new one. A lock beside
    it keeps a second process out; ``close`` releases it, and nothing is written without it, nor by
    a fork of the process that took it. Links are followed first: one file has one lock, under
    whatever name. It grows by 16 bytes for every state that something was revealed for, and by 40
    for every peer.

    Layout: magic and version | u32 owner | u32 roster version | u64 epoch
    | u64 generation | 16 round id | 16 sum, zeros for none | u32 size of the message | u32 sums
    | u32 peers | 32 ticket of a saved state, zeros for none | message | sums x 16
    | peers x (32 key | u64 generation) | 32 SHA-256 over all before it.

    Args:
        path: the file; made, for its owner only, by the first ``begin``.

    Raises:
        CheckpointError: the file is damaged or cannot be read, or another process holds it.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self._path = Path(path).resolve()
        self._process = os.getpid()
        self._lock: int | None = None
        try:
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._path.exists():
                self._held = self._load(self._path.read_bytes())
        except BlockingIOError:
            self.close()
            raise CheckpointError(f"{self._path}: another process holds this journal") from None
        except OSError as error:
            self.close()
            raise CheckpointError(f"{self._path}: {error.strerror}") from error
        except CheckpointError:
            self.close()
            raise

    @property
    def interrupted(self) -> bool:
        """Whether the last round was begun and not revealed: after a restart it is lost."""
        return self._held.generation > 0 and not self._held.message

    def close(self) -> None:
        """Release the lock; a second time does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _load(self, data: bytes) -> _Entries:
        body, digest = data[:-32], data[-32:]
        if not compare_digest(sha256(body).digest(), digest):
            raise CheckpointError(f"{self._path}: the journal is damaged")
        entries = _Entries.decode(body)
        if entries is None:
            raise CheckpointError(f"{self._path}: not a journal of this version")
        return entries

    @property
    def _lock_path(self) -> Path:
        return self._path.with_name(self._path.name + ".lock")

    def _require_lock(self) -> None:
        """Check that nobody else can have gone on from the file, with rounds not known here."""
        if self._lock is None:
            raise CheckpointError(f"{self._path}: this journal was closed")
        if self._process != os.getpid():
            raise CheckpointError(f"{self._path}: another process opened this journal")
        try:
            held = os.path.samestat(os.fstat(self._lock), self._lock_path.stat())
        except OSError:
            held = False
        if not held:
            raise CheckpointError(f"{self._path}: its lock was taken away")

    def _save(self, entries: _Entries) -> None:
        self._require_lock()
        try:
            self._write(entries)
        except OSError as error:
            problem = error.strerror or error
            raise CheckpointError(f"{self._path}: {problem}; nothing is sent") from error
        super()._save(entries)

    def _write(self, entries: _Entries) -> None:
        body = entries.encode()
        replace_file(self._path, body + sha256(body).digest(), private=True, durable=True)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _number(round_id: bytes) -> int:
    return int.from_bytes(round_id[:8], "little")


def _require_next(number: int, last: int, floor: int) -> None:
    if number <= last:
        raise ProtocolError(f"round {number} is not beyond round {last}, the last one begun")
    reached = max(last, floor)
    if number > reached + MOST_ROUNDS_AHEAD:
        raise ProtocolError(
            f"round {number} is more than {MOST_ROUNDS_AHEAD} beyond round {reached}, the last one "
            "begun or the floor that the roster's operator signed; a roster with a later floor "
            "would let it pass"
        )
