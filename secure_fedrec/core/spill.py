"""Temporary storage of arrays: in memory up to a limit, beyond it in an unnamed file.

The file lies in the folder for temporary files, other users cannot open it, and it disappears with
the process, however the process ends.
"""

import tempfile
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """One stored array; ``Spill.get`` reads it.

    Args:
        array: itself, or an empty one of its type where it lies in the file.
        shape: shape of the array.
        place: byte of the file where it begins; None where it is in memory.
    """

    array: npt.NDArray[Any]
    shape: tuple[int, ...]
    place: int | None = None


class Spill:
    """Arrays put aside.

    Args:
        limit: bytes to hold in memory.
    """

    __slots__ = ("_end", "_file", "_held", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._end = 0
        self._file: IO[bytes] | None = None

    def put(self, array: npt.NDArray[Any]) -> Kept:
        """Store an array; in memory it is the same object, not a copy.

        Raises:
            OSError: the file could not be written.
        """
        if self._held + array.nbytes <= self._limit:
            self._held += array.nbytes
            return Kept(array, array.shape)
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 closed with the spill
        place = self._end
        self._file.seek(place)
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        written = 0
        while written < len(flat):  # an unbuffered write may be partial
            written += self._file.write(flat[written:])
        self._end += array.nbytes
        return Kept(np.empty(0, dtype=array.dtype), array.shape, place)

    def get(self, kept: Kept) -> npt.NDArray[Any]:
        """A stored array.

        Raises:
            OSError: the file could not be read.
        """
        if kept.place is None or self._file is None:
            return kept.array
        found = np.empty(kept.shape, dtype=kept.array.dtype)
        self._file.seek(kept.place)
        flat, read = found.reshape(-1).view(np.uint8).data, 0
        while read < len(flat):
            part = self._file.readinto(flat[read:])  # type: ignore[attr-defined]
            if not part:
                raise OSError("the data put aside is no longer in its file")
            read += part
        return found

    def close(self) -> None:
        """Remove the file and its content."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.close()
