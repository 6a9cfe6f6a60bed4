"""Inner loops of scoring, compiled: whole numbers only, so that any order of them is exact."""

import math
from typing import NamedTuple

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.kernels import bounds_of


class ByClass(NamedTuple):
    """Listed scores by class, client after client, ascending for each.

    Attributes:
        hits: float64[P].
        hit_ends: int64[n_clients + 1].
        misses: float64[N - P].
        miss_ends: int64[n_clients + 1].
        taken: int32[N], the run of ``Rest`` that each is taken from, ascending for each client;
            empty without them.
    """

    hits: FloatArray
    hit_ends: IntArray
    misses: FloatArray
    miss_ends: IntArray
    taken: IndexArray


class Rest(NamedTuple):
    """Pairs that are not listed, all of them negative.

    A client's are the items of the row that it shares with others, less those that are listed.

    Attributes:
        values: float64[R]; row h has ``values[runs[h]:runs[h + 1]]``, distinct and ascending.
        below: int64[R + 1], items in front of each, of all rows.
        runs: int64[H + 1].
        row: int64[n_clients], of each client.
        taken: int32[N], for each listed pair the place in ``values`` of what its item has there.
    """

    values: FloatArray
    below: IntArray
    runs: IntArray
    row: IntArray
    taken: IndexArray

    @classmethod
    def of_rows(
        cls, rows: FloatArray, row: IntArray, owners: IntArray, items: IndexArray
    ) -> "Rest":
        """What is not listed of rows float64[H, m] of which client b has ``rows[row[b]]``."""
        parts = [np.unique(each, return_inverse=True, return_counts=True) for each in rows]
        runs = bounds_of([len(values) for values, _, _ in parts])
        place = np.stack([runs[h] + of_item for h, (_, of_item, _) in enumerate(parts)])
        return cls(
            values=np.concatenate([values for values, _, _ in parts]),
            below=bounds_of(np.concatenate([counts for _, _, counts in parts])),
            runs=runs,
            row=row,
            taken=place.astype(np.int32)[row[owners], items],
        )

    @property
    def lengths(self) -> IntArray:
        """int64[n_clients], items of each client's row."""
        return np.asarray(np.diff(self.below[self.runs])[self.row])


@compiled_loop
def places(
    ordered: FloatArray | IndexArray, start: int, stop: int, value: float, right: bool
) -> int:
    """How many of ``ordered[start:stop]``, ascending, are below a value, or equal if ``right``."""
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value or (right and ordered[middle] == value):
            low = middle + 1
        else:
            high = middle
    return low - start


@compiled_loop
def twice_wins(pairs: ByClass, wins: IntArray) -> None:
    """Pairs of a hit and a smaller miss of the same client, twice, and pairs of equal ones, once.

    Hits may come in any order.
    """
    hits, hit_ends, misses, miss_ends, _ = pairs
    for client in range(len(wins)):
        start, stop = miss_ends[client], miss_ends[client + 1]
        for hit in range(hit_ends[client], hit_ends[client + 1]):
            below = places(misses, start, stop, hits[hit], False)
            wins[client] += 2 * below
            if start + below < stop and misses[start + below] == hits[hit]:
                wins[client] += places(misses, start + below, stop, hits[hit], True)


@compiled_loop
def rest_wins(pairs: ByClass, rest: Rest, taken_ends: IntArray, wins: IntArray) -> None:
    """As ``twice_wins``, over the misses that are not listed."""
    hits, hit_ends, taken = pairs.hits, pairs.hit_ends, pairs.taken
    values, below, runs, row, _ = rest
    for client in range(len(wins)):
        start, stop = runs[row[client]], runs[row[client] + 1]
        first, last = taken_ends[client], taken_ends[client + 1]
        for hit in range(hit_ends[client], hit_ends[client + 1]):
            run = start + places(values, start, stop, hits[hit], False)
            gone = places(taken, first, last, run, False)
            wins[client] += 2 * (below[run] - below[start] - gone)
            if run < stop and values[run] == hits[hit]:
                equal = places(taken, first + gone, last, run, True)
                wins[client] += below[run + 1] - below[run] - equal


@compiled_loop
def next_run(
    run: int, start: int, below: IntArray, taken: IndexArray, first: int, last: int
) -> tuple[int, int]:
    """The last run up to ``run`` of which ``taken[first:last]`` leaves anything, and how much."""
    while run >= start:
        gone = places(taken, first, last, run, True) - places(taken, first, last, run, False)
        left = below[run + 1] - below[run] - gone
        if left > 0:
            return run, left
        run -= 1
    return run, 0


@compiled_loop
def cut_at_size(pairs: ByClass, rest: Rest, taken_ends: IntArray, counts: IntArray) -> None:
    """Where a client's best pairs end, as many as it has hits, one at least.

    ``counts[c]`` are the hits and the misses above the last score, and those equal to it.
    """
    hits, hit_ends, misses, miss_ends, taken = pairs
    values, below, runs, row, _ = rest
    for client in range(len(counts)):
        hit, hit_start = hit_ends[client + 1] - 1, hit_ends[client]
        miss, miss_start = miss_ends[client + 1] - 1, miss_ends[client]
        first, last, start = taken_ends[client], taken_ends[client + 1], runs[row[client]]
        run, left = next_run(runs[row[client] + 1] - 1, start, below, taken, first, last)
        wanted = max(1, hit_ends[client + 1] - hit_ends[client])
        above_hits, above_misses, tied_hits, tied_misses = 0, 0, 0, 0
        while above_hits + above_misses + tied_hits + tied_misses < wanted:
            above_hits += tied_hits
            above_misses += tied_misses
            tied_hits, tied_misses = 0, 0
            cut = -math.inf
            if hit >= hit_start:
                cut = hits[hit]
            if miss >= miss_start:
                cut = max(cut, misses[miss])
            if run >= start:
                cut = max(cut, values[run])
            while hit >= hit_start and hits[hit] == cut:
                tied_hits += 1
                hit -= 1
            while miss >= miss_start and misses[miss] == cut:
                tied_misses += 1
                miss -= 1
            if run >= start and values[run] == cut:
                tied_misses += left
                run, left = next_run(run - 1, start, below, taken, first, last)
            if tied_hits + tied_misses == 0:
                break  # a client without pairs
        counts[client, 0], counts[client, 1] = above_hits, above_misses
        counts[client, 2], counts[client, 3] = tied_hits, tied_misses


@compiled_loop
def stand(
    scores: FloatArray, indptr: IntArray, pairs: ByClass, left: IntArray, right: IntArray
) -> None:
    """How many of a client's listed pairs have smaller scores than each, and no larger ones."""
    hits, hit_ends, misses, miss_ends, _ = pairs
    for client in range(len(indptr) - 1):
        hit, hit_stop = hit_ends[client], hit_ends[client + 1]
        miss, miss_stop = miss_ends[client], miss_ends[client + 1]
        for pair in range(indptr[client], indptr[client + 1]):
            score = scores[pair]
            one = places(hits, hit, hit_stop, score, False)
            other = places(misses, miss, miss_stop, score, False)
            left[pair] = one + other
            right[pair] = left[pair]
            if hit + one < hit_stop and hits[hit + one] == score:
                right[pair] += places(hits, hit + one, hit_stop, score, True)
            if miss + other < miss_stop and misses[miss + other] == score:
                right[pair] += places(misses, miss + other, miss_stop, score, True)
