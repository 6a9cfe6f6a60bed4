"""Sums of denoisers as puzzles: which of the uploaded rows of an item stand behind each.

All that have as many candidates and as many of them behind it are looked at together; a group of
clients at a time, and a range of items, so that columns of all rows are never held at once.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from math import comb
from typing import NamedTuple

import numpy as np

from attacks.families.sums.subsets import (
    MOST_ROWS,
    MOST_SUBSETS,
    find_subset,
    first_subsets,
    table_of_subsets,
)
from attacks.view.coalition import words_of
from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray, WordArray
from secure_fedrec.core.kernels import segments
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import RowBlock

FEWEST_BITS = 40  # a run tries some 2^30 subsets; below, a wrong one can match by chance
_COLLINEAR = 1e-5  # residual share of a row that must lie along the denoiser's own vector
_ROUNDED = 1e-9  # a vector as short may be what was rounded off
_AT_ONCE = 2**18  # floats of subsets that are looked at together
_ENTRIES_AT_ONCE = 2**22  # rows and sums that are compared with each other

UNKNOWN, REAL, VIRTUAL = 0, 1, 2
"""What is known of a row."""


@dataclass(slots=True, eq=False)
class Puzzle:
    """The server's data of one round, as a set of subset-sum puzzles."""

    senders: IntArray
    sent: RowBlock
    sent_prints: WordArray
    denoisers: IntArray
    sums: RowBlock
    sum_prints: WordArray
    codec: FixedPoint
    pull: FloatArray
    verdict: IntArray
    group_of: dict[int, int] = field(default_factory=dict)
    explained: int = 0

    def bits_per_row(self, codec: FixedPoint) -> float:
        """About how many bits the words of an uploaded row hold."""
        if not len(self.sent.rows):
            return 0.0
        # Column by column: the integers of a round are several times as large as its words.
        spread = np.array([codec.to_integers(each).std() for each in words_of(self.sent).T])
        return float(np.log2(1.0 + spread).sum())

    def find_groups(self) -> None:
        """Match sums of a single row; each match binds a sender to a denoiser."""
        sums, rows = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for first, last in _spans(self.sent.rows, self.sums.rows):
            sent = np.flatnonzero((self.sent.rows >= first) & (self.sent.rows < last))
            told = np.flatnonzero((self.sums.rows >= first) & (self.sums.rows < last))
            found, matched = self._single_rows(sent, told)
            sums.append(found)
            rows.append(matched)
        order = np.argsort(np.concatenate(sums))  # as the denoisers told them
        single, matched = np.concatenate(sums)[order], np.concatenate(rows)[order]
        self.verdict[matched] = VIRTUAL
        owners = np.searchsorted(self.sent.indptr, matched, side="right") - 1
        groups = self.denoisers[np.searchsorted(self.sums.indptr, single, side="right") - 1]
        self.group_of.update(zip(owners.tolist(), groups.tolist(), strict=True))

    def _single_rows(self, sent: IntArray, told: IntArray) -> tuple[IntArray, IntArray]:
        """Of these rows and sums, the sums that equal one row of their item, and that row."""
        items = np.concatenate([self.sent.rows[sent], self.sums.rows[told]])
        marks = np.concatenate([self.sent_prints[sent], self.sum_prints[told]])
        order = np.lexsort((marks, items))
        new = (np.diff(items[order]) != 0) | (np.diff(marks[order]) != 0)
        kind = np.empty(len(order), dtype=np.int64)  # rows and sums of one item and fingerprint
        kind[order] = np.concatenate([np.zeros(min(1, len(order)), dtype=np.int64), np.cumsum(new)])
        rows_of_kind = np.bincount(kind[: len(sent)], minlength=len(order))
        row = np.zeros(len(order), dtype=np.int64)
        row[kind[: len(sent)]] = sent
        single = np.flatnonzero(rows_of_kind[kind[len(sent) :]] == 1)
        return told[single], row[kind[len(sent) :][single]]

    def explain_sums(self, codec: FixedPoint, *, whole: bool = False) -> None:
        """For every sum, find the one subset of the group's rows of that item behind it.

        A search by halves is for groups of which all members are known (``whole``).
        """
        halves = whole and self.bits_per_row(codec) >= MOST_ROWS + FEWEST_BITS
        counts = np.zeros(len(self.sums.rows), dtype=np.int64)
        if self.sums.counts is not None:
            counts = self.sums.counts
        senders_of = self._members()
        for denoiser, (start, stop) in zip(
            self.denoisers.tolist(), pairwise(self.sums.indptr.tolist()), strict=True
        ):
            group = self._group(senders_of.get(denoiser, []), range(start, stop))
            left = np.ones(stop - start, dtype=np.bool_)
            for size, count, cells in group.alike(counts[start:stop], left):
                left[cells] = ~self._explained(group, cells, size, count, halves=halves)
            direction = self._own_direction(range(start, stop)) if left.any() else None
            if direction is not None:
                for size, terms, cells in group.alike(counts[start:stop] + 1, left):
                    self._explain_with_own_row(group, cells, size, terms, direction)

    def _members(self) -> dict[int, list[int]]:
        """Places of the senders that are known to be a denoiser's, ascending."""
        found: dict[int, list[int]] = defaultdict(list)
        for sender in sorted(self.group_of):
            found[self.group_of[sender]].append(sender)
        return found

    def _group(self, senders: Sequence[int], cells: range) -> "_Group":
        """What may stand behind some sums; whose item is in none of them is real."""
        rows, _ = segments(self.sent.indptr, np.asarray(senders, dtype=np.int64))
        rows = rows[np.argsort(self.sent.rows[rows], kind="stable")]
        items, summed = self.sent.rows[rows], self.sums.rows[cells.start : cells.stop]
        self.verdict[rows[~np.isin(items, summed)]] = REAL  # a virtual row would be in the sums
        first = np.searchsorted(items, summed, side="left")
        sizes = np.searchsorted(items, summed, side="right") - first
        return _Group(start=cells.start, rows=rows, first=first, sizes=sizes)

    def _explained(
        self, group: "_Group", cells: IntArray, size: int, count: int, *, halves: bool
    ) -> BoolArray:
        """Explain sums of ``count`` among ``size`` rows; which of them (bool[len(cells)]) are."""
        members = group.members(cells, size)
        table = table_of_subsets(size, count)
        if table is not None:
            targets = self.sum_prints[group.start + cells]
            found = first_subsets(self.sent_prints[members], targets, table)
            explained = found >= 0
            members, chosen = members[explained], table[found[explained]]
            self._settle(members, np.take_along_axis(members, chosen, axis=1))
            return explained
        explained = np.zeros(len(cells), dtype=np.bool_)
        if comb(size, count) > MOST_SUBSETS and not (halves and size <= MOST_ROWS):
            return explained
        for place, (cell, own) in enumerate(zip(cells.tolist(), members, strict=True)):
            subset = find_subset(
                own.tolist(),
                count,
                prints=dict(zip(own.tolist(), self.sent_prints[own].tolist(), strict=True)),
                words=words_of(self.sent),
                total=words_of(self.sums)[group.start + cell],
                target=int(self.sum_prints[group.start + cell]),
                codec=self.codec,
                halves=halves,
            )
            if subset is not None:
                explained[place] = True
                self._settle(own[None], np.array([subset], dtype=np.int64))
        return explained

    def _settle(self, members: IntArray, virtual: IntArray) -> None:
        """Of the rows of sums (int64[N, size]), these (int64[N, count]) are behind them."""
        self.explained += len(members)
        self.verdict[members] = REAL
        self.verdict[virtual] = VIRTUAL

    def _own_direction(self, cells: range) -> FloatArray | None:
        """Direction of the denoiser's own vector, from the sums that are its row alone."""
        if self.sums.counts is None or words_of(self.sums).shape[1] < 2:
            return None  # with a single dimension every row lies along every vector
        alone = cells.start + np.flatnonzero(self.sums.counts[cells.start : cells.stop] == -1)
        if not len(alone):
            return None
        own = -self.codec.decode(words_of(self.sums)[alone]) - self.pull[self.sums.rows[alone]]
        return np.asarray(np.linalg.svd(own, full_matrices=False)[2][0])

    def _explain_with_own_row(
        self, group: "_Group", cells: IntArray, size: int, terms: int, direction: FloatArray
    ) -> None:
        """Explain sums that the denoiser's own row was taken off, where one subset fits."""
        if comb(size, terms) > MOST_SUBSETS:
            return
        members, table = group.members(cells, size), table_of_subsets(size, terms)
        left = np.arange(len(cells))
        if table is not None:
            fits, close = self._own_rows(group.start + cells, members, table, direction)
            alone = (fits.sum(axis=1) == 1) & ~close.any(axis=1)
            chosen = table[fits[alone].argmax(axis=1)]
            self._settle(members[alone], np.take_along_axis(members[alone], chosen, axis=1))
            left = np.flatnonzero(close.any(axis=1))
        for place in left.tolist():
            own = members[place]
            subsets = combinations(own, terms) if table is None else own[table]
            cell = group.start + int(cells[place])
            found = [each for each in subsets if self._is_own_row(cell, list(each), direction)]
            if len(found) == 1:
                self._settle(own[None], np.array(found, dtype=np.int64))

    def _own_rows(
        self, cells: IntArray, members: IntArray, table: IntArray, direction: FloatArray
    ) -> tuple[BoolArray, BoolArray]:
        """bool[N, C]: subsets that leave the denoiser's own row, and those too close to call.

        Sums of all of them at once round in another way than ``_is_own_row``, which decides these.
        """
        fits, close = (np.empty((len(cells), len(table)), dtype=np.bool_) for _ in range(2))
        step = max(1, _AT_ONCE // (len(table) * len(direction)))
        for start in range(0, len(cells), step):
            piece = slice(start, start + step)
            rows = self.codec.decode(words_of(self.sent)[members[piece]])
            behind = self.codec.decode(words_of(self.sums)[cells[piece]])
            behind = behind + self.pull[self.sums.rows[cells[piece]]]
            own = np.zeros((len(rows), len(table), len(direction)))
            for term in table.T:
                own += rows[:, term]
            own -= behind[:, None]
            off = own - (own @ direction)[..., None] * direction
            sizes, beside = np.linalg.norm(own, axis=-1), np.linalg.norm(off, axis=-1)
            fits[piece] = beside <= _COLLINEAR * sizes
            unclear = (beside > 0.5 * _COLLINEAR * sizes) & (beside < 2 * _COLLINEAR * sizes)
            close[piece] = unclear | (sizes < _ROUNDED)
        return fits, close

    def _is_own_row(self, cell: int, subset: list[int], direction: FloatArray) -> bool:
        rows = self.codec.decode(words_of(self.sent)[subset])
        own = rows.sum(axis=0) - self.codec.decode(words_of(self.sums)[cell])
        own = own - self.pull[self.sums.rows[cell]]
        off = own - (own @ direction) * direction
        size = float(np.linalg.norm(own))
        return size > 0.0 and float(np.linalg.norm(off)) <= _COLLINEAR * size


class _Group(NamedTuple):
    """The sums of a denoiser, and the rows that may stand behind them.

    Attributes:
        start: place of the first sum.
        rows: int64[R], places of all rows of the group, by item and place.
        first: int64[N], per sum, where the rows of its item begin among them.
        sizes: int64[N], per sum, how many there are.
    """

    start: int
    rows: IntArray
    first: IntArray
    sizes: IntArray

    def alike(self, counts: IntArray, left: BoolArray) -> Iterator[tuple[int, int, IntArray]]:
        """Sums with as many candidates, as many of them behind it: both numbers, and the sums.

        Args:
            counts: int64[N], rows behind each sum.
            left: bool[N], which sums are asked for; those that fit no number are left out.
        """
        asked = np.flatnonzero(left & (counts >= 0) & (counts <= self.sizes))
        base = int(self.sizes.max(initial=0)) + 1
        keys = self.sizes[asked] * base + counts[asked]
        order = np.argsort(keys, kind="stable")
        ends = np.flatnonzero(np.diff(keys[order])) + 1
        for cells in np.split(asked[order], ends) if len(asked) else ():
            yield int(self.sizes[cells[0]]), int(counts[cells[0]]), cells

    def members(self, cells: IntArray, size: int) -> IntArray:
        """int64[len(cells), size]: the candidates of sums that have so many, ascending."""
        return np.asarray(self.rows[self.first[cells, None] + np.arange(size)])


def _spans(*items: IndexArray) -> list[tuple[int, int]]:
    """Ranges of items (the last is not in it) of so many entries that all columns can be held."""
    size = max((int(each.max(initial=-1)) + 1 for each in items), default=0)
    ends = np.cumsum(sum(np.bincount(each, minlength=size) for each in items))
    found, first, before = [], 0, 0
    while first < size:
        last = max(first + 1, int(np.searchsorted(ends, before + _ENTRIES_AT_ONCE, side="right")))
        found.append((first, last))
        first, before = last, int(ends[last - 1])
    return found
