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
    counts                      int64[N], clients behind each row; may be absent
    values                      uint32 or uint64[N, width], ring words; absent where not kept

KIND is the step of the messages: ``upload``, ``noise``, ``denoise``, ``aggregate``, ``share``,
``counts``, ``peer``, or ``bag.NAME``, which has no rows. ``model`` and ``result`` hold the public
arrays in front of a round and after it (``table`` float64[rows, width], ``extra-NAME``),
``model-part`` and the like what only the ``receivers`` of it are sent.

Nothing is allocated on the word of a file: an array has the size that its header says, or the file
is refused, and what a block of it takes in memory is no more than four times the file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fedrec.blocks import BlockKind
from secure_fedrec.core.npz import read_npz
from secure_fedrec.errors import ConfigError, TranscriptError, UnstatedFactError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.traits import TRAITS
from secure_fedrec.wire import BlockStore, Step, Transcript
from secure_fedrec.wire.message_batches import NOBODY
from secure_fedrec.wire.recording import (
    EXTRA,
    RESULT,
    folder_of,
    kind_of,
    name_and_number,
    part_of,
    round_number,
)

_MOST_CLIENTS = 2**31
_MOST_MANIFEST = 64 * 2**20
_DENSE = (kind_of(Step.MODEL), RESULT)
_PARTS = (kind_of(Step.PART), *(part_of(kind) for kind in _DENSE))
_BAG = kind_of(Step.BAG, "")
_ROWS = tuple(kind_of(step) for step in Step if step not in (Step.MODEL, Step.PART, Step.BAG))

Columns = Mapping[str, npt.NDArray[Any]]


class Contents(NamedTuple):
    """What a recording holds.

    Attributes:
        rounds: how many.
        messages: of all rounds.
        bytes: of its blocks.
    """

    rounds: int
    messages: int
    bytes: int


class _Form(NamedTuple):
    """What the public knowledge says of every block."""

    codec: FixedPoint
    n_clients: int
    rows: int | None
    width: int | None


def validate(directory: Path) -> Contents:
    """Check a transcript file by file.

    Args:
        directory: of the transcript.

    Returns:
        What it holds.

    Raises:
        TranscriptError: something is not as the format says; names the file and what of it.
    """
    if not directory.is_dir():
        raise TranscriptError(f"{directory} is not a folder with a transcript")
    _require_own_files(directory)
    form = _form(_public(directory))
    store = BlockStore(directory)
    messages = 0
    for round_ in store.rounds():
        for file in sorted(folder_of(directory, round_, sealed=True).iterdir()):
            columns = _columns(file)
            try:
                messages += _require_block(_kind_of(file), columns, form)
            except ValueError as wrong:
                raise TranscriptError(f"{file}: {wrong}") from wrong
    return Contents(rounds=len(store.rounds()), messages=messages, bytes=store.bytes)


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
    """Refuse links, and files that no recording has: nothing is read from elsewhere."""
    for path in directory.rglob("*"):
        if path.is_symlink():
            raise TranscriptError(f"{path} is a link; a recording has files of its own")
    rounds = directory / "rounds"
    for folder in sorted(rounds.iterdir()) if rounds.is_dir() else ():
        if round_number(folder.name) is None or not folder.is_dir():
            raise TranscriptError(f"{folder} is not a completed round: those are named 000001 on")
        for file in folder.iterdir():
            stem, _, number = file.stem.rpartition("-")
            if file.suffix != ".npz" or not stem or not (number.isascii() and number.isdigit()):
                raise TranscriptError(f"{file} is not a block: those are named KIND-000.npz")


def _columns(file: Path) -> Columns:
    try:
        return read_npz(file, stored=True)
    except (OSError, ValueError, MemoryError) as damage:
        raise TranscriptError(f"{file} is damaged: {damage}") from damage


def _kind_of(file: Path) -> str:
    return name_and_number(file)[0]


def _form(public: Mapping[str, Any]) -> _Form:
    """Check the public knowledge as far as every attack relies on it.

    Raises:
        TranscriptError: a fact is of another form.
    """
    try:
        codec = FixedPoint(**_table(public, "ring"))
        n_clients = _whole(public, "n_clients", 1, _MOST_CLIENTS)
        if "n_items" in public:
            _whole(public, "n_items", 1, _MOST_CLIENTS)
        if not _words(public.get("left_out", [])):
            raise ValueError("left_out must be a list of words")
        if "negatives" in public:
            _whole(public, "negatives", 0, _MOST_CLIENTS)
        if "rating_levels" in public:
            _levels(public["rating_levels"])
        for whose in ("algorithm", "protection"):
            _traits(whose, _table(public, whose).get("traits") or {}, n_clients)
        blocks = public.get("blocks")
        shape = (None, None) if blocks is None else _blocks(blocks, codec)
    except (ConfigError, TypeError, KeyError, ValueError, UnstatedFactError) as wrong:
        raise TranscriptError(f"transcript.json: {wrong}") from wrong
    return _Form(codec, n_clients, *shape)


def _table(public: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = public.get(name)
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be a table")
    return found


def _whole(known: Mapping[str, Any], name: str, low: int, high: int) -> int:
    value = known.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} = {value!r} must be a whole number from {low} to {high}")
    return value


def _words(told: Any) -> bool:
    return isinstance(told, list) and all(isinstance(each, str) for each in told)


