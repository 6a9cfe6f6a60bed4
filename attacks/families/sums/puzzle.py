"""Subset-sum puzzles: which uploaded rows of an item add up to each sum of a denoiser.

Sums with the same numbers of candidates and of terms are solved together, one group of clients at a
time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from attacks.families.linkage import item_mark
from attacks.families.sums.subsets import (
    MOST_ROWS,
    first_subsets,
    subset_by_halves,
    table_of_subsets,
)
from attacks.view.coalition import words_of
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, WordArray
from secure_fedrec.core.kernels import segments
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import RowBlock

FEWEST_BITS = 40  # a run tries some 2^30 subsets; below, a wrong one can match by chance
_COLLINEAR = 1e-5  # residual share of a row that must lie along the denoiser's own vector
_ROUNDED = 1e-9  # a vector this short may be a rounding error
_AT_ONCE = 2**18  # floats of subsets that are looked at together

UNKNOWN, REAL, VIRTUAL = 0, 1, 2
"""State of a row: unknown, real or virtual."""


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
        """Approximate number of bits of information in the words of an uploaded row."""
        if not len(self.sent.rows):
            return 0.0
        # Column by column: the integers of a round are several times as large as its words.
        spread = np.array([codec.to_integers(each).std() for each in words_of(self.sent).T])
        return float(np.log2(1.0 + spread).sum())

    def find_groups(self) -> None:
        """Match sums of a single row; each match binds a sender to a denoiser."""
        prints = np.concatenate([self.sent_prints, self.sum_prints])
        items = np.concatenate([self.sent.rows, self.sums.rows])
        kinds = np.unique(prints ^ item_mark(items), return_inverse=True)[1].reshape(-1)
        sent, told = np.split(kinds, [len(self.sent.rows)])
        rows_of_kind, row = np.bincount(sent, minlength=len(kinds)), np.empty_like(kinds)
        row[sent] = np.arange(len(sent))
        single = np.flatnonzero(rows_of_kind[told] == 1)
        matched = row[told[single]]
        self.verdict[matched] = VIRTUAL
        owners = np.searchsorted(self.sent.indptr, matched, side="right") - 1
        groups = self.denoisers[np.searchsorted(self.sums.indptr, single, side="right") - 1]
        self.group_of.update(zip(owners.tolist(), groups.tolist(), strict=True))

    def explain_sums(self, codec: FixedPoint, *, whole: bool = False) -> None:
        """For every sum, find the one subset of the group's rows of that item that adds up to it.

        Searching by halves requires that all members of the group are known (``whole``).
        """
        halves = whole and self.bits_per_row(codec) >= MOST_ROWS + FEWEST_BITS
        counts = np.zeros(len(self.sums.rows), dtype=np.int64)
        if self.sums.counts is not None:
            counts = self.sums.counts
        for denoiser, (start, stop) in zip(
            self.denoisers.tolist(), pairwise(self.sums.indptr.tolist()), strict=True
        ):
            senders = sorted(who for who, of in self.group_of.items() if of == denoiser)
            group = self._group(senders, range(start, stop))
            left = np.ones(stop - start, dtype=np.bool_)
            for size, count, cells in group.alike(counts[start:stop], left):
                left[cells] = ~self._explained(group, cells, size, count, halves=halves)
            direction = self._own_direction(range(start, stop)) if left.any() else None
            if direction is not None:
                for size, terms, cells in group.alike(counts[start:stop] + 1, left):
                    self._explain_with_own_row(group, cells, size, terms, direction)

    def _group(self, senders: Sequence[int], cells: range) -> "_Group":
        """Candidates behind some sums; a row whose item is in none of them is real."""
        rows, _ = segments(self.sent.indptr, np.asarray(senders, dtype=np.int64))
        rows = rows[np.argsort(self.sent.rows[rows], kind="stable")]
        items, summed = self.sent.rows[rows], self.sums.rows[cells.start : cells.stop]
        # A virtual row would also be in the sums.
        self.verdict[rows[~np.isin(items, summed)]] = REAL
        first = np.searchsorted(items, summed, side="left")
        sizes = np.searchsorted(items, summed, side="right") - first
        return _Group(start=cells.start, rows=rows, first=first, sizes=sizes)

    def _explained(
        self, group: "_Group", cells: IntArray, size: int, count: int, *, halves: bool
    ) -> BoolArray:
        """Explain sums of ``count`` among ``size`` rows; returns which were explained."""
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
        for place, own in enumerate(members if halves else ()):
            cell = group.start + cells[place]
            total = self.sum_prints[cell], words_of(self.sums)[cell]
            rows = self.sent_prints[own], words_of(self.sent)[own]
            subset = subset_by_halves(rows, count, total, self.codec)
            if subset is not None:
                explained[place] = True
                self._settle(own[None], own[subset][None])
        return explained

    def _settle(self, members: IntArray, virtual: IntArray) -> None:
        """Note that of the rows of sums (int64[N, size]) these (int64[N, count]) are the terms."""
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
        """Explain sums that include the denoiser's own row, if exactly one subset fits."""
        members, table = group.members(cells, size), table_of_subsets(size, terms)
        if table is None:
            return
        fits = self._own_rows(group.start + cells, members, table, direction)
        alone = fits.sum(axis=1) == 1
        chosen = table[fits[alone].argmax(axis=1)]
        self._settle(members[alone], np.take_along_axis(members[alone], chosen, axis=1))

    def _own_rows(
        self, cells: IntArray, members: IntArray, table: IntArray, direction: FloatArray
    ) -> BoolArray:
        """bool[N, C]: subsets whose remainder is the denoiser's own row."""
        fits = np.empty((len(cells), len(table)), dtype=np.bool_)
        step = max(1, _AT_ONCE // (len(table) * len(direction)))
        for start in range(0, len(cells), step):
            piece = slice(start, start + step)
            rows = self.codec.decode(words_of(self.sent)[members[piece]])
            behind = self.codec.decode(words_of(self.sums)[cells[piece]])
            own = np.zeros((len(rows), len(table), len(direction)))
            for term in table.T:
                own += rows[:, term]
            own -= (behind + self.pull[self.sums.rows[cells[piece]]])[:, None]
            off = own - (own @ direction)[..., None] * direction
            sizes, beside = np.linalg.norm(own, axis=-1), np.linalg.norm(off, axis=-1)
            fits[piece] = (beside <= _COLLINEAR * sizes) & (sizes > _ROUNDED)
        return fits


class _Group(NamedTuple):
    """The sums of a denoiser, and the rows that may be their terms.

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
        """Groups of sums with equal numbers of candidates and of terms: both numbers, and the sums.

        Args:
            counts: int64[N], rows behind each sum.
            left: bool[N], which sums are wanted; those with impossible counts are left out.
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
