"""Inner loops of scoring, compiled: only whole numbers, so that sums are exact in any order."""

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
        taken: int32[N], the run of ``Rest`` from which each is removed, ascending for each client;
            empty without ``Rest``.
    """

    hits: FloatArray
    hit_ends: IntArray
    misses: FloatArray
    miss_ends: IntArray
    taken: IndexArray


class Rest(NamedTuple):
    """Pairs that are not listed, all of them negative.

    They are the items of a row that clients share, minus those that are listed for the client.

    Attributes:
        values: float64[R]; row h has ``values[runs[h]:runs[h + 1]]``, distinct and ascending.
        below: int64[R + 1], number of items before each, over all rows.
        runs: int64[H + 1].
        row: int64[n_clients], of each client.
        taken: int32[N], for each listed pair the place in ``values`` of its item's value.
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
        """The unlisted items of rows float64[H, m], of which client b has ``rows[row[b]]``."""
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
def count_below(
    scores: FloatArray,
    ends: IntArray,
    ordered: FloatArray,
    ordered_ends: IntArray,
    below: IntArray,
    up_to: IntArray,
) -> None:
    """Add how many of a client's ordered values are below each of its scores, and not above it."""
    for client in range(len(ends) - 1):
        start, stop = ordered_ends[client], ordered_ends[client + 1]
        for pair in range(ends[client], ends[client + 1]):
            found = places(ordered, start, stop, scores[pair], False)
            below[pair] += found
            up_to[pair] += found
            if start + found < stop and ordered[start + found] == scores[pair]:
                up_to[pair] += places(ordered, start + found, stop, scores[pair], True)


@compiled_loop
def count_rest_below(
    pairs: ByClass, rest: Rest, taken_ends: IntArray, below: IntArray, up_to: IntArray
) -> None:
    """As ``count_below``, of the hits and of the pairs that are not listed."""
    hits, hit_ends, taken = pairs.hits, pairs.hit_ends, pairs.taken
    values, under, runs, row, _ = rest
    for client in range(len(row)):
        start, stop = runs[row[client]], runs[row[client] + 1]
        first, last = taken_ends[client], taken_ends[client + 1]
        for hit in range(hit_ends[client], hit_ends[client + 1]):
            run = start + places(values, start, stop, hits[hit], False)
            gone = places(taken, first, last, run, False)
            below[hit] += under[run] - under[start] - gone
            up_to[hit] += under[run] - under[start] - gone
            if run < stop and values[run] == hits[hit]:
                equal = places(taken, first + gone, last, run, True)
                up_to[hit] += under[run + 1] - under[run] - equal
