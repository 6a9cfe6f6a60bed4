"""A site's private state between rounds: sealed, complete, and refused if it is an old copy.

The file holds the vault's tables after the last attempt that the site's upload was summed in, and
beside them those of the attempt in progress, which replace them once the server says that it was
summed. A *ticket* beside it holds the hash of the only file that may be taken up: the new one's is
recorded before it is written, so a crash leaves one that is known, and a copy that was taken
earlier and put back is refused. Restoring file, ticket and journal together is detected by the
server instead (``site``), or by peers (``session.journal``).

Layout of the file, version 3: "SFHM" | u8 version | 32 salt | AES-256-GCM box under a key that
HKDF-SHA256 derives from the site's own key and the salt. Its content: u32 round | u64 settled
| u64 pending | u32 its round | u32 version of the roster | 32 its hash | tables | pending tables;
tables: u32 count, each u8 size, name | u8 item size | u8 dimensions | u32 each | floats. The
ticket: one or two SHA-256 of whole files. The client's privacy cost stands in its journal.

If training or encoding fails on a client's own data, it sits the round out, and takes part in the
next. But a server may name any public state or model, such as a row so large that only clients that
rated the item overflow. A silence that depends on data then tells the server one bit per round. So
a client sits out a few such rounds (``MOST_SAT_OUT``), and then its part is halted until its owner
has looked. A client that then never sends, whatever the state, does not reveal anything more.
"""

import logging
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import prod
from pathlib import Path
from traceback import format_exception

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.core.files import replace_file
from secure_fedrec.core.npz import read_npz, write_npz
from secure_fedrec.engines.checkpoint import public_columns, public_state_of
from secure_fedrec.errors import (
    CheckpointError,
    ConfigError,
    HaltedError,
    ProtocolError,
    RefusalError,
    SitsOutError,
)
from secure_fedrec.protection.masking.messages.keys import open_box, seal_box
from secure_fedrec.protection.session.journal import FileJournal, read_journal
from secure_fedrec.protection.session.journal_entries import Entries
from secure_fedrec.protection.session.nodes import SERVER_NUMBER
from secure_fedrec.protection.session.reader import Reader
from secure_fedrec.protection.session.roster import Roster, read_private
from secure_fedrec.vault import PrivateTable

log = logging.getLogger("secure-fedrec")

_MOST_TRACE = 8_000
"""Largest number of characters recorded of a failure."""
MOST_SAT_OUT = 3
"""Rounds that a client may sit out because of its own data before its owner has to look."""


def _text(path: Path) -> str:
    """The content of a file, which may have been written by another party."""
    return path.read_text(encoding="utf-8", errors="replace")


