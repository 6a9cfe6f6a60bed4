"""Messages limited to one block: only its rows, numbered from 0.

The blocks of an upload lie one below the other in one table (``secure_fedrec.blocks``), and so they
do in messages. Which rows belong to which block is public, so an attack on one block reads its rows
only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secure_fedrec.errors import TranscriptError, UnstatedFactError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire.message_batches import Messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """The rows of one block in the table of all.

    Args:
        first: its first row.
        rows: how many there are.
        size: size of a flat block, how many values.
        width: values of each.
        codec: codec of the values.
        only: for a flat block, the values that are read; None for all.
    """

    first: int
    rows: int
    size: int
    width: int
    codec: FixedPoint
    only: range | None = None

    def of_values(self, start: int, stop: int) -> "Within":
        """For a flat block: only these values are kept, all others are 0."""
        return replace(self, only=range(start, stop))

    @property
    def leaves_out(self) -> bool:
        """Whether some of its values are not read."""
        return self.only is not None and len(self.only) < self.size

    def kept(self, values: Any, rows: Any = None) -> Any:
        """Values of rows (all rows if none are named), with 0 for those that are not read."""
        if self.only is None:
            return values
        place = np.arange(values.size).reshape(values.shape)
        if rows is not None:
            place += (rows.astype(np.int64) * self.width - place[:, 0])[:, None]
        inside = (place >= self.only.start) & (place < self.only.stop)
        return np.where(inside, values, values.dtype.type(0))

    @classmethod
    def of(cls, block: Mapping[str, Any], codec: FixedPoint) -> "Within":
        """One block, as the public knowledge names it."""
        own = replace(codec, **{name: block[name] for name in ("fraction_bits", "clip")})
        return cls(codec=own, **{n: block[n] for n in ("first", "rows", "size", "width")})

    @classmethod
    def of_kind(cls, kind: str, public: Mapping[str, Any], codec: FixedPoint) -> "Within | None":
        """The first block of a kind; None where uploads have none.

        Raises:
            TranscriptError: the public knowledge names its blocks in another way.
        """
        try:
            for block in public["blocks"]:
                if block["kind"] == kind:
                    return cls.of(block, codec)
        except (KeyError, UnstatedFactError, TypeError, ValueError) as damage:
            raise TranscriptError("the public knowledge names no blocks") from damage
        return None

    def cut(self, messages: Messages) -> Messages:
        """The same messages with the rows of this block alone."""
        if not isinstance(messages.payload, RowBlock):
            return messages
        block = self.rows_of(messages.payload)
        if block.values is not None:
            block = replace(block, values=self.kept(block.values, block.rows))
        return replace(messages, payload=block)

    def rows_of(self, block: RowBlock) -> RowBlock:
        """The rows of this block alone."""
        inside = (block.rows >= self.first) & (block.rows < self.first + self.rows)
        values, counts = block.values, block.counts
        if inside.all() and not self.first and (values is None or values.shape[1] == self.width):
            return block
        before = np.concatenate([[0], np.cumsum(inside)])
        return RowBlock(
            indptr=before[block.indptr],
            rows=block.rows[inside] - np.int32(self.first),
            values=None if values is None else values[inside, : self.width],
            counts=None if counts is None else counts[inside],
        )
