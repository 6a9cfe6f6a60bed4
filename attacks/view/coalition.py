"""What is left of a round once a coalition takes out what it put in itself.

Who knows a part of a sum knows the rest of it: every attack that reads sums reads them here, less
the rows of the adversary's own clients, and with those clients left out of the round.
"""

import numpy as np

from attacks.view.knowledge import Knowledge
from secure_fedrec.algorithms.biases import BIAS_COUNTS
from secure_fedrec.core.arrays import FloatArray, RingArray
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
