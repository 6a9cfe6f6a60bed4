"""What the figures of utility are: one record each, read by gates, reports and their reference."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class UtilityFigure(NamedTuple):
    """One figure of how well a model does on test examples.

    Attributes:
        about: what it measures.
        unit: of its values.
        error: whether it is an error; of all others more is better.
    """

    about: str
    unit: str
    error: bool = False


_SHARE = "share, 0 to 1"

FIGURES: Mapping[str, UtilityFigure] = MappingProxyType(
    {
        "mae": UtilityFigure(
            "mean absolute error of predicted ratings, clipped to their scale",
            "rating points",
            error=True,
        ),
        "rmse": UtilityFigure(
            "root mean squared error of predicted ratings, clipped to their scale",
            "rating points",
            error=True,
        ),
        "auc": UtilityFigure(
            "area under the ROC curve: how often a positive example is scored above a negative "
            "one, ties as one half; measured where there are two levels or classes",
            _SHARE,
        ),
        "accuracy": UtilityFigure("predictions that are the actual level or class", _SHARE),
        "accuracy_mixed": UtilityFigure(
            "accuracy over the examples of users who have several classes, so that knowing the "
            "user does not answer them",
            _SHARE,
        ),
        "hit_rate_at_10": UtilityFigure(
            "clients whose held-out item is among the first ten", _SHARE
        ),
        "ndcg_at_10": UtilityFigure(
            "mean of 1 / log2(place + 1) of the held-out item, 0 beyond the tenth place", _SHARE
        ),
    }
)
"""Figures of utility by name, in the order of reports; which of them are measured is the data
set's."""

LOWER_IS_BETTER = frozenset(name for name, figure in FIGURES.items() if figure.error)
"""Figures that are errors; of all others more is better."""
