"""A round minus what a coalition put into it.

A coalition that knows a part of a sum can compute the rest: attacks read sums and steps of the
public table only here, with the rows of the adversary's own clients subtracted, and without those
clients in the round. If one other client is left, ``lone_upload`` returns what it sent.
``Sightings`` and ``Presence`` state who took part in which round, for attacks on sums of changing
cohorts.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attacks.scoring.item_sets import ItemSets, listed_rows
from attacks.scoring.rows import Rows, touches
from attacks.view.knowledge import Knowledge
from secure_fedrec.algorithms.biases import BIAS_COUNTS
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, RingArray
from secure_fedrec.errors import UnstatedFactError
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Messages, Parties, Step, View


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
    """Uploads of a round, or other messages of clients, without the adversary's own clients.

    Raises:
        TranscriptError: no payload was recorded.
    """
    uploads = view.messages(step, round_, payload=payload)
    known = _known(view, round_)
    if known is not None:
        others = ~np.isin(uploads.senders.ids, known.senders.ids)
        if not others.all():  # selecting copies
            uploads = uploads.select(np.flatnonzero(others))
    return rows_of(uploads)


def others_vectors(view: View, round_: int, bag: str) -> Messages:
    """Messages for a bag with their payload, without those of the adversary's own clients.

    Raises:
        TranscriptError: no payload was recorded.
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
        TranscriptError: no payload was recorded.
    """
    _, total = rows_of(view.messages(Step.AGGREGATE, round_, payload=payload))
    known = _known(view, round_)
    if known is None:
        return total
    _, own = rows_of(known)
    counts, values, kept = total.counts, total.values, np.isin(own.rows, total.rows)
    where = np.searchsorted(total.rows, own.rows[kept])
    if counts is not None:
        counts = counts.copy()
        np.subtract.at(counts, where, 1 if own.counts is None else own.counts[kept])
    if values is not None:
        if own.values is None:
            raise ValueError("payloads of sums and of a client's own rows are kept together")
        left = values.copy()
        np.subtract.at(left, where, own.values[kept])
        summed = (values != 0).any(axis=1)
        values = np.where(summed[:, None], view.codec.reduce(left), values)
    return RowBlock(indptr=total.indptr, rows=total.rows, values=values, counts=counts)


def others_counts(view: View, round_: int) -> FloatArray | None:
    """How many of the others rated each item in a round: float64[m], NaN where unknown.

    Read from the aggregate, or from public values beside the table; None if neither has it.
    """
    if view.sees(Step.AGGREGATE) and round_ in view.rounds(Step.AGGREGATE):
        total = others_sum(view, round_)
        if total.counts is not None:
            counts = np.zeros(int(view.public["n_items"]))
            counts[total.rows] = total.counts
            return counts
    known = view.sees(Step.MODEL) and round_ in view.payload_rounds(Step.MODEL)
    known = known and view.has_result(round_)
    told = view.extras(round_, after=True).get(BIAS_COUNTS) if known else None
    own = own_uploads(view, round_)
    if told is None or (own is None and own_clients(view)):
        return None
    counts = np.rint(told - view.extras(round_)[BIAS_COUNTS])
    if not (counts == 1).any():  # a tail floor may have left out rare items
        counts[counts == 0] = np.nan
    if own is not None:
        _, block = rows_of(own)
        np.subtract.at(counts, block.rows, 1 if block.counts is None else block.counts)
    return counts


def own_uploads(view: View, round_: int, *, payload: bool = False) -> Messages | None:
    """Uploads of the adversary's clients; None if not all of them were kept."""
    known = None if view.own is None else view.own.uploads(round_)
    # If uploads are not hidden, own uploads are not recorded a second time.
    if known is not None or not own_clients(view) or not view.sees(Step.UPLOAD):
        return known
    if payload and round_ not in view.payload_rounds(Step.UPLOAD):
        return None
    kept = view.messages(Step.UPLOAD, round_, payload=payload)
    if len(kept) < len(view.messages(Step.UPLOAD, round_)):
        return None
    return kept.select(np.flatnonzero(np.isin(kept.senders.ids, sorted(own_clients(view)))))


def _known(view: View, round_: int) -> Messages | None:
    """The terms of a round's sum that the coalition knows; None if it knows none."""
    if view.own is None or not Knowledge.of(view).sums_are_real:
        return None  # with virtual rows inside, the sum has terms that are not recorded
    return view.own.uploads(round_)


