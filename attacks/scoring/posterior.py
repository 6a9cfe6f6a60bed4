"""A rated set as told by a view together with public knowledge.

An adversary knows what everybody knows, so an attack that ranks the items it saw by a coin
understates what its view tells. The harness, which knows the truth, stands in for the adversary's
calibration (it knows the protocol and can simulate it): on one half of the clients it fits how
likely an item is rated given popularity and what the attack says of it, and picks the rule that
ranks best there; the rule is applied to the other half, and the other way round. No client's truth
is in the ranking of its own items, and a view that adds nothing is given no weight.
"""

from collections.abc import Callable

import numpy as np

from attacks.scoring.ranking import PublicRanking, halves, precision_at_size
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray

_FEW_VALUES = 16
_OCTAVES = 12
_RIDGE = 1.0
_STEPS = 25
_SETTLED = 1e-6
_CLEARLY = 2.0
"""Standard errors by which a rule has to beat popularity on the clients it is learned from."""

_Rule = Callable[[IntArray], FloatArray]


def combined_scores(
    scores: FloatArray, visible: BoolArray, labels: BoolArray, public: PublicRanking, seed: int
) -> FloatArray:
    """Scores from the view and from popularity, each half of the clients by the other half's rule.

    Args:
        scores: float64[B, m], what the attack says of each item.
        visible: bool[B, m], items the adversary saw in any message of that client.
        labels: bool[B, m], the truth about these clients.
        public: what is known of the items without the view; its halves are those of the seed.
        seed: of the halves.

    Returns:
        float64[B, m].
    """
    table = _Levels(scores, visible, public)
    if len(labels) < 2:  # nobody to learn from: the attack is taken at its word
        return np.asarray(table.score_first)
    parts = halves(len(labels), seed)
    combined = np.empty(labels.shape)
    for learn, apply in (parts, parts[::-1]):
        combined[apply] = _best_rule(table, labels, learn)(apply)
    return combined


class _Levels:
    """Every (client, item) pair's evidence and popularity."""

    def __init__(self, scores: FloatArray, visible: BoolArray, public: PublicRanking) -> None:
        _, dense = np.unique(scores, return_inverse=True)
        dense = dense.reshape(scores.shape)
        values = int(dense.max()) + 1
        seen = visible.astype(np.int64)
        if values > _FEW_VALUES:
            level = np.minimum(_octave(scores), _OCTAVES - 1) + _OCTAVES * seen
        else:
            level = dense + values * seen
        found = np.flatnonzero(np.bincount(level.ravel()))  # few: told without sorting all pairs
        number = np.zeros(int(found[-1]) + 1, dtype=np.int64)
        number[found] = np.arange(len(found))
        self.level, self.levels = number[level], len(found)
        self.counts, self.place = public.once("places", lambda: _placed(public.learned))
        raters = float(self.counts.max()) + 1.0
        odds = (self.counts + 0.5) / (raters - self.counts)
        self.log_odds: FloatArray = np.log(odds)
        self.popularity = public.prior
        # Distinct scores are at least 1 apart, popularity moves by less: it breaks ties only.
        self.score_first = dense + public.prior / (public.prior.max() + 1.0)

    def fitted(self, labels: BoolArray, learn: IntArray) -> FloatArray:
        """Log odds of being rated by evidence and popularity: float64[levels, counts].

        One logistic regression on log popularity per level of evidence, drawn by a ridge towards
        the one that has no evidence.
        """
        shape = (self.levels, len(self.counts))
        flat = (self.level[learn] * shape[1] + self.place[learn]).ravel()
        size = shape[0] * shape[1]
        pairs = np.bincount(flat, minlength=size).reshape(shape).astype(np.float64)
        told = labels[learn].ravel().astype(np.float64)
        hits = np.bincount(flat, weights=told, minlength=size).reshape(shape).astype(np.float64)
        start = np.array([[0.0, 1.0]])
        pooled = _logistic(pairs.sum(0)[None], hits.sum(0)[None], self.log_odds, start, 1e-3)
        each = _logistic(pairs, hits, self.log_odds, np.repeat(pooled, shape[0], 0), _RIDGE)
        return np.asarray(each[:, :1] + each[:, 1:] * self.log_odds)


def _placed(counts: FloatArray) -> tuple[FloatArray, IntArray]:
    """Distinct counts, and the place among them of each pair's."""
    distinct, place = np.unique(counts, return_inverse=True)
    return distinct, place.reshape(counts.shape)


def _best_rule(table: _Levels, labels: BoolArray, learn: IntArray) -> _Rule:
    """The rule that names most on these clients; popularity unless another is clearly better."""
    told = labels[learn]
    best, rule = precision_at_size(table.popularity[learn], told), _picked(table.popularity)
    log_odds = table.fitted(labels, learn)

    def fitted(clients: IntArray) -> FloatArray:
        return np.asarray(log_odds[table.level[clients], table.place[clients]])

    for other in (_picked(table.score_first), fitted):
        found = precision_at_size(other(learn), told)
        better = found - best
        better = better[np.isfinite(better)]
        error = better.std() / np.sqrt(max(1, len(better))) if len(better) else 0.0
        if len(better) and better.mean() > _CLEARLY * error:
            best, rule = found, other
    return rule


def _picked(scores: FloatArray) -> _Rule:
    return lambda clients: scores[clients]


def _octave(scores: FloatArray) -> IntArray:
    """How often the part of a client's items above a score can be doubled: 0 for the upper half."""
    ordered = np.sort(scores, axis=1)
    above = np.empty(scores.shape)
    for client, row in enumerate(ordered):
        left = np.searchsorted(row, scores[client], side="left")
        right = np.searchsorted(row, scores[client], side="right")
        above[client] = len(row) - (left + right) / 2  # midranks: ties share a place
    return np.asarray(np.floor(-np.log2(above / scores.shape[1]))).astype(np.int64)


def _logistic(
    pairs: FloatArray, hits: FloatArray, x: FloatArray, start: FloatArray, ridge: float
) -> FloatArray:
    """Intercept and slope of several regressions by damped Newton steps: float64[K, 2].

    Args:
        pairs: float64[K, G], examples of regression k at x[g].
        hits: float64[K, G], positives among them.
        x: float64[G].
        start: float64[K, 2], where to begin, and what the ridge draws to.
        ridge: its weight.
    """
    found = start.copy()
    for _ in range(_STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(found[:, :1] + found[:, 1:] * x, -30.0, 30.0)))
        miss, weight = hits - pairs * chance, pairs * chance * (1.0 - chance)
        pull = ridge * (start - found)
        slope = np.stack([miss.sum(1), (miss * x).sum(1)], axis=1) + pull
        a, b = weight.sum(1) + ridge, (weight * x).sum(1)
        c = (weight * x**2).sum(1) + ridge
        determinant = a * c - b**2
        step = np.stack(
            [c * slope[:, 0] - b * slope[:, 1], a * slope[:, 1] - b * slope[:, 0]], axis=1
        )
        step = np.clip(step / determinant[:, None], -2.0, 2.0)
        found = found + step
        if np.abs(step).max() < _SETTLED:
            break
    return found
