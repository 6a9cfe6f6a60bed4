"""A game over a catalogue: rows of scores against sets of items, block by block of clients."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from attacks.scoring.item_sets import ItemSets, Joined, joined, spans_of
from attacks.scoring.loops import Rest
from attacks.scoring.rows import Rows
from attacks.scoring.tables import BlockedTable, ScoreTable, Table, count_per_client
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A block of clients.

    Args:
        pairs: what is listed of them or in their sets.
        table: the game; all other pairs are its rest.
        visible: bool[T], pairs that were seen.
    """

    pairs: Joined
    table: ScoreTable
    visible: BoolArray


class CatalogueGame:
    """Tell the items in a client's set from all others.

    Args:
        scores: float, of B clients.
        labels: their sets.
        visible: bool, pairs that were seen, listed as the scores are; None for all.
    """

    def __init__(self, scores: Rows, labels: ItemSets, visible: Rows | None = None) -> None:
        self.scores, self.labels, self.visible = scores, labels, visible
        self.spans = spans_of(scores.listed, labels)
        self._only: Part | None = None
        self._dealt: dict[int, Table] = {}
        self.table: Table = BlockedTable([partial(self._table, span) for span in self.spans])
        self.support: Table = BlockedTable([partial(self._support, span) for span in self.spans])

    @property
    def n_items(self) -> int:
        """Size of the catalogue."""
        return self.labels.n_items

    def part(self, span: slice) -> Part:
        """One block; a single one is kept."""
        if self._only is not None:
            return self._only
        pairs = joined(self.scores.listed, self.labels, span)
        seen = np.ones(len(pairs.items), dtype=bool)
        if self.visible is not None:
            seen = np.asarray(self.visible.of(pairs), dtype=bool)
        part = Part(pairs, table_of(self.scores, pairs), seen)
        if len(self.spans) == 1:
            self._only = part
        return part

    def _table(self, span: slice) -> ScoreTable:
        return self.part(span).table

    def _support(self, span: slice) -> ScoreTable:
        """The game within what was seen."""
        if self.visible is None:
            return self._table(span)
        part = self.part(span)
        if isinstance(self.visible.rest, np.ndarray):  # everybody is shown the same items
            return _shared_support(self.scores, self.visible.rest, part)
        return part.table.where(part.visible)

    def dealt(self, seed: int) -> Table:
        """The same scores against sets of the same sizes, drawn at random."""
        if seed not in self._dealt:
            drawn = self.labels.dealt(seed)
            spans = spans_of(self.scores.listed, drawn)
            make = [partial(_against, self.scores, drawn, span) for span in spans]
            self._dealt[seed] = BlockedTable(make)
        return self._dealt[seed]


def _against(scores: Rows, sets: ItemSets, span: slice) -> ScoreTable:
    return table_of(scores, joined(scores.listed, sets, span))


def table_of(scores: Rows, pairs: Joined) -> ScoreTable:
    """The game of a block of clients."""
    values = np.ascontiguousarray(scores.of(pairs), dtype=np.float64)
    clients, n_items, rest = len(pairs.indptr) - 1, scores.listed.n_items, None
    everybody = np.zeros(clients, dtype=np.int64)
    if isinstance(scores.rest, np.ndarray):
        row = np.asarray(scores.rest, dtype=np.float64)[None]
        rest = Rest.of_rows(row, everybody, pairs.owners, pairs.items)
    elif len(pairs.items) < clients * n_items:
        one = np.array([scores.rest], dtype=np.float64)
        none = np.zeros(len(pairs.items), dtype=np.int32)
        rest = Rest(one, np.array([0, n_items]), np.array([0, 1]), everybody, none)
    return ScoreTable(indptr=pairs.indptr, scores=values, labels=pairs.labels, rest=rest)


def _shared_support(scores: Rows, seen: BoolArray, part: Part) -> ScoreTable:
    keep, pairs = part.visible, part.pairs
    number = np.cumsum(seen) - 1
    row = np.asarray(scores.rest, dtype=np.float64)[None, seen]
    items = number[pairs.items[keep]].astype(np.int32)
    everybody = np.zeros(len(pairs.indptr) - 1, dtype=np.int64)
    return part.table.where(keep, Rest.of_rows(row, everybody, pairs.owners[keep], items))


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """How a client's scores compare with each other.

    Args:
        left: int64[T], pairs of the client with smaller scores, of each that is listed.
        right: int64[T], with no larger ones.
        rest_left: int64[b], of each pair that is not listed; [m], by item, of a row for everybody.
        rest_right: likewise.
        shared: whether it is such a row.
    """

    left: IntArray
    right: IntArray
    rest_left: IntArray
    rest_right: IntArray
    shared: bool = field(default=False)


def standing(scores: Rows, part: Part) -> Standing:
    """Of a block of clients."""
    table, indptr = part.table, part.pairs.indptr
    if isinstance(scores.rest, np.ndarray):
        row = np.asarray(scores.rest, dtype=np.float64)
        ordered = np.sort(row)
        left, right = (np.searchsorted(ordered, row, side=end) for end in ("left", "right"))
        return Standing(left[part.pairs.items], right[part.pairs.items], left, right, shared=True)
    left, right = table.standing()
    listed, value = np.diff(indptr), float(scores.rest)
    left_out = scores.listed.n_items - listed
    of_pair = np.repeat(left_out, listed)
    rest_left = count_per_client(table.scores < value, indptr)
    rest_right = count_per_client(table.scores <= value, indptr) + left_out
    return Standing(
        left + of_pair * (value < table.scores),
        right + of_pair * (value <= table.scores),
        rest_left,
        rest_right,
    )


def ranked(rows: FloatArray, row: IntArray, labels: ItemSets, own: float) -> ScoreTable:
    """The game of who ranks items by one of a few rows, a client's own set aside.

    Args:
        rows: float64[H, m].
        row: int64[B], of each client.
        labels: the sets.
        own: what a client's own items have less.
    """
    owners = labels.owners
    return ScoreTable(
        indptr=labels.indptr,
        scores=rows[row[owners], labels.items] - own,
        labels=np.ones(len(labels.items), dtype=bool),
        rest=Rest.of_rows(rows, row, owners, labels.items),
    )
