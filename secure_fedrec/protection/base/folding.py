"""The blocks of an upload folded into the one table that is summed.

Every block is encoded once, by its own codec of the common ring, and its rows are put where the
layout has them. From there on a flat vector is rows like any others, so that whatever hides rows
hides it. What comes back is told apart by name (``Aggregate.of``).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secure_fedrec.blocks import BlockKind, BlockLayout, Place
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, RingArray
from secure_fedrec.core.kernels import encode_segments
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


def limited(upload: Upload, codec: FixedPoint, layout: BlockLayout | None) -> tuple[Upload, int]:
    """An upload whose values can be encoded, where the ring says so; how many were clipped for it.

    Args:
        upload: blocks and bags of float64 values.
        codec: the ring.
        layout: where the blocks go, each with a codec of its own; None for one block in the ring.
    """
    if codec.beyond != "clip":
        return upload, 0
    places, count = {} if layout is None else layout.places, 0
    parts: dict[str, Any] = {}
    for name, part in (*upload.blocks.items(), *upload.bags.items()):
        own = places[name].codec if name in places else codec
        if part.values is not None:
            values, clipped = own.limited(part.values)
            count += clipped
            parts[name] = replace(part, values=values)
        else:
            parts[name] = part
    if not count:
        return upload, 0
    blocks, bags = ({name: parts[name] for name in each} for each in (upload.blocks, upload.bags))
    return replace(upload, blocks=blocks, bags=bags), count


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
        _as_rows(upload.blocks[name], place, layout.width) for name, place in layout.places.items()
    ]
    if len(parts) == 1:
        made_up = np.zeros(len(parts[0].rows), dtype=bool) if virtual is None else virtual
        (place,) = layout.places.values()
        return Folded(block=encode_block(parts[0], place.codec), virtual=made_up)
    return _joined(parts, virtual, layout)


def encode_block(block: RowBlock, codec: FixedPoint) -> RowBlock:
    """Encode the values of a block, once for every later receiver.

    Raises:
        WireError: the rows of a client are not in ascending order, one per number. The sum budget
            counts one row per client and number: every client is held to it.
        EncodingError: a value is not finite or exceeds the clip.
    """
    _require_ascending(block)
    values: RingArray = codec.encode(np.empty((0, 0)) if block.values is None else block.values)
    return RowBlock(indptr=block.indptr, rows=block.rows, values=values, counts=block.counts)


def _require_ascending(block: RowBlock) -> None:
    ascending = block.rows[1:] > block.rows[:-1]
    starts = block.indptr[1:-1]
    ascending[starts[(starts > 0) & (starts < len(block.rows))] - 1] = True
    if not ascending.all():
        raise WireError("the rows of a client must be in ascending order, one per item")


def _as_rows(given: RowBlock | FlatBlock, place: Place, width: int) -> RowBlock:
    """Values of a block in its own rows, as wide as the block."""
    name, shape = place.shape.name, place.shape
    if isinstance(given, FlatBlock) != (shape.kind is BlockKind.FLAT):
        what = "flat" if isinstance(given, FlatBlock) else "rows"
        raise WireError(f"block {name} is of kind {shape.kind.value}, not {what}")
    if isinstance(given, FlatBlock):
        if given.values.shape[1] != shape.size:
            raise WireError(f"block {name}: {given.values.shape[1]} values for {shape.size}")
        size = len(given)
        values: FloatArray = np.zeros((size, place.rows * width))
        values[:, : shape.size] = given.values
        return RowBlock(
            indptr=np.arange(size + 1) * place.rows,
            rows=np.tile(np.arange(place.rows, dtype=np.int32), size),
            values=values.reshape(size * place.rows, width),
        )
    if given.values is None or given.values.dtype != np.float64 or given.counts is not None:
        raise WireError(f"block {name}: an upload has float64 values and no counts")
    if given.values.shape[1] != place.width:
        raise WireError(
            f"block {name}: rows of width {given.values.shape[1]}, not of width {place.width}"
        )
    if len(given.rows) and not 0 <= given.rows.min() <= given.rows.max() < place.rows:
        raise WireError(f"block {name}: row numbers must stay below {place.rows}")
    _require_ascending(given)
    return given


def _joined(parts: list[RowBlock], made_up: BoolArray | None, layout: BlockLayout) -> Folded:
    """One segment per client, in which its rows of the first block come first, and so on."""
    lengths: IntArray = np.stack([part.lengths for part in parts], axis=1)
    ends = np.cumsum(lengths.reshape(-1)).reshape(lengths.shape)
    starts, total = ends - lengths, int(lengths.sum())
    rows = np.empty(total, dtype=np.int32)
    integers = np.empty((total, layout.width), dtype=np.int64)
    virtual = np.zeros(total, dtype=bool)
    for number, (place, part) in enumerate(zip(layout.places.values(), parts, strict=True)):
        own, codec = starts[:, number], place.codec
        values = np.empty((0, 0)) if part.values is None else part.values
        fits = encode_segments(
            part.indptr,
            own,
            part.rows,
            values,
            shift=place.first,
            scale=codec.scale,
            largest=codec.bound * codec.scale,
            into=(rows, integers),
        )
        if not fits:
            codec.refuse(values)
        if made_up is not None and place.shape.kind is BlockKind.ITEMS:
            to = np.arange(len(part.rows)) + np.repeat(own - part.indptr[:-1], part.lengths)
            virtual[to] = made_up
    block = RowBlock(
        indptr=np.concatenate([[0], ends[:, -1]]),
        rows=rows,
        values=layout.codec.from_integers(integers),
    )
    return Folded(block=block, virtual=virtual)
