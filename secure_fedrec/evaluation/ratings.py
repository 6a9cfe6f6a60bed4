"""Rating-prediction error: MAE and RMSE of predictions clipped to the rating scale."""

from dataclasses import dataclass

import numpy as np

from secure_fedrec.core.arrays import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingError:
    """Error on a test set, in rating points.

    Args:
        mae: mean absolute error.
        rmse: root mean squared error.
    """

    mae: float
    rmse: float


def rating_error(
    predicted: FloatArray, actual: FloatArray, *, low: float, high: float
) -> RatingError:
    """MAE and RMSE of predictions clipped to [low, high], as in FedRec's evaluation.

    Args:
        predicted: float64[N].
        actual: float64[N], N > 0.
        low: lowest rating of the scale.
        high: highest rating of the scale.
    """
    difference = np.clip(predicted, low, high) - actual
    mae = float(np.mean(np.abs(difference)))
    return RatingError(mae=mae, rmse=float(np.sqrt(np.mean(difference**2))))
