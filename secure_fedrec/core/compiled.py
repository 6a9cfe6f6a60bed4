"""Inner loops, compiled: each passes over its rows once, in order.

Array programs pay for every pass over memory, and a round is made of rows of d numbers that are
gathered, combined, rounded and added up; fused loops do that in one pass. The compiler keeps IEEE
arithmetic (no reordering of sums, no fused multiply-add), so the result for a row depends on that
row alone. ``kernels`` and ``fixedpoint`` are the documented interface to these functions.

The compiler itself is imported by the first loop that runs, and machine code is cached on disk
(``machine_code``).
"""

from collections.abc import Callable
from typing import Final, TypeVar, cast

import numpy as np

from secure_fedrec.core.arrays import (
    FloatArray,
    IndexArray,
    IntArray,
    RingArray,
)
from secure_fedrec.core.compiler import Late
from secure_fedrec.core.machine_code import compile_cached

_Loop = TypeVar("_Loop", bound=Callable[..., object])

_SHIFT: Final = 1.5 * 2.0**52
_SHIFT_BITS: Final = int(np.float64(_SHIFT).view(np.int64))
"""A float64 so large that adding it rounds to integers, and its bits as a number."""


def compiled_loop(loop: _Loop) -> _Loop:
    """Compile on first call, with a cache on disk where one can be written.

    While a loop runs, so do other threads of the process.
    """
    return cast(_Loop, Late(loop, lambda: compile_cached(loop)))


def dividing_loop(loop: _Loop) -> _Loop:
    """A ``compiled_loop`` that divides in vectors, as no division by zero is looked for.

    It gives infinity or NaN instead of an error. All other bits are the same.
    """
    return cast(_Loop, Late(loop, lambda: compile_cached(loop, error_model="numpy")))


@compiled_loop
def segment_dots(
    users: FloatArray,
    indptr: IntArray,
    table: FloatArray,
    items: IndexArray | IntArray,
    dots: FloatArray,
) -> None:
    """``dots[n] = users[b] . table[items[n]]`` for every n of segment b.

    Four at a time, which are independent of each other; each is summed in its own order.
    """
    width = table.shape[1]
    for user in range(len(indptr) - 1):
        place, stop = indptr[user], indptr[user + 1]
        while place + 4 <= stop:
            first, second = items[place], items[place + 1]
            third, fourth = items[place + 2], items[place + 3]
            a = b = c = d = 0.0
            for factor in range(width):
                own = users[user, factor]
                a += own * table[first, factor]
                b += own * table[second, factor]
                c += own * table[third, factor]
                d += own * table[fourth, factor]
            dots[place], dots[place + 1], dots[place + 2], dots[place + 3] = a, b, c, d
            place += 4
        for rest in range(place, stop):
            dot = 0.0
            for factor in range(width):
                dot += users[user, factor] * table[items[rest], factor]
            dots[rest] = dot


@compiled_loop
def rank_one_rows(
    table: FloatArray,
    items: IndexArray | IntArray,
    users: FloatArray,
    indptr: IntArray,
    ratings: FloatArray,
    shrink: float,
    rows: FloatArray,
    residuals: FloatArray,
) -> None:
    """``residuals = r - u . v`` and ``rows = shrink v - residual u``."""
    width = table.shape[1]
    segment_dots(users, indptr, table, items, residuals)
    for user in range(len(indptr) - 1):
        for row in range(indptr[user], indptr[user + 1]):
            item, error = items[row], ratings[row] - residuals[row]
            residuals[row] = error
            for factor in range(width):
                rows[row, factor] = shrink * table[item, factor] - error * users[user, factor]


