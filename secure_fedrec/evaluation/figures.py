"""The figures of utility: one record each, read by gates, reports and their reference."""

from collections.abc import Mapping
from types import MappingProxyType

from secure_fedrec.evaluation.figure import SHARE, UtilityFigure
from secure_fedrec.evaluation.ranking import CUTOFF, RANKING_FIGURES
from secure_fedrec.evaluation.ratings import RATING_FIGURES

FIGURES: Mapping[str, UtilityFigure] = MappingProxyType(
    {
        **RATING_FIGURES,
        "auc": UtilityFigure(
            about="area under the ROC curve: how often a positive example is scored above a "
            "negative one, ties as one half; measured where there are two levels or classes",
            unit=SHARE,
            initials=True,
        ),
        "accuracy": UtilityFigure(
            about="predictions that are the actual level or class", unit=SHARE
        ),
        "accuracy_mixed": UtilityFigure(
            about="accuracy over the examples of users who have several classes, so that knowing "
            "the user does not answer them",
            unit=SHARE,
        ),
        **{f"{name}_at_{CUTOFF}": figure for name, figure in RANKING_FIGURES.items()},
    }
)
"""Figures of utility by name, in the order of reports; the data set determines which are
measured."""

LOWER_IS_BETTER = frozenset(name for name, figure in FIGURES.items() if figure.error)
"""Figures that are errors; of all others more is better."""


def figures_of(kind: type[UtilityFigure]) -> tuple[str, ...]:
    """Names of the figures of one kind, in the order of reports.

    Args:
        kind: ``RatingFigure`` or ``RankingFigure``.
    """
    return tuple(name for name, figure in FIGURES.items() if isinstance(figure, kind))
