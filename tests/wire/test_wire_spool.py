"""Spools: the same messages, in an order of their own, in blocks of a bounded size."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.wire.spool import Columns, Spool, concatenate_columns, gathered_columns

pytestmark = pytest.mark.claim("recordings-name-no-sender")

LIMIT = 400


def batch(rng: np.random.Generator, *, tagged: bool, count: int) -> Columns:
    lengths = rng.integers(0, 4, count)
    columns: Columns = {
        "senders": np.full(count, -1) if tagged else rng.permutation(50)[:count],
        "receivers": rng.integers(0, 3, count),
        "sizes": 10 * lengths,
        "lengths": lengths,
        "rows": rng.integers(0, 99, lengths.sum()).astype(np.uint16),
        "values": rng.integers(0, 99, (lengths.sum(), 2)).astype(np.uint64),
    }
    if tagged:
        columns["tags"] = rng.integers(0, 2**63, count).astype(np.uint64)
    return columns


def messages(columns: Columns) -> list[Any]:
    """One tuple per message, with its rows."""
    ends = np.cumsum(columns["lengths"])
    keys = columns.get("tags", columns["senders"])
    return [
        (
            int(key),
            int(columns["receivers"][k]),
            int(columns["sizes"][k]),
            columns["rows"][end - length : end].tolist(),
            columns["values"][end - length : end].tolist(),
        )
        for k, (key, end, length) in enumerate(zip(keys, ends, columns["lengths"], strict=True))
    ]


@given(
    seed=st.integers(0, 2**32),
    tagged=st.booleans(),
    counts=st.lists(st.integers(0, 6), max_size=12),
)
@settings(deadline=None, max_examples=80)
@pytest.mark.parametrize("on_disk", [False, True])
def test_blocks_hold_all_messages_in_order(
    on_disk: bool, tmp_path_factory: Any, seed: int, tagged: bool, counts: list[int]
) -> None:
    scratch: Path | None = tmp_path_factory.mktemp("spool") / "scratch" if on_disk else None
    rng = np.random.default_rng(seed)
    parts = [batch(rng, tagged=tagged, count=count) for count in counts]
    found = []
    for given_order in (parts, parts[::-1]):
        spool = Spool(scratch, limit=LIMIT)
        for part in given_order:
            spool.add(part)
            assert spool._size <= max(LIMIT, sum(column.nbytes for column in part.values()))
        blocks = list(spool.blocks())
        for block in blocks:
            size = sum(column.nbytes for column in block.values())
            assert size <= LIMIT or len(block["sizes"]) == 1
        found.append([messages(block) for block in blocks])
        spool.clear()
        assert scratch is None or not scratch.exists()
    joined = [each for block in found[0] for each in block]
    expected = messages(concatenate_columns(parts)) if parts else []
    assert [each[:2] for each in joined] == sorted(each[:2] for each in expected)
    assert sorted(joined) == sorted(expected)
    if tagged:  # and nothing of the order in which they came; names may repeat here, tags do not
        assert found[0] == found[1]


def test_what_exceeds_a_block_is_on_disk(tmp_path: Path) -> None:
    spool, rng = Spool(tmp_path / "scratch", limit=LIMIT), np.random.default_rng(1)
    for _ in range(20):
        spool.add(batch(rng, tagged=True, count=5))
    held = [column for run in spool._runs for column in run.values() if column.size]
    assert len(spool._runs) > 10 and all(isinstance(column, np.memmap) for column in held)
    assert len(list((tmp_path / "scratch").iterdir())) == len(spool._runs)


def test_blocks_that_are_gathered_one_by_one_are_those_that_are_joined() -> None:
    parts = [
        {"sizes": np.arange(size), "values": np.arange(3.0 * size).reshape(size, 3)}
        for size in (4, 0, 3, 70_000)
    ]
    kept = [{name: column.copy() for name, column in part.items()} for part in parts]
    whole, expected = gathered_columns(iter(parts)), concatenate_columns(parts)
    assert whole.keys() == expected.keys()
    for name, column in whole.items():
        assert column.dtype == expected[name].dtype
        np.testing.assert_array_equal(column, expected[name])
    column[:] = 0  # what was joined stays as it was
    for part, each in zip(parts, kept, strict=True):
        np.testing.assert_array_equal(part["values"], each["values"])
    narrow: list[Columns] = [
        {"rows": np.arange(3, dtype=np.int16)},
        {"rows": np.arange(3, dtype=np.int32)},
    ]
    assert gathered_columns(narrow)["rows"].dtype == np.int32
    assert gathered_columns([]) == {}
