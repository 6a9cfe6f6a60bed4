"""Named blocks: the parts of one upload, and where each lies in the table that is summed.

An algorithm may need several things summed in one round, rows of two tables or a table beside the
flat parameters of a model. It names them, each a block of one kind and width. All blocks are sent
in one protected sum: the blocks of a client are stacked in a single table of ring words, which is
all that collectors see. The place of each block is public.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any

from secure_fedrec.errors import ConfigError, WireError
from secure_fedrec.fixedpoint import FixedPoint

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

TABLE = "table"
"""Name of the single block of an algorithm that does not name its blocks."""


_RING = FixedPoint()


class BlockKind(Enum):
    """What the rows of a block are."""

    ITEMS = "items"
    """Rows of items: row i belongs to item i; a client sends some of them."""
    ROWS = "rows"
    """Rows of another table, of which a client sends some."""
    FLAT = "flat"
    """One whole vector of parameters from every client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """One block as an algorithm asks for it; public.

    Args:
        name: letters, digits, "-" and "_".
        kind: what its rows are.
        size: rows of its table; of a flat block its values.
        width: values per row; for a flat block that is the only one, values per row it is cut into.
        fraction_bits: binary digits of its values; None for as many as the ring has.
        clip: largest magnitude of a value; None for the ring's.

    Raises:
        WireError: the name has other characters.
        ConfigError: a size below 1.
    """

    name: str
    kind: BlockKind
    size: int
    width: int
    fraction_bits: int | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        require_name(self.name)
        for key in ("size", "width"):
            if getattr(self, key) < 1:
                raise ConfigError(f"blocks.{self.name}.{key}", getattr(self, key), "is below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a block lies in the table of a layout; public.

    Args:
        shape: shape of the block.
        first: its first row.
        rows: how many it has there.
        width: number of leading values of its rows that are used; the others are zeros.
        codec: codec of its values.
    """

    shape: BlockShape
    first: int
    rows: int
    width: int
    codec: FixedPoint

    @property
    def own(self) -> slice:
        """Its rows of the table."""
        return slice(self.first, self.first + self.rows)

    def describe(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.shape.name,
            "kind": self.shape.kind.value,
            "size": self.shape.size,
            "first": self.first,
            "rows": self.rows,
            "width": self.width,
            "fraction_bits": self.codec.fraction_bits,
            "clip": self.codec.clip,
        }


class BlockLayout:
    """The table of all blocks of an upload.

    Rows are as wide as the widest block; narrower ones end in zeros, and flat ones are cut into
    rows of that width, the last of them filled up with zeros.

    Args:
        shapes: the blocks, from the top.
        codec: the ring, and how values are encoded where a block says nothing else.

    Raises:
        ConfigError: there are no blocks, two have the same name, or a codec does not fit into the
            ring.
    """

    __slots__ = ("codec", "places", "rows", "width")

    def __init__(self, shapes: Sequence[BlockShape], codec: FixedPoint = _RING) -> None:
        names = [shape.name for shape in shapes]
        if not names or len(set(names)) < len(names):
            raise ConfigError("blocks", names, "an upload needs blocks, each with a different name")
        self.codec = codec
        self.width = max(shape.width for shape in shapes)
        self.rows = 0
        self.places: Mapping[str, Place] = {shape.name: self._placed(shape) for shape in shapes}

    def _placed(self, shape: BlockShape) -> Place:
        flat = shape.kind is BlockKind.FLAT
        asked: dict[str, Any] = {"fraction_bits": shape.fraction_bits, "clip": shape.clip}
        place = Place(
            shape=shape,
            first=self.rows,
            rows=-(-shape.size // self.width) if flat else shape.size,
            width=self.width if flat else shape.width,
            codec=replace(self.codec, **{k: v for k, v in asked.items() if v is not None}),
        )
        self.rows += place.rows
        return place

    def __getitem__(self, name: str) -> Place:
        """Where a block lies.

        Raises:
            WireError: no block has that name.
        """
        if name not in self.places:
            raise WireError(f"no block {name!r}: there are {', '.join(self.places)}")
        return self.places[name]

    def of_kind(self, kind: BlockKind) -> tuple[Place, ...]:
        """The blocks of a kind, from the top."""
        return tuple(place for place in self.places.values() if place.shape.kind is kind)

    def require_budget(self, terms: int) -> None:
        """Check that a sum of so many values cannot wrap, block by block.

        Raises:
            SumBudgetError: the sum could wrap.
        """
        for place in self.places.values():
            place.codec.require_budget(terms)

    def describe(self) -> list[dict[str, Any]]:
        """Public knowledge of the blocks, as JSON values."""
        return [place.describe() for place in self.places.values()]


def flat_blocks(sizes: Mapping[str, int], width: int) -> tuple[BlockShape, ...]:
    """Vectors of parameters of these sizes, by name, without empty ones."""
    return tuple(
        BlockShape(name=name, kind=BlockKind.FLAT, size=size, width=width)
        for name, size in sizes.items()
        if size
    )


@lru_cache(1024)
def require_name(name: str) -> None:
    """A name that can also be a column's name of a recording.

    Raises:
        WireError: it is not made of letters, digits, "-" and "_".
    """
    if not _NAME.fullmatch(name):
        raise WireError(f"{name!r} is not a name: use letters, digits, '-' and '_'")
