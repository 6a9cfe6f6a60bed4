"""The slow pass over a text file: what is wrong with it, at which line and in which column.

A file is read fast by ``columns``, which proves it sound or gives up. Only a file that it gives up
on comes here, to be read once more, a line at a time.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from secure_fedrec.data.files.source import opened
from secure_fedrec.data.files.times import Clock
from secure_fedrec.errors import DataError

LONGEST_LINE: Final = 2**20
"""Bytes of a line, its end included."""

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
UNIT: Final = "\x1f"
"""Stands for a separator of several signs; no text may hold it."""

_SHOWN = 40
csv.field_size_limit(LONGEST_LINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How the lines of a text file are made.

    Args:
        separator: between two columns.
        encoding: of the text.
        width: number of columns.
        names: of the columns, where the first line has them.
        wanted: what is read, and in which column (from 0) it is.
    """

    separator: str
    encoding: str
    width: int
    names: tuple[str, ...] | None
    wanted: Mapping[str, int]

    @property
    def first_line(self) -> int:
        """Line of the first row."""
        return 1 if self.names is None else 2

    @property
    def delimiter(self) -> str:
        """One sign that stands for the separator."""
        return self.separator if len(self.separator) == 1 else UNIT

    def column(self, what: str) -> str:
        """A column in words."""
        number = self.wanted[what]
        return f"{what} column {number + 1 if self.names is None else self.names[number]!r}"


def shown(text: str) -> str:
    """A text of the file in a message: in ASCII, and not at length."""
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def explain(path: Path, shape: Shape) -> None:
    """Refuse the first line of a file that is no row.

    Raises:
        DataError: there is one; names line and column.
    """
    clock = Clock()
    for line, text in enumerate(lines(path, shape.encoding), start=1):
        fields = fields_of(path, line, text, shape.separator)
        if len(fields) != shape.width:
            said = f"the {'first line' if shape.names is None else 'header'} has {shape.width}"
            raise DataError(path, f"has {len(fields)} columns, {said}", line=line)
        if line >= shape.first_line and "time" in shape.wanted:
            moment = fields[shape.wanted["time"]]
            if not clock.read([moment]):
                problem = f"{shape.column('time')}: {shown(moment)} {clock.problem(moment)}"
                raise DataError(path, problem, line=line)


def lines(path: Path, encoding: str) -> Iterator[str]:
    """The lines of a file without their ends, one after the other.

    Raises:
        DataError: one is no text of the encoding, or longer than ``LONGEST_LINE``.
    """
    with opened(path) as stream:
        yield from lines_of(path, stream, encoding)


def lines_of(path: Path, stream: IO[bytes], encoding: str) -> Iterator[str]:
    """As ``lines``, of an opened file."""
    ended = enumerate(iter(lambda: stream.readline(LONGEST_LINE + 1), b""), start=1)
    for number, whole in ended:
        if len(whole) > LONGEST_LINE:
            problem = f"is longer than {LONGEST_LINE:,} bytes"
            if whole.count(b"\r") > 1:
                problem = "lines end in a carriage return alone; save with LF or CRLF line ends"
            raise DataError(path, problem, line=number)
        marked = whole.removesuffix(b"\n").removesuffix(b"\r")
        raw = marked.removeprefix(BYTE_ORDER_MARK) if number == 1 else marked
        for byte, name in ((b"\0", "a zero byte"), (UNIT.encode(), "a control character")):
            if byte in raw:
                raise DataError(path, f"holds {name}: is this a text file?", line=number)
        if b"\r" in raw:
            problem = "holds a carriage return alone; save with LF or CRLF line ends"
            raise DataError(path, problem, line=number)
        try:
            yield raw.decode(encoding)
        except UnicodeDecodeError as error:
            problem = f"is not {encoding} text (byte {error.start + 1}); see the key encoding"
            raise DataError(path, problem, line=number) from error


def fields_of(path: Path, line: int, text: str, separator: str) -> list[str]:
    """The columns of a line.

    Raises:
        DataError: it is empty, or its quotes are not closed on it.
    """
    if not text.strip():
        raise DataError(path, "is an empty line", line=line)
    try:
        return split(text, separator)
    except csv.Error as error:
        problem = f"has quotes that do not fit together ({error}); a row is one line"
        raise DataError(path, problem, line=line) from error


def split(text: str, separator: str) -> list[str]:
    """The columns of a line.

    Raises:
        csv.Error: quotes are not closed.
    """
    several = len(separator) > 1
    one = UNIT if several else separator
    marked = text.replace(separator, UNIT) if several else text
    fields = next(csv.reader([marked], delimiter=one, strict=True), [])
    return [field.replace(UNIT, separator) for field in fields] if several else fields


def first_repeated(names: Sequence[str]) -> str | None:
    """A name that is there twice."""
    return next((name for name in names if names.count(name) > 1), None)
