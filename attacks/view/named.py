"""Rows that reach an adversary with their senders' names: uploads, shares of uploads, or both.

If uploads are additively shared, each holder has words of the same rows. An adversary that has
corrupted several holders adds their shares: all shares give the upload itself, fewer give noise.

A stack may say that uploads are hidden. Each message is examined nevertheless: words under a pad
are uniform in the ring, and those of a client lie within the clip, which is a small part of the
ring. So a message whose words all lie within the clip is in the clear, with an error probability
that follows from their number.

If only one other client took part in a round, the rest of the sum or of the step of the public
table is its upload (``coalition.lone_upload``), which is returned here like any upload.
"""

import math
from dataclasses import replace

import numpy as np

from attacks.view.coalition import lone_rounds, lone_upload, rows_of
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import BoolArray, IntArray, RingArray, nobody
from secure_fedrec.core.kernels import bounds_of, segments
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Messages, Step, View


def sees_named_rows(view: View) -> bool:
    """Whether any rows reach the adversary with a name."""
    return bool(_steps(view) or lone_rounds(view))


def named_rounds(view: View) -> tuple[int, ...]:
    """Rounds in which such rows reached it."""
    return _common([view.rounds(step) for step in _steps(view)], lone_rounds(view))


def named_payload_rounds(view: View) -> tuple[int, ...]:
    """Rounds in which their payloads were recorded at every holder."""
    return _common([view.payload_rounds(step) for step in _steps(view)], lone_rounds(view))


def named_rows(view: View, round_: int, *, payload: bool = False) -> Messages:
    """One message per client, with the sum of the corrupted holders' shares of its rows.

    Raises:
        TranscriptError: no such message was recorded.
    """
    alone = lone_upload(view, round_) if lone_rounds(view.at(round_)) else None
    if alone is not None:
        unread = replace(rows_of(alone)[1], values=None)
        return alone if payload else replace(alone, payload=unread)
    parts = []
    for step in _steps(view):
        messages = view.messages(step, round_, payload=payload)
        if (messages.senders.ids < 0).any():  # anonymous messages
            messages = messages.select(np.flatnonzero(messages.senders.ids >= 0))
        if step is Step.UPLOAD:
            parts.append(messages)
            continue
        holders = messages.receivers.ids
        parts += [messages.select(np.flatnonzero(holders == one)) for one in np.unique(holders)]
    # A corrupted client knows its shares to others as well, so one part may hold only its share.
    whole = max(range(len(parts)), key=lambda part: len(parts[part]))
    first, block = rows_of(parts.pop(whole))
    if not payload or block.values is None or not parts:
        return first
    words: RingArray = block.values.copy()
    for part in parts:
        other = rows_of(part)[1]
        of_first = np.searchsorted(first.senders.ids, part.senders.ids)
        take, _ = segments(block.indptr, of_first)
        if other.values is None or not np.array_equal(other.rows, block.rows[take]):
            raise ValueError("holders of shares disagree on the rows")
        words[take] += other.values
    summed = RowBlock(indptr=block.indptr, rows=block.rows, values=view.codec.reduce(words))
    return replace(first, payload=summed)


def _steps(view: View) -> tuple[Step, ...]:
    steps = (step for step in (Step.UPLOAD, Step.SHARE) if view.sees(step))
    return tuple(step for step in steps if view.rounds(step))


def _common(found: list[tuple[int, ...]], alone: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set.intersection(*map(set, found)).union(alone) if found else alone))


LUCK_BITS = 40
"""Fewer than 2^-40 messages of noise are expected to be taken for readable ones in a round, so
fewer than 2^-20 in a million rounds."""


def in_the_clear(block: RowBlock, codec: FixedPoint) -> BoolArray:
    """Which messages of a round are certainly not masked: bool[B].

    Args:
        block: their rows, ring words with them.
        codec: the ring of these words, whose ``clip`` no client's own words exceed.
    """
    if block.values is None or not len(block):
        return np.zeros(len(block), dtype=bool)
    words, most = codec.signed(block.values), codec.largest
    beyond = ((words > most) | (words < -most)).any(axis=1)
    # Log2 of the probability that a uniform word is in range.
    known = math.log2(2 * most + 1) - codec.bits
    odds = block.lengths * block.values.shape[1] * known + math.log2(len(block))
    outside = np.diff(np.concatenate([[0], np.cumsum(beyond)])[block.indptr])
    return np.asarray((outside == 0) & (odds <= -LUCK_BITS))


def readable(view: View, block: RowBlock) -> BoolArray:
    """Which named messages can be read: by their words, if uploads are said to be hidden.

    Args:
        view: view of the uploads.
        block: their rows, with words.
    """
    if not Knowledge.of(view).says_hidden:
        return np.ones(len(block), dtype=bool)
    return in_the_clear(block, view.codec)


def clear_senders(view: View, round_: int) -> IntArray:
    """int64, ascending: senders of named messages in clear; empty without payloads."""
    if round_ not in named_payload_rounds(view):
        return nobody()
    messages, block = rows_of(named_rows(view, round_, payload=True))
    return np.unique(messages.senders.ids[in_the_clear(block, view.codec)])


def read_rows(view: View, round_: int) -> tuple[Messages, RowBlock, BoolArray]:
    """Named rows with their words, and which of the messages can be read.

    If all clients send the same rows, a readable message keeps only rows that are not zero.

    Raises:
        TranscriptError: no such message was recorded.
    """
    messages, block = rows_of(named_rows(view, round_, payload=True))
    plain = readable(view, block)
    if not plain.any() or not Knowledge.of(view).says_dense:
        return messages, block, plain
    return messages, _where(block, _held(block) | ~np.repeat(plain, block.lengths)), plain


def seen_rows(view: View, round_: int) -> tuple[Messages, RowBlock]:
    """Row numbers of all named messages; readable ones as in ``read_rows``.

    Raises:
        TranscriptError: no such message was recorded.
    """
    messages, block = rows_of(named_rows(view, round_))
    if not Knowledge.of(view).says_dense or round_ not in named_payload_rounds(view):
        return messages, block
    told, words = rows_of(named_rows(view, round_, payload=True))
    plain = in_the_clear(words, view.codec)
    if not plain.any():
        return messages, block
    keep = np.ones(len(block.rows), dtype=bool)
    place = np.searchsorted(messages.senders.ids, told.senders.ids[plain])
    keep[segments(block.indptr, place)[0]] = _held(words)[np.repeat(plain, words.lengths)]
    return messages, _where(block, keep)


def _held(block: RowBlock) -> BoolArray:
    """bool[N], rows that hold a value or a count."""
    held = np.zeros(len(block.rows), dtype=bool)
    if block.values is not None:
        held |= (block.values != 0).any(axis=1)
    return held if block.counts is None else held | (block.counts != 0)


def _where(block: RowBlock, keep: BoolArray) -> RowBlock:
    return RowBlock(
        indptr=bounds_of(np.diff(np.concatenate([[0], np.cumsum(keep)])[block.indptr])),
        rows=block.rows[keep],
        values=None if block.values is None else block.values[keep],
        counts=None if block.counts is None else block.counts[keep],
    )
