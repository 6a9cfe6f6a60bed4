"""The client's journal: which rounds it has begun, and what it has revealed.

Two different answers to one round could open a client's mask, so a client that crashed and came
back must not answer again from fresh keys. Two answers over one public state could show a vector as
a difference, so what was revealed for a federation, state and purpose is revealed once, in whatever
round, cohort and ring (``statement``); before the first reveal, a failed round may be tried again.
The journal is written, and on disk, before the message that it records is handed out. It holds no
secret in clear: a reveal is stored as the encrypted message that was sent.

Rounds are numbered by the first 8 bytes of their identity, and a journal begins each number at most
once, in ascending order, none more than 2^20 beyond the last one begun or the floor that the
operator signed in the roster: one SETUP cannot use up the remaining numbers. A round that was begun
but not revealed when the process died is lost to this client: the keys were never stored.

Two rounds may be open at once: one whose keys are agreed on (``ready``), and before it one whose
vector was sent (``sent``), which may still be revealed in. ``begin`` gives up the first, ``upload``
the second: so at most one vector of a client waits to be opened, and keys of a round that was given
up for a later one are useless.

A host also counts here the public states that its client has computed from, however the attempts
ended (``compute``): a server that names states of its choice, and does not finish rounds, could
otherwise learn from each state which clients compute from it. A client's noised vectors are counted
as well (``spend``), and the round that it skips is recorded; restoring its other files does not
undo that.

A journal's *generation* is the number of rounds that it has begun. It is sent with ADVERTISE,
signed, and peers keep the highest one of each signing key. An old copy that was restored has begun
fewer rounds, and cannot show a higher number before it has begun as many again: peers name its
owner and leave the round. A journal belongs to the client that first begins a round in it, so files
that were mixed up are refused. Two copies go unnoticed. One is a copy taken after the last
ADVERTISE that another party saw: it may lack one reveal, and so the record of one state. The other
is an old copy with which an active server begins as many rounds again, by set-ups that it does not
pass on. So an old copy is not to be put back at all.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Final, TypeAlias

from secure_fedrec.core.file_lock import lock_file
from secure_fedrec.core.files import replace_file
from secure_fedrec.errors import CheckpointError, ProtocolError, RefusalError
from secure_fedrec.protection.session.journal_entries import NO_ROUND, SUM_BYTES, Entries, number_of
from secure_fedrec.protection.session.nodes import SERVER_NUMBER as SERVER

MOST_ROUNDS_AHEAD: Final = 2**20
"""How far a round's number may be beyond the last one begun, or beyond the roster's floor."""


MOST_STATES_BESIDE: Final = 3
"""Public states that a client computes from beside one for each round."""


class MemoryJournal:
    """A client's record of what it commits to.

    This one is kept in memory only: for simulations and tests. Another one overrides ``_save``.
    """

    def __init__(self) -> None:
        self._held = Entries()

    @property
    def owner(self) -> int:
        """Number of the client whose journal it is; ``SERVER`` before it belongs to a client."""
        return self._held.owner

    @property
    def generation(self) -> int:
        """Rounds that it has begun."""
        return self._held.generation

    def bind(self, *, owner: int, federation: bytes) -> None:
        """Record the federation and client that it is for, before the first round.

        Args:
            owner: number of the client.
            federation: as ``Statement.federation``.

        Raises:
            ProtocolError: it is another client's, or rounds of another federation were begun.
        """
        held = self._held
        self._require_for(owner, federation if held.took_part else b"")
        if (held.owner, held.federation) != (owner, federation):
            self._save(replace(held, owner=owner, federation=federation))

    @property
    def spent(self) -> int:
        """Noised vectors that were handed in."""
        return self._held.spent

    def spend(self) -> None:
        """Record that a noised vector is about to be handed in."""
        self._save(replace(self._held, spent=self._held.spent + 1))

    def compute(self, state: bytes, *, rounds: int) -> None:
        """Record that the client is about to compute from a public state.

        Args:
            state: 32 bytes, hash of the state and the round's number; again is not counted.
            rounds: that the federation has.

        Raises:
            ProtocolError: it has from more states than rounds begin with. Nothing was stored.
        """
        held = self._held
        if compare_digest(state, held.computed_from):
            return
        if held.computed >= rounds + MOST_STATES_BESIDE:
            raise RefusalError(
                f"this client has computed from {held.computed} public states, and there are "
                f"{rounds} rounds: it answers for no other one"
            )
        self._save(replace(held, computed=held.computed + 1, computed_from=state))

    def sits_out(self, round_: int) -> bool:
        """Whether the client skips a round."""
        return round_ == self._held.sat_out

    def sit_out(self, round_: int) -> None:
        """Record that the client skips a whole round, with all its attempts."""
        if not self.sits_out(round_):
            self._save(replace(self._held, sat_out=round_))

    def begin(
        self,
        round_id: bytes,
        *,
        roster_version: int,
        epoch: int,
        round_floor: int = 0,
        once: bytes = b"",
        federation: bytes = b"",
        owner: int = SERVER,
        opens: bool = False,
    ) -> int:
        """Record that keys of a round are about to be advertised.

        Args:
            round_id: 16 bytes.
            roster_version: version of the roster.
            epoch: epoch of the beacon, 0 for a round without one.
            round_floor: round number that the roster's operator signed.
            once: what would be revealed for (``Statement.once``), so that a round which must fail
                is not begun; empty where nothing is stated, or not known yet.
            federation: whose round it is (``Statement.federation``); empty where nothing is stated.
            owner: number of the client whose journal it is.
            opens: whether this is the answer that something is revealed by, and no ``reveal``
                follows.

        Returns:
            The journal's generation: rounds that it has begun, this one included.

        Raises:
            ProtocolError: the round's number, or the epoch, is not beyond the last; the number is
                too far beyond it; the roster is older than the last; something was revealed for
                the same state and purpose; or it is another client's journal, or of another
                federation. Nothing was stored.
        """
        held = self._held
        self._require_for(owner, federation)
        _require_next(number_of(round_id), held.last, round_floor)
        if roster_version < held.roster_version:
            raise RefusalError(
                f"roster {roster_version} is older than roster {held.roster_version}"
            )
        if epoch and epoch <= held.epoch:
            raise RefusalError(f"epoch {epoch} allows no second attempt")
        self._require_unrevealed(once)
        begun = replace(
            held,
            owner=owner,
            federation=federation or held.federation,
            roster_version=roster_version,
            epoch=epoch or held.epoch,
            generation=held.generation + 1,
            ready=round_id,
            ready_ticket=b"",
            revealed=held.revealed | {once[:SUM_BYTES]} if opens and once else held.revealed,
        )
        self._save(begun)
        return begun.generation

    def begun_last(self, round_id: bytes) -> bool:
        """Whether a round, by its whole identity, is the last one begun."""
        return self._held.ready == round_id != NO_ROUND

    def see(self, round_id: bytes, peers: Mapping[int, tuple[bytes, int]]) -> None:
        """Record the generations that peers have advertised.

        Args:
            round_id: 16 bytes.
            peers: signing key and generation by client number.

        Raises:
            ProtocolError: the round is not the last one begun, or was uploaded in, or a generation
                is not beyond the last of its key, which names the client. Nothing was stored.
        """
        held = self._held
        if round_id != held.ready:
            raise ProtocolError("KEYS: a later round was begun")
        old = [n for n, (key, shown) in peers.items() if shown <= held.peers.get(key, 0)]
        if old:
            raise ProtocolError(
                f"KEYS: an old journal: clients {old[:5]} have shown a later generation of their "
                "journals than the one they advertise"
            )
        self._save(replace(held, peers={**held.peers, **dict(peers.values())}))

    def upload(self, round_id: bytes, once: bytes = b"") -> None:
        """Record that the vector of a round is about to be sent; rounds before it are over.

        Args:
            round_id: 16 bytes.
            once: what would be revealed for (``Statement.once``); empty where nothing is stated.

        Raises:
            ProtocolError: the round is not the last one begun, or was uploaded in; or something was
                revealed for the same state and purpose. Nothing was stored.
        """
        held = self._held
        if round_id != held.ready or round_id == NO_ROUND:
            raise ProtocolError("a vector is sent once, in the last round begun")
        self._require_unrevealed(once)
        self._save(
            replace(
                held,
                ready=NO_ROUND,
                sent=round_id,
                sum_id=once[:SUM_BYTES],
                message=b"",
                ready_ticket=b"",
                sent_ticket=b"",
            )
        )

    def reveal(self, round_id: bytes, message: bytes) -> None:
        """Record a REVEAL message that is about to be sent.

        Raises:
            ProtocolError: the round is not the last one that a vector was sent in, or something was
                revealed in it.
        """
        held = self._held
        if round_id != held.sent:
            raise ProtocolError("a reveal must belong to the last round that a vector was sent in")
        if held.message:
            raise ProtocolError("a round is revealed once")
        sums = held.revealed | {held.sum_id} if held.sum_id else held.revealed
        self._save(replace(held, message=message, revealed=sums, sent_ticket=b""))

    def revealed(self, round_id: bytes) -> bytes | None:
        """The REVEAL message of a round, if it was the last one uploaded in, and revealed."""
        return self._held.message or None if round_id == self._held.sent else None

    def park(self, round_id: bytes, ticket: bytes) -> None:
        """Record the only saved state that the round may be gone on with, by its hash (``saved``).

        Raises:
            ProtocolError: the round is over for this client, or something was revealed in it.
        """
        place = self._held.open(round_id)
        if not place:
            raise ProtocolError("a state is saved in a round in progress, and before its reveal")
        self._save(self._with(place, ticket))

    def parked(self, round_id: bytes) -> bool:
        """Whether a saved state may be gone on with, so that halves in memory may not."""
        place = self._held.open(round_id)
        return place != "" and getattr(self._held, place) != b""

    def require_ticket(self, round_id: bytes, ticket: bytes, *, owner: int) -> None:
        """Check that a state may be gone on with; nothing is stored.

        Raises:
            ProtocolError: it is another client's journal, or it holds no ticket for this state.
        """
        held = self._held
        if held.owner != owner:
            raise ProtocolError(f"this is the journal of client {held.owner}, as is the state")
        place = held.open(round_id)
        if not place or not compare_digest(ticket, getattr(held, place)):
            raise ProtocolError("a saved state serves once: this one is a copy, or an old one")

    def redeem(self, round_id: bytes, ticket: bytes, *, owner: int) -> None:
        """Strike a state's ticket, before anything of it is used; as ``require_ticket``."""
        self.require_ticket(round_id, ticket, owner=owner)
        self._save(self._with(self._held.open(round_id), b""))

    def _require_for(self, owner: int, federation: bytes) -> None:
        held = self._held
        if held.owner not in (SERVER, owner):
            mine = "" if owner == SERVER else f", not of {owner}"
            raise ProtocolError(f"this is the journal of client {held.owner}{mine}")
        if b"" not in (held.federation, federation) and held.federation != federation:
            raise RefusalError(
                "this journal is of another federation: of another operator, or other settings. A "
                "new federation takes a folder of its own, and begins from another model: this "
                "one's clients would answer for the same model twice"
            )

    def _require_unrevealed(self, once: bytes) -> None:
        if once[:SUM_BYTES] in self._held.revealed:
            raise RefusalError(
                "this client has answered for this public state already: the model must move on "
                "before it does again"
            )

    def _with(self, place: str, ticket: bytes) -> Entries:
        return replace(
            self._held,
            ready_ticket=ticket if place == "ready_ticket" else self._held.ready_ticket,
            sent_ticket=ticket if place == "sent_ticket" else self._held.sent_ticket,
        )

    def _save(self, entries: Entries) -> None:
        self._held = entries


