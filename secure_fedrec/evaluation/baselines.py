"""Trivial rules that a model must beat to be worth its cost.

A rule is *local* if every client can follow it alone, from its own training examples: no message,
no sum, nothing to protect. The others need sums over clients, as a model does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.evaluation.figures import LOWER_IS_BETTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The quality of a trivial rule.

    Args:
        figures: by the names of the model's own.
        local: whether a client needs only its own examples.
    """

    figures: Mapping[str, float]
    local: bool = False


class Pairs(NamedTuple):
    """Ratings, or other scores, of users for items, as columns.

    Attributes:
        users: int[N].
        items: int[N].
        scores: float64[N].
    """

    users: npt.NDArray[np.integer]
    items: npt.NDArray[np.integer]
    scores: FloatArray


def score_rules(
    train: Pairs, test: Pairs, quality: Callable[[FloatArray], Mapping[str, float]]
) -> dict[str, Rule]:
    """Four rules that predict scores from means: global, user, item, and user mean + item bias.

    The item bias is an item's mean residual, of scores less their user's mean. A user or an item
    without training scores has the mean of all, and a bias of 0.

    Args:
        train: ratings that means are taken of; not empty.
        test: ratings that are predicted.
        quality: figures of predicted scores, float64[N], of the test pairs.
    """
    overall = float(np.mean(train.scores))
    users = _means(train.users, train.scores, test.users, overall)
    items = _means(train.items, train.scores, test.items, overall)
    residuals = train.scores - _means(train.users, train.scores, train.users, overall)
    biases = _means(train.items, residuals, test.items, 0.0)
    return {
        "global mean": Rule(figures=quality(np.full(len(test.scores), overall))),
        "user mean": Rule(figures=quality(users), local=True),
        "item mean": Rule(figures=quality(items)),
        "user mean + item bias": Rule(figures=quality(users + biases)),
    }


def best_gain(
    own: float, rules: Mapping[str, Rule], metric: str, *, local_only: bool
) -> tuple[str, float] | None:
    """The best rule and the gain over it, in the metric's unit; positive is better.

    Args:
        own: the model's figure.
        rules: by name.
        metric: which figure.
        local_only: leave out rules that need sums over clients, which cannot be used if no exact
            sum is released.

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
    size = 1 + max(int(groups.max()), int(asked.max(initial=0)))
    counts = np.bincount(groups, minlength=size)
    sums = np.bincount(groups, values, minlength=size)
    means = np.divide(sums, counts, out=np.full(size, absent), where=counts > 0)
    return np.asarray(means[asked])
