"""Strict npz files: written completely, read with their checksums, without unpickling."""

import io
import math
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.files import replace_file

_STREAMED = 64 * 2**20
"""Larger content is written to its file directly, smaller content through memory."""
_PIECE = 2**20
_WRONG = "a checksum or the directory is wrong"


@dataclass(frozen=True, slots=True, eq=False)
class StoredArray:
    """An array, not read yet, in an npz file that was checked.

    Args:
        path: path of the file.
        name: name of the array.
        shape: shape of the array.
        dtype: dtype of its values.
    """

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: npt.DTypeLike

    def fill(self, out: npt.NDArray[Any]) -> None:
        """Read it into an array of its shape and type, without further memory.

        Raises:
            OSError: the file cannot be opened.
            ValueError: it has been damaged since; ``out`` holds part of it.
        """
        with _opened(self.path) as archive, archive.open(f"{self.name}.npy") as stream:
            _header(stream)
            flat, read = out.reshape(-1).view(np.uint8).data, 0
            while read < len(flat):
                part = stream.readinto(flat[read : read + _PIECE])  # type: ignore[attr-defined]
                if not part:
                    raise ValueError(f"{self.name} ends early")
                read += part
            if stream.read(1):  # reading to the end compares the checksum
                raise ValueError(f"{self.name} is longer than its header says")


def npz_names(path: Path) -> tuple[str, ...]:
    """Names of the arrays in a file, without reading them.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is not an npz file.
    """
    with _opened(path) as archive:
        return tuple(name.removesuffix(".npy") for name in archive.namelist())


def read_npz(path: Path, *, later: str | None = None, stored: bool = False) -> dict[str, Any]:
    """Read a whole npz file, checksums included.

    Args:
        path: path of the file.
        later: arrays whose names begin so are given as ``StoredArray``.
        stored: refuse compressed arrays, so that none is larger than the file.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is damaged, or holds anything but plain arrays.
    """
    with _opened(path) as archive:
        members = archive.infolist()
        # NumPy never writes comments: a damaged length field can turn the next members into one.
        if any(member.comment for member in members):
            raise ValueError(_WRONG)
        if stored:
            _require_stored(members, path.stat().st_size)
        names = {member.filename.removesuffix(".npy"): member for member in members}
        if len(names) != len(members):
            raise ValueError("it has two arrays of one name")
        return {
            name: _array(archive, member)
            if later is None or not name.startswith(later)
            else _checked(archive, member, path, name)
            for name, member in names.items()
        }


def write_npz(
    path: Path,
    columns: Mapping[str, npt.NDArray[Any]],
    *,
    private: bool = False,
    durable: bool = False,
) -> None:
    """Write an npz file in one step; see ``replace_file``.

    Raises:
        OSError: it could not be written; names the file.
        ValueError: a column holds objects.
    """
    if sum(np.asarray(column).nbytes for column in columns.values()) > _STREAMED:
        replace_file(path, lambda write: _stream(write, columns), private=private, durable=durable)
        return
    whole = io.BytesIO()
    np.savez(whole, allow_pickle=False, **columns)
    replace_file(path, whole.getvalue(), private=private, durable=durable)


def _stream(write: Callable[[bytes], int], columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write an archive piece by piece; after closing, raise the first error.

    An archive that meets a full disk would fail once more when it is closed.
    """
    sink = _Sink(write)
    np.savez(sink, allow_pickle=False, **columns)
    if sink.failure is not None:
        raise sink.failure


class _Sink(io.RawIOBase):
    """Accepts pieces of a file until one cannot be written."""

    def __init__(self, write: Callable[[bytes], int]) -> None:
        self._write = write
        self.failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        if self.failure is None:
            try:
                self._write(piece)
            except OSError as failure:
                self.failure = failure
        return memoryview(piece).nbytes


def _at_once(path: str, flags: int) -> int:
    """Open a regular file; any other kind raises ``OSError`` without waiting for a pipe."""
    opened = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(f"{path} is not a regular file")
    return opened


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive that is read; defects raise ``ValueError``."""
    try:
        with open(path, "rb", opener=_at_once) as file, zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError) as damage:
        # RuntimeError: flags that claim encryption or an unknown compression.
        raise ValueError(str(damage)) from damage


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    try:
        with archive.open(member) as stream:
            shape, _, dtype = _told(stream)
            # Memory is allocated by the shape in the header, so it has to match the content.
            if stream.tell() + math.prod(shape) * dtype.itemsize != member.file_size:
                raise ValueError(f"{_WRONG}: the header of an array tells another size")
    except zipfile.BadZipFile as damage:
        raise ValueError(_WRONG) from damage
    if member.file_size > _STREAMED:
        _require_sound(archive, member)
        with archive.open(member) as stream:
            return _plain(stream)
    # Read to its end, and its checksum compared: numpy stops where a header that shrank says so.
    try:
        return _plain(io.BytesIO(archive.read(member)))
    except zipfile.BadZipFile as damage:
        raise ValueError(_WRONG) from damage


def _plain(stream: IO[bytes]) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return found


def _require_sound(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    try:
        with archive.open(member) as stream:
            while stream.read(_PIECE):
                pass
    except zipfile.BadZipFile as damage:
        raise ValueError(_WRONG) from damage


def _checked(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, name: str
) -> StoredArray:
    _require_sound(archive, member)
    with archive.open(member) as stream:
        return StoredArray(path, name, *_header(stream))


def _require_stored(members: Sequence[zipfile.ZipInfo], size: int) -> None:
    """Refuse archives whose arrays could be larger than the file: compressed, or overlapping.

    Raises:
        ValueError: the archive is compressed, or its entries overlap.
    """
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("it is compressed")
    if sum(member.file_size for member in members) > size:
        raise ValueError(_WRONG)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    shape, columns_first, dtype = _told(stream)
    if columns_first and len(shape) > 1:
        raise ValueError("an array is not plain, row after row")
    return shape, dtype


def _told(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Facts from the header of an array: its shape, whether it is in column order, its type."""
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array has an unknown header")
    shape, columns_first, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.hasobject:
        raise ValueError("an array does not hold plain values")
    return shape, columns_first, dtype
