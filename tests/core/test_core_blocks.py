"""Named blocks: folded into one table, summed, and told apart again, each in its own bits."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.blocks import BlockKind, BlockLayout, BlockShape
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import ConfigError, EncodingError, SumBudgetError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.folding import fold
from secure_fedrec.uploads import Aggregate, FlatBlock, RowBlock, Upload

RING = FixedPoint(bits=48, fraction_bits=20, clip=64.0)
ITEMS = BlockShape(name="items", kind=BlockKind.ITEMS, size=9, width=4)
SECOND = BlockShape(name="second", kind=BlockKind.ROWS, size=5, width=2, fraction_bits=8)
FLAT = BlockShape(name="model", kind=BlockKind.FLAT, size=11, width=1, fraction_bits=30, clip=2.0)
SHAPES = (ITEMS, SECOND, FLAT)


def rows_of(parts: list[dict[int, list[float]]], width: int) -> RowBlock:
    chosen = [sorted(part) for part in parts]
    ends = np.cumsum([0, *map(len, chosen)])
    values = [part[row] for part, rows in zip(parts, chosen, strict=True) for row in rows]
    return RowBlock(
        indptr=ends.astype(np.int64),
        rows=np.array([row for rows in chosen for row in rows], dtype=np.int32),
        values=np.array(values, dtype=np.float64).reshape(-1, width),
    )


def upload(clients: int, seed: int) -> Upload:
    """Every client some rows of each table, perhaps none, and its model."""
    rng = np.random.default_rng(seed)

    def drawn(shape: BlockShape) -> list[dict[int, list[float]]]:
        return [
            {
                int(row): rng.normal(size=shape.width).tolist()
                for row in rng.choice(shape.size, rng.integers(0, shape.size + 1), replace=False)
            }
            for _ in range(clients)
        ]

    return Upload(
        clients=np.arange(clients),
        blocks={
            "second": rows_of(drawn(SECOND), 2),
            "model": FlatBlock(values=rng.uniform(-2, 2, (clients, FLAT.size))),
            "items": rows_of(drawn(ITEMS), 4),
        },
    )


def summed(given_: Upload, layout: BlockLayout) -> Aggregate:
    block = fold(given_, None, layout).block
    assert block.values is not None
    ring = np.zeros((layout.rows, layout.width), dtype=RING.dtype)
    np.add.at(ring, block.rows, block.values)
    counts = np.bincount(block.rows, minlength=layout.rows)
    return Aggregate(ring=RING.reduce(ring), counts=counts, codec=RING, layout=layout)


def dense(block: RowBlock, shape: BlockShape, codec: FixedPoint) -> FloatArray:
    total = np.zeros((shape.size, shape.width))
    assert block.values is not None
    np.add.at(total, block.rows, np.rint(block.values * codec.scale))
    return total / codec.scale


@given(clients=st.integers(0, 5), seed=st.integers(0, 10**6), order=st.permutations(SHAPES))
@settings(max_examples=60, deadline=None)
def test_a_sum_is_told_apart_by_name(clients: int, seed: int, order: list[BlockShape]) -> None:
    layout, sent = BlockLayout(order, RING), upload(clients, seed)
    total = summed(sent, layout)
    for shape in (ITEMS, SECOND):
        block, codec = sent.blocks[shape.name], layout[shape.name].codec
        assert isinstance(block, RowBlock)
        part = total.of(shape.name)
        np.testing.assert_array_equal(part.values, dense(block, shape, codec))
        counted = np.bincount(block.rows, minlength=shape.size)
        np.testing.assert_array_equal(part.counts, counted)
    model, codec = sent.blocks["model"], layout["model"].codec
    assert isinstance(model, FlatBlock)
    expected = np.rint(model.values * codec.scale).sum(axis=0) / codec.scale
    np.testing.assert_array_equal(total.vector("model"), expected)
    assert total.of("model").counts.tolist() == [clients] * layout["model"].rows


@given(clients=st.integers(1, 5), seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_a_batch_is_its_clients_side_by_side(clients: int, seed: int) -> None:
    layout, sent = BlockLayout(SHAPES, RING), upload(clients, seed)
    whole = fold(sent, None, layout).block
    for client, one in enumerate(whole.split()):
        blocks: dict[str, Any] = {}
        for name, block in sent.blocks.items():
            if isinstance(block, FlatBlock):
                blocks[name] = FlatBlock(values=block.values[[client]])
            else:
                blocks[name] = list(block.split())[client]
        alone = fold(Upload(clients=np.array([client]), blocks=blocks), None, layout).block
        np.testing.assert_array_equal(alone.rows, one.rows)
        np.testing.assert_array_equal(alone.values, one.values)
        assert np.all(np.diff(one.rows) > 0)


def test_what_a_cloak_made_up_stays_marked() -> None:
    layout, sent = BlockLayout((FLAT, ITEMS, SECOND), RING), upload(4, 3)
    items = sent.blocks["items"]
    assert isinstance(items, RowBlock)
    virtual = np.arange(len(items.rows)) % 2 == 0
    folded = fold(sent, virtual, layout)
    first = layout["items"].first
    assert sorted(folded.block.rows[folded.virtual]) == sorted(items.rows[virtual] + first)


def test_places_are_public_and_narrow_rows_end_in_zeros() -> None:
    layout = BlockLayout(SHAPES, RING)
    assert (layout.rows, layout.width) == (9 + 5 + 3, 4)
    known = layout.describe()
    assert [(each["name"], each["kind"], each["first"], each["rows"]) for each in known] == [
        ("items", "items", 0, 9),
        ("second", "rows", 9, 5),
        ("model", "flat", 14, 3),
    ]
    block = fold(upload(3, 1), None, layout).block
    assert block.values is not None
    inside = (block.rows >= 9) & (block.rows < 14)
    assert inside.any()
    assert not block.values[inside, 2:].any()
    assert not block.values[block.rows == 16, 3:].any()


def test_noise_is_stated_in_the_unit_of_each_block() -> None:
    layout = BlockLayout(SHAPES, RING)
    ring = np.zeros((layout.rows, layout.width), dtype=RING.dtype)
    counts = np.zeros(layout.rows, dtype=np.int64)
    total = Aggregate(ring=ring, counts=counts, codec=RING, noise=0.5, layout=layout)
    assert [total.of(name).noise for name in layout.places] == [0.5, 0.5 * 2**12, 0.5 / 2**10]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"items": None}, "the blocks items, second, model, this one has second, model"),
        ({"other": FlatBlock(values=np.zeros((2, 3)))}, "this one has .*other"),
        ({"items": FlatBlock(values=np.zeros((2, 9)))}, "block items is of kind items, not flat"),
        ({"model": rows_of([{0: [1.0]}, {}], 1)}, "block model is of kind flat, not rows"),
        ({"model": FlatBlock(values=np.zeros((2, 12)))}, "block model: 12 values for 11"),
        ({"second": rows_of([{0: [1.0] * 3}, {}], 3)}, "block second: rows of width 3, not of wid"),
        ({"second": rows_of([{5: [1.0] * 2}, {}], 2)}, "block second: row numbers must stay below"),
    ],
)
def test_a_block_that_does_not_fit_is_refused(change: dict[str, Any], says: str) -> None:
    blocks = {**upload(2, 5).blocks, **change}
    sent = Upload(clients=np.arange(2), blocks={n: b for n, b in blocks.items() if b is not None})
    with pytest.raises(WireError, match=says):
        fold(sent, None, BlockLayout(SHAPES, RING))


def test_every_block_has_its_own_clip_and_budget() -> None:
    layout, sent = BlockLayout(SHAPES, RING), upload(1, 2)
    large = FlatBlock(values=np.full((1, FLAT.size), 2.5))
    with pytest.raises(EncodingError, match=r"2\.5 exceeds ring\.clip = 2"):
        fold(Upload(clients=sent.clients, blocks={**sent.blocks, "model": large}), None, layout)
    layout.require_budget(2**14)
    RING.require_budget(2**20)
    with pytest.raises(SumBudgetError):  # 2 * 2^30 * 2^17 = 2^48: the model, and nothing else
        layout.require_budget(2**17)


def test_a_layout_needs_names_of_its_own() -> None:
    with pytest.raises(ConfigError, match="each with a different name"):
        BlockLayout([ITEMS, ITEMS], RING)
    with pytest.raises(ConfigError, match="each with a different name"):
        BlockLayout([], RING)
    with pytest.raises(WireError, match="is not a name"):
        BlockShape(name="two words", kind=BlockKind.FLAT, size=1, width=1)
    with pytest.raises(ConfigError, match=r"blocks\.b\.size"):
        BlockShape(name="b", kind=BlockKind.FLAT, size=0, width=1)
    with pytest.raises(WireError, match="no block 'other': there are items, second, model"):
        BlockLayout(SHAPES, RING)["other"]
