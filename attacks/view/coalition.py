"""What is left of a round once a coalition takes out what it put in itself.

Who knows a part of a sum knows the rest of it: every attack that reads sums reads them here, less
the rows of the adversary's own clients, and with those clients left out of the round. Who took part
when (``Sightings``, ``Presence``) is what attacks on sums of changing cohorts start from.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attacks.scoring.item_sets import ItemSets, listed_rows
from attacks.scoring.rows import Rows, touches
from attacks.view.knowledge import Knowledge
from secure_fedrec.algorithms.biases import BIAS_COUNTS
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, RingArray
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Messages, Step, View


def rows_of(messages: Messages) -> tuple[Messages, RowBlock]:
    """Messages with their payload, which must be rows.

    Raises:
        TypeError: they carry a dense table.
    """
    if not isinstance(messages.payload, RowBlock):
        raise TypeError("expected rows")
    return messages, messages.payload


def words_of(block: RowBlock) -> RingArray:
    """The ring words of a payload.

    Raises:
        ValueError: only the row numbers are kept.
    """
    if block.values is None:
        raise ValueError("payloads were asked for")
    words: RingArray = block.values
    return words


def own_clients(view: View) -> frozenset[int]:
    """The adversary's own clients, whose part of every round it knows."""
    return frozenset() if view.own is None else view.own.clients


def others_uploads(
    view: View, round_: int, *, payload: bool = False, step: Step = Step.UPLOAD
) -> tuple[Messages, RowBlock]:
    """Uploads of a round, or what clients send in a step beside, without those whose part is known.

    Raises:
        TranscriptError: none was recorded.
    """
    uploads = view.messages(step, round_, payload=payload)
    known = _known(view, round_)
    if known is not None:
        others = ~np.isin(uploads.senders.ids, known.senders.ids)
        if not others.all():  # a selection is a copy
            uploads = uploads.select(np.flatnonzero(others))
    return rows_of(uploads)


def others_vectors(view: View, round_: int, bag: str) -> Messages:
    """Messages for a bag with their payload, without those of the adversary's own clients.

    Raises:
        TranscriptError: none was recorded.
    """
    messages = view.messages(Step.BAG, round_, payload=True, bag=bag)
    if view.own is None:
        return messages
    own = np.isin(messages.senders.ids, sorted(view.own.clients))
    if messages.tags is not None:
        own = np.isin(messages.tags, view.own.tags(round_, Step.BAG, bag))
    return messages.select(np.flatnonzero(~own))


def others_sum(view: View, round_: int, *, payload: bool = False) -> RowBlock:
    """The aggregate of a round, less what the adversary's own clients put into it.

    Rows that were left out of the sum (a tail floor) stay zero.

    Raises:
        TranscriptError: none was recorded.
    """
    _, total = rows_of(view.messages(Step.AGGREGATE, round_, payload=payload))
    known = _known(view, round_)
    if known is None:
        return total
    _, own = rows_of(known)
    place = np.full(int(view.public["n_items"]), -1)
    place[total.rows] = np.arange(len(total.rows))
    counts, values, where = total.counts, total.values, place[own.rows]
    if counts is not None:
        counts = counts.copy()
        np.subtract.at(counts, where, 1 if own.counts is None else own.counts)
    if values is not None:
        if own.values is None:
            raise ValueError("payloads of sums and of a client's own rows are kept together")
        left = values.copy()
        np.subtract.at(left, where, own.values)
        summed = (values != 0).any(axis=1)
        values = np.where(summed[:, None], view.codec.reduce(left), values)
    return RowBlock(indptr=total.indptr, rows=total.rows, values=values, counts=counts)


