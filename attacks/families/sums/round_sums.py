"""What sums over few clients are given as, and what is found of them (``decoding``)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2
from typing import TypeAlias

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray

SURE_BITS = 20.0
"""Beyond those of the search: what is certain is false with odds of 2^-20, all of it together."""

BUDGET = 2.0**25
"""Sums that are formed or looked up, over all rounds."""

LIGHT = 0.05
"""Of the largest rating: an error below it changes a row by next to nothing."""

_FLOAT_ERROR = 1e-14
_WIDTH = np.sqrt(2 * np.pi) / 2  # of a normal density's peak, over half a tolerance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundSums:
    """Rows of one round's aggregate, as equations.

    Args:
        items: int64[N].
        counts: int64[N], raters of each; 1 at least.
        rows: float64[N, d], ``sum of e U``.
        vectors: float64[N, d], the public V.
        levels: float64[L], the rating scale; of none, e is unknown and directions alone are told.
        resolution: of the ring.
        bound: largest magnitude of a value of a private vector, where it is known.
        counted: whether the counts are told; else they were found as those that give ring words,
            each value of which comes out so by chance with odds of a half at most.
        relative: error of the arithmetic that made the rows, over 1 and their lengths.
    """

    items: IntArray
    counts: IntArray
    rows: FloatArray
    vectors: FloatArray
    levels: FloatArray
    resolution: float
    bound: float = np.inf
    counted: bool = True
    relative: float = _FLOAT_ERROR

    @property
    def errors(self) -> FloatArray:
        """How far rounding can push each row, Euclidean: float64[N]."""
        units = np.sqrt(self.rows.shape[1]) * self.resolution / 2
        return np.asarray(
            self.counts * units + self.relative * (1.0 + np.linalg.norm(self.rows, axis=1))
        )


class Spread:
    """How far apart points lie along each of their axes, around their mean.

    Args:
        points: float64[N, d].
        scale: what the deviations are divided by.
    """

    def __init__(self, points: FloatArray, scale: float = 1.0) -> None:
        around = points - points.mean(axis=0)
        values = np.linalg.eigvalsh(around.T @ around / max(1, len(points) - 1))
        self.deviations: FloatArray = np.sqrt(np.maximum(values, 0.0)) / scale

    def bits(self, tolerance: float, size: float = 1.0) -> float:
        """Bits that a fit holds: log2 of how seldom a stranger's point, times ``size``, does."""
        cells = _WIDTH * size * self.deviations / max(tolerance, 1e-300)
        return float(np.log2(np.maximum(cells, 1.0)).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A possible vector of somebody.

    Args:
        who: number of the pseudonym.
        vector: float64[d].
        error: bound of its error, Euclidean.
        origin: places of rows that it was made to fit, and that are no evidence for it.
        mate: the pseudonym that shares them.
    """

    who: int
    vector: FloatArray
    error: float
    origin: frozenset[int] = frozenset()
    mate: int = -1


Interaction: TypeAlias = tuple[int, int]
"""A pseudonym and the place of a row that it is among the raters of."""


@dataclass(slots=True, kw_only=True, eq=False)
class Decoded:
    """What was found in a round.

    Args:
        entries: possible vectors by pseudonym.
        directions: of a pseudonym without them, float64[d].
        sure: pseudonyms that stand for one client for certain.
        solved: those whose one remaining vector is certain as well.
        ties: rating of each interaction, NaN where several fit; and whether it is certain.
        explained: places of rows whose raters are all found.
        most: raters of the largest sum that was explained for certain.
        tried: candidates that were chosen among.
        budget, spent: sums that may be formed or looked up, and those that were.
        beyond: rows that the budget left out.
        odds: by search, how many of its certain fits are expected to be false.
        stages: searches so far.
        known: pseudonyms known beforehand, the first ones: as many different clients.
        lacking: what a search that applies would need, in words.
    """

    entries: dict[int, list[Entry]] = field(default_factory=dict)
    directions: dict[int, FloatArray] = field(default_factory=dict)
    sure: set[int] = field(default_factory=set)
    solved: set[int] = field(default_factory=set)
    ties: dict[Interaction, tuple[float, bool]] = field(default_factory=dict)
    explained: set[int] = field(default_factory=set)
    most: int = 0
    tried: float = 0.0
    budget: float = BUDGET
    spent: float = 0.0
    beyond: int = 0
    odds: dict[int, float] = field(default_factory=dict)
    stages: int = 0
    known: int = 0
    lacking: str = ""

    @property
    def false(self) -> float:
        """How many certain fits are expected to be false, of all searches."""
        return sum(self.odds.values())

    def stage(self, tried: float) -> float:
        """Begin a search among so many candidates; the bits that its fits need to be certain.

        The odds of 2^-20 are dealt out to all searches: the j-th has 1 / (j (j + 1)) of them.
        """
        self.stages += 1
        self.tried += tried
        share = log2(self.stages * (self.stages + 1))
        return log2(max(1.0, tried)) + SURE_BITS + share

    def add(self, found: Sequence[tuple[FloatArray, float]], *, sure: bool) -> int:
        """A new pseudonym with its possible vectors."""
        who = len(self.entries)
        self.entries[who] = [Entry(who, vector, error) for vector, error in found]
        if sure:
            self.sure.add(who)
        return who

    def settle(self, who: int, entry: Entry | None = None) -> None:
        """A pseudonym is certain, and an entry of it is the one."""
        self.sure.add(who)
        if entry is not None:
            self.entries[who] = [entry]
        if len(self.entries[who]) == 1:
            self.solved.add(who)

    def tie(self, who: int, row: int, rating: float, *, certain: bool) -> None:
        """An interaction; what is certain stays so."""
        before = self.ties.get((who, row))
        if before is None or certain >= before[1]:
            self.ties[who, row] = (rating, certain)

    def keep_smaller_side(self, rows: FloatArray, bits: float) -> None:
        """Of each direction's rows, leave those of the side with fewer, as far as it is certain.

        Args:
            rows: float64[N, d], all rows.
            bits: that each row of the larger side beyond them adds.
        """
        needed = self.stage(len(self.directions))
        for who, direction in self.directions.items():
            own = [row for of, row in self.ties if of == who]
            ahead = {row: bool(rows[row] @ direction > 0) for row in own}
            few = 2 * sum(ahead.values()) < len(own)
            certain = abs(len(own) - 2 * sum(ahead.values())) * bits >= needed
            if certain:
                self.odds[self.stages] = max(1, len(self.directions)) * 2.0**-needed
            for row in own:
                del self.ties[who, row]
                if ahead[row] is few:
                    self.ties[who, row] = (float("nan"), certain)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What each possible vector would add to an item's row, for each rating.

    Args:
        values: float64[M, d].
        errors: float64[M].
        sizes: float64[M], magnitude of the rating's error e, less for vectors shorter than usual.
        entries: int64[M], whose it is, among all entries.
        who: int64[M], its pseudonym.
        levels: float64[M].
    """

    values: FloatArray
    errors: FloatArray
    sizes: FloatArray
    entries: IntArray
    who: IntArray
    levels: FloatArray

    def like(self, place: int, error: float) -> IntArray:
        """Columns that are no further from one of them than an error and their own."""
        off = np.linalg.norm(self.values - self.values[place], axis=1)
        return np.flatnonzero(off <= 2 * error + self.errors + self.errors[place])

    @property
    def weighty(self) -> BoolArray:
        """Those that change a row by much: taking off next to nothing leaves it as it was."""
        return np.asarray(self.sizes > LIGHT * np.abs(self.levels).max(initial=0.0))