Journal: TypeAlias = MemoryJournal
"""Any journal: the rules are the same wherever it is kept."""


class FileJournal(MemoryJournal):
    """A journal in a file, on disk before ``begin``, ``see``, ``upload`` or ``reveal`` return.

    The file is replaced as a whole, so a crash leaves the old state or the new one. A lock beside
    it keeps a second process out; ``close`` releases it, and nothing is written without it, nor by
    a fork of the process that took it. Links are followed first: one file has one lock, under
    whatever name. It grows by 16 bytes for every state that something was revealed for, and by 40
    for every peer.

    Layout: that of ``entries``, and SHA-256 over it.

    Args:
        path: the file; made, for its owner only, by the first ``begin``
            or ``bind``.

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
            lock_file(self._lock)
            if self._path.exists():
                self._held = read_journal(self._path)
        except BlockingIOError:
            self.close()
            raise CheckpointError(f"{self._path}: another process holds this journal") from None
        except OSError as error:
            self.close()
            raise CheckpointError(f"{self._path}: {error.strerror}") from error
        except CheckpointError:
            self.close()
            raise

    @classmethod
    def bound(cls, path: Path, *, owner: int, federation: bytes) -> "FileJournal":
        """The journal of a host of one federation; it is created if missing (``bind``).

        Raises:
            CheckpointError: it is another host's, of another federation, or as above.
        """
        journal = cls(path)
        try:
            journal.bind(owner=owner, federation=federation)
        except ProtocolError as other:
            journal.close()
            raise CheckpointError(f"{path}: {other}") from None
        except CheckpointError:
            journal.close()
            raise
        return journal

    @property
    def interrupted(self) -> bool:
        """Whether a round was begun without a reveal: after a restart it is lost."""
        held = self._held
        return held.generation > 0 and (held.ready != NO_ROUND or not held.message)

    def close(self) -> None:
        """Release the lock; a second time does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    @property
    def _lock_path(self) -> Path:
        return self._path.with_name(self._path.name + ".lock")

    def _require_lock(self) -> None:
        """Check that no other process continued from the file with rounds not known here."""
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

    def _save(self, entries: Entries) -> None:
        self._require_lock()
        try:
            self._write(entries)
        except OSError as error:
            problem = error.strerror or error
            raise CheckpointError(f"{self._path}: {problem}; nothing is sent") from error
        super()._save(entries)

    def _write(self, entries: Entries) -> None:
        body = entries.encode()
        replace_file(self._path, body + sha256(body).digest(), private=True, durable=True)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_journal(path: Path) -> Entries:
    """The content of a journal, to look at: a process that continues from it needs its lock.

    Raises:
        CheckpointError: it is missing, damaged, or cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    body, digest = data[:-32], data[-32:]
    if not compare_digest(sha256(body).digest(), digest):
        raise CheckpointError(f"{path}: the journal is damaged")
    entries = Entries.decode(body)
    if entries is None:
        raise CheckpointError(f"{path}: not a journal of this version")
    return entries


def _require_next(number: int, last: int, floor: int) -> None:
    if number <= last:
        raise RefusalError(f"round {number} is not beyond round {last}, the last one begun")
    reached = max(last, floor)
    if number > reached + MOST_ROUNDS_AHEAD:
        raise RefusalError(
            f"round {number} is more than {MOST_ROUNDS_AHEAD} beyond round {reached}, the last one "
            "begun or the floor that the roster's operator signed; a roster with a later floor "
            "would let it pass"
        )
