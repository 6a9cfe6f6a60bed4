"""Who took part when: the bookkeeping that attacks on sums of changing cohorts start from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attacks.view.coalition import others_sum, others_uploads
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.wire import View


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Presence:
    """Clients, row numbers and counts of some rounds.

    Args:
        rounds: the rounds, ascending.
        clients: int64[B], who uploaded in any of them, ascending.
        present: bool[T, B], who uploaded in which.
        counts: int64[T, m], counts of the aggregates.
        visible: bool[B, m], items the adversary saw beside a client's name.
        possible: bool[B, m], items the client can have rated, judged by its uploads alone: where
            rated items are uploaded every time, those in all of its uploads.
    """

    rounds: tuple[int, ...]
    clients: IntArray
    present: BoolArray
    counts: IntArray
    visible: BoolArray
    possible: BoolArray

    @classmethod
    def read(cls, view: View, knowledge: Knowledge, rounds: Sequence[int]) -> "Presence":
        """Read rounds with both uploads and an aggregate, the adversary's own clients left out."""
        n_clients, n_items = int(view.public["n_clients"]), int(view.public["n_items"])
        seen = np.zeros((n_clients, n_items), dtype=np.uint32)
        present = np.zeros((len(rounds), n_clients), dtype=bool)
        counts = np.zeros((len(rounds), n_items), dtype=np.int64)
        for position, round_ in enumerate(rounds):
            uploads, block = others_uploads(view, round_)
            senders = uploads.senders.ids
            present[position, senders] = True
            if not knowledge.dense:
                seen[np.repeat(senders, block.lengths), block.rows] += 1
            total = others_sum(view, round_)
            if total.counts is not None:
                counts[position, total.rows] = total.counts
        clients = np.flatnonzero(present.any(axis=0))
        seen, uploads_of = seen[clients], present[:, clients].sum(axis=0)
        everything = np.ones(seen.shape, dtype=bool)
        visible = everything if knowledge.dense else seen > 0
        every_time = seen == uploads_of[:, None]
        return cls(
            rounds=tuple(rounds),
            clients=clients,
            present=present[:, clients],
            counts=counts,
            visible=visible,
            possible=visible if knowledge.dense or not knowledge.constant else every_time,
        )

    def cohorts(self) -> tuple[FloatArray, FloatArray]:
        """Distinct cohorts, float64[C, B], and the mean counts of their rounds, float64[C, m]."""
        distinct, which = np.unique(self.present, axis=0, return_inverse=True)
        totals = np.zeros((len(distinct), self.counts.shape[1]))
        np.add.at(totals, which.reshape(-1), self.counts)
        sizes = np.bincount(which.reshape(-1), minlength=len(distinct))
        return distinct.astype(np.float64), totals / sizes[:, None]
