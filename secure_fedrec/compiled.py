"""Inner loops, compiled: each walks its rows once, in order, and touches nothing twice.

Array programs pay for every pass over memory, and a round is made of rows of d numbers that are
gathered, combined, rounded and added up; fused loops do that in one pass. The compiler keeps IEEE
arithmetic (no reordering of sums, no fused multiply-add), so the result for a row depends on that
row alone. ``kernels`` and ``fixedpoint`` are the documented doors to these functions.

Machine code is cached on disk where the package folder, or the user's cache folder, is writable.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numba import njit

from secure_fedrec.arrays import BoolArray, FloatArray, IntArray, RingArray, StatusArray

__all__ = [
    "add_rows",
    "gram",
    "mark_members",
    "matvec",
    "pair_dot",
    "place_rows",
    "rank_one_rows",
    "round_to_integers",
    "segment_sum",
    "subtract_rows",
    "take_first_distinct",
]


_Loop = TypeVar("_Loop", bound=Callable[..., object])


def _compiled(loop: _Loop) -> _Loop:
    """Compile on first call, with a cache on disk where one can be written."""
    try:
        return cast(_Loop, njit(cache=True)(loop))
    except RuntimeError:  # numba finds no writable cache folder
        return cast(_Loop, njit(loop))


@_compiled
def rank_one_rows(
    table: FloatArray,
    items: IntArray,
    users: FloatArray,
    indptr: IntArray,
    ratings: FloatArray,
    shrink: float,
    rows: FloatArray,
    residuals: FloatArray,
) -> None:
    """``residuals = r - u . v`` and ``rows = shrink v - residual u``."""
    width = table.shape[1]
    for user in range(len(indptr) - 1):
        for row in range(indptr[user], indptr[user + 1]):
            item = items[row]
            dot = 0.0
            for factor in range(width):
                dot += users[user, factor] * table[item, factor]
            error = ratings[row] - dot
            residuals[row] = error
            for factor in range(width):
                rows[row, factor] = shrink * table[item, factor] - error * users[user, factor]


@_compiled
def pair_dot(
    left: FloatArray,
    left_rows: IntArray,
    right: FloatArray,
    right_rows: IntArray,
    dots: FloatArray,
) -> None:
    """``dots[n] = left[left_rows[n]] . right[right_rows[n]]``."""
    width = left.shape[1]
    for row in range(len(left_rows)):
        one, other = left_rows[row], right_rows[row]
        dot = 0.0
        for factor in range(width):
            dot += left[one, factor] * right[other, factor]
        dots[row] = dot


@_compiled
def matvec(matrices: FloatArray, vectors: FloatArray, products: FloatArray) -> None:
    """``products[b] = matrices[b] vectors[b]``."""
    width = vectors.shape[1]
    for batch in range(len(vectors)):
        for one in range(matrices.shape[1]):
            dot = 0.0
            for other in range(width):
                dot += matrices[batch, one, other] * vectors[batch, other]
            products[batch, one] = dot


@_compiled
def segment_sum(
    table: FloatArray,
    rows: IntArray,
    weights: FloatArray,
    indptr: IntArray,
    sums: FloatArray,
) -> None:
    """``sums[b] += weights[n] table[rows[n]]`` for every n of segment b, in order."""
    width = table.shape[1]
    for segment in range(len(indptr) - 1):
        for place in range(indptr[segment], indptr[segment + 1]):
            row, weight = rows[place], weights[place]
            for factor in range(width):
                sums[segment, factor] += weight * table[row, factor]


@_compiled
def gram(table: FloatArray, items: IntArray, indptr: IntArray, products: FloatArray) -> None:
    """``products[b] += v v^T`` for every item vector v of segment b; both triangles."""
    width = table.shape[1]
    for segment in range(len(indptr) - 1):
        for place in range(indptr[segment], indptr[segment + 1]):
            item = items[place]
            for one in range(width):
                factor = table[item, one]
                for other in range(one, width):
                    products[segment, one, other] += factor * table[item, other]
        for one in range(width):
            for other in range(one):
                products[segment, one, other] = products[segment, other, one]


@_compiled
def add_rows(target: RingArray, rows: IntArray, values: RingArray) -> None:
    """``target[rows[n]] += values[n]``, modulo the word size for unsigned words."""
    for row in range(len(rows)):
        place = rows[row]
        for factor in range(values.shape[1]):
            target[place, factor] += values[row, factor]


@_compiled
def subtract_rows(target: RingArray, rows: IntArray, values: RingArray) -> None:
    """``target[rows[n]] -= values[n]``, modulo the word size for unsigned words."""
    for row in range(len(rows)):
        place = rows[row]
        for factor in range(values.shape[1]):
            target[place, factor] -= values[row, factor]


@_compiled
def place_rows(target: FloatArray, places: IntArray, values: FloatArray) -> None:
    """``target[places[n]] = values[n]``."""
    for row in range(len(places)):
        place = places[row]
        for factor in range(values.shape[1]):
            target[place, factor] = values[row, factor]


@_compiled
def round_to_integers(values: FloatArray, scale: float, largest: float, integers: IntArray) -> bool:
    """``integers = round_half_even(values * scale)``; False if a magnitude exceeds ``largest``.

    ``largest`` is in ring units and below 2^52, where adding and taking off 1.5 * 2^52 rounds to
    the nearest integer. NaN fails the comparison like anything out of range.
    """
    fits = True
    for place in range(len(values)):
        scaled = values[place] * scale
        fits &= np.abs(scaled) <= largest
        shifted = scaled + 6755399441055744.0
        integers[place] = np.int64(shifted - 6755399441055744.0)
    return fits


@_compiled
def take_first_distinct(
    ranks: IntArray,
    runs: IntArray,
    offsets: IntArray,
    missing: IntArray,
    taken: BoolArray,
) -> None:
    """Read run b of ``ranks`` until ``missing[b]`` new ranks have been marked in ``taken``."""
    for run in range(len(runs) - 1):
        for place in range(runs[run], runs[run + 1]):
            if missing[run] == 0:
                break
            cell = offsets[run] + ranks[place]
            if not taken[cell]:
                taken[cell] = True
                missing[run] -= 1


@_compiled
def mark_members(
    status: StatusArray,
    n_items: int,
    taken: BoolArray,
    inverted: BoolArray,
    mark: int,
) -> None:
    """Give each client's chosen members of its pool a mark.

    The pool of a client are its cells with status 0, in order; ``taken`` holds the pools laid end
    to end. Where ``inverted``, those not taken are chosen.
    """
    member = 0
    for client in range(len(inverted)):
        for cell in range(client * n_items, (client + 1) * n_items):
            if status[cell] == 0:
                if taken[member] != inverted[client]:
                    status[cell] = mark
                member += 1
