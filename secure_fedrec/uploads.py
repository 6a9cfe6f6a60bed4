"""Columnar blocks: what clients upload and what they are sent.

One block holds a whole batch of parties (a device sends a batch of one). A block declares how it
may be combined: rows are summed, vectors of a set are collected without order or owner. Blocks are
made of plain arrays only: private state is in a ``Vault`` and cannot be part of one.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, TypeAlias

import numpy as np

from secure_fedrec.blocks import BlockLayout, require_name
from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray, RingArray
from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import FixedPoint


class Combine(Enum):
    """How values of several parties may be combined."""

    SUM = "sum"
    """Added up, position by position."""
    BAG = "bag"
    """Collected without order or owner."""
    EXCHANGE = "exchange"
    """Sent from one client to another."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Segmented:
    """Blocks of several parties, one segment each."""

    indptr: IntArray

    def __len__(self) -> int:
        """Number of parties."""
        return len(self.indptr) - 1

    @property
    def lengths(self) -> IntArray:
        """int64[B], rows or vectors per party."""
        return self.indptr[1:] - self.indptr[:-1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowBlock(_Segmented):
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

    rows: IndexArray
    values: FloatArray | RingArray | None
    counts: IntArray | None = None

    def __post_init__(self) -> None:
        _require_array("rows", self.rows, np.int32, 1)
        size = len(self.rows)
        _require_segments(self.indptr, size)
        if self.values is not None:
            _require_values(self.values)
            if len(self.values) != size:
                raise WireError(f"{len(self.values)} values for {size} rows")
        if self.counts is not None:
            _require_array("counts", self.counts, np.int64, 1)
            if len(self.counts) != size:
                raise WireError(f"{len(self.counts)} counts for {size} rows")

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
class SetBlock(_Segmented):
    """Unordered vectors of several parties: only the set of vectors is meant to be known.

    Args:
        indptr: int64[B + 1]; party b gives vectors ``indptr[b]:indptr[b + 1]``.
        values: [N, d], float64 before encoding, ring words (uint32 or uint64) after it; None where
            a recording holds only how many there were.

    Raises:
        WireError: the columns do not fit together or have the wrong type.
    """

    combine: ClassVar[Combine] = Combine.BAG

    values: FloatArray | RingArray | None

    def __post_init__(self) -> None:
        _require_array("indptr", self.indptr, np.int64, 1)
        size = int(self.indptr[-1]) if len(self.indptr) else 0
        if self.values is not None:
            _require_values(self.values)
            size = len(self.values)
        _require_segments(self.indptr, size)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DenseBlock:
    """One public table, the same for every receiver, and further broadcast arrays.

    Args:
        values: float64[...]; None where a recording holds only the shape.
        shape: shape of the table.
        extras: further public arrays by name, float64 of any shape of one dimension or more.

    Raises:
        WireError: an array is not plain float64, or a name is not a word.
    """

    combine: ClassVar[Combine] = Combine.SUM

    values: FloatArray | None
    shape: tuple[int, ...]
    extras: Mapping[str, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in self.extras.items():
            require_name(name)
            if type(values) is not np.ndarray or values.dtype != np.float64 or not values.ndim:
                raise WireError(f"{name} must be a plain float64 array, one-dimensional or more")
        if self.values is None:
            return
        if type(self.values) is not np.ndarray or self.values.dtype != np.float64:
            raise WireError("values must be a plain float64 array")
        if self.values.shape != self.shape:
            raise WireError(f"values have shape {self.values.shape}, declared {self.shape}")

    @property
    def nbytes(self) -> int:
        """Bytes of the table and of all extras, 8 per value."""
        return 8 * (math.prod(self.shape) + sum(values.size for values in self.extras.values()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlatBlock:
    """One vector of parameters per party, all of the same length.

    Args:
        values: float64[B, n].

    Raises:
        WireError: it is not a plain table of float64.
    """

    combine: ClassVar[Combine] = Combine.SUM

    values: FloatArray

    def __post_init__(self) -> None:
        _require_array("values", self.values, np.float64, 2)

    def __len__(self) -> int:
        """Number of parties."""
        return len(self.values)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PeerBlock:
    """Rows that clients give to other clients, one segment per message.

    Args:
        senders: int64[M].
        receivers: int64[M]; a client does not send to itself, nor twice to the same receiver.
        block: the rows, float64 before encoding and after decoding.

    Raises:
        WireError: columns of different lengths, or such a pair.
    """

    combine: ClassVar[Combine] = Combine.EXCHANGE

    senders: IntArray
    receivers: IntArray
    block: RowBlock

    def __post_init__(self) -> None:
        for name, ends in (("senders", self.senders), ("receivers", self.receivers)):
            _require_array(name, ends, np.int64, 1)
            if len(ends) != len(self.block):
                raise WireError(f"{len(ends)} {name} for {len(self.block)} segments")
        pairs = np.unique(np.stack([self.senders, self.receivers]), axis=1)
        if pairs.shape[1] < len(self.block) or np.any(self.senders == self.receivers):
            raise WireError("a client sends rows to other clients only, and to each of them once")


Block: TypeAlias = RowBlock | SetBlock | DenseBlock
"""Content of a message."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Upload:
    """An algorithm's uploads for a batch of clients, still at the clients.

    Args:
        clients: int64[B].
        blocks: by name, float64 rows (one segment per client) or flat vectors; all are summed.
        bags: float64 vectors by name of the bag, one segment per client; they are collected.

    Raises:
        WireError: there are no blocks, a name is not allowed, or a block or bag belongs to other
            clients.
    """

    clients: IntArray
    blocks: Mapping[str, RowBlock | FlatBlock]
    bags: Mapping[str, SetBlock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.blocks:
            raise WireError("an upload has at least one block")
        for name, part in (*self.blocks.items(), *self.bags.items()):
            require_name(name)
            if len(self.clients) != len(part):
                raise WireError(f"{name}: {len(self.clients)} clients for {len(part)} segments")

    @property
    def block(self) -> RowBlock:
        """The rows of an upload that has one block, of rows.

        Raises:
            WireError: the upload has several blocks, or flat parameters.
        """
        (only, *others) = self.blocks.values()
        if others or not isinstance(only, RowBlock):
            raise WireError(f"{', '.join(self.blocks)}: not one block of rows")
        return only


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Aggregate:
    """A protection's result for the server after a round.

    Args:
        ring: [m, d] ring words, the exact sum of the rows that count.
        counts: int64[m], how many ratings stand behind each row.
        codec: decodes ``ring``.
        bags: by name, the decoded vectors of all clients: float64[N, d], ascending by their first
            value, then their second, and so on, so that neither order nor owners are shown.
        noise: standard deviation of the noise in each value of the sum, public; 0 if it is exact.
        layout: the places of blocks in the table; None if there is one block of rows.
    """

    ring: RingArray
    counts: IntArray
    codec: FixedPoint
    bags: Mapping[str, FloatArray] = field(default_factory=dict)
    noise: float = 0.0
    layout: BlockLayout | None = None

    @property
    def values(self) -> FloatArray:
        """float64[m, d], the decoded sum; of several blocks ask for one by name."""
        return self.codec.decode(self.ring)

    def of(self, name: str) -> "Aggregate":
        """The sum of one block, its rows from 0, decoded by its own codec.

        Raises:
            WireError: the block does not exist.
        """
        if self.layout is None:
            raise WireError(f"no block {name!r}: the blocks of this sum have no names")
        place = self.layout[name]
        return replace(
            self,
            ring=self.ring[place.own, : place.width],
            counts=self.counts[place.own],
            codec=place.codec,
            noise=self.noise * self.codec.scale / place.codec.scale,
            layout=None,
        )

    def vector(self, name: str) -> FloatArray:
        """The decoded sum of a flat block: float64[size].

        Raises:
            WireError: the block does not exist.
        """
        part = self.of(name)
        size = 0 if self.layout is None else self.layout[name].shape.size
        return part.codec.decode(part.ring.reshape(-1)[:size])


def _require_segments(indptr: IntArray, size: int) -> None:
    _require_array("indptr", indptr, np.int64, 1)
    if not len(indptr) or indptr[0] != 0 or indptr[-1] != size:
        raise WireError(f"indptr must run from 0 to {size}")
    if (indptr[1:] < indptr[:-1]).any():
        raise WireError("indptr must not decrease")


def _require_values(values: object) -> None:
    if type(values) is not np.ndarray or values.ndim != 2:
        raise WireError("values must be a plain two-dimensional array")
    if values.dtype not in (np.float64, np.uint32, np.uint64):
        raise WireError(f"values have dtype {values.dtype}: float64 or ring words only")


def _require_array(name: str, value: object, dtype: type[np.generic], ndim: int) -> None:
    # ``type is`` and not ``isinstance``: a subclass could carry private state along.
    if type(value) is not np.ndarray or value.dtype != dtype or value.ndim != ndim:
        raise WireError(f"{name} must be a plain {ndim}-dimensional {np.dtype(dtype).name} array")
