"""Whether a folder is a recording: every file, every column, before anything is read from it.

A transcript of version 1 is a folder with

    transcript.json             {"schema_version": "1", "public": {...}}: what everybody knows
    rounds/NNNNNN/KIND-NNN.npz  a round's blocks, stored without compression; rounds count from 1

A block of messages has one entry of each of its columns per message, ``lengths`` of them per row:

    senders, receivers          int64[B], numbers inside their roles; -1 for a sender nobody knows
    sizes                       int64[B], bytes of each message
    lengths                     int64[B], rows of each message
    tags                        uint64[B], ascending, of messages without a sender; may be absent
    rows                        uint16 or uint32[N], row numbers, ascending in a message
    counts                      int64[N], clients behind each row, of a sum 0 to all where no noise
                                is added; may be absent
    values                      uint32 or uint64[N, width], ring words; absent where not kept

KIND is the step of the messages: ``upload``, ``noise``, ``denoise``, ``aggregate``, ``share``,
``counts``, ``peer``, or ``bag.NAME``, which has no rows. ``model`` and ``result`` hold the public
arrays in front of a round and after it (``table`` float64[rows, width], ``extra-NAME``),
``model-part`` and the like what only the ``receivers`` of it are sent.

All numbers of ``public`` are finite and less than 2**63. A file's header alone does not cause an
allocation: an array has the size that its header says, or the file is refused, and what a block of
it takes in memory is no more than four times the file. Sizes of arrays that only a number states
are bounded by the files as well: ``n_clients``, ``n_items`` and the rows of ``blocks`` are each at
most 1,048,576 more than the bytes of all files of the folder, and the values of ``blocks`` at most
64 times as many. ``n_items`` is the size of the block of items, where there is one. All files are
regular ones, and there are no links and no others.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.npz import read_npz
from secure_fedrec.errors import TranscriptError
from secure_fedrec.recording.own_files import require_file, require_folder
from secure_fedrec.recording.public_facts import Form, form_of, require_counts
from secure_fedrec.recording.truth_file import TruthColumns, read_truth
from secure_fedrec.wire import BlockStore, Step, Transcript
from secure_fedrec.wire.message_batches import NOBODY
from secure_fedrec.wire.recording import (
    EXTRA,
    ORIGINS,
    OWN,
    RESULT,
    folder_of,
    kind_of,
    name_and_number,
    part_of,
    round_number,
)
from secure_fedrec.wire.transcript import ENDS

_MOST_DIGITS = 9
_MOST_MANIFEST = 64 * 2**20
_DENSE = (kind_of(Step.MODEL), RESULT)
_PARTS = (kind_of(Step.PART), *(part_of(kind) for kind in _DENSE))
_BAG = kind_of(Step.BAG, "")
_STEPS = {kind_of(e): e for e in Step if e not in (Step.MODEL, Step.PART, Step.BAG)}
_ROWS = tuple(_STEPS)

Columns = Mapping[str, npt.NDArray[Any]]


class Contents(NamedTuple):
    """The content of a recording.

    Attributes:
        rounds: how many.
        messages: messages of all rounds.
        bytes: bytes of its blocks.
    """

    rounds: int
    messages: int
    bytes: int


def validate(directory: Path, *, truth: Path | None = None) -> Contents:
    """Check a transcript file by file.

    Args:
        directory: directory of the transcript.
        truth: file of its truth, which has to fit it; None for no file.

    Returns:
        What it holds.

    Raises:
        TranscriptError: a file violates the format; names the file and the violation.
    """
    return checked(directory, truth)[0]


def checked(directory: Path, truth: Path | None) -> tuple[Contents, TruthColumns, BlockStore]:
    """The same, and the truth that was read: its secrets, and blocks by round.

    Raises:
        TranscriptError: as ``validate``.
    """
    _require_own_files(directory)
    public = _public(directory)
    form = form_of(public, held=_bytes_of(directory))
    store = BlockStore(directory)
    messages = 0
    for round_ in store.rounds():
        for kind in _DENSE:
            if len(store.names(round_, kind)) > 1:
                raise TranscriptError(
                    f"round {round_} has more than one {kind}, and one is for all"
                )
        for file in sorted(folder_of(directory, round_, sealed=True).iterdir()):
            columns = _columns(file)
            try:
                messages += _require_block(_kind_of(file), columns, form)
            except ValueError as wrong:
                raise TranscriptError(f"{file}: {wrong}") from wrong
    found = Contents(rounds=len(store.rounds()), messages=messages, bytes=store.bytes)
    if truth is None:
        return found, TruthColumns(), BlockStore(None)
    secrets, rounds = read_truth(truth)
    _require_fit(truth, secrets, rounds, form)
    return found, secrets, rounds


def _bytes_of(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def _require_fit(truth: Path, secrets: TruthColumns, rounds: BlockStore, form: Form) -> None:
    """Refuse a truth of another federation than the transcript is of.

    Raises:
        TranscriptError: the truth is of another federation.
    """
    try:
        if secrets.clients(rounds) not in (None, form.n_clients):
            told = f"{secrets.clients(rounds)} clients, the transcript of {form.n_clients}"
            raise ValueError(f"it is of {told}")
        n_items = None if secrets.ratings is None else int(secrets.ratings["n_items"])
        if n_items is not None and form.n_items not in (None, n_items):
            raise ValueError(f"it is of {n_items} items, the transcript of {form.n_items}")
        for round_ in rounds.rounds():
            for columns in rounds.read(round_, OWN):
                _require_rows(columns, form)
            for kind in rounds.kinds(round_):
                for columns in rounds.read(round_, kind) if kind.endswith(ORIGINS) else ():
                    _require_numbers("clients", columns["clients"], 0, form.n_clients)
    except ValueError as wrong:
        raise TranscriptError(f"{truth}: {wrong}") from wrong


def _require_rows(columns: Columns, form: Form) -> None:
    """Check what clients put into a sum."""
    for name in columns:
        _require_column(name, columns[name], form)
    _require_numbers("senders", columns["senders"], 0, form.n_clients)
    _require_ascending(columns["rows"], columns["lengths"], form)


def _public(directory: Path) -> Mapping[str, Any]:
    manifest = directory / "transcript.json"
    try:
        size = manifest.stat().st_size
    except OSError as absent:
        raise TranscriptError(f"{directory} holds no readable transcript.json") from absent
    if size > _MOST_MANIFEST:
        raise TranscriptError(f"{manifest} has {size} bytes, more than {_MOST_MANIFEST}")
    try:
        return Transcript.open(directory).public
    except RecursionError as nested:
        raise TranscriptError(f"{manifest} is nested too deeply") from nested


def _require_own_files(directory: Path) -> None:
    """Refuse links, pipes, and files that a recording does not have."""
    require_folder(directory)
    for path in sorted(directory.iterdir()):
        if path.name == "rounds":
            require_folder(path)
        elif path.name == "transcript.json":
            require_file(path)
        else:
            raise TranscriptError(f"{path} is not part of a recording")
    rounds = directory / "rounds"
    for folder in sorted(rounds.iterdir()) if rounds.is_dir() else ():
        if round_number(folder.name) is None:
            raise TranscriptError(f"{folder} is not a completed round: those are named 000001 on")
        require_folder(folder)
        for file in folder.iterdir():
            require_file(file)
            stem, _, number = file.stem.rpartition("-")
            named = file.suffix == ".npz" and stem and number.isascii() and number.isdigit()
            if not named or len(number) > _MOST_DIGITS or number != f"{int(number):03d}":
                raise TranscriptError(f"{file} is not a block: those are named KIND-000.npz")


def _columns(file: Path) -> Columns:
    try:
        return read_npz(file, stored=True)
    except (OSError, ValueError, MemoryError) as damage:
        raise TranscriptError(f"{file} is damaged: {damage}") from damage


def _kind_of(file: Path) -> str:
    return name_and_number(file)[0]


def _require_block(kind: str, columns: Columns, form: Form) -> int:
    """Check a block; how many messages it holds.

    Raises:
        ValueError: in words, what is wrong with it.
    """
    if kind in (*_DENSE, *_PARTS):
        _require_dense(kind, columns, form)
        return 0
    if kind not in _ROWS and not kind.startswith(_BAG):
        raise ValueError(f"unknown kind of messages {kind!r}")
    of_bag = kind.startswith(_BAG)
    known = {"senders", "receivers", "sizes", "lengths"}
    needed = known if of_bag else {*known, "rows"}
    allowed = {*needed, "tags", "values", *(() if of_bag else ("counts",))}
    if not needed <= columns.keys() <= allowed:
        raise ValueError(f"has the columns {sorted(columns)}, needs {sorted(needed)}")
    for name, found in columns.items():
        _require_column(name, found, form)
    count, lengths = len(columns["lengths"]), columns["lengths"]
    for name in ({"tags", *known} & columns.keys()) - {"lengths"}:
        if len(columns[name]) != count:
            raise ValueError(f"{name} has {len(columns[name])} entries for {count} messages")
    total = sum(lengths.tolist())  # exact, however large
    for name in {"rows", "counts", "values"} & columns.keys():
        if len(columns[name]) != total:
            raise ValueError(f"{name} has {len(columns[name])} entries, lengths add up to {total}")
    if "rows" in columns:
        _require_ascending(columns["rows"], lengths, form)
    _require_ends(Step.BAG if of_bag else _STEPS[kind], columns, form)
    if kind == kind_of(Step.AGGREGATE) and "counts" in columns:
        require_counts(columns["counts"], form)
    if kind == kind_of(Step.AGGREGATE) and form.rows is not None and (lengths != form.rows).any():
        raise ValueError(
            f"a sum must have all {form.rows} rows of the table, 0 for rows that no client sent"
        )
    return count


def _require_column(name: str, found: npt.NDArray[Any], form: Form) -> None:
    dimensions = 2 if name == "values" else 1
    types = {
        "tags": (np.uint64,),
        "rows": (np.uint16, np.uint32),
        "values": (form.codec.dtype,),
    }.get(name, (np.int64,))
    if found.ndim != dimensions or found.dtype not in [np.dtype(each) for each in types]:
        raise ValueError(f"{name} is {found.dtype} of {found.ndim} dimensions")
    if name in ("sizes", "lengths") and (found < 0).any():
        raise ValueError(f"{name} holds a negative number")
    if name in ("senders", "receivers"):
        low = NOBODY if name == "senders" else 0
        _require_numbers(name, found, low, form.n_clients)
    if name == "tags" and (found[1:] < found[:-1]).any():
        raise ValueError("tags do not ascend: an order of arrival would tell something")
    if name == "values" and form.width is not None and found.shape[1] != form.width:
        raise ValueError(f"values has {found.shape[1]} per row, the table {form.width}")
    if name == "values" and int(found.max(initial=0)) >= 2**form.codec.bits:
        raise ValueError(f"values holds words of more than {form.codec.bits} bits")


def _require_ends(step: Step, columns: Columns, form: Form) -> None:
    """Check senders and receivers by their roles: there is one server, and so many denoisers."""
    denoisers = form.n_clients if form.denoisers is None else form.denoisers
    sizes = {"server": 1, "client": form.n_clients, "denoiser": denoisers}
    for name, role in zip(("senders", "receivers"), ENDS[step], strict=True):
        _require_numbers(name, columns[name], NOBODY if name == "senders" else 0, sizes[role])


def _require_numbers(name: str, found: npt.NDArray[Any], low: int, size: int) -> None:
    if len(found) and (found.min() < low or found.max() >= size):
        raise ValueError(f"{name} are numbers from {low} to {size - 1}")


def _require_ascending(rows: npt.NDArray[Any], lengths: npt.NDArray[np.int64], form: Form) -> None:
    """Row numbers of the table, ascending within each message."""
    if form.rows is not None and len(rows) and int(rows.max()) >= form.rows:
        raise ValueError(f"rows names row {int(rows.max())} of {form.rows}")
    falls = rows[1:] <= rows[:-1]
    ends = np.cumsum(lengths)
    within = np.ones(len(falls), dtype=bool)
    within[ends[(ends > 0) & (ends < len(rows))] - 1] = False
    if (falls & within).any():
        raise ValueError("rows do not ascend in a message")


def _require_dense(kind: str, columns: Columns, form: Form) -> None:
    part = kind in _PARTS
    for name, found in columns.items():
        if name == "receivers" and part:
            _require_column("receivers", found, form)
        elif not (name.startswith(EXTRA) or (name == "table" and not part)):
            raise ValueError(f"a public model does not have a column {name!r}")
        elif found.dtype != np.float64 or not found.ndim:
            raise ValueError(f"{name} is {found.dtype}, must be float64")
        elif not np.isfinite(found).all():
            raise ValueError(f"{name} holds a value that is not finite")
    if part and "receivers" not in columns:
        raise ValueError("a part lacks receivers")
    if not part and "table" not in columns:
        raise ValueError("a public model lacks a table")
    if not part and form.rows is not None and columns["table"].shape != (form.rows, form.width):
        raise ValueError(f"table has the shape {columns['table'].shape}")