@compiled_loop
def pair_dot(
    left: FloatArray,
    left_rows: IndexArray | IntArray,
    right: FloatArray,
    right_rows: IndexArray | IntArray,
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


@compiled_loop
def segment_sum(
    table: FloatArray,
    rows: IndexArray | IntArray,
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


@compiled_loop
def gram(
    table: FloatArray, items: IndexArray | IntArray, indptr: IntArray, products: FloatArray
) -> None:
    """``products[b] += v v^T`` for every item vector v of segment b, in order.

    Four vectors at a time: a product is then loaded and stored once for all of them.
    """
    width = table.shape[1]
    for segment in range(len(indptr) - 1):
        place, stop = indptr[segment], indptr[segment + 1]
        while place + 4 <= stop:
            first, second = items[place], items[place + 1]
            third, fourth = items[place + 2], items[place + 3]
            for one in range(width):
                a, b = table[first, one], table[second, one]
                c, d = table[third, one], table[fourth, one]
                # The whole row, not only one triangle: a loop of fixed length runs in vectors.
                for other in range(width):
                    product = products[segment, one, other]
                    product += a * table[first, other]
                    product += b * table[second, other]
                    product += c * table[third, other]
                    product += d * table[fourth, other]
                    products[segment, one, other] = product
            place += 4
        for rest in range(place, stop):
            item = items[rest]
            for one in range(width):
                for other in range(width):
                    products[segment, one, other] += table[item, one] * table[item, other]


@compiled_loop
def descend(
    curvatures: FloatArray,
    targets: FloatArray,
    points: FloatArray,
    step_size: float,
    shrink: float,
    steps: int,
) -> None:
    """``steps`` times ``x -= step_size ((C x - t) + shrink x)`` for every row x of ``points``."""
    width = points.shape[1]
    slope = np.empty(width)
    for row in range(len(points)):
        for _ in range(steps):
            for one in range(width):
                dot = 0.0
                for other in range(width):
                    dot += curvatures[row, one, other] * points[row, other]
                slope[one] = (dot - targets[row, one]) + shrink * points[row, one]
            for one in range(width):
                points[row, one] -= step_size * slope[one]


@compiled_loop
def add_rows(target: RingArray, rows: IndexArray | IntArray, values: RingArray) -> None:
    """``target[rows[n]] += values[n]``, modulo the word size for unsigned words."""
    for row in range(len(rows)):
        place = rows[row]
        for factor in range(values.shape[1]):
            target[place, factor] += values[row, factor]


@compiled_loop
def add_counted_rows(
    target: RingArray, counts: IntArray, rows: IndexArray | IntArray, values: RingArray
) -> None:
    """As ``add_rows``; ``counts[rows[n]] += 1`` beside."""
    for row in range(len(rows)):
        place = rows[row]
        counts[place] += 1
        for factor in range(values.shape[1]):
            target[place, factor] += values[row, factor]


@compiled_loop
def add_four(
    target: RingArray, first: RingArray, second: RingArray, third: RingArray, fourth: RingArray
) -> None:
    """``target += first + second + third + fourth``, modulo the word size, in one pass."""
    for place in range(len(target)):
        target[place] += first[place] + second[place] + third[place] + fourth[place]


@compiled_loop
def subtract_four(
    target: RingArray, first: RingArray, second: RingArray, third: RingArray, fourth: RingArray
) -> None:
    """``target -= first + second + third + fourth``, modulo the word size, in one pass."""
    for place in range(len(target)):
        target[place] -= first[place] + second[place] + third[place] + fourth[place]


@compiled_loop
def subtract_rows(target: RingArray, rows: IndexArray | IntArray, values: RingArray) -> None:
    """``target[rows[n]] -= values[n]``, modulo the word size for unsigned words."""
    for row in range(len(rows)):
        place = rows[row]
        for factor in range(values.shape[1]):
            target[place, factor] -= values[row, factor]


@compiled_loop
def _nearest(scaled: float) -> np.int64:
    """The nearest integer to a number of at most 2^51, ties to even.

    Adding ``_SHIFT`` rounds it, and the bits of the sum minus those of ``_SHIFT`` are the integer.
    (Unlike conversions, additions of bits are vectorised.)
    """
    return np.float64(scaled + _SHIFT).view(np.int64) - _SHIFT_BITS


@compiled_loop
def encode_segments(
    indptr: IntArray,
    starts: IntArray,
    rows: IndexArray,
    values: FloatArray,
    shift: int,
    scale: float,
    largest: float,
    placed_rows: IndexArray,
    placed: IntArray,
) -> bool:
    """Copies segment b to ``starts[b]``, with numbers raised by ``shift`` and values as integers.

    As ``round_to_integers``, in rows that may be wider and then end in zeros.
    """
    beyond, width = 0, values.shape[1]
    for segment in range(len(starts)):
        to = starts[segment]
        for row in range(indptr[segment], indptr[segment + 1]):
            placed_rows[to] = rows[row] + shift
            for factor in range(width):
                scaled = values[row, factor] * scale
                beyond += not np.abs(scaled) <= largest
                placed[to, factor] = _nearest(scaled)
            for factor in range(width, placed.shape[1]):
                placed[to, factor] = 0
            to += 1
    return beyond == 0


@compiled_loop
def round_to_integers(values: FloatArray, scale: float, largest: float, integers: IntArray) -> bool:
    """``integers = round_half_even(values * scale)``; False if a magnitude exceeds ``largest``.

    ``largest`` is in ring units and at most 2^51. NaN fails the comparison like anything out of
    range.
    """
    beyond = 0
    for place in range(len(values)):
        scaled = values[place] * scale
        beyond += not np.abs(scaled) <= largest
        integers[place] = _nearest(scaled)
    return beyond == 0
