"""Figures in persons: how many clients are exposed, beyond what luck explains.

A mean over clients hides the few who lose everything. Here every client counts by itself: one whose
whole set is told, or whose vector names it, unless a guess could have come to the same. How likely
that is, of a guess made without the client's own messages, is bounded client by client; who could
have been hit by luck is not counted, so a figure above 0 is wrong with the odds of the audit alone.

References:
    [1] Darroch, "On the distribution of the number of successes in independent trials", Annals of
        Mathematical Statistics 35(3), 1964: where the mean is a whole number, it is the mode.
    [2] Bobkov and Chistyakov, "On concentration functions of random variables", Journal of
        Theoretical Probability 28, 2015: the mode has a probability of at least
        (1 + 12 variance)^-1/2.
"""

from dataclasses import dataclass

import numpy as np

from attacks.scoring.item_sets import ItemSets
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.core.special import bdtr

_HALVINGS = 80
_MOST_LUCK = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Persons:
    """Which clients were hit, and how likely luck would have hit them.

    Args:
        hits: bool[B].
        odds: float64[B], natural logarithms of bounds on these probabilities.
        guesses: each bound is of the guess that was made, not of the client's truth: then hits by
            luck add up, and those beyond them count.
    """

    hits: BoolArray
    odds: FloatArray
    guesses: bool = False

    def counted(self, tail: float) -> int:
        """Clients who were hit beyond luck, with this probability of one too many."""
        size = max(1, len(self.hits))
        telling = self.odds <= np.log(tail / 2 / size)
        sure = int(np.count_nonzero(self.hits & telling))
        if not self.guesses or telling.all():
            return sure
        others = int(np.count_nonzero(self.hits & ~telling))
        return sure + max(0, others - _by_luck(np.exp(self.odds[~telling]), tail / 2))


def _by_luck(odds: FloatArray, tail: float) -> int:
    """So many hits are exceeded with at most this probability: float64[K] odds of each.

    Hits with these odds exceed a number above their mean less often than those of as many trials
    with the mean of the odds (Hoeffding 1956).
    """
    trials, mean = len(odds), min(1.0, float(odds.mean()))
    numbers = np.arange(min(trials, _MOST_LUCK) + 1)
    enough = (1.0 - bdtr(numbers, trials, mean) <= tail) & (numbers >= trials * mean)
    return int(np.argmax(enough)) if enough.any() else trials


def luck_of_sets(sets: ItemSets, popularity: FloatArray, clients: int) -> FloatArray:
    """Bounds on the probability of each set among all of its size, drawn by popularity.

    Items are in a set independently, with odds as their popularity says, and its size is given.
    With the factor that makes the size the mean, the probability of the size has a lower bound
    [1, 2], so that of the set has an upper one.

    Args:
        sets: B sets.
        popularity: float64[m], how many clients' sets hold each item.
        clients: whose sets these are counts of.

    Returns:
        float64[B], natural logarithms.
    """
    counts, of_item, items = np.unique(popularity, return_inverse=True, return_counts=True)
    weights = np.log((counts + 0.5) / (clients - counts + 0.5))
    sizes, of_set = np.unique(sets.lengths, return_inverse=True)
    total = np.array([_of_size(weights, items, int(size)) for size in sizes]).reshape(-1, 2)
    shift, rest = total[of_set.reshape(-1)].T
    held = np.concatenate([[0.0], np.cumsum(weights[of_item.reshape(-1)[sets.items]])])
    return np.asarray(np.minimum(np.diff(held[sets.indptr]) + sets.lengths * shift + rest, 0.0))


def _of_size(weights: FloatArray, items: IntArray, size: int) -> tuple[float, float]:
    """What every item of a set of a size adds to its log probability, and what is added once."""
    if not 0 < size < items.sum():
        return 0.0, 0.0  # there is one such set
    low, high = -weights.max() - 50.0, -weights.min() + 50.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        few = items @ (1 / (1 + np.exp(-(weights + middle)))) < size
        low, high = (middle, high) if few else (low, middle)
    chance = 1 / (1 + np.exp(-(weights + low)))
    variance = float(items @ (chance * (1 - chance)))
    outside = -float(items @ np.logaddexp(0.0, weights + low))
    return low, outside + 0.5 * float(np.log1p(12 * variance))


def common_sets(sets: ItemSets) -> FloatArray:
    """Share of the other sets that are the same: natural logarithms, float64[B]."""
    marks = np.random.default_rng(0).integers(1, 2**63, sets.n_items, dtype=np.uint64)
    ends = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(marks[sets.items])])
    _, same, times = np.unique(np.diff(ends[sets.indptr]), return_inverse=True, return_counts=True)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log((times[same.reshape(-1)] - 1) / max(1, len(sets) - 1)))


def exact_sets(hits: BoolArray, sets: ItemSets, popularity: FloatArray, clients: int) -> Persons:
    """Clients whose whole set is told.

    Args:
        hits: bool[B], whose.
        sets: the sets.
        popularity: float64[m], how many clients' sets hold each item.
        clients: whose sets these are counts of.
    """
    odds, found = np.zeros(len(sets)), np.flatnonzero(hits)
    luck = luck_of_sets(sets.take(found), popularity, clients)
    odds[found] = np.maximum(luck, common_sets(sets)[found])
    return Persons(hits, odds)
