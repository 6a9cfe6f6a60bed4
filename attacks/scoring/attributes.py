"""Figures of attribute inference: how well attributes are predicted from what was recovered.

The adversary knows the attributes of some people. The harness, which knows all, stands in for its
classifier: trained on known people, scored on the others. The AUC is reported with a ceiling, that
of the same classifier on the true data of these people.

The classifier is linear, for few examples and many features: ridge regression on class indicators,
in its dual form. With as many users as a rating data set has, the Gram matrix is small whatever the
number of features. The penalty is chosen on the training examples by leave-one-out errors, which
have a closed form.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from attacks.base import need
from attacks.scoring.chance import normal_null
from attacks.scoring.gains import Estimate, interval_figures
from attacks.scoring.item_sets import ItemSets
from attacks.scoring.truth import Case, Scored, is_honest, require_finite
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.core.threads import one_thread
from secure_fedrec.evaluation.intervals import Interval, percentile_interval, resampled

KIND = "attributes"
"""Name of a kind of secret: a class of every person, int64[N], -1 where unknown.

Persons are the clients or, where clients have members (HPFL), all members, client after client.
"""

_FEWEST = 10
"""Fewest people of a class that is used: two for each fold."""

_FOLD_SPREAD = 1.6
"""Largest factor by which the AUC of pooled folds spreads more by chance than that of one ranking:
each fold has its own classifier, and all are trained on much the same people. Measured 1.2 to 1.56
on noise of 3 to 100 features (60 to 300 people)."""

_DRAWS = 1000
_CHANCE = 0.5
_WIDTH_95 = 2 * 1.96
"""Half width of a 95 % interval, in standard deviations."""


class People(NamedTuple):
    """Features of some people, known to the adversary, and their true data, known to the scorer.

    Attributes:
        features: float64[N, F], what the adversary has recovered.
        attributes: name -> int64[N], true class; -1 where unknown.
        ceiling: float64[N, F'], the true data, or None.
    """

    features: FloatArray
    attributes: Mapping[str, IntArray]
    ceiling: FloatArray | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureClaim:
    """Features recovered of each client, from which attributes are predicted.

    The adversary knows the attributes of some clients and trains a classifier on their features;
    the harness plays that part, as it has the labels.

    Args:
        clients: int64[B].
        features: float64[B, F].
    """

    clients: IntArray
    features: FloatArray

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by the clients' attributes, beside a classifier on their rated sets."""
        truth, attributes = case.truth, case.truth.of_kind(KIND)
        if not attributes:
            return
        honest = is_honest(self.clients, case.corrupted)
        clients = self.clients[honest]
        ceiling = None
        if truth.train is not None:
            ceiling = ItemSets.rated(truth.train).grid()[clients].astype(np.float64)
        own = {name: classes[clients] for name, classes in attributes.items()}
        people = People(self.features[honest], own, ceiling)
        yield score_attributes(people, seed=case.seed)


def score_attributes(people: People, *, seed: int) -> Scored:
    """Judge every attribute; figures are those of the first, the others are in the details.

    - ``attribute_auc``: macro AUC, one class against the rest, of cross-validated scores;
    - ``attribute_lift``: above 0.5;
    - ``attribute_ceiling_auc``: of the same classifier on the true data.

    Args:
        people: features, truth and ceiling.
        seed: seed of folds, bootstrap and null control.

    Raises:
        ValueError: a feature is not finite.
    """
    require_finite("features", people.features)
    told = {}
    for name, classes in people.attributes.items():
        kept = _frequent(classes)
        if len(np.unique(classes[kept])) < 2:
            continue
        told[name] = _score_one(people, classes[kept], kept, seed=seed)
    need(told, "no attribute has two classes of at least ten people")
    first = next(iter(told.values()))
    details = {
        name: {
            **interval_figures("auc", one.auc),
            "ceiling_auc": one.ceiling,
            "people": one.auc.n_clients,
            "classes": int(one.labels.max()) + 1,
        }
        for name, one in told.items()
    }
    return Scored(
        figures={
            **interval_figures("attribute_auc", first.auc),
            "attribute_ceiling_auc": first.ceiling,
        },
        gains={"attribute_lift": first.lift},
        units={"clients": first.auc.n_clients, "pairs": first.auc.n_clients, "positives": 0},
        details={"attributes": details},
        null_control=_null(people, first, seed=seed),
    )


class _Told(NamedTuple):
    """One attribute, judged.

    Attributes:
        kept: int64[N'], the people whose class is known and not rare.
        labels: int64[N'], their classes, numbered from 0.
        auc: AUC of the features.
        ceiling: AUC of the true data.
    """

    kept: IntArray
    labels: IntArray
    auc: Interval
    ceiling: float | None

    @property
    def lift(self) -> Estimate:
        """Gain over chance; its spread is the larger of the bootstrap's and that by chance."""
        drawn = (self.auc.high - self.auc.low) / _WIDTH_95
        deviation = max(drawn, _null_deviation(self.labels))
        return Estimate(self.auc.value - _CHANCE, deviation, self.auc.n_clients)


def _score_one(people: People, classes: IntArray, kept: IntArray, *, seed: int) -> _Told:
    labels = np.unique(classes, return_inverse=True)[1]
    scores = cross_validated_scores(people.features[kept], labels, seed=seed)
    value = float(one_against_rest_auc(scores, labels, np.ones((1, len(kept))))[0])
    drawn = [
        one_against_rest_auc(scores, labels, weights.astype(np.float64))
        for weights in resampled(len(kept), _DRAWS, seed)
    ]
    ceiling = None
    if people.ceiling is not None:
        ceiling = _auc(people.ceiling[kept], labels, seed=seed)
    auc = percentile_interval(value, np.concatenate(drawn), len(kept), 0.95)
    return _Told(kept, labels, auc, ceiling)


def _null(people: People, told: _Told, *, seed: int) -> dict[str, Any]:
    """The AUC of the same features with randomly permuted attributes."""
    dealt = np.random.default_rng(seed).permutation(told.labels)
    value = _auc(people.features[told.kept], dealt, seed=seed)
    return normal_null("attribute_auc", value, _CHANCE, _null_deviation(dealt))


def _auc(features: FloatArray, labels: IntArray, *, seed: int) -> float:
    scores = cross_validated_scores(features, labels, seed=seed)
    return float(one_against_rest_auc(scores, labels, np.ones((1, len(labels))))[0])


def _frequent(classes: IntArray) -> IntArray:
    """Positions of the people whose class is known and not rare."""
    counts = np.bincount(classes[classes >= 0], minlength=1)
    return np.flatnonzero((classes >= 0) & (counts[classes] >= _FEWEST))


def _null_deviation(classes: IntArray) -> float:
    """Deviation of a cross-validated macro AUC by chance, at most.

    It is that of the rarest class (Mann-Whitney), times a factor for the folds.
    """
    size = len(classes)
    positives = np.bincount(classes)
    variances = (size + 1) / (12.0 * positives * (size - positives))
    return float(_FOLD_SPREAD * np.sqrt(variances.max()))


_FOLDS = 5
_PENALTIES = 10.0 ** np.arange(-3.0, 4.0)
"""Penalties, as multiples of the mean eigenvalue of the Gram matrix."""


def cross_validated_scores(features: FloatArray, classes: IntArray, *, seed: int) -> FloatArray:
    """Scores of every example for every class, by classifiers not trained on the example.

    Scores are centred and scaled within each fold, so that folds can be pooled: classifiers of
    different folds have different offsets, which would rank examples by their fold.

    Args:
        features: float64[N, F].
        classes: int64[N], 0 to C - 1.
        seed: seed of the folds.

    Returns:
        float64[N, C].
    """
    n_classes = int(classes.max()) + 1
    scores = np.zeros((len(classes), n_classes))
    for train, test in _folds(classes, np.random.default_rng(seed)):
        targets = np.eye(n_classes)[classes[train]]
        with one_thread():  # sums split among threads would round differently
            found = _ridge(*_standardised(features[train], features[test]), targets)
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
        float64[draws]; with two classes that of the second. A class without examples in a draw, or
        the only one, is left out of its mean.
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
