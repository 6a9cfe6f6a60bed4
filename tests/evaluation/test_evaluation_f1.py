"""F1 at both thresholds: against all thresholds tried one by one, and where one half decides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.evaluation.f1 import best_threshold, f1_quality, f1_score

levels = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1e-300, float(np.nextafter(0.5, 1))])


@given(st.lists(st.tuples(levels, st.booleans()), min_size=1, max_size=25))
@settings(max_examples=80, deadline=None)
def test_no_threshold_has_a_larger_f1(pairs: list[tuple[float, bool]]) -> None:
    scores, positive = (np.array(column) for column in zip(*pairs, strict=True))
    best = best_threshold(scores, positive)
    tried = [-1.0, *scores.tolist()]
    values = [f1_score(scores, positive, each) for each in tried]
    assert f1_score(scores, positive, best) == max(values)


def test_f1_is_what_precision_and_recall_make_of_it() -> None:
    scores = np.array([0.9, 0.8, 0.7, 0.2, 0.1])
    positive = np.array([True, False, True, True, False])
    precision, recall = 2 / 3, 2 / 3
    wanted = 2 * precision * recall / (precision + recall)
    assert f1_score(scores, positive, 0.5) == pytest.approx(wanted)
    assert f1_score(scores, np.zeros(5, dtype=bool), 0.95) == 0.0
    assert f1_score(np.array([0.5]), np.array([True]), 0.5) == 0.0  # greater, as printed


def few_positives(seed: int) -> tuple[FloatArray, BoolArray]:
    """One positive in fifty, ranked well, scores far below one half."""
    rng = np.random.default_rng(seed)
    positive = rng.random(5000) < 0.02
    return np.clip(rng.normal(0.03 + 0.12 * positive, 0.03), 0, 1), positive


def test_a_tuned_threshold_finds_what_one_half_never_passes() -> None:
    train, known = few_positives(0)
    test, asked = few_positives(1)
    found = f1_quality(test, asked, train_scores=train, train_positive=known)
    assert found.printed == 0.0
    assert found.tuned > 0.6
    assert 0.05 < found.threshold < 0.15
    share = asked.mean()
    assert found.all_ones == pytest.approx(2 * share / (1 + share))


def test_nothing_of_the_test_pairs_enters_the_threshold() -> None:
    train, known = few_positives(0)
    test, asked = few_positives(1)
    found = [
        f1_quality(each, asked, train_scores=train, train_positive=known).threshold
        for each in (test, test[::-1] + 0.5)
    ]
    assert found[0] == found[1] == best_threshold(train, known)


def test_scores_that_are_no_numbers_are_refused() -> None:
    positive = np.array([True, False])
    with pytest.raises(ValueError, match="finite"):
        f1_score(np.array([0.1, np.nan]), positive, 0.5)
    with pytest.raises(ValueError, match="pairs"):
        best_threshold(np.array([0.1]), positive)
    with pytest.raises(ValueError, match="at least one score"):
        best_threshold(np.zeros(0), np.zeros(0, dtype=bool))
