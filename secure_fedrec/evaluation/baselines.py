"""Trivial rules: what a model must beat before anything is paid for it.

A rule is *local* if every client can follow it alone, from its own training examples: no message, no
sum, nothing to protect. The others need sums over clients, which are as federated as a model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fedrec.arrays import FloatArray
from secure_fedrec.evaluation.ratings import rating_error

__all__ = ["LOWER_IS_BETTER", "LabelledRatings", "Rule", "best_gain", "rating_rules"]

LOWER_IS_BETTER = frozenset({"mae", "rmse"})
"""Figures that are errors; of all others more is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A trivial rule's quality.

    Args:
        figures: by the names of the model's own.
        local: whether a client needs nothing but its own examples.
    """

    figures: Mapping[str, float]
    local: bool = False


class LabelledRatings(NamedTuple):
    """Ratings as columns.

    Attributes:
        clients: int[N].
        items: int[N].
        ratings: float64[N].
    """

    clients: npt.NDArray[np.integer]
    items: npt.NDArray[np.integer]
    ratings: FloatArray


def rating_rules(
    train: LabelledRatings, test: LabelledRatings, *, low: float, high: float
) -> dict[str, Rule]:
    """MAE and RMSE of four rules that predict ratings, clipped to the scale.

    The item bias is an item's mean residual, of ratings less their user's mean. Who or what has no
    training rating is predicted by the mean of all, and has a bias of 0.

    Args:
        train: not empty.
        test: not empty.
        low, high: ends of the rating scale.
    """
    overall = float(np.mean(train.ratings))
    users = _means(train.clients, train.ratings, test.clients, overall)
    items = _means(train.items, train.ratings, test.items, overall)
    residuals = train.ratings - _means(train.clients, train.ratings, train.clients, overall)
    biases = _means(train.items, residuals, test.items, 0.0)
    predicted = {
        "global mean": np.full(len(test.ratings), overall),
        "user mean": users,
        "item mean": items,
        "user mean + item bias": users + biases,
    }
    rules = {}
    for name, values in predicted.items():
        error = rating_error(values, test.ratings, low=low, high=high)
        figures = {"mae": error.mae, "rmse": error.rmse}
        rules[name] = Rule(figures=figures, local=name == "user mean")
    return rules


def best_gain(
    own: float, rules: Mapping[str, Rule], metric: str, *, local_only: bool
) -> tuple[str, float] | None:
    """The best rule and the gain over it, in the metric's unit; positive is better.

    Args:
        own: the model's figure.
        rules: by name.
        metric: which figure.
        local_only: leave out rules that need sums over clients: beside a promise that no exact sum
            is released they cannot be followed.

    Returns:
        None where no rule has the figure.
    """
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    gains = {
        name: sign * (own - rule.figures[metric])
        for name, rule in rules.items()
        if metric in rule.figures and (rule.local or not local_only)
    }
    return min(gains.items(), key=lambda found: found[1], default=None)


def _means(
    groups: npt.NDArray[np.integer],
    values: FloatArray,
    asked: npt.NDArray[np.integer],
    absent: float,
) -> FloatArray:
    """Mean value of each group asked for; ``absent`` for one without values."""
    size = 1 + max(int(groups.max()), int(asked.max()))
    counts = np.bincount(groups, minlength=size)
    sums = np.bincount(groups, values, minlength=size)
    means = np.divide(sums, counts, out=np.full(size, absent), where=counts > 0)
    return np.asarray(means[asked])
