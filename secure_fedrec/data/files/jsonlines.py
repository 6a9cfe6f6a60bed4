"""Files of JSON objects, one per line."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from secure_fedrec.data.files.columns import Coder, Columns
from secure_fedrec.data.files.faults import hint, lines, shown
from secure_fedrec.data.files.settings import Column, TextFile
from secure_fedrec.data.files.shape import first_lines, positions
from secure_fedrec.data.files.times import Clock
from secure_fedrec.errors import DataError

_ROWS_AT_ONCE: Final = 2**17
_LOOKED_AT: Final = 1000


def is_json_lines(path: Path, file: TextFile) -> bool:
    """Whether the first line is a JSON object.

    Raises:
        DataError: the file cannot be read, or the line is not text.
    """
    if file.parquet or file.separator != "auto":
        return False
    with suppress(ValueError, RecursionError):
        return isinstance(json.loads(next(iter(first_lines(path, file, 1)), "")), dict)
    return False


def first_objects(path: Path, file: TextFile) -> list[Mapping[str, Any]]:
    """Number of first objects whose names are used."""
    return list(itertools.islice(objects(path, file), _LOOKED_AT))


def names_of(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names of some objects, in the order in which they come."""
    return tuple(dict.fromkeys(name for row in rows for name in row))


def objects(path: Path, file: TextFile) -> Iterator[Mapping[str, Any]]:
    """The objects of a file, one after the other.

    Raises:
        DataError: a line is not an object; names it.
    """
    for line, text in enumerate(lines(path, file), start=1):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(path, f"is not a JSON object ({error})", line=line) from error
        if not isinstance(found, dict):
            raise DataError(path, "is not a JSON object", line=line)
        yield found


def text_of(value: Any) -> str | None:
    """A value as text, empty for null; None if it is a list or a table."""
    if value is None:
        return ""
    return None if isinstance(value, dict | list) else str(value)


def read_json_lines(path: Path, file: TextFile, asked: Mapping[str, Column]) -> Columns:
    """Read the wanted values of every object.

    Args:
        path: where the file is.
        file: its settings.
        asked: what is read, and from which name, or place among the first object's.

    Raises:
        ConfigError: two are one.
        DataError: a line is not an object, or a value is a list or a table; names the line.
    """
    names = names_of(first_objects(path, file))
    places = positions(path, file, asked, names, width=len(names), line=1)
    named = {what: f"{what} column {names[place]!r}" for what, place in places.items()}
    coders = {what: Coder() for what in asked if what != "time"}
    clock = file.clock()
    rows = enumerate(objects(path, file), start=1)
    while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        for what, place in places.items():
            texts = [text_of(row.get(names[place])) for _, row in some]
            if None in texts:
                problem = f"{named[what]}: is a list or a table"
                raise DataError(path, problem, line=some[texts.index(None)][0])
            column = [text for text in texts if text is not None]
            if what != "time":
                coders[what].add(np.array(column, dtype=object))
            elif not clock.add(column):
                _explain(path, file, clock, named[what], zip(some, column, strict=True))
    return Columns(
        path=path,
        file=file,
        named=named,
        texts={what: coder.coded() for what, coder in coders.items()},
        time=clock.moments() if "time" in asked else None,
        first_line=1,
    )


def _explain(path: Path, file: TextFile, clock: Clock, named: str, rows: Iterator[Any]) -> None:
    """Refuse the first value that is not a time.

    Raises:
        DataError: such a value was found.
    """
    for (line, _), text in rows:
        if problem := clock.problem(text):
            raise DataError(path, f"{named}: {shown(text)} {problem}{hint(file, text)}", line=line)
