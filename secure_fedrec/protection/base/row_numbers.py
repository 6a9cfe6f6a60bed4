"""Lists of row numbers in messages: u32 n | n x u32, ascending; little-endian."""

import struct

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import IndexArray
from secure_fedrec.errors import WireError

_COUNT = struct.Struct("<I")


def encode_row_numbers(rows: IndexArray) -> bytes:
    """How many there are, and which."""
    return _COUNT.pack(len(rows)) + rows.astype("<u4").tobytes()


def decode_row_numbers(data: bytes, n_rows: int) -> tuple[IndexArray, int]:
    """Row numbers of a table of ``n_rows``, and where they end in the data.

    Raises:
        WireError: the data is too short, or the numbers do not ascend inside the table.
    """
    if len(data) < _COUNT.size:
        raise WireError("a list of rows is shorter than its count")
    (count,) = _COUNT.unpack_from(data)
    end = _COUNT.size + 4 * count
    if count > n_rows or len(data) < end:
        raise WireError(f"{len(data)} bytes declare {count} rows of {n_rows}")
    rows = np.frombuffer(data, "<u4", count, _COUNT.size)
    require_ascending(rows, n_rows)
    return rows.astype(np.int32), end


def require_ascending(rows: IndexArray | npt.NDArray[np.uint32], n_rows: int) -> None:
    """Check row numbers of a table of ``n_rows``.

    Raises:
        WireError: numbers do not ascend, or are outside the table.
    """
    if len(rows) and (np.any(rows[1:] <= rows[:-1]) or rows[0] < 0 or rows[-1] >= n_rows):
        raise WireError(f"row numbers must ascend and stay below {n_rows}")
