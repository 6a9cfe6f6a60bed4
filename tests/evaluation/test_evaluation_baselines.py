"""Trivial rules on data made by hand, and the gain over the best that applies."""

import numpy as np
import pytest

from secure_fedrec.evaluation import Pairs, Rule, best_gain, rating_quality, score_rules

# User 0 rates items 0 and 1 with 5 and 3, user 1 rates items 1 and 2 with 2 and 4.
TRAIN = Pairs(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), np.array([5.0, 3.0, 2.0, 4.0]))
# Pairs without a training rating of the pair; user 2 and item 3 have none at all.
TEST = Pairs(np.array([0, 1, 2, 0]), np.array([2, 0, 1, 3]), np.array([4.0, 5.0, 1.0, 2.0]))


def predictions() -> dict[str, list[float]]:
    seen: list[list[float]] = []

    def quality(predicted: np.ndarray) -> dict[str, float]:
        seen.append(predicted.tolist())
        return {"place": float(len(seen) - 1)}

    rules = score_rules(TRAIN, TEST, quality)
    return {name: seen[int(rule.figures["place"])] for name, rule in rules.items()}


def test_rules_predict_what_their_names_say() -> None:
    assert predictions() == {
        "global mean": [3.5, 3.5, 3.5, 3.5],
        "user mean": [4.0, 3.0, 3.5, 4.0],
        "item mean": [4.0, 5.0, 2.5, 3.5],
        # Biases: item 0: 5 - 4; item 1: (3 - 4 + 2 - 3) / 2; item 2: 4 - 3; item 3: none.
        "user mean + item bias": [5.0, 4.0, 2.5, 4.0],
    }


def test_rules_are_measured_as_models_are() -> None:
    def quality(predicted: np.ndarray) -> dict[str, float]:
        return rating_quality(predicted, TEST.scores, low=1, high=5)

    rules = score_rules(TRAIN, TEST, quality)
    assert rules["user mean + item bias"].figures["mae"] == pytest.approx((1 + 1 + 1.5 + 2) / 4)
    assert rules["user mean"].figures["rmse"] == pytest.approx(np.sqrt((0 + 4 + 6.25 + 4) / 4))
    assert [name for name, rule in rules.items() if rule.local] == ["user mean"]


RULES = {
    "own": Rule(figures={"rmse": 1.04, "auc": 0.6}, local=True),
    "sums": Rule(figures={"rmse": 0.96, "auc": 0.7}),
}


@pytest.mark.parametrize(
    ("own", "metric", "local_only", "expected"),
    [
        (0.94, "rmse", False, ("sums", 0.02)),
        (1.00, "rmse", False, ("sums", -0.04)),
        (1.00, "rmse", True, ("own", 0.04)),
        (1.11, "rmse", True, ("own", -0.07)),
        (0.75, "auc", False, ("sums", 0.05)),
        (0.65, "auc", True, ("own", 0.05)),
    ],
)
def test_the_gain_is_over_the_best_rule_that_applies(
    own: float, metric: str, local_only: bool, expected: tuple[str, float]
) -> None:
    found = best_gain(own, RULES, metric, local_only=local_only)
    assert found is not None
    assert found[0] == expected[0]
    assert found[1] == pytest.approx(expected[1])


def test_nothing_is_compared_with_nothing() -> None:
    assert best_gain(1.0, RULES, "mae", local_only=False) is None
    assert best_gain(1.0, {"sums": RULES["sums"]}, "rmse", local_only=True) is None
