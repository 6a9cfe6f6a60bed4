"""Who took part when: the bookkeeping that attacks on sums of changing cohorts start from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.scoring.item_sets import ItemSets, listed_rows
from attacks.scoring.rows import Rows, touches
from attacks.view.coalition import others_sum, others_uploads
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.wire import View


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sightings:
    """Clients, row numbers and counts of some rounds.

    Args:
        rounds: the rounds, ascending.
        clients: int64[B], who uploaded in any of them, ascending.
        present: bool[T, B], who uploaded in which.
        counts: int64[T, m], counts of the aggregates.
        listed: items that the adversary saw beside a client's name; none where all see all.
        possible: bool[K], which of these the client can have rated, judged by its uploads alone:
            where rated items are uploaded every time, those in all of its uploads.
    """

    rounds: tuple[int, ...]
    clients: IntArray
    present: BoolArray
    counts: IntArray
    listed: ItemSets
    possible: BoolArray

    @classmethod
    def read(cls, view: View, knowledge: Knowledge, rounds: Sequence[int]) -> "Sightings":
        """Read rounds with both uploads and an aggregate, the adversary's own clients left out."""
        n_clients, n_items = int(view.public["n_clients"]), int(view.public["n_items"])
        present = np.zeros((len(rounds), n_clients), dtype=bool)
        counts = np.zeros((len(rounds), n_items), dtype=np.int64)
        for position, round_ in enumerate(rounds):
            present[position, others_uploads(view, round_)[0].senders.ids] = True
            total = others_sum(view, round_)
            if total.counts is not None:
                counts[position, total.rows] = total.counts
        clients = np.flatnonzero(present.any(axis=0))
        touched = Rows.marked(ItemSets.empty(len(clients), n_items))
        if not knowledge.dense:
            touched = touches(partial(_uploaded, view, clients, n_items), rounds)
        uploads_of = present[:, clients].sum(axis=0).astype(np.min_scalar_type(len(rounds)))
        every_time = touched.values == np.repeat(uploads_of, touched.listed.lengths)
        return cls(
            rounds=tuple(rounds),
            clients=clients,
            present=present[:, clients],
            counts=counts,
            listed=touched.listed,
            possible=every_time if knowledge.constant else np.ones(len(every_time), dtype=bool),
        )


def _uploaded(view: View, clients: IntArray, n_items: int, round_: int) -> ItemSets:
    """Items of the clients' uploads in a round."""
    uploads, block = others_uploads(view, round_)
    return listed_rows(clients, uploads.senders.ids, block, n_items)[0]


def distinct_cohorts(present: BoolArray, counts: IntArray) -> tuple[FloatArray, FloatArray]:
    """Distinct cohorts, float64[C, B], and the mean counts of their rounds, float64[C, m]."""
    distinct, which = np.unique(present, axis=0, return_inverse=True)
    totals = np.zeros((len(distinct), counts.shape[1]))
    np.add.at(totals, which.reshape(-1), counts)
    sizes = np.bincount(which.reshape(-1), minlength=len(distinct))
    return distinct.astype(np.float64), totals / sizes[:, None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Presence:
    """The same as grids, for systems of equations over all clients and items.

    Clients of whom nothing differs, as where all send all rows every time, share one row of a grid.

    Args:
        rounds: the rounds, ascending.
        clients: int64[B], who uploaded in any of them, ascending.
        present: bool[T, G], who uploaded in which.
        counts: int64[T, m], counts of the aggregates.
        visible: bool[G, m], items the adversary saw beside a client's name.
        possible: bool[G, m], items the client can have rated, judged by its uploads alone: where
            rated items are uploaded every time, those in all of its uploads.
        copies: clients of each row, B = copies G.
    """

    rounds: tuple[int, ...]
    clients: IntArray
    present: BoolArray
    counts: IntArray
    visible: BoolArray
    possible: BoolArray
    copies: int = 1

    @classmethod
    def read(cls, view: View, knowledge: Knowledge, rounds: Sequence[int]) -> "Presence":
        """Read rounds with both uploads and an aggregate, the adversary's own clients left out."""
        seen = Sightings.read(view, knowledge, rounds)
        alike = knowledge.dense and not knowledge.virtual_rows and bool(seen.present.all())
        copies = len(seen.clients) if alike else 1
        visible = np.ones((len(seen.clients) // max(1, copies), seen.listed.n_items), dtype=bool)
        possible = visible
        if not knowledge.dense:
            visible = seen.listed.grid()
            possible = Rows.marked(seen.listed, seen.possible).grid()
        return cls(
            rounds=seen.rounds,
            clients=seen.clients,
            present=seen.present[:, : len(visible)],
            counts=seen.counts,
            visible=visible,
            possible=possible,
            copies=copies,
        )

    def rows(self, grid: npt.NDArray[Any], listed: ItemSets) -> npt.NDArray[Any] | Rows:
        """What is said of every client: the grid, or one row for everybody.

        Args:
            grid: [G, m].
            listed: no pair of anybody.
        """
        if self.copies == 1:
            return grid
        return Rows(listed=listed, values=np.zeros(0, dtype=grid.dtype), rest=grid[0])

    def cohorts(self) -> tuple[FloatArray, FloatArray]:
        """Distinct cohorts, float64[C, G], and the mean counts of their rounds, float64[C, m]."""
        return distinct_cohorts(self.present, self.counts)
