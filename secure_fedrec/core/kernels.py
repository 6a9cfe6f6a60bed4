"""Float operations whose result for one client does not depend on its batch.

A device runs a batch of one; the simulator runs thousands in one call. Both must give the same
bits, so that a simulated audit applies to the deployed system and losslessness can be tested with
``==``. Library matrix products do not qualify (their blocking depends on the whole shape). These
do, as ``tests/core/test_core_kernels.py`` tests with batches of 1, 7 and n: every row is computed
by the same loop over its own numbers, and sums run in the order given.
"""

from collections.abc import Sequence

import numpy as np

from secure_fedrec.core import compiled, item_sets
from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray, RingArray
from secure_fedrec.errors import WireError

_VALUES = (np.float64, np.uint32, np.uint64)
"""Types of the values of rows: reals, and words of a ring."""


def pair_dot(
    left: FloatArray,
    left_rows: IntArray,
    right: FloatArray,
    right_rows: IndexArray | IntArray,
) -> FloatArray:
    """Dot products of named rows of two tables.

    Args:
        left: float64[p, d].
        left_rows: int64[N].
        right: float64[q, d].
        right_rows: int[N].

    Returns:
        float64[N].
    """
    _require_fit(len(left_rows) == len(right_rows) and left.shape[1] == right.shape[1])
    one, other = _inside(left_rows, len(left)), _inside(right_rows, len(right))
    dots = np.empty(len(left_rows))
    compiled.pair_dot(_reals(left), one, _reals(right), other, dots)
    return dots


def segment_dots(
    users: FloatArray, indptr: IntArray, table: FloatArray, items: IndexArray | IntArray
) -> FloatArray:
    """Dot products of every user's vector with the table rows of its segment.

    Args:
        users: float64[B, d].
        indptr: int64[B + 1].
        table: float64[m, d].
        items: int[N], row numbers of ``table``.

    Returns:
        float64[N].
    """
    _require_fit(table.shape[1] == users.shape[1])
    _require_segments(indptr, len(users), len(items))
    dots, named = np.empty(len(items)), _inside(items, len(table))
    compiled.segment_dots(_reals(users), _whole(indptr), _reals(table), named, dots)
    return dots


def rank_one_rows(
    table: FloatArray,
    items: IndexArray | IntArray,
    users: FloatArray,
    indptr: IntArray,
    ratings: FloatArray,
    shrink: float,
) -> tuple[FloatArray, FloatArray]:
    """Rows ``shrink v - e u`` with residuals ``e = r - u . v`` (FedRec++ eq. 3).

    Args:
        table: float64[m, d], item vectors v.
        items: int[N], item of each row.
        users: float64[B, d], user vectors u.
        indptr: int64[B + 1], the rows of each user.
        ratings: float64[N], r.
        shrink: lambda.

    Returns:
        (rows float64[N, d], residuals float64[N]).
    """
    _require_fit(len(ratings) == len(items) and table.shape[1] == users.shape[1])
    _require_segments(indptr, len(users), len(items))
    rows, residuals = np.empty((len(items), table.shape[1])), np.empty(len(items))
    compiled.rank_one_rows(
        _reals(table),
        _inside(items, len(table)),
        _reals(users),
        _whole(indptr),
        _reals(ratings),
        float(shrink),
        rows,
        residuals,
    )
    return rows, residuals


def merge_values(
    indptr: IntArray,
    items: IndexArray,
    given: BoolArray,
    given_values: FloatArray,
    own_indptr: IntArray,
    own_items: IndexArray,
    own_values: FloatArray,
) -> FloatArray:
    """One value per item: the next of those given where ``given``, else the segment's own.

    Args:
        indptr: int64[B + 1].
        items: int32[N], ascending within a segment.
        given: bool[N].
        given_values: float64[K], one for each item given, in order.
        own_indptr: int64[B + 1].
        own_items: int32[M], ascending within a segment.
        own_values: float64[M].

    Returns:
        float64[N].

    Raises:
        ValueError: an item is neither given nor among the segment's own, or the numbers of values
            and of items given differ.
    """
    _require_segments(indptr, len(own_indptr) - 1, len(items))
    _require_segments(own_indptr, len(indptr) - 1, len(own_items))
    _require_fit(given.dtype == bool and given.shape == items.shape)
    _require_fit(items.dtype == own_items.dtype == np.int32 and items.ndim == own_items.ndim == 1)
    _require_fit(own_values.shape == own_items.shape and given_values.ndim == 1)
    _require_fit(int(np.count_nonzero(given)) == len(given_values))
    values = np.empty(len(items))
    own = (own_indptr, own_items, _reals(own_values))
    found = item_sets.merge_values(indptr, items, given, _reals(given_values), *own, values)
    if not found:
        raise ValueError("an item is neither given nor in the segment")
    return values


