"""Blocks: what they accept, what they refuse."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import Aggregate, Combine, DenseBlock, RowBlock, Upload


class Carrier(np.ndarray[Any, np.dtype[Any]]):
    """An array subclass: it could carry anything along."""


def columns(**changes: Any) -> dict[str, Any]:
    """Columns of a valid block of three parties with two, none and one rows."""
    valid: dict[str, Any] = {
        "indptr": np.array([0, 2, 2, 3]),
        "rows": np.array([1, 4, 0], dtype=np.int32),
        "values": np.arange(6, dtype=np.uint64).reshape(3, 2),
        "counts": np.array([1, 2, 3]),
    }
    return {**valid, **changes}


def carrier(array: npt.NDArray[Any]) -> Carrier:
    return array.view(Carrier)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"values": None},
        {"counts": None},
        {"values": np.zeros((3, 2))},
        {"values": np.zeros((3, 0), dtype=np.uint32)},
    ],
)
def test_valid_blocks(change: dict[str, Any]) -> None:
    block = RowBlock(**columns(**change))
    assert len(block) == 3
    assert block.lengths.tolist() == [2, 0, 1]
    assert block.combine is Combine.SUM


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"indptr": np.array([0, 2, 3], dtype=np.int32)}, "indptr must be"),
        ({"indptr": [0, 2, 2, 3]}, "indptr must be"),
        ({"indptr": np.empty(0, dtype=np.int64)}, "indptr must run"),
        ({"indptr": np.array([0, 2, 2, 4])}, "indptr must run"),
        ({"indptr": np.array([1, 2, 2, 3])}, "indptr must run"),
        ({"indptr": np.array([0, 2, 1, 3])}, "not decrease"),
        ({"indptr": np.array([[0, 3]])}, "indptr must be"),
        ({"indptr": carrier(np.array([0, 2, 2, 3]))}, "indptr must be"),
        ({"rows": np.array([1, 4, 0])}, "rows must be"),
        ({"rows": np.array([1, 4], dtype=np.int32)}, "indptr must run"),
        ({"rows": carrier(np.array([1, 4, 0], dtype=np.int32))}, "rows must be"),
        ({"values": [[0, 1]] * 3}, "values must be"),
        ({"values": np.zeros(3)}, "values must be"),
        ({"values": carrier(np.zeros((3, 2)))}, "values must be"),
        ({"values": np.ma.masked_array(np.zeros((3, 2)))}, "values must be"),
        ({"values": np.zeros((3, 2), dtype=np.float32)}, "dtype float32"),
        ({"values": np.zeros((3, 2), dtype=np.int64)}, "dtype int64"),
        ({"values": np.zeros((3, 2), dtype=">f8")}, "dtype"),
        ({"values": np.zeros((3, 2), dtype=object)}, "dtype object"),
        ({"values": np.zeros((2, 2))}, "2 values for 3 rows"),
        ({"counts": np.array([1.0, 2.0, 3.0])}, "counts must be"),
        ({"counts": np.array([1, 2])}, "2 counts for 3 rows"),
        ({"counts": carrier(np.array([1, 2, 3]))}, "counts must be"),
    ],
)
def test_malformed_row_blocks_are_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        RowBlock(**columns(**change))


def test_split_gives_each_party_its_segment() -> None:
    block = RowBlock(**columns())
    parts = list(block.split())
    assert [part.rows.tolist() for part in parts] == [[1, 4], [], [0]]
    assert all(len(part) == 1 for part in parts)
    for part, start, stop in zip(parts, [0, 2, 2], [2, 2, 3], strict=True):
        assert part.values is not None and block.values is not None
        assert part.counts is not None and block.counts is not None
        assert part.values.tolist() == block.values[start:stop].tolist()
        assert part.counts.tolist() == block.counts[start:stop].tolist()
    bare = RowBlock(**columns(values=None, counts=None))
    assert [(part.values, part.counts) for part in bare.split()] == [(None, None)] * 3


def test_blocks_cannot_be_changed() -> None:
    block = RowBlock(**columns())
    with pytest.raises(AttributeError):
        block.rows = np.empty(0, dtype=np.int32)  # type: ignore[misc]


def test_dense_blocks() -> None:
    assert DenseBlock(values=None, shape=(4, 2)).values is None
    assert DenseBlock(values=np.zeros((4, 2)), shape=(4, 2)).combine is Combine.SUM
    with pytest.raises(WireError, match="shape"):
        DenseBlock(values=np.zeros((4, 2)), shape=(2, 4))
    for values in (np.zeros((4, 2), dtype=np.float32), carrier(np.zeros((4, 2))), [[0.0] * 2] * 4):
        bad: Any = values
        with pytest.raises(WireError, match="plain float64"):
            DenseBlock(values=bad, shape=(4, 2))


def test_an_upload_has_one_segment_per_client() -> None:
    block = RowBlock(**columns(values=np.zeros((3, 2))))
    assert len(Upload(clients=np.array([4, 5, 9]), blocks={"table": block}).clients) == 3
    with pytest.raises(WireError, match="2 clients for 3 segments"):
        Upload(clients=np.array([4, 5]), blocks={"table": block})


def test_an_aggregate_decodes_through_its_codec() -> None:
    codec = FixedPoint(bits=24, fraction_bits=8, clip=4.0)
    sums = np.array([[1.5, -2.25]])
    aggregate = Aggregate(ring=codec.encode(sums), counts=np.array([3]), codec=codec)
    assert aggregate.values.tolist() == sums.tolist()
