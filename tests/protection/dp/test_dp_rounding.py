"""Conditional rounding: right on average, never beyond its bound, and rarely repeated."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from secure_fedrec.errors import EncodingError
from secure_fedrec.protection.dp import rounding
from secure_fedrec.protection.dp.rounding import (
    NormBound,
    norm_bound,
    round_up_or_down,
    round_within,
)


def test_a_word_rounds_up_below_the_fraction_and_down_from_it() -> None:
    fractions = np.array([0.25, 0.25, 0.25, 0.0, 0.0, 1 - 2.0**-53, 1 - 2.0**-53, -0.75])
    edge = np.uint64(1 << 62)  # a quarter of 2^64
    unit = np.uint64(1 << 11)  # words count in steps of 2^-53
    words = np.array(
        [edge - np.uint64(1), edge, edge + unit, 0, 2**64 - 1, 2**64 - 1 - 2**11, 2**64 - 1, 0],
        dtype=np.uint64,
    )
    integers = np.empty(8, dtype=np.int64)
    round_up_or_down(fractions, words, integers)
    assert integers.tolist() == [1, 0, 0, 0, 0, 1, 0, 0]


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=30),
    st.floats(1.0, 2.0),
    st.sampled_from([0.5, 2.0**-10, 2.0**-40]),
    st.sampled_from([1, 2]),
)
def test_roundings_are_neighbours_and_within_the_bound(
    values: list[float], slack: float, rejection: float, order: int
) -> None:
    vector = np.array(values)
    norm = float(np.linalg.norm(vector, order)) * slack
    bound = norm_bound(norm, len(values), rejection=rejection, order=order)  # type: ignore[arg-type]
    integers = round_within(vector, bound)
    assert np.all((integers == np.floor(vector)) | (integers == np.ceil(vector)))
    if order == 2:
        assert int((integers**2).sum()) <= bound.limit == bound.l2_square
    else:
        assert int(np.abs(integers).sum()) <= bound.limit
    assert int(np.abs(integers).sum()) <= bound.l1
    assert int((integers**2).sum()) <= bound.l2_square


def chance(vector: np.ndarray, accepted: Callable[[np.ndarray], bool]) -> float:
    """Exact probability that a rounding is accepted, over all 2^d of them."""
    floors, fractions = np.floor(vector), vector - np.floor(vector)
    total = 0.0
    for ups in product([0, 1], repeat=len(vector)):
        up = np.array(ups)
        weight = np.prod(np.where(up == 1, fractions, 1 - fractions))
        total += float(weight) * accepted((floors + up).astype(np.int64))
    return total


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("rejection", [0.6, 0.1, 1e-3])
def test_one_rounding_misses_the_bound_as_rarely_as_stated(order: int, rejection: float) -> None:
    rng = np.random.default_rng(order)
    for size, reach in product((1, 4, 10), (0.3, 2.0, 20.0)):
        vector = rng.uniform(-reach, reach, size)
        norm = float(np.linalg.norm(vector, order))
        bound = norm_bound(norm, size, rejection=rejection, order=order)  # type: ignore[arg-type]
        assert chance(vector, bound.holds) >= 1 - rejection


def test_rounding_is_unbiased(fixed_key: Callable[[int], None]) -> None:
    fixed_key(23)
    vector = np.array([0.0, 0.1, -0.3, 1.5, 2.999, -7.25, 4.0, 0.5])
    bound = norm_bound(float(np.linalg.norm(vector)), 8, rejection=2.0**-40)
    draws = np.stack([round_within(vector, bound) for _ in range(20_000)])
    spread = draws.std(axis=0) / math.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - vector) <= 5 * spread)
    ups = (draws[:, 1] == 1).sum()
    assert stats.binomtest(int(ups), len(draws), 0.1).pvalue > 1e-4


def test_conditioning_moves_the_mean_within_its_stated_bound() -> None:
    # By enumeration: d = 10 and a rejection so likely that the bias can be seen.
    vector = np.full(10, 0.5)
    floors = np.array(list(product([0, 1], repeat=10)), dtype=np.int64)
    norm, rejection = float(np.linalg.norm(vector)), 0.4
    bound = norm_bound(norm, 10, rejection=rejection)
    kept = floors[[bound.holds(row) for row in floors]]
    tight = NormBound(order=2, limit=5, size=10)
    biased = floors[[tight.holds(row) for row in floors]]
    stated = 2 * rejection * (norm + math.sqrt(10))
    assert np.linalg.norm(kept.mean(axis=0) - vector) <= stated
    # With the tail cut in the middle the bias is there, and the bound for that share of it holds.
    share = 1 - len(biased) / len(floors)
    bias = np.linalg.norm(biased.mean(axis=0) - vector)
    assert 0.2 < bias <= 2 * share * (norm + math.sqrt(10))


def test_a_vector_beyond_its_bound_is_resampled_and_then_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounding, "_MOST_ATTEMPTS", 50)
    with pytest.raises(EncodingError, match="50 roundings"):
        round_within(np.full(4, 3.0), NormBound(order=2, limit=35, size=4))
    # One of 2^6 roundings is allowed: it is found by repeating.
    monkeypatch.setattr(rounding, "_MOST_ATTEMPTS", 5000)
    lowest = round_within(np.full(6, 0.5), NormBound(order=1, limit=0, size=6))
    assert lowest.tolist() == [0] * 6


def test_zeros_stay_zeros() -> None:
    bound = norm_bound(3.0, 5, rejection=0.5)
    assert round_within(np.zeros(5), bound).tolist() == [0] * 5


@pytest.mark.parametrize("bad", [math.nan, math.inf, 2.0**32])
def test_vectors_without_exact_squares_are_refused(bad: float) -> None:
    with pytest.raises(EncodingError, match="norm"):
        round_within(np.array([bad, 0.0]), norm_bound(1.0, 2, rejection=0.5))
    with pytest.raises(EncodingError, match="shape"):
        round_within(np.zeros(3), norm_bound(1.0, 2, rejection=0.5))


@settings(deadline=None)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=12))
def test_l1_of_integers_is_within_what_their_l2_allows(values: list[int]) -> None:
    square = sum(value * value for value in values)
    bound = NormBound(order=2, limit=square, size=len(values))
    assert sum(map(abs, values)) <= bound.l1
    assert max(map(abs, values)) <= bound.peak
