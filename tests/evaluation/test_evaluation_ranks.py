"""Places and figures of held-out items, against slow and obvious ways of counting them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.data.ratings import RatingTable
from secure_fedrec.evaluation.intervals import paired_interval
from secure_fedrec.evaluation.protocols import ranking_case
from secure_fedrec.evaluation.ranking import client_quality, held_out_rank, ranking_quality
from secure_fedrec.evaluation.ranks import chosen_round, client_figures, client_ranks, quality
from tests.evaluation.test_evaluation_protocols import table_of, tables


@given(tables(), st.integers(0, 3), st.data())
@settings(max_examples=60, deadline=None)
def test_places_are_those_of_a_slow_count(
    table: RatingTable, seed: int, data: st.DataObject
) -> None:
    """Few levels of the scores: ties are common."""
    case = ranking_case(table, seed=seed, negatives=7)
    n, m = table.n_clients, table.n_items
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    scores = rng.integers(0, 4, size=(n, m)).astype(np.float64)
    ranks = client_ranks(case, np.arange(n), scores)
    for client in range(n):
        for item, drawn, place in (
            (case.validation, case.validation_negatives, ranks.validation),
            (case.test, case.test_negatives, ranks.test),
        ):
            if item[client] < 0:
                assert place[client] == 0
                continue
            candidates = np.zeros(m, dtype=np.bool_)
            candidates[drawn[client][drawn[client] >= 0]] = True
            candidates[item[client]] = True
            assert place[client] == held_out_rank(scores[client], int(item[client]), candidates)
        candidates = np.ones(m, dtype=np.bool_)
        candidates[case.rated.of(client)] = False
        if case.validation[client] >= 0:
            candidates[case.validation[client]] = False
        wanted = held_out_rank(scores[client], int(case.test[client]), candidates)
        assert ranks.full[client] == wanted
    some = rng.permutation(n)[: max(1, n // 2)]
    part = client_ranks(case, some, scores[some].astype(np.float32))
    assert all(np.array_equal(a, b[some]) for a, b in zip(part, ranks, strict=True))


def test_a_score_that_is_no_number_is_refused_by_client() -> None:
    case = ranking_case(table_of([(0, 1), (0, 2), (1, 0), (1, 3)]), seed=0)
    scores = np.zeros((2, 4))
    scores[1, 2] = np.nan
    with pytest.raises(ValueError, match="client 1 is not finite"):
        client_ranks(case, np.arange(2), scores)
    with pytest.raises(ValueError, match="scores of"):
        client_ranks(case, np.arange(2), scores[:, :3])


def test_cold_test_items_are_counted_apart() -> None:
    """Client 0's test item 3 is nobody's; client 1's item 2 is trained on by client 0."""
    rows = [(0, 2), (0, 0), (0, 3), (1, 0), (1, 1), (1, 2)]
    times = [1, 2, 3, 1, 2, 3]
    case = ranking_case(table_of(rows, times=times, items=9), seed=0, negatives=3)
    assert case.test.tolist() == [3, 2]
    scores = np.tile(np.where(np.arange(9) == 3, 1.0, 0.0), (2, 1))
    figures = client_figures(case, np.arange(2), client_ranks(case, np.arange(2), scores), cutoff=1)
    found = quality(figures)
    assert found["cold_test_items"] == 1
    assert found["hit_rate_at_1"] == 0.5
    assert found["cold_hit_rate_at_1"] == 1.0
    assert found["warm_hit_rate_at_1"] == 0.0
    assert np.array_equal(figures["warm_hit_rate_at_1"], [np.nan, 0.0], equal_nan=True)


def test_figures_of_clients_average_to_those_of_all() -> None:
    ranks = np.array([1, 3, 10, 11, 500])
    each = client_quality(ranks)
    assert {name: values.mean() for name, values in each.items()} == ranking_quality(ranks)
    assert each["ndcg_at_10"].tolist() == [1.0, 0.5, 1 / np.log2(11), 0.0, 0.0]
    assert np.isnan(client_quality(np.array([0, 1]))["hit_rate_at_10"]).tolist() == [True, False]


def test_paired_differences_keep_what_clients_have_in_common() -> None:
    """Two methods that differ by 0.05 on clients who differ by far more."""
    rng = np.random.default_rng(0)
    clients = rng.random(200) * 0.9
    found = paired_interval(clients + 0.05, clients, seed=0)
    assert found.low == pytest.approx(0.05, abs=0.02)
    assert found.low > 0
    noisy = clients + 0.05 + rng.normal(scale=0.1, size=(5, 200))
    five = paired_interval(noisy, np.tile(clients, (5, 1)), seed=0)
    assert five.n_clients == 200  # not 1,000: runs on the same clients are not new clients
    one = paired_interval(noisy[0], clients, seed=0)
    assert five.high - five.low < one.high - one.low
    gaps = np.where(np.arange(200) < 50, np.nan, clients)
    assert paired_interval(gaps, clients, seed=0).n_clients == 150
    with pytest.raises(ValueError, match="same clients"):
        paired_interval(clients, clients[1:], seed=0)
    with pytest.raises(ValueError, match="result of both"):
        paired_interval(np.full(3, np.nan), np.ones(3), seed=0)


def test_a_model_is_chosen_on_validation_whatever_the_test_says() -> None:
    def of(validation: float, ndcg: float, test: float) -> dict[str, float]:
        return {
            "validation_hit_rate_at_10": validation,
            "validation_ndcg_at_10": ndcg,
            "hit_rate_at_10": test,
        }

    rounds = [of(0.3, 0.1, 0.9), of(0.5, 0.2, 0.1), of(0.5, 0.3, 0.2), of(0.5, 0.3, 0.8)]
    assert chosen_round(rounds) == 2
    with pytest.raises(ValueError, match="validation items"):
        chosen_round([{"hit_rate_at_10": 0.9}])
    with pytest.raises(ValueError, match="validation items"):
        chosen_round([])
