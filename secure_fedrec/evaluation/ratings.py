"""Rating-prediction error: MAE and RMSE of predictions clipped to the rating scale."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.evaluation.figure import RatingFigure

RATING_FIGURES: Mapping[str, RatingFigure] = MappingProxyType(
    {
        "mae": RatingFigure(
            about="mean absolute error of predicted ratings, clipped to their scale",
            unit="rating points",
            error=True,
            initials=True,
            value=lambda differences: float(np.mean(np.abs(differences))),
        ),
        "rmse": RatingFigure(
            about="root mean squared error of predicted ratings, clipped to their scale",
            unit="rating points",
            error=True,
            initials=True,
            value=lambda differences: float(np.sqrt(np.mean(differences**2))),
        ),
    }
)
"""Figures of predicted ratings by name, in the order of reports."""


def rating_quality(
    predicted: FloatArray, actual: FloatArray, *, low: float, high: float
) -> dict[str, float]:
    """Figures of predictions clipped to [low, high], as in FedRec's evaluation.

    Args:
        predicted: float64[N].
        actual: float64[N], N > 0.
        low: lowest rating of the scale.
        high: highest rating of the scale.

    Returns:
        By the names of ``RATING_FIGURES``.
    """
    differences = np.clip(predicted, low, high) - actual
    return {name: figure.value(differences) for name, figure in RATING_FIGURES.items()}
