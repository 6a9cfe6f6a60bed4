"""Recording: which messages of a run are kept, and their layout on disk.

Row numbers, sizes and counts of every round are always kept; payloads only of chosen rounds and
senders (``policy``).

A recording is a folder: ``rounds/000001/upload-000.npz`` and so on, blocks of at most 64 MB, no
pickles. A round's folder gets its final name only when the round is complete. What the parties did
*not* see (who sent an anonymous message) is written to a separate truth folder, which no view
opens.

The files reveal only the messages in them: their order, and where one block ends and the next
begins, follow from tags and names (``spool``), and tags are drawn anew, under a key that readers of
the files and the configuration do not have.
"""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.core.kernels import bounds_of
from secure_fedrec.core.npz import npz_names, read_npz, write_npz
from secure_fedrec.errors import TranscriptError
from secure_fedrec.streams import Stream, Streams
from secure_fedrec.uploads import DenseBlock, RowBlock, SetBlock
from secure_fedrec.wire.message_batches import Messages, Step
from secure_fedrec.wire.policy import RecordingPolicy, row_dtype
from secure_fedrec.wire.spool import Columns, Spool

_BLOCK_BYTES = 64 * 2**20
HIDDEN_COUNTS = frozenset({Step.UPLOAD, Step.SHARE})
"""Steps whose counts, if any, are kept only with payloads."""
ORIGINS = "-origins"
"""Suffix of kinds of blocks with the senders of anonymous messages; kept with the truth."""
OWN = "own"
"""Kind of the blocks of each client's input to the sum; kept with the truth."""
RESULT = "result"
"""Kind of the block of the public table that a round led to."""
EXTRA = "extra-"
"""Prefix of the column names of arrays broadcast beside the public table."""


class BlockStore:
    """Columns of a run by round and step, in memory or in a folder.

    Args:
        directory: where to write; None keeps the blocks in memory.
    """

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self._memory: dict[tuple[int, str], list[Columns]] = defaultdict(list)
        self._written: dict[tuple[int, str], int] = defaultdict(int)

    @property
    def bytes(self) -> int:
        """Size of the kept data: columns in memory, or files of completed rounds."""
        if self.directory is None:
            blocks = (columns for kept in self._memory.values() for columns in kept)
            return sum(column.nbytes for columns in blocks for column in columns.values())
        files = self.directory.glob("rounds/*/*.npz")
        return sum(file.stat().st_size for file in files)

    def append(self, round_: int, name: str, columns: Columns) -> None:
        """Add a block to the round in progress."""
        if self.directory is None:
            self._memory[round_, name].append(columns)
            return
        folder = folder_of(self.directory, round_, sealed=False)
        folder.mkdir(parents=True, exist_ok=True)
        number = self._written[round_, name]
        self._written[round_, name] += 1
        write_npz(folder / f"{name}-{number:03d}.npz", columns)

    def scratch(self, round_: int, name: str) -> Path | None:
        """A folder of the round in progress for unfinished data; None in memory."""
        if self.directory is None:
            return None
        return folder_of(self.directory, round_, sealed=False) / f"scratch-{name}"

    def seal(self, round_: int) -> None:
        """Give a completed round its final name."""
        if self.directory is not None:
            unsealed = folder_of(self.directory, round_, sealed=False)
            unsealed.mkdir(parents=True, exist_ok=True)
            unsealed.replace(folder_of(self.directory, round_, sealed=True))

    def discard_after(self, round_: int) -> None:
        """Remove every round later than ``round_`` and whatever was left unfinished."""
        for counted in (self._memory, self._written):
            for key in [key for key in counted if key[0] > round_]:
                del counted[key]
        if self.directory is None:
            return
        for folder in self.directory.glob("rounds/*"):
            number = round_number(folder.name.removesuffix(".part"))
            if number is not None and (folder.suffix or number > round_):
                shutil.rmtree(folder)

    def rounds(self) -> tuple[int, ...]:
        """Completed rounds, ascending."""
        if self.directory is None:
            return tuple(sorted({round_ for round_, _ in self._memory}))
        numbers = (round_number(folder.name) for folder in self.directory.glob("rounds/*"))
        return tuple(sorted(number for number in numbers if number is not None))

    def kinds(self, round_: int) -> tuple[str, ...]:
        """Names under which blocks of a round are stored, ascending."""
        if self.directory is None:
            return tuple(sorted(kind for number, kind in self._memory if number == round_))
        files = folder_of(self.directory, round_, sealed=True).glob("*.npz")
        return tuple(sorted({name_and_number(file)[0] for file in files}))

    def names(self, round_: int, name: str) -> list[tuple[str, ...]]:
        """Column names of each block of one step of one round, without reading the columns.

        Raises:
            TranscriptError: a block is damaged.
        """
        if self.directory is None:
            return [tuple(columns) for columns in self._memory.get((round_, name), ())]
        try:
            return [self._names_in(file) for file in self._files(round_, name)]
        except (OSError, ValueError) as damage:
            raise TranscriptError(f"a block of {name} of round {round_} is damaged") from damage

    def read(self, round_: int, name: str) -> Iterator[Columns]:
        """Blocks of one step of one round, in the order written.

        Raises:
            TranscriptError: a block is damaged.
        """
        if self.directory is None:
            yield from self._memory.get((round_, name), ())
            return
        for file in self._files(round_, name):
            try:
                columns = self._columns_in(file)
            except (OSError, ValueError) as damage:
                raise TranscriptError(f"{file.name} of round {round_} is damaged") from damage
            yield columns

    def _names_in(self, file: Path) -> tuple[str, ...]:
        return npz_names(file)

    def _columns_in(self, file: Path) -> Columns:
        return read_npz(file)

    def _files(self, round_: int, name: str) -> list[Path]:
        if self.directory is None:
            return []
        files = folder_of(self.directory, round_, sealed=True).glob(f"{name}-*.npz")
        # One bag's name may be a prefix of another's: "bag.users-2-000" is not a block of
        # "bag.users".
        numbered = {file: name_and_number(file) for file in files}
        mine = [file for file, (kind, _) in numbered.items() if kind == name]
        return sorted(mine, key=lambda file: numbered[file][1])