class HaltedClient:
    """Whether a client's part is halted, as recorded in a file for later processes.

    Args:
        folder: the site's own.
    """

    def __init__(self, folder: Path) -> None:
        self._mark = folder / "halted"
        self._sat_out = folder / "sat-out"
        self._unwritten: bytes | None = None

    def require_active(self) -> None:
        """Check that the client's part is not halted.

        Raises:
            HaltedError: the part is halted.
            OSError: nor can it be written down.
        """
        self._write()
        if self._mark.exists():
            raise HaltedError(
                f"this client's part was halted, {self._mark} says why; remove it to go on"
            )

    @property
    def reason(self) -> str | None:
        """What halted it; None if it is not halted.

        Raises:
            OSError: it cannot be read.
        """
        if not self._mark.exists():
            return None
        return _text(self._mark) or "the reason could not be written: the disk was full"

    @property
    def sat_out(self) -> int:
        """Rounds that this client sat out because of its own data since ``resume``.

        Raises:
            OSError: it cannot be read.
        """
        first = self._noted.partition("\n")[0]
        if (first.isdecimal() and len(first) < 9) or not self._noted:
            return int(first or 0)
        return MOST_SAT_OUT  # an edited file must not stop the counting

    @property
    def history(self) -> Path:
        """The file with all earlier reasons of halts."""
        return self._mark.with_name("resumed")

    def resume(self, word: str) -> None:
        """Resume the part; the reason of the halt is kept, with the owner's note.

        Raises:
            OSError: it cannot be written; then the part stays halted.
        """
        before = _text(self.history) if self.history.exists() else ""
        told = f"{before}{self._noted}{self.reason or ''}resumed: {word}\n\n"
        kept = told.encode(errors="backslashreplace")  # the reason may hold any bytes
        replace_file(self.history, kept, private=True, durable=True)
        self._sat_out.unlink(missing_ok=True)
        self._mark.unlink(missing_ok=True)

    @contextmanager
    def on_own_data(self, *passed: type[Exception]) -> Iterator[None]:
        """Guard for computations on the client's own data.

        Args:
            passed: exceptions that do not depend on the data, such as those of messages or of a
                disk, if the computation itself cannot raise them.

        Raises:
            SitsOutError: in the place of any other exception, but for an interrupt by the owner;
                or the computation has raised it itself, which is not counted.
            HaltedError: in its place, where as many rounds were sat out as may be.
            OSError: it could not be written down; the part stays silent until it is.
        """
        try:
            yield
        # Some libraries raise errors that are not an ``Exception``.
        except BaseException as failure:
            if isinstance(failure, (KeyboardInterrupt, SitsOutError, *passed)):
                raise
            trace = "".join(format_exception(failure))[-_MOST_TRACE:]
            self._unwritten = trace.encode(errors="backslashreplace")
            self._write()
            kind = f"{type(failure).__name__} on this client's own data"
            if self._mark.exists():
                raise HaltedError(
                    f"{kind}, after {MOST_SAT_OUT} rounds that were sat out: its part is halted, "
                    f"since each missing answer tells the server something; {self._mark} says why, "
                    "remove it to go on"
                ) from failure
            log.warning("%s: %s says why", kind, self._sat_out)
            told = isinstance(failure, RefusalError)
            why = str(failure) if told else "its result cannot be sent"
            raise SitsOutError(f"sits this round out: {why}") from failure

    @property
    def _noted(self) -> str:
        return _text(self._sat_out) if self._sat_out.exists() else ""

    def _write(self) -> None:
        """Write what could not be written before, if there is anything."""
        if self._unwritten is None:
            return
        try:
            noted, count = self._noted, self.sat_out
            if count >= MOST_SAT_OUT:
                replace_file(self._mark, self._unwritten, private=True, durable=True)
            else:
                told = f"{count + 1}\n{noted.partition(chr(10))[2]}".encode()
                told += self._unwritten + b"\n"
                replace_file(self._sat_out, told, private=True, durable=True)
        except OSError:
            # Every omitted answer must be counted: on a full disk, an empty file may still fit.
            self._mark.touch(mode=0o600)
            raise
        self._unwritten = None


KEY_BYTES = 32
_MAGIC, _VERSION = b"SFHM", 3
_HEAD = struct.Struct("<4sB32s")
_STATE = struct.Struct("<IQQII32s")
_INFO = b"secure-fedrec|v1|site|private-state"
_PUBLIC = "public.npz"
_TYPES = {4: np.float32, 8: np.float64}

