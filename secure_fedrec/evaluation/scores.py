"""Accuracy, AUC, MAE and RMSE of predicted scores (HPFL, Table 2)."""

from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation.ratings import rating_quality

AccuracyRule: TypeAlias = Literal["nearest", "ceil"]

ACCURACY_RULES: Final = ("nearest", "ceil")
"""How a real prediction becomes a level: the nearest one, or the next one above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreQuality:
    """Quality of predicted scores.

    Args:
        accuracy: share of predictions that become the actual level.
        auc: area under the ROC curve; None where scores have more than two levels, or where only
            one of the two occurs.
        mae: mean absolute error, in units of a score.
        rmse: root mean squared error, in units of a score.
    """

    accuracy: float
    auc: float | None
    mae: float
    rmse: float

    def metrics(self) -> dict[str, float]:
        """The measures that exist, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def score_quality(
    predicted: FloatArray,
    actual: FloatArray,
    levels: FloatArray,
    *,
    rule: AccuracyRule = "nearest",
) -> ScoreQuality:
    """All four measures; errors are of predictions clipped to the levels.

    Args:
        predicted: float64[N].
        actual: float64[N], N > 0, on ``levels``.
        levels: float64[L], ascending.
        rule: rule of the accuracy; one of ``ACCURACY_RULES``.

    Raises:
        ConfigError: the rule is unknown.
        ValueError: the arrays are empty, differ in length, or a prediction is not finite.
    """
    if not len(actual) or predicted.shape != actual.shape:
        raise ValueError(f"{predicted.shape} predictions for {actual.shape} scores")
    if not np.all(np.isfinite(predicted)):
        raise ValueError("a prediction is not finite")
    error = rating_quality(predicted, actual, low=float(levels[0]), high=float(levels[-1]))
    return ScoreQuality(
        accuracy=float(np.mean(level_hits(predicted, actual, levels, rule=rule))),
        auc=area_under_curve(predicted, actual == levels[-1]) if len(levels) == 2 else None,
        mae=error["mae"],
        rmse=error["rmse"],
    )


def level_hits(
    predicted: FloatArray,
    actual: FloatArray,
    levels: FloatArray,
    *,
    rule: AccuracyRule = "nearest",
) -> BoolArray:
    """Which predictions become the actual level.

    HPFL's paper does not say how a real number becomes a rating. "nearest" clips to the levels and
    takes the closest (of two equally close, the upper one). "ceil" is what its public code does: a
    prediction x hits level g if g - 1 < x <= g. With levels 0 and 1 the second rule predicts 1 for
    almost every prediction.

    Args:
        predicted: float64[N].
        actual: float64[N], on ``levels``.
        levels: float64[L], ascending.
        rule: "nearest" or "ceil".

    Returns:
        bool[N].

    Raises:
        ConfigError: the rule is unknown.
    """
    if rule not in ACCURACY_RULES:
        raise ConfigError("evaluation.accuracy", rule, "unknown rule", ACCURACY_RULES)
    borders = (levels[:-1] + levels[1:]) / 2 if rule == "nearest" else levels[:-1]
    side: Literal["left", "right"] = "right" if rule == "nearest" else "left"
    hits: BoolArray = levels[np.searchsorted(borders, predicted, side=side)] == actual
    return hits


def area_under_curve(predicted: FloatArray, positive: BoolArray) -> float | None:
    """Probability that a positive is ranked above a negative; ties count one half.

    Args:
        predicted: float64[N].
        positive: bool[N].

    Returns:
        The area, or None where there is no positive or no negative.
    """
    positives = int(np.count_nonzero(positive))
    negatives = len(positive) - positives
    if not positives or not negatives:
        return None
    # Equal predictions share the mean of their ranks.
    _, place, counts = np.unique(predicted, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    above = float(ranks[positive].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)
