"""A recording as Parquet files, for tools that read tables; and back, to the bit.

The Parquet form of a transcript of version 1 is a folder with

    transcript.json                         as in the transcript
    rounds/NNNNNN/KIND-NNN.messages.parquet a row per message of a block: ``senders``,
                                            ``receivers``, ``sizes``, ``lengths`` int64, and
                                            ``tags`` uint64 where the block has them
    rounds/NNNNNN/KIND-NNN.rows.parquet     a row per row that was sent, message after message:
                                            ``rows`` uint16 or uint32, ``counts`` int64, and
                                            ``value_0`` on, uint32 or uint64, one for each column
                                            of ``values``; of these what the block has
    rounds/NNNNNN/KIND-NNN.arrays.parquet   of a block without messages, a row per value: ``array``
                                            int32, a number, and ``value`` float64. The metadata
                                            of its schema has ``arrays``, a list in JSON of name,
                                            dtype and shape of each, in the order of numbers

The columns mean what those of the transcript mean, and none has empty places. Files are written
without compression and without dictionaries, and data whose stated size exceeds its file is
refused: so the memory for a folder is bounded by its size. The content is checked as a transcript
(``validation``) after conversion.
"""

import json
import re
import shutil
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.npz import read_npz, write_npz
from secure_fedrec.errors import TranscriptError, brought_by
from secure_fedrec.recording.own_files import require_file, require_folder
from secure_fedrec.recording.validation import validate
from secure_fedrec.wire.recording import round_number

_BLOCK: Final = re.compile(r"(.+-[0-9]+)\.(messages|rows|arrays)\.parquet", re.ASCII)
_VALUE: Final = re.compile(r"value_(0|[1-9][0-9]{0,8})", re.ASCII)
_MESSAGES: Final = ("senders", "receivers", "sizes", "lengths", "tags")
_ROWS: Final = ("rows", "counts")
_TYPES: Final = ("uint16", "uint32", "uint64", "int32", "int64", "double")
_MANIFEST, _ARRAYS = "transcript.json", b"arrays"
_PLAIN: Final = frozenset(("PLAIN", "RLE", "BIT_PACKED"))
"""Encodings of values, and of the levels that columns without gaps do not have."""
_MOST_DIMENSIONS = 8
_EXACT = 2**53  # whole numbers below it are float64s

Columns = Mapping[str, npt.NDArray[Any]]


def to_parquet(directory: Path, out: Path) -> None:
    """Write a transcript in the Parquet form.

    Args:
        directory: directory of the transcript.
        out: a new or empty folder.

    Raises:
        MissingExtraError: pyarrow is not installed.
        TranscriptError: the files are not a recording, or ``out`` holds something.
        OSError: something could not be written.
    """
    validate(directory)
    _begun(directory, out)
    for file in sorted(directory.glob("rounds/*/*.npz")):
        folder = out / "rounds" / file.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        columns = read_npz(file, stored=True)
        if "lengths" not in columns:
            _write_arrays(folder / f"{file.stem}.arrays.parquet", columns)
            continue
        told = {name: each for name, each in columns.items() if name in _MESSAGES}
        _write(folder / f"{file.stem}.messages.parquet", told)
        held = {name: each for name, each in columns.items() if name in _ROWS}
        if "values" in columns:
            if not columns["values"].shape[1]:
                raise TranscriptError(f"{file}: values does not have columns")
            held |= {f"value_{place}": each for place, each in enumerate(columns["values"].T)}
        if held:
            _write(folder / f"{file.stem}.rows.parquet", held)


def from_parquet(directory: Path, out: Path) -> None:
    """Write a transcript from its Parquet form.

    Args:
        directory: in the Parquet form.
        out: a new or empty folder for the transcript; it stays empty if the files are refused.

    Raises:
        MissingExtraError: pyarrow is not installed.
        TranscriptError: a file is damaged or another one than the form has, what it holds is no
            recording, or ``out`` holds something.
        OSError: something could not be written.
    """
    blocks = _blocks_in(directory)
    _begun(directory, out)
    try:
        for (round_, name), parts in blocks.items():
            folder = out / "rounds" / round_
            folder.mkdir(parents=True, exist_ok=True)
            write_npz(folder / f"{name}.npz", _columns(parts))
        validate(out)
    except BaseException:
        shutil.rmtree(out)
        raise


