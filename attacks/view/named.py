"""Rows that reach an adversary under their senders' names: uploads, shares of uploads, or both.

Where uploads are additively shared, each holder has words of the same rows. Whoever has corrupted
several holders adds what they hold: with all of them that is the upload itself, with fewer it is
noise.
"""

from dataclasses import replace

import numpy as np

from attacks.view.coalition import rows_of
from secure_fedrec.core.arrays import RingArray
from secure_fedrec.core.kernels import segments
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Messages, Step, View


def sees_named_rows(view: View) -> bool:
    """Whether any rows reach the adversary under a name."""
    return bool(_steps(view))


def named_rounds(view: View) -> tuple[int, ...]:
    """Rounds in which some did."""
    return _common([view.rounds(step) for step in _steps(view)])


def named_payload_rounds(view: View) -> tuple[int, ...]:
    """Rounds in which their payloads were kept, at every holder."""
    return _common([view.payload_rounds(step) for step in _steps(view)])


def named_rows(view: View, round_: int, *, payload: bool = False) -> Messages:
    """One message per client, with the sum of what the corrupted holders have of its rows.

    Raises:
        TranscriptError: nothing of the kind was recorded.
    """
    parts = []
    for step in _steps(view):
        messages = view.messages(step, round_, payload=payload)
        if step is Step.UPLOAD:
            parts.append(messages)
            continue
        holders = messages.receivers.ids
        parts += [messages.select(np.flatnonzero(holders == one)) for one in np.unique(holders)]
    # A corrupted client tells what it sent to everybody else: then a part has its share alone.
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
    return tuple(
        step for step in (Step.UPLOAD, Step.SHARE) if view.sees(step) and view.rounds(step)
    )


def _common(found: list[tuple[int, ...]]) -> tuple[int, ...]:
    if not found:
        return ()
    return tuple(sorted(set(found[0]).intersection(*found[1:])))