Tables = Mapping[str, PrivateTable]
"""Private tables by name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SiteState:
    """The state that a site has to remember.

    Args:
        round: the last round that its upload was summed in; where clients keep the public state
            from the server, the last one that is over, as far as this site took part in what came
            after it: by the messages that it accepted, never by the server's word alone. It does
                not go down.
        settled: number of the attempt of the tables.
        tables: private tables.
        pending: number of the attempt whose outcome is not known; 0 without one.
        pending_round: its round.
        next: the tables after it.
        roster: version of the roster when it was saved.
        roster_hash: 32 bytes, its hash; zeros for none.
    """

    round: int = 0
    settled: int = 0
    tables: Tables = field(default_factory=dict)
    pending: int = 0
    pending_round: int = 0
    roster: int = 0
    roster_hash: bytes = bytes(32)
    next: Tables = field(default_factory=dict)

    def begun(self, serial: int, round_: int, tables: Tables, *, vouched: bool) -> "SiteState":
        """The state with the possible outcome of an attempt in progress.

        Args:
            serial: the attempt's number.
            round_: the round's.
            tables: private tables after it.
            vouched: whether the number of the round is confirmed by more than the server's word.
        """
        over = max(self.round, round_ - 1) if vouched else self.round
        return replace(self, round=over, pending=serial, pending_round=round_, next=tables)

    def under(self, roster: Roster) -> "SiteState":
        """Under a roster.

        Raises:
            ConfigError: the site knows a later roster, or another roster of the same version.
        """
        version = roster.version
        if version < self.roster:
            problem = f"is older than roster {self.roster}, which this site has taken part under"
            raise ConfigError("roster.version", version, problem)
        if version == self.roster and self.roster_hash not in (bytes(32), roster.hash):
            problem = "differs from the roster of this version that this site knows"
            raise ConfigError("roster.version", version, problem)
        return replace(self, roster=version, roster_hash=roster.hash)

    def told(self, settled: int) -> "SiteState":
        """The state after the server said in which attempt the upload was last summed.

        Args:
            settled: its number.

        Raises:
            RefusalError: this state does not know the attempt.
        """
        if settled == self.settled:
            return replace(self, pending=0, pending_round=0, next={})
        if self.pending and settled == self.pending:
            over = max(self.round, self.pending_round)
            found = replace(self, round=over, settled=settled, tables=self.next)
            return replace(found, pending=0, pending_round=0, next={})
        if settled < self.settled:
            raise RefusalError(
                f"the server knows of attempt {settled}, and this client's upload was summed in "
                f"attempt {self.settled}: the server went on from an old checkpoint. It must go on "
                "from its last one, or the federation begin anew"
            )
        raise RefusalError(
            f"attempt {settled} was summed with this client's upload, and its private state, of "
            f"attempt {self.settled}, is older: it is an old copy, or the server is wrong"
        )

    def encode(self) -> bytes:
        """The content of the file."""
        attempt = self.pending, self.pending_round
        head = _STATE.pack(self.round, self.settled, *attempt, self.roster, self.roster_hash)
        return head + _encoded(self.tables) + _encoded(self.next)

    @classmethod
    def decode(cls, data: bytes) -> "SiteState":
        """Inverse of ``encode``.

        Raises:
            ProtocolError: anything else.
        """
        with Reader(data, "private state") as reader:
            round_, settled, *rest = _STATE.unpack(reader.take(_STATE.size))
            tables, after = _decoded(reader), _decoded(reader)
        pending, begun, roster, roster_hash = rest
        return cls(
            round=round_,
            settled=settled,
            pending=pending,
            pending_round=begun,
            roster=roster,
            roster_hash=roster_hash,
            tables=tables,
            next=after,
        )


class SealedState:
    """Where a site keeps its private state.

    Args:
        folder: for the site alone; made if it is missing.
        key: 32 bytes that seal it, from a key store apart from it.

    Attributes:
        halted: whether the client's part is halted.

    Raises:
        ConfigError: the key has another size.
        OSError: the folder cannot be made.
    """

    def __init__(self, folder: Path, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ConfigError("site.key", f"({len(key)} bytes)", f"must have {KEY_BYTES} bytes")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._state, self._ticket = folder / "private.state", folder / "private.ticket"
        self._key = key
        self.halted = HaltedClient(folder)

    @property
    def journal(self) -> Path:
        """Where the journal of the site's client is kept."""
        return self._state.with_name("journal")

    def open_journal(self, *, owner: int, federation: bytes) -> FileJournal:
        """The journal of the site's client; a site has it as soon as it has private state.

        Args:
            owner: number of the client.
            federation: whose rounds it is for (``Agreement.federation``).

        Raises:
            CheckpointError: one of the two is missing, or the journal is another client's, of
                another federation, damaged, or in use.
        """
        self.look(owner=owner)
        return FileJournal.bound(self.journal, owner=owner, federation=federation)

    def look(self, *, owner: int) -> Entries:
        """The content of the journal, if it matches the private state beside it.

        Args:
            owner: number of the client.

        Raises:
            CheckpointError: one of the two is missing, or the journal is damaged or another
                client's.
        """
        state, kept = self._state, self._state.exists()
        if not self.journal.exists():
            if kept:
                raise CheckpointError(
                    f"{self.journal}: is missing beside {state.name}: put back the last one, which "
                    "says what this client has answered. A site that begins anew has neither"
                )
            return Entries()
        found = read_journal(self.journal)
        if found.owner not in (SERVER_NUMBER, owner):
            problem = f"this is the journal of client {found.owner}, not of {owner}"
            raise CheckpointError(f"{self.journal}: {problem}")
        if not kept and found.took_part:
            raise CheckpointError(
                f"{state}: is missing beside {self.journal.name}, by which this client has taken "
                "part: put back the last one. A site that begins anew has neither"
            )
        return found

    def load(self) -> SiteState | None:
        """The state that was kept; None before the first.

        A ticket without a state remains if the disk was full at the first time; ``open_journal``
        knows whether it was the first.

        Raises:
            CheckpointError: it is damaged, sealed under another key, or an old copy.
        """
        if not self._state.exists():
            return None
        try:
            sealed = read_private(self._state, "site.state")
            ticket = read_private(self._ticket, "site.ticket")
        except ConfigError as error:
            raise CheckpointError(str(error)) from None
        known = [ticket[at : at + 32] for at in range(0, len(ticket), 32)]
        if sha256(sealed).digest() not in known:
            raise CheckpointError(
                f"{self._state}: this is an old copy, not the state that was saved last"
            )
        head, box = sealed[: _HEAD.size], sealed[_HEAD.size :]
        if len(head) != _HEAD.size or head[:5] != _MAGIC + bytes([_VERSION]):
            raise CheckpointError(f"{self._state}: no private state of version {_VERSION}")
        try:
            return SiteState.decode(open_box(self._box_key(head), box, head))
        except ProtocolError as damage:
            raise CheckpointError(f"{self._state}: {damage}") from None

    def keep(self, kept: SiteState) -> None:
        """Replace the kept state; it is on disk before this returns.

        Raises:
            OSError: it cannot be written; the state kept before is unchanged.
        """
        head = _HEAD.pack(_MAGIC, _VERSION, os.urandom(32))
        sealed = head + seal_box(self._box_key(head), kept.encode(), head)
        new = sha256(sealed).digest()
        before = b""
        if self._state.exists():
            before = sha256(self._state.read_bytes()).digest()
        replace_file(self._ticket, new + before, private=True, durable=True)
        replace_file(self._state, sealed, private=True, durable=True)
        replace_file(self._ticket, new, private=True, durable=True)

    def keep_public(self, state: PublicState) -> None:
        """Keep the last public state, of clients who keep it from the server; it is not sealed.

        Raises:
            OSError: it cannot be written.
        """
        write_npz(self._state.with_name(_PUBLIC), public_columns(state), private=True)

    def note_clipped(self, round_: int, serial: int, count: int) -> None:
        """Record how many values of an attempt were clipped, for the site's owner only.

        Raises:
            OSError: it cannot be written.
        """
        path = self._state.with_name("clipped")
        before = path.read_bytes() if path.exists() else b""
        line = f"round {round_} attempt {serial}: {count} values\n".encode()
        replace_file(path, before + line, private=True)

    def _box_key(self, head: bytes) -> bytes:
        return HKDF(algorithm=SHA256(), length=32, salt=head, info=_INFO).derive(self._key)


