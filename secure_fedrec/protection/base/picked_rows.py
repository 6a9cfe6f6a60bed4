"""Some rows of some parties."""

import numpy as np

from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.core.kernels import bounds_of, pick_rows
from secure_fedrec.uploads import RowBlock


def pick(block: RowBlock, parties: BoolArray, rows: BoolArray) -> RowBlock:
    """Some rows of some parties; ``rows`` marks only rows of marked parties."""
    if parties.all() and rows.all():
        return block
    given = np.empty((len(rows), 0)) if block.values is None else block.values
    bounds, numbers, values = pick_rows(block.indptr, rows, block.rows, given)
    return RowBlock(
        indptr=bounds_of(np.diff(bounds)[parties]),
        rows=numbers,
        values=None if block.values is None else values,
        counts=None if block.counts is None else block.counts[rows],
    )


def pick_segments(block: RowBlock, parties: BoolArray) -> RowBlock:
    """All rows of some parties."""
    return pick(block, parties, np.repeat(parties, block.lengths))