def others_counts(view: View, round_: int) -> FloatArray | None:
    """How many of the others rated each item in a round: float64[m], NaN where it is not told.

    The aggregate tells it, or else what is public beside the table; None where neither does.
    """
    if view.sees(Step.AGGREGATE) and round_ in view.rounds(Step.AGGREGATE):
        total = others_sum(view, round_)
        if total.counts is not None:
            counts = np.zeros(int(view.public["n_items"]))
            counts[total.rows] = total.counts
            return counts
    known = view.sees(Step.MODEL) and round_ in view.payload_rounds(Step.MODEL)
    told = view.extras(round_, after=True).get(BIAS_COUNTS) if known else None
    own = own_uploads(view, round_)
    if told is None or (own is None and own_clients(view)):
        return None
    counts = np.rint(told - view.extras(round_)[BIAS_COUNTS])
    if not (counts == 1).any():  # then a floor may have left out what has few raters
        counts[counts == 0] = np.nan
    if own is not None:
        _, block = rows_of(own)
        np.subtract.at(counts, block.rows, 1 if block.counts is None else block.counts)
    return counts


def own_uploads(view: View, round_: int, *, payload: bool = False) -> Messages | None:
    """Uploads of the adversary's clients; None where they were not kept, all of them."""
    known = None if view.own is None else view.own.uploads(round_)
    # Where nothing hides what was sent, it is not kept twice.
    if known is not None or not own_clients(view) or not view.sees(Step.UPLOAD):
        return known
    if payload and round_ not in view.payload_rounds(Step.UPLOAD):
        return None
    kept = view.messages(Step.UPLOAD, round_, payload=payload)
    if len(kept) < len(view.messages(Step.UPLOAD, round_)):
        return None
    return kept.select(np.flatnonzero(np.isin(kept.senders.ids, sorted(own_clients(view)))))


def _known(view: View, round_: int) -> Messages | None:
    """What the coalition knows of the terms of a round's sum; None if nothing."""
    if view.own is None or not Knowledge.of(view).sums_are_real:
        return None  # with virtual rows inside, the sum has terms that are not recorded
    return view.own.uploads(round_)


class Sightings(NamedTuple):
    """Clients, row numbers and counts of some rounds.

    Attributes:
        rounds: the rounds, ascending.
        clients: int64[B], who uploaded in any of them, ascending.
        present: bool[T, B], who uploaded in which.
        counts: float64[T, m], by how many of them each item was rated; NaN where it is not told.
        shown: whether the rows of each client are seen beside its name, and differ.
        listed: items that the adversary saw beside a client's name; none where they are not shown.
        possible: bool[K], which of these the client can have rated, judged by its uploads alone:
            where rated items are uploaded every time, those in all of its uploads.
    """

    rounds: tuple[int, ...]
    clients: IntArray
    present: BoolArray
    counts: FloatArray
    shown: bool
    listed: ItemSets
    possible: BoolArray

    @classmethod
    def read(cls, view: View, knowledge: Knowledge, rounds: Sequence[int]) -> "Sightings":
        """Read rounds whose ``others_cohort`` is seen, the adversary's own clients left out."""
        n_clients, n_items = int(view.public["n_clients"]), int(view.public["n_items"])
        present = np.zeros((len(rounds), n_clients), dtype=bool)
        counts, shown = np.full((len(rounds), n_items), np.nan), not knowledge.dense
        for position, round_ in enumerate(rounds):
            seen, told = others_cohort(view, round_), others_counts(view, round_)
            if seen is None:
                raise ValueError(f"round {round_}: who took part is not seen")
            present[position, seen[0]] = True
            shown &= seen[1] is not None
            if told is not None:
                counts[position] = told
        clients = np.flatnonzero(present.any(axis=0))
        touched = Rows.marked(ItemSets.empty(len(clients), n_items))
        if shown:
            touched = touches(partial(_uploaded, view, clients, n_items), rounds)
        uploads_of = present[:, clients].sum(axis=0).astype(np.min_scalar_type(len(rounds)))
        every_time = touched.values == np.repeat(uploads_of, touched.listed.lengths)
        return cls(
            rounds=tuple(rounds),
            clients=clients,
            present=present[:, clients],
            counts=counts,
            shown=shown,
            listed=touched.listed,
            possible=every_time if knowledge.constant else np.ones(len(every_time), dtype=bool),
        )


