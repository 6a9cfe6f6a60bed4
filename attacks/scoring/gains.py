"""The gain of a figure over what is known without the view: its interval and certain part.

The only module that computes comparisons for gates and severities. A gain is the mean over clients
(or other units) of the client's figure minus its baseline. Its interval holds for the worst of the
rounds that were tried; its *certain* part is a lower limit that holds for all gains of an audit at
once, with 99 %: exactly for hits, approximately for means, whose units count as independent.

A mean over clients hides the few who lose everything. So *persons* are counted as well: those whose
whole set is found, or whom their vector names, unless a guess could have had the same result. The
probability of a right guess without the client's own messages is bounded client by client; clients
that could have been hit by luck are not counted, so a figure above 0 is wrong only with the error
probability of the audit.

References:
    [1] Bonferroni: the levels of all comparisons add up to the level of the family.
    [2] Clopper and Pearson, "The use of confidence or fiducial limits", Biometrika 26(4), 1934.
    [3] Hall, "On the removal of skewness by transformation", JRSS B 54(1), 1992.
    [4] Darroch, "On the distribution of the number of successes in independent trials", Annals of
        Mathematical Statistics 35(3), 1964: where the mean is a whole number, it is the mode.
    [5] Bobkov and Chistyakov, "On concentration functions of random variables", Journal of
        Theoretical Probability 28, 2015: the mode has a probability of at least
        (1 + 12 variance)^-1/2.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from attacks.scoring.item_sets import ItemSets
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.core.special import bdtr, betaincinv, ndtri, stdtrit
from secure_fedrec.evaluation.intervals import Interval, mean_interval, share_interval

_HALVINGS = 80
_MOST_LUCK = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Persons:
    """Which clients were hit, and bounds on the probability of a hit by chance.

    Args:
        hits: bool[B].
        odds: float64[B], natural logarithms of bounds on these probabilities.
        guesses: whether each bound is of the guess that was made, not of the client's truth: then
            the number of hits beyond those expected by chance counts.
    """

    hits: BoolArray
    odds: FloatArray
    guesses: bool = False

    def counted(self, tail: float) -> int:
        """Number of clients matched beyond chance, with this probability that it is too high."""
        size = max(1, len(self.hits))
        telling = self.odds <= np.log(tail / 2 / size)
        sure = int(np.count_nonzero(self.hits & telling))
        if not self.guesses or telling.all():
            return sure
        others = int(np.count_nonzero(self.hits & ~telling))
        return sure + max(0, others - _by_luck(np.exp(self.odds[~telling]), tail / 2))


def _by_luck(odds: FloatArray, tail: float) -> int:
    """Number of hits that is exceeded with at most this probability, given float64[K] odds.

    Hits with these odds exceed a number above their mean less often than hits of equally many
    trials with the mean odds (Hoeffding 1956).
    """
    trials, mean = len(odds), min(1.0, float(odds.mean()))
    numbers = np.arange(min(trials, _MOST_LUCK) + 1)
    enough = (1.0 - bdtr(numbers, trials, mean) <= tail) & (numbers >= trials * mean)
    return int(np.argmax(enough)) if enough.any() else trials


def luck_of_sets(sets: ItemSets, popularity: FloatArray, clients: int) -> FloatArray:
    """Bounds on the probability of each set among all of its size, drawn by popularity.

    Model: items are in a set independently, with odds by their popularity, given the size of the
    set. If the odds are scaled so that the mean is this size, the probability of the size has a
    lower bound [4, 5], which gives an upper bound for the set.

    Args:
        sets: B sets.
        popularity: float64[m], how many clients' sets hold each item.
        clients: the clients of these counts.

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
    """Terms of the log probability of a set of a given size: per item, and once."""
    if not 0 < size < items.sum():
        return 0.0, 0.0  # only one set has this size
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
    """Share of the other sets that are equal to each, as natural logarithms: float64[B]."""
    marks = np.random.default_rng(0).integers(1, 2**63, sets.n_items, dtype=np.uint64)
    ends = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(marks[sets.items])])
    _, same, times = np.unique(np.diff(ends[sets.indptr]), return_inverse=True, return_counts=True)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log((times[same.reshape(-1)] - 1) / max(1, len(sets) - 1)))


def exact_sets(hits: BoolArray, sets: ItemSets, popularity: FloatArray, clients: int) -> Persons:
    """Clients whose whole set is named.

    Args:
        hits: bool[B], the clients whose set is exact.
        sets: the sets.
        popularity: float64[m], how many clients' sets hold each item.
        clients: the clients of these counts.
    """
    odds, found = np.zeros(len(sets)), np.flatnonzero(hits)
    luck = luck_of_sets(sets.take(found), popularity, clients)
    odds[found] = np.maximum(luck, common_sets(sets)[found])
    return Persons(hits, odds)


Figures: TypeAlias = dict[str, float | None]

_FAMILY_ERROR = 0.01
_INTERVAL_ERROR = 0.05

_GAINS_PER_FINDING = 16
"""Upper bound on the gains of an attack."""

_LEAST_ROOM = 30.0
"""Fewest units, in expectation, that the baseline leaves open, for a share of them to be
measurable."""