def bounds_of(lengths: IntArray | Sequence[int]) -> IntArray:
    """int64[n + 1]: segment c of so many entries each begins at entry c and ends at entry c + 1."""
    bounds = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return bounds


def segments(indptr: IntArray, clients: IntArray) -> tuple[IntArray, IntArray]:
    """Positions of some segments of a segmented column, laid end to end.

    Args:
        indptr: int64[n + 1], segment c is ``indptr[c]:indptr[c + 1]``.
        clients: int64[B], which segments.

    Returns:
        (positions int64[N], indptr of the gathered segments int64[B + 1]).
    """
    counts = indptr[clients + 1] - indptr[clients]
    gathered = bounds_of(counts)
    positions = np.repeat(indptr[clients] - gathered[:-1], counts)
    positions += np.arange(gathered[-1])
    return positions, gathered


def segment_sum(
    table: FloatArray, rows: IndexArray | IntArray, weights: FloatArray, indptr: IntArray
) -> FloatArray:
    """Weighted sum of the table rows that each segment names, in the order named.

    Args:
        table: float64[m, d].
        rows: int[N], row numbers of ``table``.
        weights: float64[N].
        indptr: int64[B + 1].

    Returns:
        float64[B, d].
    """
    _require_fit(len(weights) == len(rows))
    _require_segments(indptr, len(indptr) - 1, len(rows))
    named = _inside(rows, len(table))
    sums = np.zeros((len(indptr) - 1, table.shape[1]))
    compiled.segment_sum(_reals(table), named, _reals(weights), _whole(indptr), sums)
    return sums


def gram(table: FloatArray, items: IndexArray | IntArray, indptr: IntArray) -> FloatArray:
    """Per-segment Gram matrices: sum of v v^T over the table rows that each segment names.

    Args:
        table: float64[m, d].
        items: int[N], row numbers of ``table``.
        indptr: int64[B + 1].

    Returns:
        float64[B, d, d], symmetric.
    """
    _require_segments(indptr, len(indptr) - 1, len(items))
    named, width = _inside(items, len(table)), table.shape[1]
    products = np.zeros((len(indptr) - 1, width, width))
    compiled.gram(_reals(table), named, _whole(indptr), products)
    return products


def descend(
    curvatures: FloatArray,
    targets: FloatArray,
    start: FloatArray,
    *,
    step_size: float,
    shrink: float,
    steps: int,
) -> FloatArray:
    """Gradient descent on one quadratic per row: ``x <- x - step_size (C x - t + shrink x)``.

    Args:
        curvatures: float64[B, d, d], C.
        targets: float64[B, d], t.
        start: float64[B, d], x before the first step.
        step_size: gamma.
        shrink: lambda.
        steps: how many.

    Returns:
        float64[B, d], x after the last step.
    """
    _require_fit(curvatures.shape == (*start.shape, start.shape[1]))
    _require_fit(targets.shape == start.shape and steps >= 0)
    points = np.array(start, dtype=np.float64, order="C")
    compiled.descend(
        _reals(curvatures), _reals(targets), points, float(step_size), float(shrink), steps
    )
    return points


def pick_rows(
    indptr: IntArray, chosen: BoolArray, rows: IndexArray, values: FloatArray | RingArray
) -> tuple[IntArray, IndexArray, FloatArray | RingArray]:
    """Some rows of every segment, in their order.

    Args:
        indptr: int64[B + 1].
        chosen: bool[N].
        rows: int32[N], their numbers.
        values: [N, d].

    Returns:
        (indptr of the picked rows int64[B + 1], numbers int32[K], values [K, d]), all new.
    """
    _require_segments(indptr, len(indptr) - 1, len(rows))
    _require_fit(chosen.shape == rows.shape == values.shape[:1] and values.ndim == 2)
    _require_fit(chosen.dtype == bool and rows.dtype == np.int32 and values.dtype in _VALUES)
    places = np.flatnonzero(chosen)
    return np.searchsorted(places, indptr), rows[places], np.take(values, places, axis=0)