def _begun(directory: Path, out: Path) -> None:
    """A folder with the manifest alone.

    Raises:
        TranscriptError: it holds something, or one of both folders lies in the other.
    """
    source, target = directory.resolve(), out.resolve()
    if source == target or source in target.parents or target in source.parents:
        raise TranscriptError(f"{out} and {directory} lie in one another: give each its own folder")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TranscriptError(f"{out} is not empty: give a recording its own folder")
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(directory / _MANIFEST, out / _MANIFEST)
    for folder in sorted(directory.glob("rounds/*/")):
        (out / "rounds" / folder.name).mkdir(parents=True, exist_ok=True)


def _blocks_in(directory: Path) -> dict[tuple[str, str], dict[str, Path]]:
    """Files of each block, by round and name, and by what they hold.

    Raises:
        TranscriptError: there is a link, a file that the form does not have, or too few of them.
    """
    require_folder(directory)
    if not (directory / _MANIFEST).is_file():
        raise TranscriptError(f"{directory} holds no {_MANIFEST}")
    require_file(directory / _MANIFEST)
    found: dict[tuple[str, str], dict[str, Path]] = {}
    for path in sorted(directory.rglob("*")):
        if path.is_symlink():
            raise TranscriptError(f"{path} is a link; a recording has files of its own")
        place = path.relative_to(directory).parts
        named = _BLOCK.fullmatch(path.name)
        if len(place) == 3 and place[0] == "rounds" and path.is_file() and named is not None:
            found.setdefault((place[1], named[1]), {})[named[2]] = path
        elif not (place in {(_MANIFEST,), ("rounds",)} or _is_round(place, path)):
            raise TranscriptError(f"{path} is not a file of a recording in the Parquet form")
    for parts in found.values():
        if ("arrays" in parts) != (len(parts) == 1 and "messages" not in parts):
            raise TranscriptError(f"{min(parts.values())} stands beside others, or alone")
    return found


def _is_round(place: tuple[str, ...], path: Path) -> bool:
    inside = len(place) == 2 and place[0] == "rounds" and path.is_dir()
    return inside and round_number(place[1]) is not None


def _columns(parts: Mapping[str, Path]) -> dict[str, npt.NDArray[Any]]:
    """The columns of a block."""
    if "arrays" in parts:
        return _arrays(parts["arrays"])
    found, _ = _read(parts["messages"])
    held = _read(parts["rows"])[0] if "rows" in parts else {}
    values = {name: held.pop(name) for name in list(held) if _VALUE.fullmatch(name)}
    if values:
        names = [f"value_{place}" for place in range(len(values))]
        if list(values) != names or len({each.dtype for each in values.values()}) != 1:
            raise TranscriptError(f"{parts['rows']}: its values are not value_0 on, of one type")
        found["values"] = np.stack([values[name] for name in names], axis=1)
    if held.keys() & found.keys() or not held.keys() <= set(_ROWS):
        raise TranscriptError(f"{parts['rows']} has the columns {sorted(held)}")
    return found | held


