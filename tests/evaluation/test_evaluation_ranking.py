"""Ranks of held-out items, HR and NDCG."""

import math

import numpy as np
import pytest
from scipy.stats import rankdata

from secure_fedrec.evaluation.ranking import held_out_rank, midranks, ranking_quality

ALL = np.ones(5, dtype=np.bool_)


def test_a_rank_counts_the_candidates_before_it() -> None:
    scores = np.array([0.1, 0.9, 0.5, 0.7, 0.3])
    assert [held_out_rank(scores, item, ALL) for item in range(5)] == [5, 1, 3, 2, 4]
    some = np.array([True, False, True, False, True])
    assert held_out_rank(scores, 2, some) == 1


def test_a_model_that_tells_nothing_apart_finds_nothing() -> None:
    assert held_out_rank(np.zeros(5), 2, ALL) == 5


@pytest.mark.parametrize("shape", [(1,), (7,), (4, 1), (5, 40), (3, 2, 9)])
@pytest.mark.parametrize("levels", [1, 3, 1000])
def test_midranks_are_those_of_scipy(shape: tuple[int, ...], levels: int) -> None:
    values = np.random.default_rng(levels).integers(levels, size=shape) / 7 - 1
    np.testing.assert_array_equal(midranks(values), rankdata(values, axis=-1))
    values.reshape(-1)[0] = np.nan
    np.testing.assert_array_equal(midranks(values), rankdata(values, axis=-1))
    values.reshape(-1)[0] = -np.inf
    np.testing.assert_array_equal(midranks(values), rankdata(values, axis=-1))


def test_what_cannot_be_ranked_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a candidate"):
        held_out_rank(np.zeros(5), 2, ~ALL)
    with pytest.raises(ValueError, match="not finite"):
        held_out_rank(np.array([0.0, np.nan, 0.0, 0.0, 0.0]), 2, ALL)
    with pytest.raises(ValueError, match="nothing to rank"):
        ranking_quality(np.array([], dtype=np.int64))


def test_quality_of_known_ranks() -> None:
    found = ranking_quality(np.array([1, 3, 10, 11]))
    assert found["hit_rate_at_10"] == 0.75
    gains = [1.0, 0.5, 1 / math.log2(11), 0.0]
    assert found["ndcg_at_10"] == pytest.approx(sum(gains) / 4)
    assert ranking_quality(np.array([1, 2]), cutoff=1) == {"hit_rate_at_1": 0.5, "ndcg_at_1": 0.5}