class Level(NamedTuple):
    """Confidence that figures need.

    Attributes:
        seed: seed of the bootstrap.
        tried: rounds of which the worst is reported.
        judged: pairs of attack and adversary in the audit.
    """

    seed: int
    tried: int = 1
    judged: int = 1

    @property
    def confidence(self) -> float:
        """Level of the interval of the worst round [1]."""
        return 1.0 - _INTERVAL_ERROR / self.tried

    @property
    def tail(self) -> float:
        """Probability that one lower limit is too high, for all of an audit to hold at 99 % [1]."""
        return _FAMILY_ERROR / (self.judged * self.tried * _GAINS_PER_FINDING)


@dataclass(frozen=True, slots=True, eq=False)
class Gain:
    """The gain of every unit; its mean is the figure.

    Args:
        values: float64[n]; NaN for a unit without a gain.
        span: length of the interval around 0 that the values lie in.
        guesses: each value is a hit or a miss less a known chance, so that limits can be exact.
    """

    values: FloatArray
    span: float = 2.0
    guesses: bool = False

    def interval(self, level: Level) -> Interval | None:
        """Interval of the mean; exact for hits, else a bootstrap over the units."""
        known = self._known
        if not len(known):
            return None
        hits, base = self._hits
        if hits is not None:
            share = share_interval(hits, len(known), level.confidence)
            value, low, high = (base + each for each in (share.value, share.low, share.high))
            return replace(share, value=value, low=low, high=high)
        return mean_interval(known, seed=level.seed, confidence=level.confidence, span=self.span)

    def certain(self, level: Level) -> float | None:
        """Lower limit of the mean: exact for hits [2], else Student's; None below two units.

        Student's limit is too high if few clients lose much and most gain little, so it is lowered
        by a correction for skewness [3]. The limit does not account for losses too rare to occur
        among the units.
        """
        known, tail = self._known, level.tail
        if len(known) < 2:
            return None
        hits, base = self._hits
        if hits is not None:
            return base + (float(betaincinv(hits, len(known) - hits + 1, tail)) if hits else 0.0)
        mean, spread = float(known.mean()), float(known.std(ddof=1))
        if spread <= 1e-12:  # all equal: bound the share of that value
            alike = tail ** (1.0 / (len(known) - 1))
            return float(mean * alike - self.span / 2 * (1.0 - alike))
        size, reach = len(known), -float(stdtrit(len(known) - 1, tail))
        losses = max(0.0, -float((((known - mean) / spread) ** 3).mean()))
        reach += losses * (2 * reach**2 + 1) / (6 * float(np.sqrt(size)))
        return mean - reach * spread / float(np.sqrt(size))

    @property
    def _known(self) -> FloatArray:
        return np.asarray(self.values[np.isfinite(self.values)])

    @property
    def _hits(self) -> tuple[int | None, float]:
        """Number of hits and the value of a miss, if every unit is a hit or a miss."""
        found = np.unique(self._known)
        if self.guesses and len(found) == 2 and abs(found[1] - found[0] - 1.0) < 1e-12:
            return int(np.count_nonzero(self._known == found[1])), float(found[0])
        return None, 0.0


class Estimate(NamedTuple):
    """A gain that is not a mean over units, such as an AUC.

    Attributes:
        value: the gain.
        deviation: its standard deviation.
        units: behind it.
    """

    value: float
    deviation: float
    units: int

    def interval(self, level: Level) -> Interval:
        """Normal interval."""
        reach = -float(ndtri((1.0 - level.confidence) / 2)) * self.deviation
        low, high = self.value - reach, self.value + reach
        return Interval(value=self.value, low=low, high=high, n_clients=self.units)

    def certain(self, level: Level) -> float:
        """Normal lower limit."""
        return self.value + float(ndtri(level.tail)) * self.deviation


Gains: TypeAlias = dict[str, Gain | Estimate | Persons | None]


def gain_figures(gains: Gains, level: Level) -> Figures:
    """Each gain with ``_low``, ``_high`` and ``_certain``; None where it cannot be measured.

    Persons are counted, so there is one number for all clients.
    """
    figures: Figures = {}
    for name, gain in gains.items():
        if isinstance(gain, Persons):
            figures[name] = float(gain.counted(level.tail))
            continue
        figures |= interval_figures(name, None if gain is None else gain.interval(level))
        figures[f"{name}_certain"] = None if gain is None else gain.certain(level)
    return figures


def headroom(gain: FloatArray, room: FloatArray) -> Gain | None:
    """A gain as share of what the baseline leaves open: (x - p) / (1 - p) of the means.

    Args:
        gain: float64[n], x - p of each client; NaN where it has none.
        room: float64[n], 1 - p.

    Returns:
        The linearised ratio: its mean is the ratio, and its spread is that of the ratio to first
        order; None if (1 - p) n < 30, which is too little to measure a share.
    """
    known = np.isfinite(gain) & np.isfinite(room)
    gain, room = gain[known], room[known]
    if room.sum() < _LEAST_ROOM:
        return None
    ratio = gain.sum() / room.sum()
    return Gain(np.asarray(ratio + (gain - ratio * room) / room.mean()))


def interval_figures(name: str, interval: Interval | None) -> Figures:
    """A value and its two ends under their names in reports."""
    if interval is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
