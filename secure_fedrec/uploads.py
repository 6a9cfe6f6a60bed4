"""What a client gives out, and what comes back: columnar blocks.

One block holds a whole batch of parties (a device sends a batch of one). A block declares how it
may be combined; every block of this release is summed. Blocks are made of plain arrays only:
private state, which lives in a ``Vault``, has no way into one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

import numpy as np

from secure_fedrec.arrays import FloatArray, IndexArray, IntArray, RingArray
from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import FixedPoint

__all__ = ["Aggregate", "Block", "Combine", "DenseBlock", "RowBlock", "Upload"]


class Combine(Enum):
    """How the values of several parties may meet."""

    SUM = "sum"
    """Added up, position by position."""
    BAG = "bag"
    """Collected without order or owner."""
    EXCHANGE = "exchange"
    """Sent from one client to another."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowBlock:
    """Sparse rows of a shared table, one segment per party.

    Args:
        indptr: int64[B + 1]; party b owns rows ``indptr[b]:indptr[b + 1]``.
        rows: int32[N], row (item) numbers, ascending within a party.
        values: [N, d], float64 before encoding, ring words (uint32 or uint64) after it; None where
            a recording holds only the row numbers.
        counts: int64[N], how many ratings stand behind each row; None means one each.

    Raises:
        WireError: the columns do not fit together or have the wrong type.
    """

    combine: ClassVar[Combine] = Combine.SUM

    indptr: IntArray
    rows: IndexArray
    values: FloatArray | RingArray | None
    counts: IntArray | None = None

    def __post_init__(self) -> None:
        _require_array("indptr", self.indptr, np.int64, 1)
        _require_array("rows", self.rows, np.int32, 1)
        size = len(self.rows)
        if not len(self.indptr) or self.indptr[0] != 0 or self.indptr[-1] != size:
            raise WireError(f"indptr must run from 0 to {size}")
        if np.any(self.indptr[1:] < self.indptr[:-1]):
            raise WireError("indptr must not decrease")
        if self.values is not None:
            if type(self.values) is not np.ndarray or self.values.ndim != 2:
                raise WireError("values must be a plain two-dimensional array")
            if self.values.dtype not in (np.float64, np.uint32, np.uint64):
                raise WireError(
                    f"values have dtype {self.values.dtype}: float64 or ring words only"
                )
            if len(self.values) != size:
                raise WireError(f"{len(self.values)} values for {size} rows")
        if self.counts is not None:
            _require_array("counts", self.counts, np.int64, 1)
            if len(self.counts) != size:
                raise WireError(f"{len(self.counts)} counts for {size} rows")

    def __len__(self) -> int:
        """Number of parties."""
        return len(self.indptr) - 1

    @property
    def lengths(self) -> IntArray:
        """int64[B], rows per party."""
        return np.diff(self.indptr)

    def split(self) -> Iterator["RowBlock"]:
        """One block per party, in order (views, no copies)."""
        for start, stop in zip(self.indptr[:-1], self.indptr[1:], strict=True):
            yield RowBlock(
                indptr=np.array([0, stop - start]),
                rows=self.rows[start:stop],
                values=None if self.values is None else self.values[start:stop],
                counts=None if self.counts is None else self.counts[start:stop],
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DenseBlock:
    """One public table, the same for every receiver.

    Args:
        values: float64[...]; None where a recording holds only the shape.
        shape: shape of the table.
    """

    combine: ClassVar[Combine] = Combine.SUM

    values: FloatArray | None
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.values is None:
            return
        if type(self.values) is not np.ndarray or self.values.dtype != np.float64:
            raise WireError("values must be a plain float64 array")
        if self.values.shape != self.shape:
            raise WireError(f"values have shape {self.values.shape}, declared {self.shape}")


Block: TypeAlias = RowBlock | DenseBlock


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Upload:
    """What an algorithm asks to be summed for a batch of clients, still at the clients.

    Args:
        clients: int64[B].
        block: float64 rows, one segment per client.
    """

    clients: IntArray
    block: RowBlock

    def __post_init__(self) -> None:
        if len(self.clients) != len(self.block):
            raise WireError(f"{len(self.clients)} clients for {len(self.block)} segments")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Aggregate:
    """What a protection hands to the server after a round.

    Args:
        ring: [m, d] ring words, the exact sum of the rows that count.
        counts: int64[m], how many ratings stand behind each row.
        codec: decodes ``ring``.
    """

    ring: RingArray
    counts: IntArray
    codec: FixedPoint

    @property
    def values(self) -> FloatArray:
        """float64[m, d], the decoded sum."""
        return self.codec.decode(self.ring)


def _require_array(name: str, value: object, dtype: type[np.generic], ndim: int) -> None:
    # ``type is`` and not ``isinstance``: a subclass could carry private state along.
    if type(value) is not np.ndarray or value.dtype != dtype or value.ndim != ndim:
        raise WireError(f"{name} must be a plain {ndim}-dimensional {np.dtype(dtype).name} array")
