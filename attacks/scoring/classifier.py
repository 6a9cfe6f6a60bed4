"""A linear classifier for few examples and many features, cross-validated.

Ridge regression on class indicators, in its dual form: with as many users as a rating data set has,
the Gram matrix is small whatever the number of features. The penalty is chosen on the training
examples by leave-one-out errors, which have a closed form.
"""

from collections.abc import Iterator

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.core.threads import one_thread

_FOLDS = 5
_PENALTIES = 10.0 ** np.arange(-3.0, 4.0)
"""Times the mean eigenvalue of the Gram matrix."""


def cross_validated_scores(
    features: FloatArray, classes: IntArray, *, seed: int, known: int | None = None
) -> FloatArray:
    """Scores of every example for every class, by classifiers that never saw the example.

    Scores are centred and scaled within each fold, so that folds can be pooled: classifiers of
    different folds have offsets of their own, which would rank examples by their fold.

    Args:
        features: float64[N, F].
        classes: int64[N], 0 to C - 1.
        seed: of the folds, and of the choice of the known examples.
        known: most training examples of a fold; None takes all of the other folds.

    Returns:
        float64[N, C].
    """
    rng = np.random.default_rng(seed)
    n_classes = int(classes.max()) + 1
    scores = np.zeros((len(classes), n_classes))
    for train, test in _folds(classes, rng):
        chosen = train if known is None else rng.permutation(train)[:known]
        targets = np.eye(n_classes)[classes[chosen]]
        with one_thread():  # sums split among threads would round differently
            found = _ridge(*_standardised(features[chosen], features[test]), targets)
        spread = found.std(axis=0)
        scores[test] = (found - found.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return scores


def one_against_rest_auc(scores: FloatArray, classes: IntArray, weights: FloatArray) -> FloatArray:
    """Macro AUC: mean over classes of the AUC of a class against all others.

    Args:
        scores: float64[N, C].
        classes: int64[N].
        weights: float64[draws, N], how often each draw takes an example.

    Returns:
        float64[draws]; with two classes that of the second. A class that a draw leaves without
        examples, or alone, is left out of its mean.
    """
    n_classes = scores.shape[1]
    each = [
        _weighted_auc(scores[:, one], classes == one, weights)
        for one in (range(n_classes) if n_classes > 2 else (1,))
    ]
    values = np.array(each)
    defined = ~np.isnan(values)
    totals = np.where(defined, values, 0.0).sum(axis=0)
    counts = defined.sum(axis=0)
    return np.asarray(np.divide(totals, counts, out=np.full(len(totals), 0.5), where=counts > 0))


def _folds(classes: IntArray, rng: np.random.Generator) -> Iterator[tuple[IntArray, IntArray]]:
    """Stratified folds: (training examples, test examples)."""
    order = rng.permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]
    fold = np.empty(len(classes), dtype=np.int64)
    fold[order] = np.arange(len(classes)) % _FOLDS
    for number in range(_FOLDS):
        yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def _standardised(train: FloatArray, test: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Columns of mean 0 and deviation 1 on the training examples; constant ones become 0."""
    mean, spread = train.mean(axis=0), train.std(axis=0)
    scale = np.where(spread > 0, spread, np.inf)
    return (train - mean) / scale, (test - mean) / scale


def _ridge(train: FloatArray, test: FloatArray, targets: FloatArray) -> FloatArray:
    """Predictions for the test examples, with the penalty of the least leave-one-out error."""
    centre = targets.mean(axis=0)
    values, vectors = np.linalg.eigh(train @ train.T)
    values = np.maximum(values, 0.0)
    rotated = vectors.T @ (targets - centre)
    penalties = _PENALTIES * (float(values.mean()) or 1.0)  # 0 where no feature varies
    errors = []
    for penalty in penalties:
        shrink = values / (values + penalty)
        fitted = vectors @ (shrink[:, None] * rotated)
        leverage = (vectors**2) @ shrink
        left_out = (targets - centre - fitted) / (1.0 - leverage)[:, None]
        errors.append(float((left_out**2).sum()))
    best = penalties[int(np.argmin(errors))]
    dual = vectors @ (rotated / (values + best)[:, None])
    return np.asarray(test @ (train.T @ dual) + centre)


def _weighted_auc(scores: FloatArray, positive: BoolArray, weights: FloatArray) -> FloatArray:
    """AUC of every draw, a tie counting as half: float64[draws]; NaN without both classes."""
    _, place = np.unique(scores, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    ordered = weights[:, order]
    hits = np.add.reduceat(ordered * positive[order], starts, axis=1)
    misses = np.add.reduceat(ordered * ~positive[order], starts, axis=1)
    below = np.cumsum(misses, axis=1) - misses
    wins = (hits * (below + misses / 2)).sum(axis=1)
    pairs = hits.sum(axis=1) * misses.sum(axis=1)
    return np.asarray(np.divide(wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0))
