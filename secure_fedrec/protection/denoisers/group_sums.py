"""Sums of denoisers in progress: many groups at once, or one large group over many batches."""

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.picked_rows import pick_segments
from secure_fedrec.protection.base.table import accumulate
from secure_fedrec.uploads import RowBlock


class GroupSums:
    """Sums per (group, item) of the groups in progress.

    Groups are submitted one after the other, so at most one is open between two batches. While a
    batch holds that group alone, its rows go straight into the open table; a batch of many small
    groups is summed by sorting out the (group, item) pairs that occur in it.
    """

    def __init__(self, members: IntArray, n_items: int, width: int, codec: FixedPoint) -> None:
        self._members_left = members.astype(np.int64)
        self._n_items = n_items
        self._width = width
        self._codec = codec
        self._parts: list[tuple[IntArray, RowBlock, int]] = []
        self._open: tuple[int, TableSum] | None = None

    def add(self, groups: IntArray, block: RowBlock, *, sign: int) -> None:
        """Add the rows of some members (int64[B] groups, one per segment) with a sign."""
        self._parts.append((groups, block, sign))

    def finish(self, groups: IntArray) -> tuple[IntArray, RowBlock] | None:
        """Record that a batch of members was processed; return the groups that are now complete."""
        np.subtract.at(self._members_left, groups, 1)
        if not self._only_open_group():
            return self._finish_groups()
        if self._open is None:
            self._open = int(groups[0]), TableSum(self._n_items, self._width, self._codec)
        group, table = self._open
        parts, self._parts = self._parts, []
        for _, block, sign in parts:
            table.add(block, sign)
        if self._members_left[group]:
            return None
        self._open = None
        return np.array([group]), table.block()

    def _only_open_group(self) -> bool:
        groups = np.concatenate([groups for groups, _, _ in self._parts])
        first = groups[0] if self._open is None else self._open[0]
        return bool((groups == first).all())

    def _finish_groups(self) -> tuple[IntArray, RowBlock] | None:
        slots, sums = self._merge()
        complete = self._members_left[slots] == 0
        self._open = None
        if not complete.all():  # only the last group of a batch can be incomplete
            table = TableSum(self._n_items, self._width, self._codec)
            table.add(pick_segments(sums, ~complete), 1)
            self._open = int(slots[~complete][0]), table
            slots, sums = slots[complete], pick_segments(sums, complete)
        return (slots, sums) if len(slots) else None

    def _merge(self) -> tuple[IntArray, RowBlock]:
        parts, self._parts = self._parts, []
        if self._open is not None:
            group, table = self._open
            parts.append((np.array([group]), table.block(), 1))
        owners = [np.repeat(groups, block.lengths) for groups, block, _ in parts]
        slots = np.unique(np.concatenate([groups for groups, _, _ in parts]))
        marks = np.zeros(len(slots) * self._n_items, dtype=bool)
        keys = [
            np.searchsorted(slots, owner) * self._n_items + block.rows
            for owner, (_, block, _) in zip(owners, parts, strict=True)
        ]
        for key in keys:
            marks[key] = True
        cells = np.flatnonzero(marks)
        place = np.empty(len(marks), dtype=np.int32)
        place[cells] = np.arange(len(cells))
        values: RingArray = np.zeros((len(cells), self._width), dtype=self._codec.dtype)
        counts = np.zeros(len(cells), dtype=np.int64)
        for key, (_, block, sign) in zip(keys, parts, strict=True):
            accumulate(values, counts, place[key], block, sign=sign)
        indptr = np.searchsorted(cells, np.arange(len(slots) + 1) * self._n_items)
        rows = (cells % self._n_items).astype(np.int32)
        values = self._codec.reduce(values)
        return slots, RowBlock(indptr=indptr, rows=rows, values=values, counts=counts)


class TableSum:
    """The sums of one group over the whole table."""

    def __init__(self, n_items: int, width: int, codec: FixedPoint) -> None:
        self._codec = codec
        self._values: RingArray = np.zeros((n_items, width), dtype=codec.dtype)
        self._counts = np.zeros(n_items, dtype=np.int64)
        self._touched = np.zeros(n_items, dtype=bool)

    def add(self, block: RowBlock, sign: int) -> None:
        """Add rows with a sign."""
        accumulate(self._values, self._counts, block.rows, block, sign=sign)
        if sign < 0 or block.counts is not None:  # rows whose count may become 0
            self._touched[block.rows] = True

    def block(self) -> RowBlock:
        """The rows that were touched, as one segment."""
        rows = np.flatnonzero(self._touched | (self._counts != 0))
        return RowBlock(
            indptr=np.array([0, len(rows)]),
            rows=rows.astype(np.int32),
            values=self._codec.reduce(self._values[rows]),
            counts=self._counts[rows],
        )
