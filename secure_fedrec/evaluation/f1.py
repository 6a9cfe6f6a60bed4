"""F1 of 0/1 predictions from scores, at a fixed threshold and at one tuned on training data.

A threshold is part of a model: if positives are rare, few scores exceed one half however good the
ranking is, and the threshold determines the figure. So one is also chosen on the training pairs,
and both are reported.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray

PRINTED_THRESHOLD: Final = 0.5
"""Default threshold from which a score between 0 and 1 counts as a 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class F1Quality:
    """F1 of one set of scores.

    Args:
        printed: at ``PRINTED_THRESHOLD``.
        tuned: at ``threshold``.
        threshold: the one with the largest F1 on the training pairs.
        all_ones: F1 of the rule that predicts 1 for every pair.
    """

    printed: float
    tuned: float
    threshold: float
    all_ones: float


def f1_score(scores: FloatArray, positive: BoolArray, threshold: float) -> float:
    """Harmonic mean of precision and recall (van Rijsbergen 1979), 2 TP / (2 TP + FP + FN).

    Args:
        scores: float64[N], finite.
        positive: bool[N].
        threshold: scores above it count as a 1.

    Returns:
        F1; 0 where no pair is positive and none is predicted to be.

    Raises:
        ValueError: the arrays differ in shape, or a score is not finite.
    """
    _check(scores, positive)
    said = scores > threshold
    sizes = np.count_nonzero(said) + np.count_nonzero(positive)
    return float(2 * np.count_nonzero(said & positive) / sizes) if sizes else 0.0


def best_threshold(scores: FloatArray, positive: BoolArray) -> float:
    """The threshold with the largest F1, half way between the scores that it separates.

    Of several thresholds with the largest F1 the highest is taken; none lies above all scores,
    since predicting 1 for at least one pair is never worse.

    Args:
        scores: float64[N], N > 0, finite.
        positive: bool[N].

    Raises:
        ValueError: as ``f1_score``, or scores are missing.
    """
    _check(scores, positive)
    if not len(scores):
        raise ValueError("a threshold needs at least one score")
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    hits = np.cumsum(positive[order])
    said = np.arange(1, len(scores) + 1)
    values = 2 * hits / (said + int(hits[-1]))
    # A threshold cannot separate equal scores.
    values[:-1][ordered[:-1] == ordered[1:]] = -1.0
    last = int(np.argmax(values))
    above = float(ordered[last])
    if last + 1 == len(scores):
        return float(np.nextafter(above, -np.inf))
    below = float(ordered[last + 1])
    middle = below / 2 + above / 2
    return middle if below <= middle < above else below


def f1_quality(
    scores: FloatArray, positive: BoolArray, *, train_scores: FloatArray, train_positive: BoolArray
) -> F1Quality:
    """F1 of test pairs at both thresholds, beside the all-ones rule.

    Args:
        scores: float64[N], of the test pairs.
        positive: bool[N].
        train_scores: float64[M], M > 0, of the pairs the threshold is tuned on.
        train_positive: bool[M].

    Raises:
        ValueError: as ``best_threshold``.
    """
    threshold = best_threshold(train_scores, train_positive)
    return F1Quality(
        printed=f1_score(scores, positive, PRINTED_THRESHOLD),
        tuned=f1_score(scores, positive, threshold),
        threshold=threshold,
        all_ones=f1_score(np.ones(len(scores)), positive, 0.0),
    )


def _check(scores: FloatArray, positive: BoolArray) -> None:
    if scores.shape != positive.shape or scores.ndim != 1:
        raise ValueError(f"{scores.shape} scores for {positive.shape} pairs")
    if not np.isfinite(scores).all():
        raise ValueError("a score is not finite")
