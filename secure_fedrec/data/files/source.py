"""Bytes of an untrusted file: only regular files are opened, and sizes are limited."""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from secure_fedrec.data.refusals import readable, refused
from secure_fedrec.errors import DataError

UTF_8: Final = "utf-8"

# A packed file of ratings unpacks to some five times its size; gzip itself reaches a thousand.
_BOMB_RATIO: Final = 100
_BOMB_FLOOR: Final = 2**24
_AT_ONCE: Final = 2**20


class _Packing(NamedTuple):
    """A kind of packing: program, first bytes, end of file names, and unpacking function."""

    name: str
    magic: bytes
    suffix: str
    unpack: Callable[[Any], Any]


_PACKINGS: Final = (
    _Packing("gzip", b"\x1f\x8b", ".gz", gzip.open),
    _Packing("xz", b"\xfd7zXZ", ".xz", lzma.open),
    _Packing("bzip2", b"BZh", ".bz2", bz2.open),
)
_DAMAGE: Final = (OSError, EOFError, zlib.error, lzma.LZMAError)
_MARKS: Final = (  # a mark of UTF-32 begins like one of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_STRANGERS: Final = (
    (
        b"PK\x03\x04",
        "is a zip archive or a spreadsheet: unpack it (unzip -p FILE > ratings.csv), or save it as "
        "CSV",
    ),
    (b"PAR1", "is a Parquet file: its name must end in .parquet"),
    (
        b"SQLite format 3\0",
        "is an SQLite database: write a table of it as text, "
        "sqlite3 -header -csv FILE 'select * from TABLE' > ratings.csv",
    ),
    (b"\x28\xb5\x2f\xfd", "is packed by zstd: unpack it (zstd -d FILE), or pack it with gzip"),
    (b"\x93NUMPY", "is an array of NumPy: write it as text, with numpy.savetxt"),
    (b"\x89HDF", "is an HDF5 file: write its table as CSV or Parquet"),
)


def require_file(path: Path) -> None:
    """Refuse what is not a file.

    Raises:
        DataError: there is nothing, a folder, a device or a pipe.
    """
    with refused(path, "cannot be read ({})", OSError, ValueError):  # too long, or with a zero byte
        there, folder, file = path.exists(), path.is_dir(), path.is_file()
    if folder:
        raise DataError(path, "is a folder, not a file")
    if not file:
        raise DataError(path, "is not an ordinary file" if there else "does not exist")


@contextmanager
def opened(path: Path, encoding: str = UTF_8) -> Iterator[IO[bytes]]:
    """The bytes of a text file in UTF-8, unpacked where its content or its name says so.

    Args:
        path: the file.
        encoding: of its text; one that begins with the mark of UTF-16 or UTF-32 is read as such.

    Raises:
        DataError: it cannot be read or unpacked, is of another kind, unpacks to far more than
            ratings do, or is not text of the encoding; UTF-8 itself is left to the reader.
    """
    require_file(path)
    with readable(path), path.open("rb") as packed, ExitStack() as closed:
        start = packed.peek(16)[:16]
        for magic, problem in _STRANGERS:
            if start.startswith(magic):
                raise DataError(path, problem)
        stream: Any = packed
        if (packing := _packing(path, start)) is not None:
            unpacked = closed.enter_context(packing.unpack(packed))
            raw = _Unpacked(path, packed, unpacked, packing.name)
            stream = io.BufferedReader(raw, _AT_ONCE)
        if encoding == UTF_8:
            start = stream.peek(4)[:4]
            encoding = next((name for mark, name in _MARKS if start.startswith(mark)), UTF_8)
        if encoding != UTF_8:
            stream = io.BufferedReader(_Recoded(path, stream, encoding), _AT_ONCE)
        yield stream


def _packing(path: Path, start: bytes) -> _Packing | None:
    """How a file is packed: its content says so, or its name does."""
    name = path.name.lower()
    said = [each for each in _PACKINGS if start.startswith(each.magic)]
    return next(iter(said or [each for each in _PACKINGS if name.endswith(each.suffix)]), None)


class _Raw(io.RawIOBase):
    """A stream that converts bytes piece by piece."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]
        piece = self._piece(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def _piece(self, most: int) -> bytes:
        raise NotImplementedError


class _Unpacked(_Raw):
    """Content of a packed file, refused if it is out of proportion to the file's size."""

    def __init__(self, path: Path, packed: IO[bytes], stream: IO[bytes], packing: str) -> None:
        self._path, self._packed, self._stream, self._read = path, packed, stream, 0
        self._damaged = f"is a damaged or truncated {packing} file ({{}})"

    def _piece(self, most: int) -> bytes:
        with refused(self._path, self._damaged, *_DAMAGE):
            content = self._stream.read(most)
        self._read += len(content)
        if self._read > _BOMB_FLOOR and self._read > _BOMB_RATIO * self._packed.tell():
            raise DataError(self._path, f"unpacks to more than {_BOMB_RATIO} times its size")
        return content


class _Recoded(_Raw):
    """Text of another encoding in UTF-8."""

    def __init__(self, path: Path, stream: IO[bytes], encoding: str) -> None:
        self._path, self._stream, self._encoding = path, stream, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._rest, self._lines, self._ended = b"", 1, False

    def _piece(self, most: int) -> bytes:
        while not self._rest and not self._ended:
            raw = self._stream.read(_AT_ONCE)
            self._ended = not raw
            try:
                self._rest = self._decoder.decode(raw, final=self._ended).encode()
            except UnicodeError as error:
                before = raw[: error.start] if isinstance(error, UnicodeDecodeError) else b""
                line = self._lines + before.count(b"\n")
                problem = f"is not {self._encoding} text; see the key encoding"
                raise DataError(self._path, problem, line=line) from error
            self._lines += self._rest.count(b"\n")
        piece, self._rest = self._rest[:most], self._rest[most:]
        return piece