def public_step(view: View, round_: int) -> tuple[FloatArray, FloatArray, Aggregate] | None:
    """The public rows before and after a round, and the sum of the adversary's own clients alone.

    For a view of one block: the block's own rows. None if what those clients sent was not recorded,
    or if it is not public which rows belong to the block: a step is returned only with the
    adversary's own part.
    """
    block, codec, own = view.block, view.codec, own_uploads(view, round_, payload=True)
    sent = None if own is None else rows_of(own)[1]
    if own_clients(view) and (sent is None or (len(sent.rows) and sent.values is None)):
        return None
    both = []
    for after in (False, True):
        rows = view.table(round_, after=after)
        if block is not None:
            name = _described(view)["name"]
            values = view.extras(round_, after=after).get(name, rows).reshape(-1)
            missing = block.rows * block.width - len(values)
            if not 0 <= missing < block.width:
                return None
            rows = np.append(values, np.zeros(missing)).reshape(block.rows, block.width)
        both.append(rows)
    ring = np.zeros(both[0].shape, dtype=codec.dtype)
    counts = np.zeros(len(ring), dtype=np.int64)
    if sent is not None and len(sent.rows):
        np.add.at(ring, sent.rows, words_of(sent))
        np.add.at(counts, sent.rows, 1 if sent.counts is None else sent.counts)
    return both[0], both[1], Aggregate(ring=codec.reduce(ring), counts=counts, codec=codec)


WHOLE = 0.125
"""Largest distance of a sum from a ring word by float rounding, in ring units."""

_FEWEST_WORDS = 32
"""Number of values that must all be ring words; by chance each is one with probability 1/4."""


def others_words(view: View, round_: int) -> RingArray | None:
    """Ring words that the others' rows of a round add up to, of all rows of a view of one block.

    For the server they come from the aggregate. A table of the clients' vectors is their sum. A
    table that moves by a mean moves by the sum over the number of participants, or over a weight.
    That is found from the rows that only the adversary's clients moved: it is the total that makes
    ring words of all values, without a common odd factor. None if the view does not state it.
    """
    if view.sees(Step.AGGREGATE) and round_ in view.payload_rounds(Step.AGGREGATE):
        if own_clients(view) and own_uploads(view, round_, payload=True) is None:
            return None
        left, block = others_sum(view, round_, payload=True), view.block
        rows = view.public.get("n_items", 1 + left.rows.max(initial=0))
        size = rows if block is None else block.rows
        spread = np.zeros((int(size), words_of(left).shape[1]), dtype=view.codec.dtype)
        spread[left.rows] = words_of(left)
        return spread
    found = public_step(view, round_)
    if found is None:
        return None
    before, after, own = found
    change = _weighed(view, after - before)
    totals = (_came(view, round_), _weight(change, own))
    if Knowledge.of(view).vectors:
        change, totals = after, (1.0, 1.0)
    for total in totals:
        sums = np.asarray(change * (total * own.codec.scale))
        words = np.rint(sums).astype(np.int64)
        # Words of low-precision floats share a power of 2.
        factor = int(np.gcd.reduce(words, axis=None))
        enough = np.count_nonzero(words) >= _FEWEST_WORDS and not factor & (factor - 1)
        if enough and (np.abs(sums - words) <= WHOLE).all():
            return own.codec.reduce(own.codec.from_integers(words) - own.ring)
    return None


def others_change(view: View, round_: int) -> FloatArray | None:
    """The same decoded; if own clients did not move the table, its step, of whatever unit."""
    words = others_words(view, round_)
    if words is not None:
        return view.codec.decode(words)
    found = public_step(view, round_) if view.sees(Step.MODEL) else None
    return None if found is None or found[2].counts.any() else found[1] - found[0]


def _came(view: View, round_: int) -> float:
    """Number of clients that sent something in a round, including the adversary's; 0 if unknown."""
    cohort, own = others_cohort(view, round_), own_uploads(view, round_)
    return 0.0 if cohort is None else float(len(cohort[0]) + (0 if own is None else len(own)))


def _weight(change: FloatArray, own: Aggregate) -> float:
    """The most frequent ratio of the own clients' sums to the steps; 0 without any."""
    moved = (change != 0) & (own.ring != 0)
    ratios, sizes = own.values[moved] / change[moved], np.abs(change[moved])
    if not len(ratios):
        return 0.0
    order = np.argsort(ratios)
    ordered = ratios[order]
    until = np.searchsorted(ordered, ordered + _ALIKE * np.abs(ordered), side="right")
    first = int(np.argmax(until - np.arange(len(until))))
    alike = order[first : until[first]]
    best = float(ratios[alike][np.argmax(sizes[alike])])
    return float(np.rint(best * own.codec.scale) / own.codec.scale)


_ALIKE = 1e-7
"""Relative difference below which two ratios count as equal."""


def _weighing_one(view: View, round_: int) -> RingArray | None:
    """One client's rows divided by its weight; None if own rows are in the mean.

    None as well for gradients of a factorization, whose table moves by another rule.
    """
    found = public_step(view, round_)
    if found is None or found[2].ring.any() or Knowledge.of(view).factorized:
        return None
    change = found[1] - found[0]
    if not change.any():
        return None
    change = _weighed(view, change)
    return view.codec.from_integers(np.rint(change * view.codec.scale).astype(np.int64))


def _weighed(view: View, change: FloatArray) -> FloatArray:
    """A mean over weights, with a weight of 1 where an upload holds its weight."""
    position = view.public["algorithm"].get("weight_position")
    if position is not None and _described(view).get("kind") == "flat":
        change.reshape(-1)[position] = 1.0
    return change