def _write_arrays(path: Path, columns: Columns) -> None:
    told = [[name, each.dtype.name, each.shape] for name, each in columns.items()]
    numbers = [np.full(each.size, place, np.int32) for place, each in enumerate(columns.values())]
    values = [each.reshape(-1).astype(np.float64) for each in columns.values()]
    table: Columns = {"array": np.concatenate(numbers), "value": np.concatenate(values)}
    _write(path, table, {_ARRAYS: json.dumps(told).encode()})


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Arrays of a block without messages.

    Raises:
        TranscriptError: what the file says of them is not what it holds.
    """
    columns, said = _read(path)
    try:
        told = json.loads(said[_ARRAYS])
        shapes = {str(name): tuple(shape) for name, _, shape in told if isinstance(shape, list)}
        dtypes = [{"float64": np.float64, "int64": np.int64}[dtype] for _, dtype, _ in told]
        numbers, values = columns.pop("array"), columns.pop("value")
        if columns or numbers.dtype != np.int32 or values.dtype != np.float64:
            raise ValueError("it has other columns than array and value")
        if len(shapes) != len(told) or not all(map(_is_shape, shapes.values())):
            raise ValueError("its arrays do not have names and shapes")
        sizes = [prod(shape) for shape in shapes.values()]
        if sum(sizes) != len(values):
            raise ValueError("its arrays are not those that it states")
        if not np.array_equal(numbers, np.repeat(np.arange(len(sizes)), sizes)):
            raise ValueError("its values are not one array after the other")
        parts = np.split(values, np.cumsum(sizes)[:-1])
        found = {}
        for (name, shape), dtype, part in zip(shapes.items(), dtypes, parts, strict=True):
            whole = (np.abs(part) < _EXACT) & (part == np.rint(part))
            if dtype is np.int64 and not whole.all():
                raise ValueError(f"{name} holds no whole numbers")
            found[name] = part.astype(dtype).reshape(shape)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as wrong:
        raise TranscriptError(f"{path}: {wrong}") from wrong
    return found


def _is_shape(told: tuple[Any, ...]) -> bool:
    return len(told) <= _MOST_DIMENSIONS and all(type(each) is int and each >= 0 for each in told)


def _write(path: Path, columns: Columns, said: Mapping[bytes, bytes] | None = None) -> None:
    with brought_by("file", "the Parquet form of a recording"):
        import pyarrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    arrays = {name: pyarrow.array(np.ascontiguousarray(each)) for name, each in columns.items()}
    fields = [pyarrow.field(name, each.type, nullable=False) for name, each in arrays.items()]
    table = pyarrow.table(list(arrays.values()), schema=pyarrow.schema(fields, metadata=said))
    parquet.write_table(table, path, compression="none", use_dictionary=False)
    path.chmod(0o600)


def _read(path: Path) -> tuple[dict[str, npt.NDArray[Any]], Mapping[bytes, bytes]]:
    """Columns of a file, by name, and further facts of its schema.

    Raises:
        TranscriptError: it is damaged, a column may have empty places or is of another type, or
            it says that it is larger than it is.
    """
    with brought_by("file", "the Parquet form of a recording"):
        import pyarrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    try:
        size = path.stat().st_size
        with parquet.ParquetFile(path, memory_map=False) as opened:
            schema, told = opened.schema_arrow, opened.metadata
            for each in schema:
                if each.nullable or str(each.type) not in _TYPES:
                    raise TranscriptError(
                        f"{path}: column {each.name!r} is {each.type}, or has gaps"
                    )
            if len(set(schema.names)) != len(schema.names):
                raise TranscriptError(f"{path} has two columns of one name")
            widths = sum(each.type.bit_width // 8 for each in schema)
            groups = sum(told.row_group(place).num_rows for place in range(told.num_row_groups))
            _require_plain(path, told)
            if not 0 <= told.num_rows == groups or told.num_rows * widths > size:
                raise TranscriptError(f"{path} says that it is larger than it is")
            table = opened.read(use_threads=False)
    except (pyarrow.ArrowException, OSError, ValueError) as damage:
        raise TranscriptError(f"{path} is damaged: {damage}") from damage
    if table.num_rows != told.num_rows:
        raise TranscriptError(f"{path} has another number of rows than it says")
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    return columns, schema.metadata or {}


def _require_plain(path: Path, told: Any) -> None:
    """Refuse what could be larger than the file, by its metadata.

    Raises:
        TranscriptError: a column is compressed, or refers to a dictionary.
    """
    for group in range(told.num_row_groups):
        for place in range(told.num_columns):
            chunk = told.row_group(group).column(place)
            if chunk.compression != "UNCOMPRESSED" or not _PLAIN.issuperset(chunk.encodings):
                raise TranscriptError(f"{path} is compressed, or written with dictionaries")
