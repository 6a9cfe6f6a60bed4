"""Strict reading of fixed layouts, and the lists that it reads."""

import struct
from collections.abc import Mapping
from itertools import chain
from typing import Any, Self

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session.nodes import SERVER_NUMBER as SERVER


def encode_marks(marks: BoolArray) -> bytes:
    """A bitmap over the cohort, least significant bit first, padded with zeros."""
    return np.packbits(marks, bitorder="little").tobytes()


def encode_records(records: Mapping[int, bytes]) -> bytes:
    """A count, and each record behind its client's number (``Reader.records``).

    Args:
        records: by client.

    Raises:
        ValueError: they are not all of one size, which a reader could not tell.
    """
    sizes = set(map(len, records.values())) or {0}
    if len(sizes) > 1:
        raise ValueError(f"records of {sorted(sizes)} bytes in one list")
    layout = "<I" + f"I{sizes.pop()}s" * len(records)
    return struct.pack(layout, len(records), *chain.from_iterable(records.items()))


def read_marks(data: bytes, count: int, name: str) -> BoolArray:
    """A bitmap of ``count`` clients that fills some bytes of a message."""
    with Reader(data, name) as reader:
        return reader.marks(count)


def read_records(data: bytes | memoryview, size: int, name: str) -> dict[int, bytes]:
    """Records of ``size`` bytes that fill some bytes (``Reader.records``)."""
    with Reader(data, name) as reader:
        return reader.records(size)


def first_records(
    data: bytes | memoryview, size: int, name: str
) -> tuple[dict[int, bytes], memoryview]:
    """Records of ``size`` bytes, and the bytes behind them."""
    reader = Reader(data, name)
    return reader.records(size), reader.rest()


def read_listed(layout: struct.Struct, data: bytes, name: str) -> tuple[Any, ...]:
    """The parts of a layout that ends in a count, with as many client numbers in its place."""
    with Reader(data, name) as reader:
        *parts, count = layout.unpack(reader.take(layout.size))
        return (*parts, reader.ids(count))


class Reader:
    """Reads a fixed layout from front to back, and refuses bytes that do not fit it."""

    __slots__ = ("_at", "_data", "_name")

    def __init__(self, data: bytes | memoryview, name: str) -> None:
        self._data = memoryview(data)
        self._name = name
        self._at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self._at + size
        if end > len(self._data):
            raise ProtocolError(f"{self._name}: truncated")
        taken = bytes(self._data[self._at : end])
        self._at = end
        return taken

    def number(self, size: int) -> int:
        """An unsigned number of ``size`` bytes."""
        return int.from_bytes(self.take(size), "little")

    def ids(self, count: int) -> IntArray:
        """Client numbers, strictly ascending, without the server's."""
        ids = np.frombuffer(self.take(4 * count), dtype="<u4").astype(np.int64)
        if count and ((ids[1:] <= ids[:-1]).any() or ids[-1] == SERVER):
            raise ProtocolError(f"{self._name}: client numbers must ascend")
        return ids

    def records(self, size: int) -> dict[int, bytes]:
        """A count, and so many records of ``size`` bytes, each behind its client's number."""
        block = self.take(self.number(4) * (4 + size))
        numbered = list(struct.iter_unpack(f"<I{size}s", block))
        records = dict(numbered)
        # A repeated number gives fewer records; the numbers must ascend.
        if len(records) != len(numbered) or list(records) != sorted(records) or SERVER in records:
            raise ProtocolError(f"{self._name}: client numbers must ascend")
        return records

    def marks(self, count: int) -> BoolArray:
        """A bitmap of ``count`` bits with zero padding."""
        raw = np.frombuffer(self.take((count + 7) // 8), dtype=np.uint8)
        bits = np.unpackbits(raw, bitorder="little").astype(np.bool_)
        if bits[count:].any():
            raise ProtocolError(f"{self._name}: the padding of a bitmap must be zero")
        return bits[:count]

    def rest(self) -> memoryview:
        """All that is left."""
        rest, self._at = self._data[self._at :], len(self._data)
        return rest

    def finish(self) -> None:
        """Check that nothing is left."""
        left = len(self._data) - self._at
        if left:
            raise ProtocolError(f"{self._name}: {left} bytes too many")