def _described(view: View) -> Mapping[str, Any]:
    """The public description of a view's block; empty for a view of all blocks."""
    first = None if view.block is None else view.block.first
    blocks = (each for each in view.public.get("blocks", ()) if each["first"] == first)
    found: Mapping[str, Any] = next(blocks, {})
    return found


def lone_rounds(view: View) -> tuple[int, ...]:
    """Rounds that have a ``lone_upload``."""
    asked, fetched = set(view.asked), set(view.fetched)
    steps = [step for step in (Step.AGGREGATE, Step.MODEL) if view.sees(step)]
    kept = sorted({round_ for step in steps for round_ in view.payload_rounds(step)})
    found = tuple(round_ for round_ in kept if lone_upload(view, round_) is not None)
    if not found:  # no payload was used
        view.asked.intersection_update(asked)
        view.fetched.intersection_update(fetched)
    return found


def lone_upload(view: View, round_: int) -> Messages | None:
    """The upload of the only other participant: the sum or step minus the own part.

    None if several others took part, if participants are not seen, if the upload can be read, or if
    the sum contains more than such rows.
    """
    knowledge = Knowledge.of(view)
    try:
        exact = knowledge.sums_are_real and knowledge.exact
        unseen = {*knowledge.denoisers} - own_clients(view)
    except UnstatedFactError:
        return None
    in_the_clear = view.adversary.has("server") and not knowledge.says_hidden
    cohort = None if unseen or in_the_clear or not exact else others_cohort(view, round_)
    blocks = () if view.block is not None else view.public.get("blocks", ())
    if cohort is None or len(cohort[0]) != 1 or len(blocks) > 1:
        return None
    view = view if not blocks else view.of_block(blocks[0]["kind"]) or view
    words = others_words(view, round_)
    if words is None:
        words = _weighing_one(view, round_)
    if words is None:
        return None
    held = (words != 0).any(axis=1)
    rows = np.flatnonzero(held | (_described(view).get("kind") == "flat"))
    return Messages(
        round=round_,
        step=Step.UPLOAD,
        senders=Parties(role="client", ids=cohort[0]),
        receivers=Parties.server(1),
        payload=RowBlock(
            indptr=np.array([0, len(rows)]), rows=rows.astype(np.int32), values=words[rows]
        ),
        sizes=np.zeros(1, dtype=np.int64),
    )


class Sightings(NamedTuple):
    """Clients, row numbers and counts of some rounds.

    Attributes:
        rounds: the rounds, ascending.
        clients: int64[B], clients that uploaded in any of the rounds, ascending.
        present: bool[T, B], which clients uploaded in which round.
        counts: float64[T, m], by how many of them each item was rated; NaN where unknown.
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
                raise ValueError(f"round {round_}: the participants are not seen")
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
"""Steps that every participant sends: an adversary that sees one such message sees all of them."""


def others_cohort(view: View, round_: int) -> tuple[IntArray, RowBlock | None] | None:
    """The other participants of a round, and their rows if these are seen.

    The server and holders of shares have a message of each; a tap sees the senders. None if the
    adversary sees none of this.
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

    NaNs are left out of means; a mean of no values is NaN.
    """
    distinct, which = np.unique(present, axis=0, return_inverse=True)
    totals, sizes = np.zeros((2, len(distinct), counts.shape[1]))
    np.add.at(totals, which.reshape(-1), np.nan_to_num(counts))
    np.add.at(sizes, which.reshape(-1), ~np.isnan(counts))
    return distinct.astype(np.float64), totals / np.where(sizes > 0, sizes, np.nan)


class Presence(NamedTuple):
    """The same as grids, for systems of equations over all clients and items.

    Clients that cannot be distinguished, for example if all send all rows every time, share one row
    of a grid.

    Attributes:
        rounds: the rounds, ascending.
        clients: int64[B], clients that uploaded in any of the rounds, ascending.
        present: bool[T, G], which clients uploaded in which round.
        counts: float64[T, m], by how many of them each item was rated; NaN where unknown.
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
        present = seen.present[:, : len(visible)]
        first = seen.rounds, seen.clients, present, seen.counts
        return cls(*first, visible, possible, copies=copies, shown=seen.shown)

    def rows(self, grid: npt.NDArray[Any], listed: ItemSets) -> npt.NDArray[Any] | Rows:
        """Values for every client, expanded from the grid or from one row.

        Args:
            grid: [G, m].
            listed: pairs of clients and items that are listed; by default none.
        """
        if self.copies == 1:
            return grid
        return Rows(listed=listed, values=np.zeros(0, dtype=grid.dtype), rest=grid[0])

    def cohorts(self) -> tuple[FloatArray, FloatArray]:
        """Distinct cohorts, float64[C, G], and the mean counts of their rounds, float64[C, m]."""
        return distinct_cohorts(self.present, self.counts)
