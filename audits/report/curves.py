"""Reads a ROC curve at chosen false-positive rates, and finds the smallest rate with data."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FPR_FLOOR = 1e-4
"""Left edge of every log-log ROC chart."""


def negatives(finding: Mapping[str, Any]) -> int:
    """Counts the pairs whose true answer is "no"."""
    units = finding["units"]
    return max(int(units["pairs"]) - int(units["positives"]), 0)


def resolution(finding: Mapping[str, Any]) -> float:
    """Returns the smallest false-positive rate other than 0 that the units can show.

    With ``n`` negatives the curve has no point between 0 and ``1 / n``; whatever is drawn there is
    an interpolation, so charts and tables stop at this rate.
    """
    return 1.0 / max(negatives(finding), 1)


def tpr_at(roc: Mapping[str, Sequence[float]], rates: Sequence[float]) -> NDArray[np.float64]:
    """Reads the true-positive rate at each false-positive rate.

    Points are joined by straight lines in linear space, which is what the area under the curve
    assumes for tied scores; joining them in log space would show other rates.

    Args:
        roc: ``fpr`` and ``tpr``, both rising.
        rates: false-positive rates to read at.

    Returns:
        One true-positive rate per entry of ``rates``.
    """
    fpr = np.asarray(roc["fpr"], dtype=np.float64)
    tpr = np.asarray(roc["tpr"], dtype=np.float64)
    # A vertical step repeats one FPR; its top is what the attacker gets at that rate.
    last_of_step = np.append(np.diff(fpr) > 0, True)
    hits = np.interp(np.asarray(rates, dtype=np.float64), fpr[last_of_step], tpr[last_of_step])
    return np.asarray(hits, dtype=np.float64)


def tpr_reached(roc: Mapping[str, Sequence[float]], rates: Sequence[float]) -> NDArray[np.float64]:
    """The largest true-positive rate of a threshold whose false-positive rate stays within each.

    The figure that findings and gates use: pairs with equal scores are all accused or none.

    Args:
        roc: ``fpr`` and ``tpr``, both rising.
        rates: false-positive rates to read at.

    Returns:
        One true-positive rate per entry of ``rates``.
    """
    fpr = np.asarray(roc["fpr"], dtype=np.float64)
    tpr = np.concatenate([[0.0], np.asarray(roc["tpr"], dtype=np.float64)])
    within = np.searchsorted(fpr, np.asarray(rates, dtype=np.float64), side="right")
    return np.asarray(tpr[within], dtype=np.float64)
