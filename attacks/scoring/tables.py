"""Scores and truth of a game: a table of (client, guess) pairs, whole or block by block.

A game over a catalogue has a pair for every client and item. Most of them were not seen and are
negatives. They have one common value, or one of a few rows of values that clients share. Such pairs
are not listed: ``Rest`` has their values, and every statistic counts them as if they were listed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from attacks.scoring.loops import ByClass, Rest, count_below, count_rest_below
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.core.kernels import bounds_of


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreTable:
    """Scores and truth of a game, the pairs of one client next to each other.

    Attributes:
        indptr: int64[n_clients + 1]; client c owns the pairs ``indptr[c]:indptr[c + 1]``.
        scores: float64[N], finite; a higher score means that "positive" is more likely.
        labels: bool[N], the truth.
        rest: pairs that are not listed; None where all are.

    Raises:
        TypeError: if a column is not an array of its dtype.
        ValueError: if the columns do not fit together, or a score is NaN or infinite.
    """

    indptr: IntArray
    scores: FloatArray
    labels: BoolArray
    rest: Rest | None = None
    kept: dict[object, Any] = field(default_factory=dict, init=False, repr=False)
    """Cached statistics (``kept``)."""

    def __post_init__(self) -> None:
        for name, kind in (("indptr", "int64"), ("scores", "float64"), ("labels", "bool")):
            column = getattr(self, name)
            if not isinstance(column, np.ndarray) or column.dtype != np.dtype(kind):
                raise TypeError(f"{name} must be an array of {kind}")
            if column.ndim != 1:
                raise ValueError(f"{name} must have one dimension, not {column.shape}")
        if len(self.labels) != len(self.scores):
            raise ValueError(f"{len(self.labels)} labels of {len(self.scores)} scores")
        ends = (*self.indptr[:1], *self.indptr[-1:])
        if ends != (0, len(self.scores)) or (np.diff(self.indptr) < 0).any():
            raise ValueError(f"indptr must rise from 0 to {len(self.scores)}, the number of pairs")
        finite = np.isfinite(self.scores)
        if not finite.all():
            pair = int(np.argmin(finite))
            raise ValueError(f"scores must be finite, but pair {pair} has {self.scores[pair]}")
        if self.rest is not None and not np.isfinite(self.rest.values).all():
            raise ValueError("scores must be finite, including those of pairs that are not listed")

    @property
    def n_clients(self) -> int:
        """Number of clients, those without pairs included."""
        return len(self.indptr) - 1

    @property
    def n_pairs(self) -> int:
        """Number of (client, guess) pairs, listed or not."""
        return int(self.sizes.sum())

    @property
    def sizes(self) -> IntArray:
        """int64[n_clients], pairs of each client."""
        listed: IntArray = np.diff(self.indptr)
        return listed if self.rest is None else self.rest.lengths

    def parts(self) -> "Iterator[ScoreTable]":
        """Itself."""
        yield self

    def positives(self) -> IntArray:
        """int64[n_clients], positives of each client."""
        return count_per_client(self.labels, self.indptr)

    @cached_property
    def by_class(self) -> ByClass:
        """Listed scores by class, ascending for each client; must not be changed."""
        positives = self.positives()
        hits, misses = self.scores[self.labels], self.scores[~self.labels]
        ends = [bounds_of(each) for each in (positives, np.diff(self.indptr) - positives)]
        sort_each(hits, ends[0])
        sort_each(misses, ends[1])
        taken = np.empty(0, dtype=np.int32)
        if self.rest is not None:
            taken = self.rest.taken
            if len(self.rest.values) > len(self.rest.runs) - 1:  # else a client has one value
                taken = taken.copy()
                sort_each(taken, self.indptr)
        return ByClass(hits, ends[0], misses, ends[1], taken)

    @cached_property
    def among_negatives(self) -> tuple[IntArray, IntArray]:
        """int64[P], negatives of the client below each of its positives, and not above it."""
        each = self.by_class
        below, up_to = (np.zeros(len(each.hits), dtype=np.int64) for _ in range(2))
        count_below(each.hits, each.hit_ends, each.misses, each.miss_ends, below, up_to)
        if self.rest is not None:
            count_rest_below(each, self.rest, self.indptr, below, up_to)
        return below, up_to

    @cached_property
    def standing(self) -> tuple[IntArray, IntArray]:
        """int64[N], listed pairs of the client with smaller scores, and with no larger ones."""
        left, right = (np.zeros(len(self.scores), dtype=np.int64) for _ in range(2))
        hits, hit_ends, misses, miss_ends, _ = self.by_class
        for values, ends in ((hits, hit_ends), (misses, miss_ends)):
            count_below(self.scores, self.indptr, values, ends, left, right)
        return left, right

    def where(self, keep: BoolArray, rest: Rest | None = None) -> "ScoreTable":
        """The game with some of the listed pairs, bool[N], and with another rest or none."""
        ends, scores = bounds_of(count_per_client(keep, self.indptr)), self.scores[keep]
        return ScoreTable(indptr=ends, scores=scores, labels=self.labels[keep], rest=rest)


def sort_each(values: npt.NDArray[Any], ends: IntArray) -> None:
    """Sort every client's values, in place."""
    # A loop on purpose: short sorts stay in cache, at a fraction of the cost of one global lexsort.
    for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        values[start:stop].sort()


