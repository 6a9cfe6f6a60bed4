"""The blocks of an upload folded into the one table that is summed.

Every block is encoded once, by its own codec of the common ring, and its rows are put where the
layout has them. From there on a flat vector is rows like any others, so that whatever hides rows
hides it. What comes back is told apart by name (``Aggregate.of``).
"""

from dataclasses import dataclass

import numpy as np

from secure_fedrec.blocks import BlockKind, BlockLayout, Place
from secure_fedrec.core.arrays import BoolArray, IntArray, RingArray
from secure_fedrec.core.kernels import place_segments
from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import FlatBlock, RowBlock, Upload


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Folded:
    """The blocks of some clients as rows of one table.

    Args:
        block: ring words, one segment per client.
        virtual: bool[N], which rows a cloak has made up.
    """

    block: RowBlock
    virtual: BoolArray


def fold(upload: Upload, virtual: BoolArray | None, layout: BlockLayout) -> Folded:
    """Encode all blocks and lay them out.

    Args:
        upload: named blocks of float64 values.
        virtual: bool[K], which rows of the item block a cloak has made up; None for none.
        layout: where the blocks go.

    Raises:
        WireError: a block is missing or unknown, of another kind or width, or has a row or a value
            too many; or the rows of a client do not ascend.
        EncodingError: a value is not finite or exceeds the clip of its block.
    """
    if upload.blocks.keys() != layout.places.keys():
        due, given = ", ".join(layout.places), ", ".join(upload.blocks)
        raise WireError(f"an upload has the blocks {due}, this one has {given}")
    parts = [
        _encoded(upload.blocks[name], place, layout.width) for name, place in layout.places.items()
    ]
    if len(parts) == 1:
        made_up = np.zeros(len(parts[0].rows), dtype=bool) if virtual is None else virtual
        return Folded(block=parts[0], virtual=made_up)
    return _joined(parts, virtual, layout)


def encode_block(block: RowBlock, codec: FixedPoint) -> RowBlock:
    """Encode the values of a block, once for every later receiver.

    Raises:
        WireError: the rows of a client are not in ascending order, one per number. The sum budget
            counts one row per client and number: every client is held to it.
        EncodingError: a value is not finite or exceeds the clip.
    """
    ascending = block.rows[1:] > block.rows[:-1]
    starts = block.indptr[1:-1]
    ascending[starts[(starts > 0) & (starts < len(block.rows))] - 1] = True
    if not ascending.all():
        raise WireError("the rows of a client must be in ascending order, one per item")
    values: RingArray = codec.encode(np.empty((0, 0)) if block.values is None else block.values)
    return RowBlock(indptr=block.indptr, rows=block.rows, values=values, counts=block.counts)


def _encoded(given: RowBlock | FlatBlock, place: Place, width: int) -> RowBlock:
    """Ring words of a block in its own rows, as wide as the block."""
    name, shape = place.shape.name, place.shape
    if isinstance(given, FlatBlock) != (shape.kind is BlockKind.FLAT):
        what = "flat" if isinstance(given, FlatBlock) else "rows"
        raise WireError(f"block {name} is of kind {shape.kind.value}, not {what}")
    if isinstance(given, FlatBlock):
        if given.values.shape[1] != shape.size:
            raise WireError(f"block {name}: {given.values.shape[1]} values for {shape.size}")
        size = len(given)
        words = np.zeros((size, place.rows * width), dtype=place.codec.dtype)
        words[:, : shape.size] = place.codec.encode(given.values)
        return RowBlock(
            indptr=np.arange(size + 1) * place.rows,
            rows=np.tile(np.arange(place.rows, dtype=np.int32), size),
            values=words.reshape(size * place.rows, width),
        )
    if given.values is None or given.values.dtype != np.float64 or given.counts is not None:
        raise WireError(f"block {name}: an upload has float64 values and no counts")
    if given.values.shape[1] != place.width:
        raise WireError(
            f"block {name}: rows of width {given.values.shape[1]}, not of width {place.width}"
        )
    if len(given.rows) and not 0 <= given.rows.min() <= given.rows.max() < place.rows:
        raise WireError(f"block {name}: row numbers must stay below {place.rows}")
    return encode_block(given, place.codec)


def _joined(parts: list[RowBlock], made_up: BoolArray | None, layout: BlockLayout) -> Folded:
    """One segment per client, in which its rows of the first block come first, and so on."""
    lengths: IntArray = np.stack([part.lengths for part in parts], axis=1)
    ends = np.cumsum(lengths.reshape(-1)).reshape(lengths.shape)
    starts, total = ends - lengths, int(lengths.sum())
    rows = np.empty(total, dtype=np.int32)
    values: RingArray = np.zeros((total, layout.width), dtype=layout.codec.dtype)
    virtual = np.zeros(total, dtype=bool)
    counts = np.ones(total, dtype=np.int64)
    for number, (place, part) in enumerate(zip(layout.places.values(), parts, strict=True)):
        own = starts[:, number]
        if part.values is not None:
            into = (rows, values)
            place_segments(part.indptr, own, part.rows, part.values, shift=place.first, into=into)
        of_items = made_up is not None and place.shape.kind is BlockKind.ITEMS
        if of_items or part.counts is not None:
            to = np.arange(len(part.rows)) + np.repeat(own - part.indptr[:-1], part.lengths)
            if of_items:
                virtual[to] = made_up
            if part.counts is not None:
                counts[to] = part.counts
    counted = any(part.counts is not None for part in parts)
    block = RowBlock(
        indptr=np.concatenate([[0], ends[:, -1]]),
        rows=rows,
        values=values,
        counts=counts if counted else None,
    )
    return Folded(block=block, virtual=virtual)
