"""Kernels: right, and the same bits at every batch size and position."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.errors import TypingError

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.kernels import (
    descend,
    encode_segments,
    gram,
    merge_values,
    pair_dot,
    pick_rows,
    rank_one_rows,
    scatter_add,
    segment_dots,
    segment_sum,
    segments,
)
from secure_fedrec.core.lanes import dot

WIDTHS = [1, 2, 3, 7, 8, 20, 33, 64]


def same_bits(left: FloatArray, right: FloatArray) -> bool:
    return left.shape == right.shape and left.tobytes() == right.tobytes()


def ragged(rng: np.random.Generator, segments_: int, most: int = 40) -> IntArray:
    lengths = rng.integers(0, most, segments_)
    lengths[segments_ // 2] = 0
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def wild(rng: np.random.Generator, *shape: int) -> FloatArray:
    """Values of very different magnitude, so that another order of addition shows."""
    return np.asarray(rng.normal(size=shape) * 10.0 ** rng.integers(-8, 8, shape))


def each_batch(
    count: int, whole: FloatArray, part: Callable[[int, int], FloatArray], sizes: list[int]
) -> None:
    for size in sizes:
        for start in range(0, count, size):
            stop = min(count, start + size)
            assert same_bits(part(start, stop), np.ascontiguousarray(whole[start:stop]))


@pytest.mark.parametrize("width", WIDTHS)
def test_pair_dot_at_any_batch_size(width: int) -> None:
    rng = np.random.default_rng(width)
    left, right = wild(rng, 11, width), wild(rng, 13, width)
    one = rng.integers(0, 11, 61)
    other = rng.integers(0, 13, 61).astype(np.int32)
    whole = pair_dot(left, one, right, other)
    each_batch(61, whole, lambda a, b: pair_dot(left, one[a:b], right, other[a:b]), [1, 7, 61])
    # One term after the other: the documented order, so the very bits.
    for row in range(61):
        total = 0.0
        for factor in range(width):
            total += float(left[one[row], factor]) * float(right[other[row], factor])
        assert whole[row] == total


@pytest.mark.parametrize("width", WIDTHS)
def test_dots_of_segments_are_those_of_pairs(width: int) -> None:
    rng = np.random.default_rng(width)
    indptr = ragged(rng, 29)
    users, table = wild(rng, 29, width), wild(rng, 50, width)
    items = rng.integers(0, 50, int(indptr[-1])).astype(np.int32)
    owners = np.repeat(np.arange(29), np.diff(indptr))
    # Of segments of every length up to 40, so with every rest of four.
    assert {int(length) % 4 for length in np.diff(indptr)} == {0, 1, 2, 3}
    assert same_bits(
        segment_dots(users, indptr, table, items), pair_dot(users, owners, table, items)
    )
    with pytest.raises(ValueError, match="outside 0 to 49"):
        segment_dots(users, indptr, table, items + np.int32(20))
    with pytest.raises(ValueError, match="fit together"):
        segment_dots(users[:-1], indptr, table, items)


@pytest.mark.parametrize("width", WIDTHS)
def test_rank_one_rows_at_any_batch_size(width: int) -> None:
    rng = np.random.default_rng(width)
    indptr = ragged(rng, 29)
    table, users = rng.normal(size=(50, width)), rng.normal(size=(29, width))
    items = rng.integers(0, 50, int(indptr[-1])).astype(np.int32)
    ratings = rng.integers(1, 6, len(items)).astype(np.float64)
    rows, residuals = rank_one_rows(table, items, users, indptr, ratings, 0.25)
    for size in (1, 7, 29):
        for first in range(0, 29, size):
            last = min(29, first + size)
            part = slice(indptr[first], indptr[last])
            own = rank_one_rows(
                table,
                items[part],
                users[first:last],
                indptr[first : last + 1] - indptr[first],
                ratings[part],
                0.25,
            )
            assert same_bits(own[0], np.ascontiguousarray(rows[part]))
            assert same_bits(own[1], residuals[part])
    owners = np.repeat(np.arange(29), np.diff(indptr))
    assert same_bits(residuals, ratings - pair_dot(users, owners, table, items))
    # Separate multiplications and one subtraction: no fused arithmetic, as numpy does it.
    expected = 0.25 * table[items] - residuals[:, None] * users[owners]
    assert same_bits(rows, expected)


@pytest.mark.parametrize("width", WIDTHS)
def test_segment_sum_at_any_batch_size(width: int) -> None:
    rng = np.random.default_rng(width)
    indptr = ragged(rng, 29)
    table, weights = wild(rng, 50, width), wild(rng, int(indptr[-1]))
    rows = rng.integers(0, 50, int(indptr[-1])).astype(np.int32)
    whole = segment_sum(table, rows, weights, indptr)

    def part(first: int, last: int) -> FloatArray:
        start, stop = indptr[first], indptr[last]
        return segment_sum(
            table, rows[start:stop], weights[start:stop], indptr[first : last + 1] - start
        )

    each_batch(29, whole, part, [1, 7, 29])
    for segment, (start, stop) in enumerate(pairwise(indptr.tolist())):
        total = np.zeros(width)
        for place in range(start, stop):
            total = total + weights[place] * table[rows[place]]
        assert same_bits(whole[segment], total)


@pytest.mark.parametrize("width", WIDTHS)
def test_gram_at_any_batch_size_and_against_numpy(width: int) -> None:
    rng = np.random.default_rng(width)
    table = rng.normal(size=(50, width))
    indptr = ragged(rng, 29)
    items = rng.integers(0, 50, int(indptr[-1])).astype(np.int32)
    whole = gram(table, items, indptr)

    def part(first: int, last: int) -> FloatArray:
        start, stop = indptr[first], indptr[last]
        return gram(table, items[start:stop], indptr[first : last + 1] - start)

    each_batch(29, whole, part, [1, 7, 29])
    assert same_bits(whole, np.ascontiguousarray(whole.transpose(0, 2, 1)))
    for segment, (start, stop) in enumerate(pairwise(indptr.tolist())):
        chosen = table[items[start:stop]]
        np.testing.assert_allclose(whole[segment], chosen.T @ chosen, rtol=1e-10, atol=1e-10)
        total = np.zeros((width, width))
        for vector in chosen:
            total = total + np.outer(vector, vector)
        assert same_bits(whole[segment], total)  # in the order given, however many at a time


@settings(deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 19), max_size=30))
def test_segments_gathers_positions(seed: int, clients: list[int]) -> None:
    indptr = ragged(np.random.default_rng(seed), 20, most=5)
    positions, gathered = segments(indptr, np.array(clients, dtype=np.int64))
    expected = [list(range(indptr[client], indptr[client + 1])) for client in clients]
    assert positions.tolist() == [place for run in expected for place in run]
    assert np.diff(gathered).tolist() == [len(run) for run in expected]
    assert gathered[0] == 0


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("sign", [1, -1])
@settings(deadline=None)
@given(
    start=st.lists(st.integers(0, 2**64 - 1), min_size=12, max_size=12),
    entries=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 2**64 - 1), st.integers(0, 3)), max_size=40
    ),
)
def test_scatter_add_is_signed_ring_arithmetic(
    dtype: type[np.uint32] | type[np.uint64],
    sign: int,
    start: list[int],
    entries: list[tuple[int, int, int]],
) -> None:
    modulus = 2 ** (8 * dtype().nbytes)
    expected = np.array([word % modulus for word in start], dtype=object).reshape(6, 2)
    target = expected.astype(dtype)
    rows = np.array([row for row, _, _ in entries], dtype=np.int32)
    words = [(word % modulus, small) for _, word, small in entries]
    scatter_add(target, rows, np.array(words, dtype=dtype).reshape(len(entries), 2), sign=sign)
    for row, pair in zip(rows.tolist(), words, strict=True):
        for column in range(2):
            expected[row, column] = (expected[row, column] + sign * pair[column]) % modulus
    assert target.dtype == dtype
    assert target.tolist() == expected.tolist()


@pytest.mark.parametrize("sign", [1, -1])
def test_scatter_add_counts_its_rows(sign: int) -> None:
    rng = np.random.default_rng(5)
    rows, values = rng.integers(0, 5, 90).astype(np.int32), rng.integers(0, 2**63, (90, 3))
    words, alone = values.astype(np.uint64), np.zeros((6, 3), dtype=np.uint64)
    counted, counts = alone.copy(), np.arange(6)
    scatter_add(alone, rows, words, sign=sign)
    scatter_add(counted, rows, words, sign=sign, counts=counts)
    assert counted.tolist() == alone.tolist()
    assert counts.tolist() == [at + sign * int((rows == at).sum()) for at in range(6)]
    fixed = np.zeros(6, dtype=np.int64)
    fixed.setflags(write=False)
    for wrong in (fixed[:5], fixed[:, None] + 0, fixed + 0.0, fixed):
        misfit: Any = wrong
        with pytest.raises(ValueError, match="fit together"):
            scatter_add(counted, rows, words, sign=sign, counts=misfit)
    assert counted.tolist() == alone.tolist()  # refused before anything is added


@settings(deadline=None)
@given(
    st.lists(st.lists(st.booleans(), max_size=9), max_size=6),
    st.sampled_from([np.uint32, np.uint64, np.float64]),
    st.integers(0, 4),
)
def test_rows_are_picked_in_their_order(
    segments_: list[list[bool]], dtype: type[np.uint32 | np.uint64 | np.float64], width: int
) -> None:
    lengths = [len(segment) for segment in segments_]
    indptr = np.array([0, *np.cumsum(lengths)], dtype=np.int64)
    chosen = np.array([mark for segment in segments_ for mark in segment], dtype=bool)
    rows = np.arange(len(chosen), dtype=np.int32)[::-1].copy()
    values = np.arange(len(chosen) * width).reshape(len(chosen), width).astype(dtype)
    bounds, numbers, picked = pick_rows(indptr, chosen, rows, values)
    assert np.diff(bounds).tolist() == [sum(segment) for segment in segments_]
    assert numbers.tolist() == rows[chosen].tolist()
    assert (picked.dtype, picked.tolist()) == (np.dtype(dtype), values[chosen].tolist())


def test_scatter_add_of_reals_adds_in_the_order_given() -> None:
    rng = np.random.default_rng(4)
    rows, values = rng.integers(0, 5, 200), wild(rng, 200, 9)
    expected, target = np.zeros((5, 9)), np.zeros((5, 9))
    for row, value in zip(rows, values, strict=True):
        expected[row] += value
    scatter_add(target, rows, values)
    assert same_bits(target, expected)


def test_read_only_and_strided_columns_are_taken() -> None:
    table = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    rows = np.array([3, 9, 1, 9], dtype=np.int32)[::2]
    rows.setflags(write=False)
    sums = segment_sum(table, rows, np.ones(2), np.array([0, 2]))
    assert sums.tolist() == [[12.0, 14.0, 16.0]]


def test_empty_batches() -> None:
    none = np.empty(0, dtype=np.int64)
    nothing = np.empty((0, 3))
    start = np.zeros(1, dtype=np.int64)
    assert pair_dot(np.ones((2, 3)), none, np.ones((2, 3)), none).shape == (0,)
    rows, residuals = rank_one_rows(np.ones((2, 3)), none, nothing, start, np.empty(0), 0.1)
    assert rows.shape == (0, 3)
    assert residuals.shape == (0,)
    assert segment_sum(np.ones((4, 3)), none, np.empty(0), start).shape == (0, 3)
    idle = np.zeros(3, dtype=np.int64)
    assert segment_sum(nothing, none, np.empty(0), idle).tolist() == [[0.0] * 3] * 2
    assert gram(np.ones((4, 3)), none, idle).tolist() == np.zeros((2, 3, 3)).tolist()
    target = np.zeros((3, 2), dtype=np.uint64)
    scatter_add(target, none, np.empty((0, 2), dtype=np.uint64))
    assert not target.any()
    assert segments(start, none)[0].shape == (0,)


@pytest.mark.parametrize("width", WIDTHS)
def test_descent_at_any_batch_size(width: int) -> None:
    rng = np.random.default_rng(width)
    curvatures, targets, start = (
        wild(rng, 23, width, width),
        wild(rng, 23, width),
        rng.random((23, width)),
    )

    def part(begin: int, end: int, steps: int = 2) -> FloatArray:
        chosen = slice(begin, end)
        return descend(
            curvatures[chosen],
            targets[chosen],
            start[chosen],
            step_size=1e-3,
            shrink=0.25,
            steps=steps,
        )

    before = start.copy()
    whole = part(0, 23)
    assert same_bits(start, before)
    assert same_bits(part(0, 23, steps=0), start)
    each_batch(23, whole, part, [1, 7, 23])
    for row in range(23):
        point = start[row].tolist()
        for _ in range(2):
            slopes = []
            for one in range(width):
                dot = 0.0
                for other in range(width):
                    dot += float(curvatures[row, one, other]) * point[other]
                slopes.append((dot - float(targets[row, one])) + 0.25 * point[one])
            point = [here - 1e-3 * slope for here, slope in zip(point, slopes, strict=True)]
        assert whole[row].tolist() == point
    with pytest.raises(ValueError, match="fit together"):
        descend(curvatures[:4], targets, start, step_size=1.0, shrink=0.0, steps=1)


def test_values_are_merged_in_the_order_of_the_items() -> None:
    indptr, own_indptr = np.array([0, 3, 3, 5]), np.array([0, 2, 3, 4])
    items = np.array([1, 4, 6, 0, 2], dtype=np.int32)
    own_items = np.array([1, 5, 3, 2], dtype=np.int32)
    own = np.array([10.0, 50.0, 30.0, 20.0])
    given = np.array([False, True, True, True, False])
    values = np.array([-1.0, -2.0, -3.0])
    merged = merge_values(indptr, items, given, values, own_indptr, own_items, own)
    assert merged.tolist() == [10.0, -1.0, -2.0, -3.0, 20.0]
    unknown = np.array([1, 4, 6, 0, 3], dtype=np.int32)  # item 3 belongs to another segment
    with pytest.raises(ValueError, match="neither given nor"):
        merge_values(indptr, unknown, given, values, own_indptr, own_items, own)
    with pytest.raises(ValueError, match="fit together"):
        merge_values(indptr, items, given, values[:2], own_indptr, own_items, own)
    misfits: list[Any] = [given[:, None], given + 0.0]
    for misfit in misfits:
        with pytest.raises(ValueError, match="fit together"):
            merge_values(indptr, items, misfit, values, own_indptr, own_items, own)


def test_segments_are_encoded_in_wider_rows() -> None:
    indptr, starts = np.array([0, 2, 2, 5]), np.array([4, 0, 0])
    rows = np.array([1, 4, 0, 2, 3], dtype=np.int32)
    values = np.random.default_rng(3).normal(size=(5, 3))
    values[0] = 0.5 / 8, 1.5 / 8, -2.5 / 8  # halves go to even
    limits = {"scale": 8.0, "largest": 80.0}
    into = (np.full(7, -1, dtype=np.int32), np.full((7, 4), 9))
    assert encode_segments(indptr, starts, rows, values, shift=10, into=into, **limits)
    assert into[0].tolist() == [10, 12, 13, -1, 11, 14, -1]
    assert np.array_equal(into[1][[4, 5, 0, 1, 2], :3], np.rint(values * 8))
    assert into[1][4].tolist() == [0, 2, -2, 0]
    assert not into[1][[4, 5, 0, 1, 2], 3].any()
    assert np.all(into[1][[3, 6]] == 9)
    beyond = np.array([2**63 - 1, 0, 0])  # where an end would wrap
    wrongs = [np.array([6, 0, 0]), np.array([-1, 0, 0]), np.array([4, 0, 5]), beyond, starts + 0.5]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="fit together"):
            encode_segments(indptr, wrong, rows, values, shift=0, into=into, **limits)
    narrow = (into[0], np.zeros((7, 2), dtype=np.int64))
    with pytest.raises(ValueError, match="fit together"):
        encode_segments(indptr, starts, rows, values, shift=0, into=narrow, **limits)
    with pytest.raises(ValueError, match="fit together"):
        singles: Any = values.astype(np.float32)
        encode_segments(indptr, starts, rows, singles, shift=0, into=into, **limits)
    for bad in (np.nan, np.inf, -10.1):
        values[4, 2] = bad
        assert not encode_segments(indptr, starts, rows, values, shift=0, into=into, **limits)


@pytest.mark.parametrize("width", [1, 7, 8, 9, 32, 35])
def test_a_product_of_rows_is_summed_in_eight_lanes(width: int) -> None:
    rng = np.random.default_rng(width)
    left = rng.normal(size=(5, width)).astype(np.float32)
    right = rng.normal(size=(4, width + 2)).astype(np.float32)
    for row, other, start in ((0, 3, 0), (4, 0, 1), (2, 1, 2)):
        products = left[row] * right[other, start : start + width]
        whole = width - width % 8
        lanes = np.zeros(8, dtype=np.float32)
        for begin in range(0, whole, 8):
            lanes += products[begin : begin + 8]
        for half in (4, 2, 1):
            lanes = lanes[:half] + lanes[half:]
        expected = lanes[0]
        for product in products[whole:]:
            expected += product
        assert dot(left, row, right, other, start) == expected


def test_only_contiguous_singles_are_multiplied_in_lanes() -> None:
    singles = np.ones((2, 16), dtype=np.float32)
    cases: list[Any] = [singles.astype(np.float64), singles[:, ::2], singles.T]
    for wrong in cases:
        with pytest.raises(TypingError, match="contiguous float32"):
            dot(wrong, 0, singles, 0, 0)
