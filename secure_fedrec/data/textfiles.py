"""Reads plain rating files; errors name file and line.

Numbers are parsed by numpy in one pass. Only a file that numpy refuses is read again, line by
line, to say what is wrong with it: the fast pass checks a file, the slow one explains what is
wrong.
"""

import gzip
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.refusals import readable
from secure_fedrec.errors import DataError

# Everything a non-negative decimal number is made of. "nan", "inf", signs, exponents and blanks
# have no place in a rating file and must not reach a parser that would accept them.
_NUMBER_BYTES = b"0123456789."
# The largest file of the known data sets unpacks to 25 MB; a bomb stops here.
_UNPACKED_LIMIT = 2**30


def read_numbers(
    path: Path, columns: Sequence[str], *, separator: str, header: str | None = None
) -> FloatArray:
    """Reads a file of non-negative decimal numbers, every line holding all columns.

    Args:
        path: the file, gzip-compressed if its name ends in ``.gz``.
        columns: what each of the C columns means, for messages.
        separator: text between two columns.
        header: the exact first line, where the file has one.

    Returns:
        float64[N, C]; row i is line i + 1, or i + 2 below a header. Integers up to 2^53 are exact.

    Raises:
        DataError: the file is missing, damaged, empty, cut short or not numeric; names the line
            where one is to blame.
    """
    body = _read_body(path, header)
    first_line = 1 if header is None else 2
    tabbed = body.replace(separator.encode(), b"\t")
    # loadtxt warns of a file of blank lines.
    if tabbed.translate(None, _NUMBER_BYTES + b"\t\n") or not tabbed.strip():
        _blame(path, body, columns, separator, first_line)
    try:
        table = np.loadtxt(
            io.StringIO(tabbed.decode("ascii")), delimiter="\t", comments=None, ndmin=2
        )
    except ValueError:
        _blame(path, body, columns, separator, first_line)
    # loadtxt skips blank lines; a row would then no longer be its line.
    if table.shape != (body.count(b"\n"), len(columns)):
        _blame(path, body, columns, separator, first_line)
    return table


def read_records(
    path: Path,
    columns: Sequence[str],
    *,
    separator: str,
    encoding: str = "ascii",
    header: str | None = None,
    at_least: bool = False,
) -> list[list[str]]:
    """Reads a small file of text columns.

    Args:
        path: the file.
        columns: what each column means, for messages.
        separator: text between two columns.
        encoding: encoding of the file.
        header: the exact first line, where the file has one.
        at_least: whether a line may hold more columns than named.

    Returns:
        One list of strings per line.

    Raises:
        DataError: the file is missing, empty or cut short, a line has the wrong number of columns,
            or a byte does not decode.
    """
    first_line = 1 if header is None else 2
    records = []
    for line, raw in enumerate(_read_body(path, header).split(b"\n")[:-1], start=first_line):
        try:
            record = raw.decode(encoding).split(separator)
        except UnicodeDecodeError as error:
            raise DataError(path, f"is not {encoding} text ({error.reason})", line=line) from error
        if len(record) < len(columns) or (len(record) > len(columns) and not at_least):
            raise DataError(path, _column_count(len(record), columns), line=line)
        records.append(record)
    return records


def whole_numbers(path: Path, values: FloatArray, what: str, first_line: int) -> IntArray:
    """Turns a column of reals into integers.

    Args:
        path: file the column came from, for messages.
        values: float64[N].
        what: what the column means, for messages.
        first_line: line of ``values[0]``.

    Returns:
        int64[N].

    Raises:
        DataError: a value has a fractional part or is too large to be exact.
    """
    bad = np.flatnonzero((values != np.rint(values)) | (np.abs(values) >= 2.0**53))
    if len(bad):
        problem = f"{what} {values[bad[0]]:g} is not a whole number"
        raise DataError(path, problem, line=first_line + int(bad[0]))
    return values.astype(np.int64)


def _read_body(path: Path, header: str | None) -> bytes:
    """The file's lines below its header, with Unix line ends, each complete."""
    content = read_bytes(path).replace(b"\r\n", b"\n")
    if not content.endswith(b"\n"):
        problem = "is empty" if not content else "the last line has no end: the file is cut short"
        raise DataError(path, problem, line=content.count(b"\n") + 1 if content else None)
    if header is None:
        return content
    first, _, body = content.partition(b"\n")
    if first != header.encode():
        raise DataError(path, f"the header must be {header!r}", line=1)
    if not body:
        raise DataError(path, "holds a header and nothing else")
    return body


def read_bytes(path: Path) -> bytes:
    """The file's bytes, unpacked where the name ends in ``.gz``.

    Raises:
        DataError: it cannot be read or unpacked, or unpacks to more than any known data set.
    """
    with readable(path):
        if path.suffix != ".gz":
            return path.read_bytes()
        with gzip.open(path) as stream:
            content = stream.read(_UNPACKED_LIMIT + 1)
    if len(content) > _UNPACKED_LIMIT:
        raise DataError(path, f"unpacks to more than {_UNPACKED_LIMIT >> 20} MiB")
    return content


def _blame(
    path: Path, body: bytes, columns: Sequence[str], separator: str, first_line: int
) -> NoReturn:
    """Raises the error of the first line that is not a full row of numbers."""
    for line, raw in enumerate(body.split(b"\n")[:-1], start=first_line):
        # Any byte has a meaning in latin-1: the text is only shown, in ASCII, never trusted.
        texts = raw.decode("latin-1").split(separator)
        if len(texts) != len(columns):
            raise DataError(path, _column_count(len(texts), columns), line=line)
        for what, text in zip(columns, texts, strict=True):
            if not _is_number(text):
                raise DataError(path, f"{what} {text!a} is not a number", line=line)
    raise DataError(path, "is not a table of numbers")


def _is_number(text: str) -> bool:
    """Whether the text is digits with at most one decimal point."""
    digits = text.replace(".", "", 1)
    return digits.isascii() and digits.isdigit()


def _column_count(found: int, columns: Sequence[str]) -> str:
    """Says that a line has too few or too many columns."""
    return f"has {found} columns, expected {len(columns)} ({', '.join(columns)})"
