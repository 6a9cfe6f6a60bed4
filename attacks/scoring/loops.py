"""Inner loops of scoring, compiled: whole numbers only, so that any order of them is exact."""

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.core.compiled import compiled_loop


@compiled_loop
def places(ordered: FloatArray, start: int, stop: int, value: float, right: bool) -> int:
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
def twice_wins(
    hits: FloatArray, hit_ends: IntArray, misses: FloatArray, miss_ends: IntArray, wins: IntArray
) -> None:
    """Pairs of a hit and a smaller miss of the same client, twice, and pairs of equal ones, once.

    Client c has ``hits[hit_ends[c]:hit_ends[c + 1]]`` in any order, and misses likewise, ascending.
    """
    for client in range(len(wins)):
        start, stop = miss_ends[client], miss_ends[client + 1]
        for hit in range(hit_ends[client], hit_ends[client + 1]):
            below = places(misses, start, stop, hits[hit], False)
            wins[client] += 2 * below
            if start + below < stop and misses[start + below] == hits[hit]:
                wins[client] += places(misses, start + below, stop, hits[hit], True)


@compiled_loop
def count_exceeded(
    cuts: FloatArray, scores: FloatArray, labels: BoolArray, indptr: IntArray, counts: FloatArray
) -> None:
    """``counts[c, l, k]`` pairs of client c and label l have scores that exceed k of the cuts."""
    for client in range(len(indptr) - 1):
        for pair in range(indptr[client], indptr[client + 1]):
            exceeded = places(cuts, 0, len(cuts), scores[pair], False)
            counts[client, 1 if labels[pair] else 0, exceeded] += 1