_SENT = (Step.UPLOAD, Step.SHARE, Step.COUNTS)
"""What every client that takes part sends: all of them reach whom one of them reaches."""


def others_cohort(view: View, round_: int) -> tuple[IntArray, RowBlock | None] | None:
    """Who of the others took part in a round, and their rows where these are seen.

    The server and who holds shares have a message of each, a tap sees who sends. None where nobody
    of these is the adversary's.
    """
    receivers = {Step.SHARE: "denoiser"}
    for step in _SENT:
        received = view.adversary.has(receivers.get(step, "server"))
        if received and view.sees(step) and round_ in view.rounds(step):
            sent, block = others_uploads(view, round_, step=step)
            once = sent.receivers.ids == sent.receivers.ids[:1]
            if not once.all():
                sent, block = rows_of(sent.select(np.flatnonzero(once)))
            return sent.senders.ids, None if step is Step.COUNTS else block
    if "network" in view.adversary.taps:
        traffic = view.traffic(round_)
        for step in _SENT:
            if step in traffic and traffic[step][0].min() >= 0:
                return np.setdiff1d(traffic[step][0], sorted(own_clients(view))), None
    return None


def _uploaded(view: View, clients: IntArray, n_items: int, round_: int) -> ItemSets:
    """Items of the clients' uploads in a round."""
    senders, block = others_cohort(view, round_) or (clients, None)
    if block is None:
        return ItemSets.empty(len(clients), n_items)
    return listed_rows(clients, senders, block, n_items)[0]


def distinct_cohorts(present: BoolArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distinct cohorts, float64[C, B], and the mean counts of their rounds, float64[C, m].

    NaN is left out of a mean, and is that of nothing.
    """
    distinct, which = np.unique(present, axis=0, return_inverse=True)
    totals, sizes = np.zeros((2, len(distinct), counts.shape[1]))
    np.add.at(totals, which.reshape(-1), np.nan_to_num(counts))
    np.add.at(sizes, which.reshape(-1), ~np.isnan(counts))
    return distinct.astype(np.float64), totals / np.where(sizes > 0, sizes, np.nan)


class Presence(NamedTuple):
    """The same as grids, for systems of equations over all clients and items.

    Clients of whom nothing differs, as where all send all rows every time, share one row of a grid.

    Attributes:
        rounds: the rounds, ascending.
        clients: int64[B], who uploaded in any of them, ascending.
        present: bool[T, G], who uploaded in which.
        counts: float64[T, m], by how many of them each item was rated; NaN where it is not told.
        visible: bool[G, m], items the adversary saw beside a client's name; all if not shown.
        possible: bool[G, m], items the client can have rated, judged by its uploads alone: where
            rated items are uploaded every time, those in all of its uploads.
        copies: clients of each row, B = copies G.
        shown: whether the rows of each client are seen beside its name, and differ.
    """

    rounds: tuple[int, ...]
    clients: IntArray
    present: BoolArray
    counts: FloatArray
    visible: BoolArray
    possible: BoolArray
    copies: int = 1
    shown: bool = False

    @classmethod
    def read(cls, view: View, knowledge: Knowledge, rounds: Sequence[int]) -> "Presence":
        """Read rounds whose ``others_cohort`` is seen, the adversary's own clients left out."""
        seen = Sightings.read(view, knowledge, rounds)
        alike = not seen.shown and not knowledge.virtual_rows and bool(seen.present.all())
        copies = len(seen.clients) if alike else 1
        visible = np.ones((len(seen.clients) // max(1, copies), seen.listed.n_items), dtype=bool)
        possible = visible
        if seen.shown:
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
            shown=seen.shown,
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