class BlockedTable:
    """A table that is made in blocks of clients whenever it is used.

    Args:
        make: the table of each block; a single one is made once and kept.
    """

    def __init__(self, make: Sequence[Callable[[], ScoreTable]]) -> None:
        self._make = make
        self._only: ScoreTable | None = None
        self.kept: dict[object, Any] = {}

    def parts(self) -> Iterator[ScoreTable]:
        """The blocks."""
        if len(self._make) > 1:
            yield from (make() for make in self._make)
            return
        if self._only is None:
            self._only = self._make[0]()
        yield self._only

    def positives(self) -> IntArray:
        """int64[n_clients], positives of each client."""
        return self._counted[0]

    @property
    def sizes(self) -> IntArray:
        """int64[n_clients], pairs of each client."""
        return self._counted[1]

    @cached_property
    def _counted(self) -> list[IntArray]:
        found = [(part.positives(), part.sizes) for part in self.parts()]
        return [np.concatenate(each) for each in zip(*found, strict=True)]

    @property
    def n_clients(self) -> int:
        """Number of clients, those without pairs included."""
        return len(self.positives())

    @property
    def n_pairs(self) -> int:
        """Number of (client, guess) pairs, listed or not."""
        return int(self.sizes.sum())


Table: TypeAlias = ScoreTable | BlockedTable

_More = ParamSpec("_More")
_Found = TypeVar("_Found")


def kept(
    statistic: Callable[Concatenate[Table, _More], _Found],
) -> Callable[Concatenate[Table, _More], _Found]:
    """A statistic of a table, computed once per arguments; it must not be changed."""

    @wraps(statistic)
    def once(table: Table, /, *args: _More.args, **named: _More.kwargs) -> _Found:
        key = (statistic.__name__, args, *sorted(named.items()))
        if key not in table.kept:
            table.kept[key] = statistic(table, *args, **named)
        found: _Found = table.kept[key]
        return found

    return once


class Pooled(NamedTuple):
    """Scores of a class over all clients.

    Attributes:
        values: float64[V], distinct, ascending.
        ends: int64[V], pairs with no larger one.
    """

    values: FloatArray
    ends: IntArray

    @property
    def size(self) -> int:
        """Number of pairs."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def below(self, cuts: FloatArray) -> IntArray:
        """int64: pairs with a smaller score than each cut."""
        return np.append(0, self.ends)[np.searchsorted(self.values, cuts)]

    def at(self, places: IntArray) -> FloatArray:
        """Scores at some places of the ascending order of all."""
        return np.asarray(self.values[np.searchsorted(self.ends, places, side="right")])


@kept
def pooled_classes(table: Table) -> tuple[Pooled, Pooled]:
    """Scores of the positives and of the negatives."""
    positives: list[_Counted] = []
    negatives: list[_Counted] = []
    for part in table.parts():
        positives.append(np.unique(part.scores[part.labels], return_counts=True))
        negatives.append(np.unique(part.scores[~part.labels], return_counts=True))
        if part.rest is not None:
            negatives.append(_left(part.rest))
    return _pooled(positives), _pooled(negatives)


_Counted = tuple[FloatArray, IntArray]


def _left(rest: Rest) -> _Counted:
    """Values of unlisted pairs, and the number of pairs with each value."""
    clients = np.bincount(rest.row, minlength=len(rest.runs) - 1)
    counts = np.diff(rest.below) * np.repeat(clients, np.diff(rest.runs))
    return rest.values, counts - np.bincount(rest.taken, minlength=len(counts))


def _pooled(parts: Sequence[_Counted]) -> Pooled:
    values, place = np.unique(np.concatenate([each for each, _ in parts]), return_inverse=True)
    counts = np.zeros(len(values), dtype=np.int64)
    np.add.at(counts, place, np.concatenate([each for _, each in parts]))
    there = counts > 0
    return Pooled(values[there], np.cumsum(counts[there]))


def count_per_client(mask: BoolArray, indptr: IntArray) -> IntArray:
    """int64[n_clients], the true entries of each client; holds for clients without pairs too."""
    counts: IntArray = np.diff(np.searchsorted(np.flatnonzero(mask), indptr))
    return counts


def highest_each(values: npt.NDArray[Any], indptr: IntArray) -> npt.NDArray[Any]:
    """The largest of each client's values, [B] of their type; 1 at least."""
    highest = np.ones(len(indptr) - 1, dtype=values.dtype)
    there = np.flatnonzero(np.diff(indptr))
    if len(there):
        highest[there] = np.maximum(np.maximum.reduceat(values, indptr[:-1][there]), 1)
    return highest
