"""The blocks of an upload folded into the one table that is summed.

Every block is encoded once, by its own codec of the common ring, and its rows are put where the
layout has them. Then a flat vector is handled like other rows, and layers that hide rows hide it.
Blocks of the sum are read by name (``Aggregate.of``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import numpy as np

from secure_fedrec.blocks import BlockKind, BlockLayout, Place
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, RingArray
from secure_fedrec.core.kernels import encode_segments
from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.local import LocalModel, LocalUpload
from secure_fedrec.protection.base.layer_interfaces import BagChannel, Cloak, Cloaked
from secure_fedrec.uploads import FlatBlock, RowBlock, SetBlock, Upload

_CAPABILITIES = ("impute", "resample_residuals", "rows")


@dataclass(frozen=True, slots=True, eq=False)
class ClientRows:
    """Uploads of some clients before they are hidden: their blocks as rows of one table, and bags.

    Args:
        block: ring words, one segment per client.
        virtual: bool[N], which rows a cloak has made up.
        bags: float64 vectors by name of the bag, one segment per client.
        clipped: how many values were clipped (``FixedPoint.beyond``).
        exempt: bool[B], which clients the cloak was told not to cover; None without a cloak.
    """

    block: RowBlock
    virtual: BoolArray
    bags: Mapping[str, SetBlock] = field(default_factory=dict)
    clipped: int = 0
    exempt: BoolArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Folding:
    """Makes a client's upload from its step, before anything is hidden.

    Args:
        codec: the ring.
        cloak: covers rated sets; None leaves uploads as they are.
        bags: carries the vectors for bags; None where uploads have none.
        layout: where the blocks of an upload lie in the table that is summed; None takes uploads of
            one block of rows.
    """

    codec: FixedPoint
    cloak: Cloak | None
    bags: BagChannel | None = None
    layout: BlockLayout | None = None

    def fold(
        self, local: LocalUpload, *, round_: int, exempt: Callable[[IntArray], BoolArray]
    ) -> ClientRows:
        """What the next clients send: covered, clipped, encoded, in one table.

        Args:
            local: of the client step.
            round_: the round in progress.
            exempt: bool[B], which of some clients no cloak covers.

        Raises:
            ConfigError: there is a cloak, and ``local`` has no rated set to cover; or the upload
                has bags, and there is no channel for them.
            WireError: the blocks of a client are malformed.
            EncodingError: a value is not finite or exceeds the ring's clip, and is not clipped.
            ProtocolError: the upload is in other clients' names than the step's.
        """
        if self.cloak is None:
            upload, virtual, spared = local.upload, None, None
        else:
            if not covers_ratings(local):
                raise refused_cloak(self.cloak)
            spared = exempt(local.clients)
            cloaked = self.cloak.cover(local, round_=round_, exempt=spared.copy())
            upload, virtual = _beside(local, cloaked, self.layout), cloaked.virtual
        if not np.array_equal(upload.clients, local.clients):
            raise ProtocolError(
                "an upload is in the names of other clients than those that trained"
            )
        if upload.bags and self.bags is None:
            raise ConfigError(
                "protection.bags", sorted(upload.bags), "the stack has no channel for these bags"
            )
        upload, clipped = limited(upload, self.codec, self.layout)
        if self.layout is not None:
            folded = fold(upload, virtual, self.layout)
        else:
            block = encode_block(upload.block, self.codec)
            none = np.zeros(len(block.rows), dtype=bool)
            folded = ClientRows(block, none if virtual is None else virtual)
        return replace(folded, bags=upload.bags, clipped=clipped, exempt=spared)


def covers_ratings(local: LocalUpload) -> TypeGuard[LocalModel]:
    """Whether a client step has the methods that a cloak needs."""
    return all(callable(getattr(local, name, None)) for name in _CAPABILITIES)


def refused_cloak(cloak: Cloak) -> ConfigError:
    """The error of a cloak over an algorithm without ratings."""
    name, _ = cloak.describe()
    return ConfigError(
        "protection",
        name,
        "covers rated sets, and so needs an algorithm on ratings, which has predict, and whose "
        "client steps have " + ", ".join(_CAPABILITIES),
    )


def _beside(local: LocalModel, cloaked: Cloaked, layout: BlockLayout | None) -> Upload:
    """Covered items, with the blocks that a cloak does not change."""
    covered = cloaked.upload
    if layout is None:
        return covered
    others = {} if len(layout.places) == 1 else local.upload.blocks
    (items, *_) = layout.of_kind(BlockKind.ITEMS)
    return replace(covered, blocks={**others, items.shape.name: covered.block})


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


def fold(upload: Upload, virtual: BoolArray | None, layout: BlockLayout) -> ClientRows:
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
        return ClientRows(encode_block(parts[0], place.codec), made_up)
    return _joined(parts, virtual, layout)


def encode_block(block: RowBlock, codec: FixedPoint) -> RowBlock:
    """Encode the values of a block, once for every later receiver.

    Raises:
        WireError: the rows of a client are not in ascending order, one per number. The sum budget
            allows one row per client and number, which is checked.
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


def _joined(parts: list[RowBlock], made_up: BoolArray | None, layout: BlockLayout) -> ClientRows:
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
    return ClientRows(block, virtual)
