"""The fast pass over a text file: returns its columns, or finds that it is unsound.

The bytes are cut into blocks of whole lines, and each block is proven: text of its encoding, no
line too long, the same number of columns in every line. Files that pass are tokenised by pandas. A
block that cannot be proven, and whatever pandas refuses, is left to ``faults`` to explain, and so
is every file with quotes, sound or not. So row i is on line ``first_line + i``, whatever happens.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import BoolArray, IndexArray, IntArray
from secure_fedrec.data.files.faults import (
    BYTE_ORDER_MARK,
    LONGEST_LINE,
    UNIT,
    Shape,
    explain,
    hint,
    shown,
)
from secure_fedrec.data.files.settings import BLANKS, TextFile
from secure_fedrec.data.files.source import opened
from secure_fedrec.data.files.times import GAP, Clock
from secure_fedrec.errors import DataError

_BLOCK: Final = 2**20
_ROWS_AT_ONCE: Final = 2**19
_BLANK: Final = re.compile(rb"[ \t]+")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coded:
    """A column of texts.

    Args:
        codes: int32[N], number of each row's text.
        texts: the different texts, in the order of their first rows.
    """

    codes: IndexArray = field(repr=False)
    texts: list[str] = field(repr=False)

    def kept(self, rows: BoolArray) -> "Coded":
        """Some of the rows, with the texts that are in them."""
        codes = self.codes[rows]
        there = np.bincount(codes, minlength=len(self.texts)) > 0
        numbers = (np.cumsum(there) - 1).astype(np.int32)
        texts = [text for text, kept in zip(self.texts, there.tolist(), strict=True) if kept]
        return Coded(codes=numbers[codes], texts=texts)

    def renamed(self, texts: list[str]) -> "Coded":
        """The same rows with other texts; equal texts become one."""
        known: dict[str, int] = {}
        numbers = [known.setdefault(text, len(known)) for text in texts]
        if len(known) == len(texts):
            return Coded(codes=self.codes, texts=texts)
        return Coded(codes=np.array(numbers, dtype=np.int32)[self.codes], texts=list(known))

    def where(self, holds: Callable[[str], bool]) -> BoolArray:
        """Which rows have a text of a kind: bool[N]."""
        found = np.array([holds(text) for text in self.texts], dtype=np.bool_)
        return np.asarray(found[self.codes])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """The columns of a file.

    Args:
        path: the file.
        file: its settings.
        named: what each column is called in messages.
        texts: columns of texts, by what they are.
        time: int64[N], or None.
        first_line: line of the first row; None in a file without lines.
        places: int64[N], line of each row, or its number from 1 in a file without lines; None
            where rows follow one another.
        left_out: how many rows were left out, as the settings say.
    """

    path: Path
    file: TextFile
    named: Mapping[str, str]
    texts: Mapping[str, Coded]
    time: IntArray | None
    first_line: int | None
    places: IntArray | None = field(default=None, repr=False)
    left_out: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.texts.values())).codes)

    def kept(self, rows: BoolArray) -> "Columns":
        """Some of the rows, bool[N]; they keep their lines.

        Raises:
            DataError: all rows are left out.
        """
        if rows.all():
            return self
        if not rows.any():
            raise DataError(self.path, "has no row left: each one is left out by the settings")
        places = self.places
        if places is None:
            places = np.arange(len(rows), dtype=np.int64) + (self.first_line or 1)
        return replace(
            self,
            texts={what: coded.kept(rows) for what, coded in self.texts.items()},
            time=None if self.time is None else self.time[rows],
            places=places[rows],
            left_out=self.left_out + int(len(rows) - np.count_nonzero(rows)),
        )

    def without_gaps(self) -> "Columns":
        """The rows that the settings do not leave out."""
        gaps = np.zeros(len(self), dtype=np.bool_)
        for what, coded in self.texts.items():
            gaps |= coded.where(partial(self.file.is_gap, what))
        if self.time is not None:
            gaps |= self.time == GAP
        return self.kept(~gaps)

    def require_once(self, what: str) -> None:
        """Refuse a column with a text that is there twice.

        Raises:
            DataError: a row occurs twice; the error names the second.
        """
        codes = self.texts[what].codes
        later = np.ones(len(codes), dtype=np.bool_)
        later[np.unique(codes, return_index=True)[1]] = False
        if later.any():
            row = int(np.argmax(later))
            text = shown(self.texts[what].texts[codes[row]])
            raise self.fault(row, what, f"{text} is there twice")

    def fault(self, row: int, what: str, problem: str) -> DataError:
        """The refusal of a value, to be raised.

        Args:
            row: from 0.
            what: the column.
            problem: as a clause.
        """
        problem = f"{self.named[what]}: {problem}"
        place = row + (self.first_line or 1) if self.places is None else int(self.places[row])
        if self.first_line is None:
            return DataError(self.path, f"row {place}, {problem}")
        return DataError(self.path, problem, line=place)

    def refuse(self, what: str, code: int, problem: str) -> DataError:
        """The refusal of a text, at the first row that has it."""
        column = self.texts[what]
        row = int(np.argmax(column.codes == code))
        text = column.texts[code]
        return self.fault(row, what, f"{shown(text)} {problem}{hint(self.file, text)}")


class Coder:
    """Numbers texts in order of their first occurrence."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._parts: list[IndexArray] = []

    def add(self, values: npt.NDArray[Any]) -> None:
        """Take more rows: object[N] of str."""
        from pandas import factorize  # noqa: PLC0415 - as in read_text

        codes, texts = factorize(values)
        known = self._known
        numbers = [known.setdefault(text, len(known)) for text in texts.tolist()]
        self._parts.append(np.array(numbers, dtype=np.int32)[codes])

    def coded(self) -> Coded:
        """All rows so far."""
        codes = np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=np.int32)
        return Coded(codes=codes, texts=list(self._known))


