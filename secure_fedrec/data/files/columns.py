"""The fast pass over a text file: its columns, or that it is not sound.

The bytes are cut into blocks of whole lines, and each block is proven: text of its encoding, no
line too long, the same number of columns in every line. What is proven is tokenised by pandas. A
block that cannot be proven, and whatever pandas refuses, is left to ``faults`` to explain, and so
is every file with quotes, sound or not. So row i is on line ``first_line + i``, whatever happens.
"""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import IndexArray, IntArray
from secure_fedrec.data.files.faults import (
    BYTE_ORDER_MARK,
    LONGEST_LINE,
    UNIT,
    Shape,
    explain,
    shown,
)
from secure_fedrec.data.files.source import opened
from secure_fedrec.data.files.times import Clock, in_seconds
from secure_fedrec.errors import DataError

_BLOCK: Final = 2**20
_ROWS_AT_ONCE: Final = 2**19


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coded:
    """A column of texts.

    Args:
        codes: int32[N], number of each row's text.
        texts: the different texts, in the order of their first rows.
    """

    codes: IndexArray = field(repr=False)
    texts: list[str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """The columns of a file.

    Args:
        path: the file.
        named: what each column is called in messages.
        texts: columns of texts, by what they are.
        time: int64[N], or None.
        first_line: line of the first row; None in a file without lines.
    """

    path: Path
    named: Mapping[str, str]
    texts: Mapping[str, Coded]
    time: IntArray | None
    first_line: int | None

    def __len__(self) -> int:
        return len(next(iter(self.texts.values())).codes)

    def require_once(self, what: str) -> None:
        """Refuse a column with a text that is there twice.

        Raises:
            DataError: there is one; names its second row.
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
        if self.first_line is None:
            return DataError(self.path, f"row {row + 1}, {problem}")
        return DataError(self.path, problem, line=self.first_line + row)

    def refuse(self, what: str, code: int, problem: str) -> DataError:
        """The refusal of a text, at the first row that has it."""
        column = self.texts[what]
        row = int(np.argmax(column.codes == code))
        return self.fault(row, what, f"{shown(column.texts[code])} {problem}")


class Coder:
    """Numbers texts as they come."""

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
        DataError: it is not sound; names line and column.
    """
    with opened(path) as stream:
        blocks = _Blocks(stream, shape)
        try:
            columns = _tokenised(path, blocks, shape)
            reason = ""
        except (_Unsound, ValueError, OverflowError) as unsound:
            if isinstance(unsound, DataError):
                raise
            columns, reason = None, str(unsound)
    if columns is None or blocks.quoted:
        explain(path, shape)
    if columns is None or len(columns) != blocks.rows:
        raise DataError(path, f"is no table ({reason or 'rows are not lines'})")
    return columns


def _tokenised(path: Path, blocks: "_Blocks", shape: Shape) -> Columns:
    from pandas import read_csv  # noqa: PLC0415 - takes half a second, and only files need it

    coders = {what: Coder() for what in shape.wanted if what != "time"}
    times: list[IntArray] = []
    clock = Clock()
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
            if "time" in shape.wanted:
                found = clock.read(chunk[shape.wanted["time"]].tolist())
                if not found:
                    raise _Unsound
                times.append(np.array(found, dtype=np.int64))
    texts = {what: coder.coded() for what, coder in coders.items()}
    if shape.delimiter != shape.separator:
        for coded in texts.values():
            coded.texts[:] = [text.replace(UNIT, shape.separator) for text in coded.texts]
    return Columns(
        path=path,
        named={what: shape.column(what) for what in shape.wanted},
        texts=texts,
        time=in_seconds(np.concatenate(times), clock.per_second) if times else None,
        first_line=shape.first_line,
    )


class _Unsound(Exception):  # noqa: N818 - explained by another pass, not raised to users
    """A block is not what every block must be."""


class _Blocks(io.TextIOBase):
    """A file for pandas: text of whole lines, each block proven before it is handed out.

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
        """At most so many signs; none at the end."""
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
                yield block.decode(self._shape.encoding)

    def _block(self, raw: bytes) -> bytes:
        """A block with Unix line ends and a separator of one sign.

        Raises:
            _Unsound: it is not what every block must be.
        """
        separator, delimiter = self._shape.separator.encode(), self._shape.delimiter.encode()
        block = raw.replace(b"\r\n", b"\n")
        if b"\0" in block or b"\r" in block or UNIT.encode() in block:
            raise _Unsound
        if separator != delimiter:
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
        _Unsound: one has not.
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
