"""Columns of a Parquet file, through pyarrow, which the extra ``file`` brings."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data.files.columns import Coder, Columns
from secure_fedrec.data.files.faults import shown
from secure_fedrec.data.files.settings import Column, TextFile
from secure_fedrec.data.files.shape import positions
from secure_fedrec.data.files.source import require_file
from secure_fedrec.data.files.times import in_seconds
from secure_fedrec.errors import ConfigError, DataError

_ROWS_AT_ONCE: Final = 2**19


def read_parquet(path: Path, file: TextFile, asked: Mapping[str, Column]) -> Columns:
    """Read the wanted columns of a Parquet file.

    Args:
        path: where it is.
        file: its settings.
        asked: what is read, and from which column.

    Raises:
        ConfigError: pyarrow is not installed.
        DataError: it is damaged, or a column is not there, of another type, or has an empty place.
    """
    with _opened(path, file) as opened:
        from pyarrow import array  # noqa: PLC0415 - an extra

        names = tuple(opened.schema_arrow.names)
        places = positions(path, file, asked, names, width=len(names), line=None)
        named = {what: f"{what} column {names[place]!r}" for what, place in places.items()}
        coders = {what: Coder() for what in asked if what != "time"}
        times: list[IntArray] = []
        clock, written = file.clock(), False
        before, per_second, gaps = 0, 1, [np.zeros(0, dtype=np.bool_)]
        wanted = [names[place] for place in places.values()]
        for whole in opened.iter_batches(_ROWS_AT_ONCE, columns=sorted(set(wanted))):
            gap = np.zeros(len(whole), dtype=np.bool_)
            for what, place in places.items():
                empty = whole.column(names[place]).is_null().to_numpy(False)
                if empty.any() and not file.drops:
                    row = before + int(np.argmax(empty)) + 1
                    raise DataError(path, f"row {row}, {named[what]}: is empty{file.of_gaps}")
                gap |= empty
            gaps.append(gap)
            batch = whole.filter(array(~gap)) if gap.any() else whole
            for what, place in places.items():
                column = batch.column(names[place])
                if what == "time" and _is_text(column.type):
                    texts, written = _texts(path, named[what], what, column).tolist(), True
                    if texts and not clock.add(texts):
                        text = next(each for each in texts if clock.problem(each))
                        problem = f"{named[what]}: {shown(text)} {clock.problem(text)}"
                        raise DataError(path, problem)
                elif what == "time":
                    moments, per_second = _moments(path, named[what], column)
                    times.append(moments)
                else:
                    coders[what].add(_texts(path, named[what], what, column))
            before += len(gap)
    if not before:
        raise DataError(path, "holds no row")
    left = np.flatnonzero(~np.concatenate(gaps)) + 1
    if not len(left):
        raise DataError(path, "has no row left: each one is left out by the settings")
    return Columns(
        path=path,
        file=file,
        named=named,
        texts={what: coder.coded() for what, coder in coders.items()},
        time=(
            clock.moments()
            if written
            else in_seconds(np.concatenate(times), per_second)
            if times
            else None
        ),
        first_line=None,
        places=None if len(left) == before else left,
        left_out=before - len(left),
    )


def head(path: Path, file: TextFile, most: int) -> tuple[tuple[str, ...], list[list[str]]]:
    """The names of a Parquet file's columns, and its first rows as texts; as ``read_parquet``."""
    with _opened(path, file) as opened:
        names = tuple(opened.schema_arrow.names)
        batch = next(opened.iter_batches(most), None)
    columns = (
        [] if batch is None else [batch.column(place).to_pylist() for place in range(len(names))]
    )
    rows = zip(*columns, strict=True)
    return names, [["" if each is None else str(each) for each in row] for row in rows]


@contextmanager
def _opened(path: Path, file: TextFile) -> Iterator[Any]:
    """An opened file; refuses one that turns out unsound while it is read."""
    try:
        import pyarrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ModuleNotFoundError:
        problem = "Parquet is read with pip install 'secure-fedrec[file]'"
        raise ConfigError(file.key("path"), file.path, problem) from None
    require_file(path)
    try:
        with parquet.ParquetFile(path) as opened:
            yield opened
    except (pyarrow.ArrowException, OSError) as error:
        problem = f"is not a sound Parquet file ({' '.join(str(error).split())[:200]})"
        raise DataError(path, problem) from error


def _texts(path: Path, named: str, what: str, column: Any) -> npt.NDArray[Any]:
    """A column as text, numbers as Python writes them."""
    from pyarrow import types  # noqa: PLC0415

    kind = column.type
    if types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if _is_text(kind):
        texts: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False).astype(object)
        return texts
    flags = what == "rating" and types.is_boolean(kind)
    whole = types.is_floating(kind) and not (column.to_numpy(zero_copy_only=False) % 1).any()
    if types.is_integer(kind) or flags or whole or (what == "rating" and types.is_floating(kind)):
        values, places = np.unique(column.to_numpy(zero_copy_only=False), return_inverse=True)
        if kind in ("float", "halffloat"):
            # A float32 of 3.7 is read as 3.7, not as its exact binary value.
            return np.array([str(value) for value in values], dtype=object)[places]
        return np.array([str(value) for value in values.tolist()], dtype=object)[places]
    wanted = "numbers" if what == "rating" else "whole numbers or text"
    raise DataError(path, f"{named}: is of type {kind}, not {wanted}")


def _is_text(kind: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _moments(path: Path, named: str, column: Any) -> tuple[IntArray, int]:
    """A column of times as int64[N], and the number of its units in a second."""
    from pyarrow import types  # noqa: PLC0415

    kind = column.type
    if types.is_date(kind):
        column = column.cast("timestamp[ms]")
        kind = column.type
    if types.is_timestamp(kind):
        moments = column.cast("int64").to_numpy(zero_copy_only=False)
        return moments, {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    if types.is_integer(kind) and kind != "uint64":
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64), 1
    raise DataError(path, f"{named}: has type {kind}, and must be a time or whole seconds")