def read_text(path: Path, shape: Shape) -> Columns:
    """Read the wanted columns of a text file.

    Raises:
        DataError: the file is malformed; names line and column.
    """
    clock = shape.file.clock()
    with opened(path, shape.file.encoding) as stream:
        blocks = _Blocks(stream, shape)
        try:
            columns = _tokenised(path, blocks, shape, clock)
            reason = ""
        except (_Unsound, ValueError, OverflowError) as unsound:
            if isinstance(unsound, DataError):
                raise
            columns, reason = None, str(unsound)
    if columns is None or blocks.quoted:
        explain(path, shape, clock)
    if columns is None or len(columns) != blocks.rows:
        raise DataError(path, f"is not a table ({reason or 'rows are not lines'})")
    return columns


def _tokenised(path: Path, blocks: "_Blocks", shape: Shape, clock: Clock) -> Columns:
    from pandas import read_csv  # noqa: PLC0415 - takes half a second, and only files need it

    coders = {what: Coder() for what in shape.wanted if what != "time"}
    with read_csv(
        blocks,
        sep=shape.delimiter,
        header=None,
        names=list(range(shape.width)),
        usecols=sorted(set(shape.wanted.values())),
        dtype=object,
        index_col=False,
        na_filter=False,
        skip_blank_lines=False,
        chunksize=_ROWS_AT_ONCE,
        engine="c",
    ) as chunks:
        for chunk in chunks:
            for what, coder in coders.items():
                coder.add(chunk[shape.wanted[what]].to_numpy())
            if "time" in shape.wanted and not clock.add(chunk[shape.wanted["time"]].tolist()):
                raise _Unsound
    texts = {what: coder.coded() for what, coder in coders.items()}
    if shape.delimiter == UNIT:
        for coded in texts.values():
            coded.texts[:] = [text.replace(UNIT, shape.separator) for text in coded.texts]
    return Columns(
        path=path,
        file=shape.file,
        named={what: shape.column(what) for what in shape.wanted},
        texts=texts,
        time=clock.moments() if "time" in shape.wanted else None,
        first_line=shape.first_line,
    )


class _Unsound(Exception):  # noqa: N818 - explained by another pass, not raised to users
    """A block fails a check."""


class _Blocks(io.TextIOBase):
    """A file object for pandas: text of whole lines; each block is checked before it is returned.

    Attributes:
        rows: lines so far, without the header.
        quoted: whether there was a quote.
    """

    def __init__(self, stream: IO[bytes], shape: Shape) -> None:
        self._shape = shape
        self._texts = self._proven(stream)
        self._text, self._place = "", 0
        self.rows, self.quoted = 0, False

    def read(self, size: int = -1) -> str:  # type: ignore[override]
        """At most so many characters; empty at the end."""
        while self._place >= len(self._text):
            self._text, self._place = next(self._texts, ""), 0
            if not self._text:
                return ""
        end = len(self._text) if size < 0 else self._place + size
        piece = self._text[self._place : end]
        self._place += len(piece)
        return piece

    def _proven(self, stream: IO[bytes]) -> Iterator[str]:
        below = self._shape.first_line - 1
        for raw in _whole_lines(stream):
            block = self._block(raw)
            self.rows += block.count(b"\n") - below
            if below:
                block, below = block[block.index(b"\n") + 1 :], 0
            if block:
                yield block.decode()

    def _block(self, raw: bytes) -> bytes:
        """A block with Unix line ends and a separator of one sign.

        Raises: _Unsound: it fails a check.
        """
        separator, delimiter = self._shape.separator.encode(), self._shape.delimiter.encode()
        block = raw.replace(b"\r\n", b"\n")
        if b"\0" in block or b"\r" in block or UNIT.encode() in block:
            raise _Unsound
        if self._shape.separator == BLANKS:
            block = _BLANK.sub(b" ", block).replace(b" \n", b"\n").replace(b"\n ", b"\n")
            block = block.removeprefix(b" ")
        elif separator != delimiter:
            block = block.replace(separator, delimiter)
        if b'"' in block:
            self.quoted = True
        else:
            _require_width(block, delimiter, self._shape.width)
        return block


def _whole_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Blocks of whole lines; the last line gets an end if it has none."""
    rest = stream.read(_BLOCK).removeprefix(BYTE_ORDER_MARK)
    while rest:
        cut = rest.rfind(b"\n") + 1
        if len(rest) - cut > LONGEST_LINE:
            raise _Unsound
        if cut:
            yield rest[:cut]
        more = stream.read(_BLOCK)
        if not more:
            if rest[cut:]:
                yield rest[cut:] + b"\n"
            return
        rest = rest[cut:] + more


def _require_width(block: bytes, delimiter: bytes, width: int) -> None:
    """Prove that every line of a block without quotes has so many columns.

    Raises:
        _Unsound: a line has another number of columns.
    """
    signs = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(signs == ord("\n"))
    parts = np.flatnonzero(signs == ord(delimiter))
    if len(parts) != len(ends) * (width - 1):
        raise _Unsound
    if width == 1:
        return
    by_line = parts.reshape(len(ends), width - 1)
    if np.any(by_line[:, -1] > ends) or np.any(by_line[1:, 0] < ends[:-1]):
        raise _Unsound
