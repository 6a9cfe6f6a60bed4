"""The slow pass over a text file: what is wrong with it, at which line and in which column.

Files are read by ``columns``, which checks them quickly or gives up. Only files on which it gives
up are read here again, line by line.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from secure_fedrec.data.files.settings import BLANKS, TextFile
from secure_fedrec.data.files.source import opened
from secure_fedrec.data.files.times import Clock
from secure_fedrec.errors import DataError

LONGEST_LINE: Final = 2**20
"""Largest number of bytes of a line, its end included."""

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
UNIT: Final = "\x1f"
"""Stands for a separator of several signs; no text may hold it."""

_AS_LISTS: Final = "--set data.layout=lists --set data.user=1 --set data.item=2"
_BLANK: Final = re.compile(r"[ \t]+")
_SHOWN, _NEAR = 40, 10
csv.field_size_limit(LONGEST_LINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How the lines of a text file are made.

    Args:
        file: its settings.
        separator: between two columns.
        width: number of columns.
        names: names of the columns, where the first line has them.
        wanted: what is read, and in which column (from 0) it is.
    """

    file: TextFile
    separator: str
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
        if self.separator == BLANKS:
            return " "
        return self.separator if len(self.separator) == 1 else UNIT

    def column(self, what: str) -> str:
        """A column in words."""
        number = self.wanted[what]
        return f"{what} column {number + 1 if self.names is None else self.names[number]!r}"


def shown(text: str) -> str:
    """A text of the file in a message: in ASCII, and not at length."""
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def explain(path: Path, shape: Shape, clock: Clock) -> None:
    """Refuse the first line of a file that is not a row.

    Args:
        path: the file.
        shape: shape of its lines.
        clock: the reader of its times, which has read those before an error.

    Raises:
        DataError: a line is malformed; names line and column.
    """
    for line, text in enumerate(lines(path, shape.file), start=1):
        fields = fields_of(path, line, text, shape.separator)
        if len(fields) != shape.width:
            said = f"the {'first line' if shape.names is None else 'header'} has {shape.width}"
            problem = f"has {len(fields)} columns, {said}"
            if shape.names is None:
                problem += f"; where lines list a client and its items, {_AS_LISTS}"
            raise DataError(path, problem, line=line)
        if line >= shape.first_line and "time" in shape.wanted:
            moment = fields[shape.wanted["time"]]
            if problem := clock.problem(moment):
                problem = f"{shape.column('time')}: {shown(moment)} {problem}"
                raise DataError(path, problem + hint(shape.file, moment), line=line)


def hint(file: TextFile, text: str) -> str:
    """Advice about an unexpected text, as the end of a message."""
    return "" if text.strip() else file.of_gaps


def lines(path: Path, file: TextFile) -> Iterator[str]:
    """The lines of a file without their ends, one after the other.

    Raises:
        DataError: one is not text of the encoding, or longer than ``LONGEST_LINE``.
    """
    with opened(path, file.encoding) as stream:
        ended = enumerate(iter(lambda: stream.readline(LONGEST_LINE + 1), b""), start=1)
        for number, whole in ended:
            yield _line(path, file, number, whole)


def _line(path: Path, file: TextFile, number: int, whole: bytes) -> str:
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
        return raw.decode()
    except UnicodeDecodeError as error:
        near = raw[max(0, error.start - _NEAR) : error.start + _NEAR].decode("latin-1")
        problem = (
            f"is not utf-8 text (byte {error.start + 1}); if it is meant to read {shown(near)}, "
            f"{file.advice('encoding', 'latin-1')}, else the encoding of what wrote it"
        )
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
    if separator == BLANKS:
        text, separator = _BLANK.sub(" ", text).strip(" "), " "
    several = len(separator) > 1
    one = UNIT if several else separator
    marked = text.replace(separator, UNIT) if several else text
    fields = next(csv.reader([marked], delimiter=one, strict=True), [])
    return [field.replace(UNIT, separator) for field in fields] if several else fields


def first_repeated(names: Sequence[str]) -> str | None:
    """A name that occurs twice."""
    return next((name for name in names if names.count(name) > 1), None)
