"""A figure of utility: what it measures, and how.

A figure that is added to ``ratings.RATING_FIGURES`` or ``ranking.RANKING_FIGURES`` is measured of
every system that predicts ratings or ranks items, and known to gates and reports.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from secure_fedrec.core.arrays import FloatArray, IntArray

SHARE: Final = "share, 0 to 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilityFigure:
    """One figure of how well a model does on test examples.

    Args:
        about: what it measures.
        unit: of its values.
        error: whether it is an error; of all others more is better.
        initials: whether the first word of its name is written in capitals.
    """

    about: str
    unit: str
    error: bool = False
    initials: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingFigure(UtilityFigure):
    """A figure of predicted ratings.

    Args:
        value: the figure of differences float64[N], N > 0, of predictions from ratings.
    """

    value: Callable[[FloatArray], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingFigure(UtilityFigure):
    """A figure of ranked items: the mean of a gain over clients, each with one item to be found.

    Args:
        gain: float64[N] of the item's places int64[N], from 1; 0 beyond the cutoff whatever it is.
    """

    gain: Callable[[IntArray], FloatArray]
