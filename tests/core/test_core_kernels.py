"""Kernels: right, and the same bits at every batch size and position."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.arrays import FloatArray, IntArray
from secure_fedrec.kernels import (
    gram,
    outer_products,
    row_dot,
    scatter_add,
    segment_sum,
    segments,
)

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
def test_row_dot_at_any_batch_size(width: int) -> None:
    rng = np.random.default_rng(width)
    left, right = wild(rng, 61, width), wild(rng, 61, width)
    whole = row_dot(left, right)
    each_batch(61, whole, lambda a, b: row_dot(left[a:b], right[a:b]), [1, 7, 61])
    # Copies lie elsewhere in memory, with another alignment.
    each_batch(61, whole, lambda a, b: row_dot(left[a:b].copy(), right[a:b].copy()), [1, 7])
    np.testing.assert_allclose(whole, (left * right).sum(axis=1), rtol=1e-9, atol=1e-3)


@pytest.mark.parametrize("width", WIDTHS)
def test_row_dot_of_matrices_at_any_batch_size(width: int) -> None:
    rng = np.random.default_rng(width)
    matrices, vectors = wild(rng, 23, width, width), wild(rng, 23, width)
    whole = row_dot(matrices, vectors[:, None, :])
    each_batch(23, whole, lambda a, b: row_dot(matrices[a:b], vectors[a:b, None, :]), [1, 7, 23])
    expected = np.einsum("bij,bj->bi", matrices, vectors)
    np.testing.assert_allclose(whole, expected, rtol=1e-9, atol=1e-2)


@pytest.mark.parametrize("width", WIDTHS)
def test_segment_sum_at_any_batch_size(width: int) -> None:
    rng = np.random.default_rng(width)
    indptr = ragged(rng, 29)
    values, weights = wild(rng, int(indptr[-1]), width), wild(rng, int(indptr[-1]))
    whole = segment_sum(values, weights, indptr)

    def part(first: int, last: int) -> FloatArray:
        start, stop = indptr[first], indptr[last]
        return segment_sum(
            values[start:stop], weights[start:stop], indptr[first : last + 1] - start
        )

    each_batch(29, whole, part, [1, 7, 29])
    for segment, (start, stop) in enumerate(pairwise(indptr.tolist())):
        total = np.zeros(width)
        for place in range(start, stop):
            total = total + weights[place] * values[place]
        np.testing.assert_allclose(whole[segment], total, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("width", WIDTHS)
def test_outer_products_at_any_batch_size(width: int) -> None:
    table = wild(np.random.default_rng(width), 31, width)
    whole = outer_products(table)
    each_batch(31, whole, lambda a, b: outer_products(table[a:b]), [1, 7, 31])
    upper = np.triu_indices(width)
    assert same_bits(whole, np.stack([np.outer(row, row)[upper] for row in table]))


@pytest.mark.parametrize("width", WIDTHS)
def test_gram_at_any_batch_size_and_against_numpy(width: int) -> None:
    rng = np.random.default_rng(width)
    table = rng.normal(size=(50, width))
    products = outer_products(table)
    indptr = ragged(rng, 29)
    items = rng.integers(0, 50, int(indptr[-1])).astype(np.int32)
    whole = gram(products, width, items, indptr)

    def part(first: int, last: int) -> FloatArray:
        start, stop = indptr[first], indptr[last]
        return gram(products, width, items[start:stop], indptr[first : last + 1] - start)

    each_batch(29, whole, part, [1, 7, 29])
    assert same_bits(whole, np.ascontiguousarray(whole.transpose(0, 2, 1)))
    for segment, (start, stop) in enumerate(pairwise(indptr.tolist())):
        chosen = table[items[start:stop]]
        np.testing.assert_allclose(whole[segment], chosen.T @ chosen, rtol=1e-10, atol=1e-10)


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
@settings(deadline=None)
@given(
    entries=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 2**64 - 1), st.integers(0, 3), st.booleans()),
        max_size=40,
    ),
    signed=st.booleans(),
)
def test_scatter_add_is_signed_ring_arithmetic(
    dtype: type[np.uint32] | type[np.uint64],
    entries: list[tuple[int, int, int, bool]],
    signed: bool,
) -> None:
    modulus = 2 ** (8 * dtype().nbytes)
    rows = np.array([row for row, _, _, _ in entries], dtype=np.int32)
    words = [(word % modulus, small) for _, word, small, _ in entries]
    values = np.array(words, dtype=dtype).reshape(len(entries), 2)
    signs = [-1 if minus else 1 for _, _, _, minus in entries]
    result = scatter_add(
        rows, values, size=6, signs=np.array(signs, dtype=np.int64) if signed else None
    )
    expected = [[0, 0] for _ in range(6)]
    for row, pair, sign in zip(rows.tolist(), words, signs, strict=True):
        for column in range(2):
            total = expected[row][column] + (sign if signed else 1) * pair[column]
            expected[row][column] = total % modulus
    assert result.dtype == dtype
    assert result.tolist() == expected


def test_scatter_add_of_reals_adds_in_the_order_given() -> None:
    rng = np.random.default_rng(4)
    rows, values = rng.integers(0, 5, 200), wild(rng, 200, 9)
    expected = np.zeros((5, 9))
    for row, value in zip(rows, values, strict=True):
        expected[row] += value
    assert same_bits(scatter_add(rows, values, size=5), expected)


def test_empty_batches() -> None:
    none = np.empty(0, dtype=np.int64)
    nothing = np.empty((0, 3))
    start = np.zeros(1, dtype=np.int64)
    assert row_dot(nothing, nothing).shape == (0,)
    assert segment_sum(nothing, np.empty(0), start).shape == (0, 3)
    idle = np.zeros(3, dtype=np.int64)
    assert segment_sum(nothing, np.empty(0), idle).tolist() == [[0.0] * 3] * 2
    assert (
        gram(outer_products(np.ones((4, 3))), 3, none, idle).tolist()
        == np.zeros((2, 3, 3)).tolist()
    )
    assert scatter_add(none, np.empty((0, 2), dtype=np.uint64), size=3).tolist() == [[0, 0]] * 3
    assert segments(start, none)[0].shape == (0,)
