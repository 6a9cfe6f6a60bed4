"""Bytes of a file that somebody else made: what can be opened, and no more than fits."""

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from secure_fedrec.data.refusals import readable, refused
from secure_fedrec.errors import DataError

# A packed file of ratings unpacks to some five times its size; gzip itself reaches a thousand.
_BOMB_RATIO: Final = 100
_BOMB_FLOOR: Final = 2**24
_GZIP: Final = b"\x1f\x8b"
_STRANGERS: Final = (
    (b"PK\x03\x04", "is a zip archive or a spreadsheet: unpack it, or save it as CSV"),
    (b"PAR1", "is a Parquet file: its name must end in .parquet"),
    (b"\xff\xfe", "is UTF-16 text: save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text: save it as UTF-8"),
    (b"BZh", "is packed by bzip2: unpack it, or pack it with gzip"),
    (b"\xfd7zXZ", "is packed by xz: unpack it, or pack it with gzip"),
    (b"\x28\xb5\x2f\xfd", "is packed by zstd: unpack it, or pack it with gzip"),
)


def require_file(path: Path) -> None:
    """Refuse what is no file.

    Raises:
        DataError: there is nothing, a folder, a device or a pipe.
    """
    with refused(path, "cannot be read ({})", OSError, ValueError):  # too long, or with a zero byte
        there, folder, file = path.exists(), path.is_dir(), path.is_file()
    if folder:
        raise DataError(path, "is a folder, not a file")
    if not file:
        raise DataError(path, "is no ordinary file" if there else "does not exist")


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a text file, unpacked where its name ends in ``.gz`` or its content says so.

    Raises:
        DataError: it cannot be read or unpacked, is of another kind, or unpacks to far more than
            ratings do.
    """
    require_file(path)
    with readable(path), path.open("rb") as packed:
        start = packed.peek(8)[:8]
        for magic, problem in _STRANGERS:
            if start.startswith(magic):
                raise DataError(path, problem)
        if not (start.startswith(_GZIP) or path.name.lower().endswith(".gz")):
            yield packed
        else:
            with gzip.open(packed) as stream:
                yield io.BufferedReader(_Unpacked(path, packed, stream), 2**20)


class _Unpacked(io.RawIOBase):
    """What a gzip file unpacks to, as long as it is in proportion."""

    def __init__(self, path: Path, packed: IO[bytes], stream: gzip.GzipFile) -> None:
        self._path, self._packed, self._stream, self._read = path, packed, stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]
        content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        self._read += len(content)
        if self._read > _BOMB_FLOOR and self._read > _BOMB_RATIO * self._packed.tell():
            raise DataError(self._path, f"unpacks to more than {_BOMB_RATIO} times its size")
        return len(content)