def _levels(told: Any) -> None:
    numbers = isinstance(told, list) and all(type(each) in (int, float) for each in told)
    if not numbers or not told or not np.isfinite(np.array(told, dtype=np.float64)).all():
        raise ValueError("rating_levels must be a list of finite numbers")
    if len(told) < 2:
        raise ValueError("rating_levels holds one level: leave it out for implicit feedback")
    if sorted(set(told)) != told:
        raise ValueError("rating_levels must ascend")


def _traits(whose: str, told: Any, n_clients: int) -> None:
    if not isinstance(told, dict):
        raise ValueError(f"{whose}.traits must be a table")
    for name, allowed in TRAITS.items():
        if told.get(name) not in (None, *allowed):
            raise ValueError(f"{whose}.traits.{name} = {told[name]!r}, not one of {allowed}")
    denoisers = told.get("denoisers") or []
    known = isinstance(denoisers, list) and all(
        isinstance(each, int) and 0 <= each < n_clients for each in denoisers
    )
    if not known:
        raise ValueError(f"{whose}.traits.denoisers must be numbers of clients")


def _blocks(told: Any, codec: FixedPoint) -> tuple[int, int]:
    """Rows and width of the table of all blocks, which lie one below the other."""
    if not isinstance(told, list) or not told:
        raise ValueError("blocks must be a list of tables")
    rows, width = 0, 1
    for block in told:
        if not isinstance(block, dict) or not isinstance(block.get("name"), str):
            raise ValueError("a block must be a table with a name")
        sizes = {key: _whole(block, key, 1, 2**31) for key in ("size", "rows", "width")}
        if block.get("first") != rows:
            raise ValueError(f"block {block['name']} must begin at row {rows}")
        kind = BlockKind(block.get("kind"))
        held = sizes["rows"] * sizes["width"] if kind is BlockKind.FLAT else sizes["rows"]
        if sizes["size"] > held or (kind is not BlockKind.FLAT and sizes["size"] != held):
            raise ValueError(f"block {block['name']} has no room for {sizes['size']} values")
        FixedPoint(bits=codec.bits, fraction_bits=block["fraction_bits"], clip=block["clip"])
        rows, width = rows + sizes["rows"], max(width, sizes["width"])
    return rows, width


def _require_block(kind: str, columns: Columns, form: _Form) -> int:
    """Check a block; how many messages it holds.

    Raises:
        ValueError: in words, what is wrong with it.
    """
    if kind in (*_DENSE, *_PARTS):
        _require_dense(kind, columns, form)
        return 0
    if kind not in _ROWS and not kind.startswith(_BAG):
        raise ValueError(f"there are no messages of kind {kind!r}")
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
    if kind == kind_of(Step.AGGREGATE) and form.rows is not None and (lengths != form.rows).any():
        raise ValueError(f"a sum has all {form.rows} rows of the table, 0 where nobody sent one")
    return count


def _require_column(name: str, found: npt.NDArray[Any], form: _Form) -> None:
    dimensions = 2 if name == "values" else 1
    types = {
        "tags": (np.uint64,),
        "rows": (np.uint16, np.uint32),
        "values": (form.codec.dtype,),
    }.get(name, (np.int64,))
    if found.ndim != dimensions or found.dtype not in [np.dtype(each) for each in types]:
        raise ValueError(f"{name} is {found.dtype} of {found.ndim} dimensions")
    if name in ("sizes", "lengths", "counts") and (found < 0).any():
        raise ValueError(f"{name} holds a negative number")
    if name in ("senders", "receivers") and len(found):
        low = NOBODY if name == "senders" else 0
        if found.min() < low or found.max() >= form.n_clients:
            raise ValueError(f"{name} are numbers from {low} to {form.n_clients - 1}")
    if name == "tags" and (found[1:] < found[:-1]).any():
        raise ValueError("tags do not ascend: an order of arrival would tell something")
    if name == "values" and form.width is not None and found.shape[1] != form.width:
        raise ValueError(f"values has {found.shape[1]} per row, the table {form.width}")
    if name == "values" and int(found.max(initial=0)) >= 2**form.codec.bits:
        raise ValueError(f"values holds words of more than {form.codec.bits} bits")


def _require_ascending(rows: npt.NDArray[Any], lengths: npt.NDArray[np.int64], form: _Form) -> None:
    """Row numbers of the table, ascending within each message."""
    if form.rows is not None and len(rows) and int(rows.max()) >= form.rows:
        raise ValueError(f"rows names row {int(rows.max())} of {form.rows}")
    falls = rows[1:] <= rows[:-1]
    ends = np.cumsum(lengths)
    within = np.ones(len(falls), dtype=bool)
    within[ends[(ends > 0) & (ends < len(rows))] - 1] = False
    if (falls & within).any():
        raise ValueError("rows do not ascend in a message")


def _require_dense(kind: str, columns: Columns, form: _Form) -> None:
    part = kind in _PARTS
    for name, found in columns.items():
        if name == "receivers" and part:
            _require_column("receivers", found, form)
        elif not (name.startswith(EXTRA) or (name == "table" and not part)):
            raise ValueError(f"a public model has no column {name!r}")
        elif found.dtype != np.float64 or not found.ndim:
            raise ValueError(f"{name} is {found.dtype}, must be float64")
        elif not np.isfinite(found).all():
            raise ValueError(f"{name} holds a value that is not finite")
    if part and "receivers" not in columns:
        raise ValueError("a part has no receivers")
    if not part and "table" not in columns:
        raise ValueError("a public model has no table")
    if not part and form.rows is not None and columns["table"].shape != (form.rows, form.width):
        raise ValueError(f"table has the shape {columns['table'].shape}")
