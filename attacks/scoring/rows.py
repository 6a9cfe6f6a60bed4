"""Values of (client, item) pairs as ragged rows.

The values for the few items that an attack saw of each client are listed; all other pairs have the
same value, or one row of values for all clients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.scoring.item_sets import ItemSets, Joined
from attacks.scoring.tables import count_per_client, highest_each
from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.core.kernels import segments


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Values of pairs: of those that are listed, and of all others.

    Args:
        listed: B sets of K items altogether.
        values: [K], whole numbers, reals or marks.
        rest: value of every pair that is not listed; or [m], by item, where nothing is listed.
        over: int64[B], divisors of clients' values, so that values can be stored as counts.

    Raises:
        ValueError: the columns do not fit together.
    """

    listed: ItemSets
    values: npt.NDArray[Any]
    rest: float | npt.NDArray[Any] = 0.0
    over: IntArray | None = None

    def __post_init__(self) -> None:
        if self.values.shape != self.listed.items.shape:
            raise ValueError(f"{self.values.shape} values of {self.listed.items.shape} pairs")
        shared = isinstance(self.rest, np.ndarray)
        if shared and (len(self.values) or np.shape(self.rest) != (self.listed.n_items,)):
            raise ValueError(
                "one row of values for all clients cannot be combined with other values"
            )
        if self.over is not None and (shared or self.rest):
            raise ValueError("values that are divided are 0 of pairs that are not listed")

    @classmethod
    def marked(cls, listed: ItemSets, marks: BoolArray | bool = True) -> "Rows":
        """All that is listed is marked, or some of it, and nothing else."""
        return cls(listed=listed, values=np.broadcast_to(marks, listed.items.shape), rest=False)

    @classmethod
    def of_grid(cls, grid: npt.NDArray[Any]) -> "Rows":
        """Every pair of a grid [B, m]."""
        return cls(listed=ItemSets.whole(*grid.shape), values=grid.reshape(-1))

    def of(self, pairs: Joined) -> npt.NDArray[Any]:
        """Values of some pairs: [T]."""
        rest = self.rest[pairs.items] if isinstance(self.rest, np.ndarray) else self.rest
        if not len(self.values):
            return np.full(len(pairs.items), rest)
        found = self.values[np.maximum(pairs.source, 0)]
        if self.over is not None:
            found = found / self.over[pairs.span.start + pairs.owners]
        return np.asarray(np.where(pairs.source >= 0, found, rest))

    def take(self, clients: IntArray) -> "Rows":
        """Values of some clients, in that order."""
        places, _ = segments(self.listed.indptr, clients)
        return self.among(self.listed.take(clients), places, clients)

    def among(
        self, listed: ItemSets, pairs: IntArray | BoolArray, clients: IntArray | BoolArray
    ) -> "Rows":
        """Values of some pairs, which are those that some clients list."""
        over = None if self.over is None else self.over[clients]
        return replace(self, listed=listed, values=self.values[pairs], over=over)

    def divided(self, over: int | IntArray) -> "Rows":
        """The same, each client's values divided by a number."""
        by = np.broadcast_to(np.asarray(over, dtype=np.int64), len(self.listed))
        return Rows(listed=self.listed, values=self.values, rest=self.rest, over=by)

    def telling(self) -> "Rows":
        """The same, without listed pairs that have the value of all others."""
        told = self.values != self.rest
        if isinstance(self.rest, np.ndarray) or self.over is not None or told.all():
            return self
        sizes = count_per_client(told, self.listed.indptr)
        sets = ItemSets.of_sizes(sizes, self.listed.items[told], self.listed.n_items)
        return Rows(listed=sets, values=self.values[told], rest=self.rest)

    def highest(self) -> IntArray:
        """int64[B], the largest of each client's counts; 1 at least."""
        return highest_each(self.values, self.listed.indptr).astype(np.int64)

    def grid(self) -> npt.NDArray[Any]:
        """[B, m]; for tests and small catalogues."""
        values = self.values
        if self.over is not None:
            values = values / self.over[self.listed.owners]
        rest = np.asarray(self.rest)
        alike = np.array_equal(rest.astype(values.dtype), rest)
        kind = values.dtype if alike else np.result_type(values, rest)
        filled = np.empty((len(self.listed), self.listed.n_items), dtype=kind)
        filled[:] = rest
        filled[self.listed.owners, self.listed.items] = values
        return filled


def touches(
    uploaded: Callable[[int], ItemSets],
    rounds: Sequence[int],
    at: Callable[[int, Rows], None] | None = None,
) -> Rows:
    """In how many rounds each pair occurs, for pairs that occur at all.

    Args:
        uploaded: returns every client's items of a round; called twice, so that rounds are not kept
            in memory.
        rounds: one at least.
        at: called with the counts after some numbers of rounds.
    """
    listed, kind = _all_of(uploaded, rounds), np.min_scalar_type(len(rounds) + 1)
    counts = listed.marks(kind)  # offset by one, so that none is dropped as 0
    for number, round_ in enumerate(rounds, start=1):
        counts = counts + uploaded(round_).marks(kind)
        if at is not None:
            at(number, Rows(listed=listed, values=counts.data - 1))
    return Rows(listed=listed, values=counts.data - 1)


def _all_of(uploaded: Callable[[int], ItemSets], rounds: Sequence[int]) -> ItemSets:
    """Each client's items of any round; merged by halves, so that few sets are read often."""
    if len(rounds) == 1:
        return uploaded(rounds[0])
    half = len(rounds) // 2
    return _all_of(uploaded, rounds[:half]).united(_all_of(uploaded, rounds[half:]))


def require_alike(*said: npt.NDArray[Any] | Rows) -> None:
    """Refuse a mix of grids and rows, and rows that list different pairs.

    Raises:
        ValueError: they are mixed.
    """
    listed = {id(each.listed) if isinstance(each, Rows) else None for each in said}
    if len(listed) > 1:
        raise ValueError("the values of clients list different pairs")


def require_marks(*said: npt.NDArray[Any] | Rows, shared: bool = False) -> None:
    """Check that marked pairs are listed: all other pairs are judged as unmarked.

    Args:
        said: marks, as grids or rows.
        shared: whether one row of marks for all clients suffices.

    Raises:
        ValueError: pairs that are not listed are marked.
    """
    for each in said:
        if isinstance(each, Rows):
            everybody = isinstance(each.rest, np.ndarray)
            if (everybody and not shared) or (not everybody and each.rest):
                raise ValueError("marks: pairs that are not listed are marked; list them")


def kept_rows(keep: BoolArray, *said: npt.NDArray[Any] | Rows) -> list[Rows]:
    """The values of some clients, bool[B], for the same pairs."""
    first = said[0]
    if not isinstance(first, Rows):
        return [Rows.of_grid(np.asarray(each)[keep]) for each in said]
    rows = [each for each in said if isinstance(each, Rows)]
    if keep.all():
        return rows
    lengths = first.listed.lengths
    pairs = np.repeat(keep, lengths)  # a byte a pair: their places would take eight
    listed = ItemSets.of_sizes(lengths[keep], first.listed.items[pairs], first.listed.n_items)
    return [each.among(listed, pairs, keep) for each in rows]