def scatter_add(
    target: RingArray | FloatArray,
    rows: IndexArray | IntArray,
    values: RingArray | FloatArray,
    *,
    sign: int = 1,
    counts: IntArray | None = None,
) -> None:
    """Add rows to the places they name, in order; a place may repeat.

    Ring words add modulo the word size, so their result does not depend on the order.

    Args:
        target: [size, d] of uint32, uint64 or float64, changed in place.
        rows: int[N], destination of each row, below ``size``.
        values: [N, d] of the dtype of ``target``.
        sign: +1 adds, -1 subtracts.
        counts: int64[size], changed in place by the sign for each row; None counts nothing.

    Raises:
        WireError: a destination lies outside ``target``, or dtypes or widths differ.
        ValueError: no such sign.
    """
    _require_fit(sign in (1, -1))
    _require_fit(target.ndim == 2 and target.dtype in _VALUES)
    places = _inside(rows, len(target))
    if values.dtype != target.dtype or values.shape != (len(places), target.shape[1]):
        raise WireError(f"{values.dtype}{values.shape} does not fit {target.dtype}{target.shape}")
    values = np.ascontiguousarray(values)
    if counts is None:
        step = compiled.add_rows if sign == 1 else compiled.subtract_rows
        step(target, places, values)
        return
    _require_fit(counts.dtype == np.int64 and counts.shape == target.shape[:1])
    _require_fit(counts.flags.writeable)
    if sign == 1:
        compiled.add_counted_rows(target, counts, places, values)
    else:
        compiled.subtract_rows(target, places, values)
        counts -= np.bincount(places, minlength=len(counts))


def encode_segments(
    indptr: IntArray,
    starts: IntArray,
    rows: IndexArray,
    values: FloatArray,
    *,
    shift: int,
    scale: float,
    largest: float,
    into: tuple[IndexArray, IntArray],
) -> bool:
    """Copy the rows of every segment to its place, as integers, in wider rows.

    Args:
        indptr: int64[B + 1], the segments.
        starts: int64[B], where each goes to; those of different segments do not meet.
        rows: int32[N], their numbers.
        values: float64[N, d].
        shift: added to every number.
        scale: integers are ``round_half_even(value * scale)``.
        largest: magnitude that one may have, at most 2^51.
        into: int32[size] numbers and int64[size, d or more] integers, changed in place; what lies
            beyond the width of ``values`` becomes 0.

    Returns:
        Whether all fit; if not, the integers are invalid.

    Raises:
        ValueError: a segment would end outside, or types or widths do not fit.
    """
    placed_rows, placed = into
    _require_segments(indptr, len(starts), len(rows))
    _require_fit(len(values) == len(rows) and len(placed) == len(placed_rows))
    _require_fit(values.dtype == np.float64 and placed.dtype == np.int64)
    _require_fit(rows.dtype == placed_rows.dtype == np.int32 and rows.ndim == placed_rows.ndim == 1)
    _require_fit(values.ndim == placed.ndim == 2 and values.shape[1] <= placed.shape[1])
    _require_fit(starts.dtype.kind == "i" and starts.ndim == 1)
    if len(starts):
        room = len(placed) - np.diff(_whole(indptr))
        _require_fit(int(starts.min()) >= 0 and bool(np.all(starts <= room)))
    places = _whole(indptr), _whole(starts)
    numbers = rows, np.ascontiguousarray(values)
    return bool(compiled.encode_segments(*places, *numbers, shift, scale, largest, *into))


def _require_fit(fits: bool) -> None:
    if not fits:
        raise ValueError("arguments do not fit together")


def _require_segments(indptr: IntArray, count: int, size: int) -> None:
    _require_fit(indptr.dtype.kind == "i" and indptr.shape == (count + 1,))
    ends = indptr[0] == 0 and indptr[-1] == size
    _require_fit(bool(ends) and not (indptr[1:] < indptr[:-1]).any())


def _inside(places: IndexArray | IntArray, size: int) -> IndexArray | IntArray:
    """Row numbers as compiled loops take them, int32 or int64; loops do not check bounds."""
    _require_fit(places.ndim == 1 and places.dtype.kind in "iu")
    named = np.ascontiguousarray(places, None if places.dtype == np.int32 else np.int64)
    # As an unsigned number a negative one is a large one.
    if len(named) and int(named.view(f"u{named.itemsize}").max()) >= size:
        raise WireError(f"a row number lies outside 0 to {size - 1}")
    return named


def _reals(values: FloatArray) -> FloatArray:
    """Contiguous float64, copied only if it is not."""
    return np.ascontiguousarray(values, dtype=np.float64)


def _whole(values: IntArray) -> IntArray:
    return np.ascontiguousarray(values, dtype=np.int64)