class Recorder:
    """Writes messages as their receivers saw them and, separately, the truth.

    Args:
        policy: what to keep.
        seen: store of what parties saw.
        truth: store of what they did not.
        n_items: rows of the shared table (sets the width of the row-number column).
        arrival: draws the recorded tags of anonymous messages, from the sent tags and a key:
            without the key, every party that knows the run's seed could compute them. None uses a
            stream of the operating system's generator.
    """

    def __init__(
        self,
        *,
        policy: RecordingPolicy,
        seen: BlockStore,
        truth: BlockStore,
        n_items: int,
        arrival: Stream | None = None,
    ) -> None:
        self.policy = policy
        self.seen = seen
        self.truth = truth
        self.row_dtype = row_dtype(n_items)
        self._arrival = arrival or Streams.system().stream("arrival")
        self._spools: dict[tuple[int, str, tuple[str, ...]], Spool] = {}

    def record(self, messages: Messages, *, origins: IntArray | None) -> None:
        """Keep a batch as delivered; ``origins`` are the true senders of anonymous messages."""
        wanted = messages.round in self.policy.payload_rounds
        block = messages.payload
        if isinstance(block, DenseBlock):
            to = messages.receivers.ids if messages.step is Step.PART else None
            self._keep_table(messages.round, kind_of(messages.step), block, to)
            return
        messages = self._tagged(messages)
        if messages.tags is not None and origins is not None:
            name = f"{kind_of(messages.step, messages.bag)}{ORIGINS}"
            self.truth.append(messages.round, name, {"tags": messages.tags, "clients": origins})
        with_values = np.full(len(messages), wanted)
        named = messages.senders.role == "client" and messages.tags is None
        if wanted and self.policy.payload_senders is not None and named:
            # Anonymous messages keep all payloads: choosing among them would name their senders.
            with_values = np.isin(messages.senders.ids, self.policy.payload_senders)
        for keep_values in (True, False):
            which = np.flatnonzero(with_values == keep_values)
            if len(which):
                part = messages if len(which) == len(messages) else messages.select(which)
                if not isinstance(part.payload, DenseBlock):
                    columns = self._columns(part, part.payload, values=keep_values)
                    self._keep(part.round, kind_of(part.step, part.bag), columns)

    def record_result(self, round_: int, block: DenseBlock, to: IntArray | None) -> None:
        """Keep the public table after a round; clients predict with the last round's."""
        self._keep_table(round_, RESULT if to is None else part_of(RESULT), block, to)

    def record_own(
        self, round_: int, clients: IntArray, own: Callable[[bool], RowBlock], beside: Columns
    ) -> None:
        """Keep clients' inputs to the sum of a round; each client knows only its own.

        ``own`` makes them, with ring words only if payloads of the round are kept; ``beside`` are
        further columns.
        """
        kept = round_ in self.policy.payload_rounds
        block = own(kept)
        columns: Columns = {"senders": clients, "lengths": block.lengths, **beside}
        self.truth.append(round_, OWN, columns | self._held(block, values=kept, counts=True))

    def _keep_table(self, round_: int, kind: str, block: DenseBlock, to: IntArray | None) -> None:
        if round_ in self.policy.payload_rounds and block.values is not None:
            columns: Columns = {f"{EXTRA}{name}": values for name, values in block.extras.items()}
            columns |= {"table": block.values} if to is None else {"receivers": to}
            self.seen.append(round_, kind, columns)

    def end_round(self, round_: int) -> None:
        """Write the record of a round and complete it."""
        for key in sorted(key for key in self._spools if key[0] == round_):
            spool = self._spools.pop(key)
            for block in spool.blocks():
                self.seen.append(round_, key[1], block)
            spool.clear()
        self.seen.seal(round_)
        self.truth.seal(round_)

    def abandon_round(self, round_: int) -> None:
        """Forget a round that was not completed."""
        for key in [key for key in self._spools if key[0] >= round_]:
            self._spools.pop(key).clear()
        self.seen.discard_after(round_ - 1)
        self.truth.discard_after(round_ - 1)

    def _tagged(self, messages: Messages) -> Messages:
        if messages.tags is None:
            return messages
        lanes, zeros = messages.tags.view(np.int64), np.zeros(len(messages), dtype=np.int64)
        tags = self._arrival.words_at(messages.round, lanes, zeros, width=1)[:, 0]
        return replace(messages, tags=tags)

    def _columns(self, messages: Messages, block: RowBlock | SetBlock, *, values: bool) -> Columns:
        columns: Columns = {
            "senders": messages.senders.ids,
            "receivers": messages.receivers.ids,
            "sizes": messages.sizes,
            "lengths": block.lengths,
        }
        if messages.tags is not None:
            columns["tags"] = messages.tags
        # The counts of hidden rows are words like their values, and as large as a payload.
        counts = values or messages.step not in HIDDEN_COUNTS
        return columns | self._held(block, values=values, counts=counts)

    def _held(self, block: RowBlock | SetBlock, *, values: bool, counts: bool) -> Columns:
        """The content of a block's segments; ``rows_in`` reads it."""
        columns: Columns = {}
        if isinstance(block, RowBlock):
            columns["rows"] = block.rows.astype(self.row_dtype)
            if counts and block.counts is not None:
                columns["counts"] = block.counts
        if values and block.values is not None:
            columns["values"] = block.values
        return columns

    def _keep(self, round_: int, kind: str, columns: Columns) -> None:
        # Messages with and without values have different columns; each kind makes its own blocks.
        key = (round_, kind, tuple(columns))
        if key not in self._spools:
            # Kept with the truth: a killed run leaves this file, and its order reveals senders.
            scratch = self.truth.scratch(round_, f"{kind}-{len(columns)}")
            self._spools[key] = Spool(scratch, limit=_BLOCK_BYTES)
        self._spools[key].add(columns)