def kept_public_state(folder: Path) -> PublicState | None:
    """The state that ``keep_public`` kept last in a site's folder; None before the first.

    Raises:
        CheckpointError: it is damaged.
    """
    path = folder / _PUBLIC
    if not path.exists():
        return None
    try:
        return public_state_of(read_npz(path))
    except (OSError, ValueError, KeyError) as damage:
        raise CheckpointError(f"{path}: {damage}") from None


def _encoded(tables: Tables) -> bytes:
    parts = [len(tables).to_bytes(4, "little")]
    for name, values in tables.items():
        little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
        shape = b"".join(size.to_bytes(4, "little") for size in little.shape)
        parts += [bytes([len(name.encode())]) + name.encode()]
        parts += [bytes([little.itemsize, little.ndim]) + shape, little.tobytes()]
    return b"".join(parts)


def _decoded(reader: Reader) -> dict[str, PrivateTable]:
    found: dict[str, PrivateTable] = {}
    for _ in range(reader.number(4)):
        name = reader.take(reader.number(1)).decode()
        size, dimensions = reader.number(1), reader.number(1)
        shape = tuple(reader.number(4) for _ in range(dimensions))
        if size not in _TYPES:
            raise ProtocolError(f"private state: floats of {size} bytes")
        values = np.frombuffer(reader.take(size * prod(shape)), dtype=f"<f{size}")
        found[name] = values.astype(_TYPES[size]).reshape(shape)
    return found
