"""Rank-biased overlap: the formula read off slowly, its ends, and its order of importance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.evaluation.overlap import rank_biased_overlap, top_items

lists = st.integers(1, 12).flatmap(
    lambda k: st.tuples(*[st.lists(st.integers(0, 15), min_size=k, max_size=k, unique=True)] * 2)
)


@given(lists, st.floats(0.05, 0.97))
@settings(max_examples=60, deadline=None)
def test_it_is_the_sum_over_all_depths(pair: tuple[list[int], list[int]], p: float) -> None:
    """To infinity, the agreement at the last depth going on: the definition of extrapolation."""
    first, second = pair
    k = len(first)
    agreement = [len(set(first[:d]) & set(second[:d])) / d for d in range(1, k + 1)]
    slow = sum((1 - p) * p ** (d - 1) * agreement[min(d, k) - 1] for d in range(1, 900))
    found = rank_biased_overlap(np.array([first]), np.array([second]), persistence=p)
    assert found[0] == pytest.approx(slow, abs=1e-9)


def test_equal_rankings_score_one_and_disjoint_ones_nothing() -> None:
    rows = np.array([np.arange(50), np.arange(50)[::-1]])
    assert rank_biased_overlap(rows, rows) == pytest.approx([1.0, 1.0])
    assert rank_biased_overlap(rows, rows + 50).tolist() == [0.0, 0.0]


def test_a_swap_at_the_top_costs_more_than_one_below() -> None:
    whole = np.arange(50)
    top, low = whole.copy(), whole.copy()
    top[[0, 1]], low[[48, 49]] = top[[1, 0]], low[[49, 48]]
    high, less = rank_biased_overlap(np.stack([whole, whole]), np.stack([low, top]))
    assert 1 > high > less


def test_top_items_are_in_order_and_ties_by_number() -> None:
    scores = np.array([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    assert top_items(scores, 3).tolist() == [[1, 2, 3], [0, 1, 2]]


def test_what_is_no_ranking_is_refused() -> None:
    one = np.array([[0, 1]])
    for first, second, p in (
        (one, np.array([[0, 1, 2]]), 0.9),
        (one, one, 1.0),
        (one * 0, one, 0.9),
    ):
        with pytest.raises(ValueError, match=r"compared|persistence|twice"):
            rank_biased_overlap(first, second, persistence=p)
    with pytest.raises(ValueError, match="depth"):
        top_items(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="finite"):
        top_items(np.array([[np.nan, 1.0]]), 1)