def rows_in(columns: Columns) -> RowBlock:
    """The rows of stored messages, one segment per message."""
    return RowBlock(
        indptr=bounds_of(columns["lengths"]),
        rows=columns["rows"].astype(np.int32, copy=False),
        values=columns.get("values"),
        counts=columns.get("counts"),
    )


def kind_of(step: Step, bag: str | None = None) -> str:
    """Name under which blocks are stored: that of the step, and of the bag if there is one."""
    return step.name.lower() if bag is None else f"{step.name.lower()}.{bag}"


def part_of(kind: str) -> str:
    """Name under which messages to only some clients are stored."""
    return f"{kind}-{kind_of(Step.PART)}"


def round_number(name: str) -> int | None:
    """The round whose folder has that name; None if it is not the name of a round's folder."""
    number = int(name) if name.isascii() and name.isdigit() else 0
    return number if number > 0 and name == f"{number:06d}" else None


def folder_of(directory: Path, round_: int, *, sealed: bool) -> Path:
    """The folder of a round; sealed once the round is complete."""
    return directory / "rounds" / (f"{round_:06d}" if sealed else f"{round_:06d}.part")


def name_and_number(file: Path) -> tuple[str, int]:
    """Name and number of a stored block."""
    kind, _, number = file.stem.rpartition("-")
    return kind, int(number)
