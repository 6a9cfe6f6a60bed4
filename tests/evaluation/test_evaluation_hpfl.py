"""HPFL's measures against cases small enough to do by hand."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation import (
    area_under_curve,
    degree_of_agreement,
    level_hits,
    mean_scores,
    ndcg_of_characteristics,
    score_quality,
    total_dissimilarity,
)

STARS = np.arange(1.0, 6.0)
NOBODY = np.nan


@pytest.mark.parametrize(
    ("rule", "predicted", "level"),
    [
        ("nearest", 0.2, 1.0),
        ("nearest", 2.49, 2.0),
        ("nearest", 2.5, 3.0),
        ("nearest", 7.0, 5.0),
        ("ceil", 0.2, 1.0),
        ("ceil", 2.0, 2.0),
        ("ceil", 2.01, 3.0),
        ("ceil", 7.0, 5.0),
    ],
)
def test_level_of_a_prediction(rule: str, predicted: float, level: float) -> None:
    hits = level_hits(np.full(5, predicted), STARS, STARS, rule=rule)  # type: ignore[arg-type]
    np.testing.assert_array_equal(hits, level == STARS)


def test_half_stars_have_their_own_borders() -> None:
    levels = np.arange(0.5, 5.5, 0.5)
    predicted, actual = np.array([2.24, 2.26]), np.array([2.0, 2.5])
    assert level_hits(predicted, actual, levels).all()


def test_ceil_is_always_right_on_yes_and_always_wrong_on_no() -> None:
    """What the published rule does to answers."""
    predicted, actual = np.array([0.1, 0.9, 0.1, 0.9]), np.array([1.0, 1.0, 0.0, 0.0])
    hits = level_hits(predicted, actual, np.array([0.0, 1.0]), rule="ceil")
    assert hits.tolist() == [True, True, False, False]


def test_unknown_rule() -> None:
    with pytest.raises(ConfigError, match="nearest, ceil"):
        level_hits(STARS, STARS, STARS, rule="floor")  # type: ignore[arg-type]


def test_quality_of_ratings() -> None:
    quality = score_quality(np.array([1.2, 3.6, 9.0]), np.array([1.0, 3.0, 5.0]), STARS)
    assert quality.accuracy == pytest.approx(2 / 3)
    assert quality.mae == pytest.approx((0.2 + 0.6) / 3)  # 9 is clipped to 5
    assert quality.rmse == pytest.approx(math.sqrt((0.04 + 0.36) / 3))
    assert quality.auc is None
    assert set(quality.metrics()) == {"accuracy", "mae", "rmse"}


def test_quality_of_answers() -> None:
    predicted, actual = np.array([0.9, 0.4, 0.4, 0.2]), np.array([1.0, 1.0, 0.0, 0.0])
    quality = score_quality(predicted, actual, np.array([0.0, 1.0]))
    assert quality.accuracy == 0.75
    assert quality.auc == pytest.approx(3.5 / 4)


@pytest.mark.parametrize("predicted", [np.array([]), np.array([1.0, 2.0]), np.array([np.nan])])
def test_nothing_to_measure(predicted: np.ndarray) -> None:
    actual = np.array([1.0])[: len(predicted)]
    with pytest.raises(ValueError, match=r"predictions? "):
        score_quality(predicted, actual, STARS)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_area_with_ties_is_that_of_scikit_learn(rows: list[tuple[int, bool]]) -> None:
    predicted = np.array([float(score) for score, _ in rows])
    positive = np.array([label for _, label in rows])
    found = area_under_curve(predicted, positive)
    if positive.all() or not positive.any():
        assert found is None
    else:
        assert found == pytest.approx(roc_auc_score(positive, predicted))


def test_mean_scores_per_attribute() -> None:
    attributes = np.array([[1, 0, 0], [1, 1, 0]], dtype=bool)
    means = mean_scores(
        np.array([0, 0, 2]), np.array([0, 1, 1]), np.array([1.0, 4.0, 3.0]), attributes, n_users=3
    )
    expected = [[2.5, 4.0, NOBODY], [NOBODY] * 3, [3.0, 3.0, NOBODY]]
    np.testing.assert_array_equal(means, expected)


def test_agreement_by_hand() -> None:
    """Users 0, 1 at one client, 2, 3 at another; only pairs across clients count.

    Attribute 0: the model puts 0 ahead of 2 and of 3, and 2 ahead of 1, 3 ahead of 1. Means agree
    on (0, 2) and (2, 1); 3 has no record. Attribute 1: 0 and 2 tie in the model, 1 ahead of 2
    wrongly.
    """
    hidden = np.array([[0.9, 0.5], [0.1, 0.7], [0.5, 0.5], [0.4, 0.0]])
    means = np.array([[5.0, 1.0], [2.0, 1.0], [3.0, 4.0], [NOBODY, NOBODY]])
    clients = np.array([0, 0, 1, 1])
    # Attribute 0: 2 of 2 pairs. Attribute 1: 0 of 1 pair.
    assert degree_of_agreement(hidden, means, clients) == pytest.approx((1.0 + 0.0) / 2)


def test_ties_of_mean_scores_do_not_agree() -> None:
    hidden, means = np.array([[1.0], [0.0]]), np.array([[3.0], [3.0]])
    assert degree_of_agreement(hidden, means, np.array([0, 1])) == 0.0
    assert degree_of_agreement(hidden, means, np.array([0, 1]), ties=False) is None


def test_guessing_is_right_about_half_of_the_pairs_without_ties() -> None:
    generator = np.random.default_rng(2)
    means = generator.integers(0, 2, size=(200, 3)).astype(np.float64)
    hidden, clients = generator.normal(size=means.shape), np.arange(200) % 4
    tied = degree_of_agreement(hidden, means, clients)
    untied = degree_of_agreement(hidden, means, clients, ties=False)
    assert tied == pytest.approx(0.25, abs=0.03)
    assert untied == pytest.approx(0.5, abs=0.05)


def test_agreement_needs_two_clients() -> None:
    hidden, means = np.array([[1.0], [0.0]]), np.array([[3.0], [2.0]])
    assert degree_of_agreement(hidden, means, np.array([0, 0])) is None


def test_agreement_of_perfect_turned_and_random_models() -> None:
    generator = np.random.default_rng(1)
    means = generator.normal(size=(60, 4))
    clients = np.arange(60) % 3
    assert degree_of_agreement(means, means, clients) == 1.0
    assert degree_of_agreement(-means, means, clients) == 0.0
    chance = degree_of_agreement(generator.normal(size=(60, 4)), means, clients)
    assert chance is not None
    assert abs(chance - 0.5) < 0.06


def test_ndcg_by_hand() -> None:
    """h = (0.2, 1.2, 0.7), gains (0, 1, 0.5); by mean score the order is attributes 2, 1, 0."""
    hidden = np.array([[0.2, 1.2, 0.7]])
    means = np.array([[1.0, 3.0, 4.0]])
    discounts = [1.0, 1 / (math.log2(2) + 1), 1 / (math.log2(3) + 1)]
    reached = 0.5 * discounts[0] + 1.0 * discounts[1]
    ideal = 1.0 * discounts[0] + 0.5 * discounts[1]
    assert ndcg_of_characteristics(hidden, means) == pytest.approx(reached / ideal)


def test_ndcg_of_equal_mean_scores_is_that_of_their_orders_mean() -> None:
    """The DCG of every order that sorts the mean scores, averaged by hand."""
    hidden, means = np.array([[0.2, 1.2, 0.7, 0.0]]), np.array([[3.0, 3.0, 4.0, 3.0]])
    discounts = 1 / (np.log2(np.arange(1, 5)) + 1)
    orders = [(2, *rest) for rest in permutations((0, 1, 3))]
    reached = np.mean([hidden[0, list(order)] @ discounts for order in orders])
    ideal = np.sort(hidden[0])[::-1] @ discounts
    assert ndcg_of_characteristics(hidden, means) == pytest.approx(reached / ideal)


@given(st.integers(0, 1000))
def test_ndcg_does_not_depend_on_the_numbers_of_attributes(seed: int) -> None:
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=(5, 6))
    means = generator.integers(0, 3, size=(5, 6)).astype(float)
    means[generator.random(size=means.shape) < 0.3] = NOBODY
    renumbered = generator.permutation(6)
    assert ndcg_of_characteristics(hidden[:, renumbered], means[:, renumbered]) == pytest.approx(
        ndcg_of_characteristics(hidden, means)
    )


def test_ndcg_leaves_out_what_has_no_record() -> None:
    hidden = np.array([[0.2, 1.2, 0.7, 9.0], [5.0, 5.0, 5.0, 5.0], [1.0, 2.0, 3.0, 4.0]])
    means = np.array([[1.0, 3.0, 4.0, NOBODY], [1.0, 2.0, 3.0, 4.0], [NOBODY] * 4])
    # The second user's h is flat and the third has no record: the first alone is judged.
    assert ndcg_of_characteristics(hidden, means) == pytest.approx(
        ndcg_of_characteristics(hidden[:1, :3], means[:1, :3])
    )
    assert ndcg_of_characteristics(hidden[1:], means[1:]) is None


def test_ndcg_is_one_where_orders_agree_and_no_constant_matters() -> None:
    generator = np.random.default_rng(2)
    hidden = generator.normal(size=(30, 6))
    assert ndcg_of_characteristics(hidden, hidden) == pytest.approx(1.0)
    means = generator.normal(size=(30, 6))
    moved = hidden + generator.normal(size=(30, 1))
    assert ndcg_of_characteristics(moved, means) == pytest.approx(
        ndcg_of_characteristics(hidden, means)
    )


def test_dissimilarity_by_hand() -> None:
    """Two attributes: equal directions and right angles; both orders of the pair count."""
    one = np.array([[1.0, 0.0], [1.0, 0.0]])
    other = np.array([[2.0, 0.0], [0.0, 3.0]])
    assert total_dissimilarity([one, other]) == pytest.approx(2 * (0.0 + 1.0) / 2)
    assert total_dissimilarity([one, -one]) == pytest.approx(2 * 2.0)
    assert total_dissimilarity([one, one, one]) == pytest.approx(0.0)


def test_dissimilarity_of_zero_vectors() -> None:
    one, nothing = np.array([[1.0, 0.0]]), np.zeros((1, 2))
    assert total_dissimilarity([one, nothing]) == pytest.approx(2.0)
    assert total_dissimilarity([nothing, nothing]) == pytest.approx(2.0)
