"""A figure beside what is known without the view: the gain, its interval, what is certain of it.

One home for every comparison that gates or sets a severity. A gain is the mean over clients (or
other units) of the client's figure less its baseline. Its interval holds for the worst of the
rounds that were tried; its *certain* part is a lower limit that holds for all gains of an audit at
once, with 99 %: exactly for hits, approximately for means, whose units count as independent.

References:
    [1] Bonferroni: the levels of all comparisons add up to the level of the family.
    [2] Clopper and Pearson, "The use of confidence or fiducial limits", Biometrika 26(4), 1934.
    [3] Hall, "On the removal of skewness by transformation", JRSS B 54(1), 1992.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from attacks.scoring.persons import Persons
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.special import betaincinv, ndtri, stdtrit
from secure_fedrec.evaluation.intervals import Interval, mean_interval, share_interval

Figures: TypeAlias = dict[str, float | None]

_FAMILY_ERROR = 0.01
_INTERVAL_ERROR = 0.05

_GAINS_PER_FINDING = 16
"""More gains than this no attack has."""

_LEAST_ROOM = 30.0
"""Units that the baseline must leave to be told apart, for a share of them to be measurable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How sure a figure has to be.

    Args:
        seed: of the bootstrap.
        tried: rounds of which the worst is reported.
        judged: pairs of attack and adversary in the audit.
    """

    seed: int
    tried: int = 1
    judged: int = 1

    @property
    def confidence(self) -> float:
        """Of the interval of the worst round [1]."""
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
            return replace(
                share, value=share.value + base, low=share.low + base, high=share.high + base
            )
        return mean_interval(known, seed=level.seed, confidence=level.confidence, span=self.span)

    def certain(self, level: Level) -> float | None:
        """Lower limit of the mean: exact for hits [2], else Student's; None below two units.

        Student's limit is too high where few clients lose much and most gain little, so it is
        lowered by what the skewness to that side asks for [3]. Losses too rare to be among the
        units are in no such limit.
        """
        known, tail = self._known, level.tail
        if len(known) < 2:
            return None
        hits, base = self._hits
        if hits is not None:
            return base + (float(betaincinv(hits, len(known) - hits + 1, tail)) if hits else 0.0)
        mean, spread = float(known.mean()), float(known.std(ddof=1))
        if spread <= 1e-12:  # all alike: the first names the value, the others bound its share
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
        """Number of hits and the value of a miss where a unit is a hit or a miss."""
        found = np.unique(self._known)
        if self.guesses and len(found) == 2 and abs(found[1] - found[0] - 1.0) < 1e-12:
            return int(np.count_nonzero(self._known == found[1])), float(found[0])
        return None, 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A gain that is no mean over units.

    Args:
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
        return Interval(
            value=self.value, low=self.value - reach, high=self.value + reach, n_clients=self.units
        )

    def certain(self, level: Level) -> float:
        """Normal lower limit."""
        return self.value + float(ndtri(level.tail)) * self.deviation


Gains: TypeAlias = dict[str, Gain | Estimate | Persons | None]


def gain_figures(gains: Gains, level: Level) -> Figures:
    """Each gain with ``_low``, ``_high`` and ``_certain``; None where there is none to measure.

    Persons are counted: there is one number.
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
    """Share of what the baseline leaves to be learned: (x - p) / (1 - p) of the means.

    Args:
        gain: float64[n], x - p of each client; NaN where it has none.
        room: float64[n], 1 - p.

    Returns:
        The ratio's linearisation, whose mean is the ratio and whose spread is its own to first
        order; None where (1 - p) n < 30, as nothing can be told from so little room.
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
