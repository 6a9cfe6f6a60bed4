"""What is in a recording, whatever the order in which a server got its messages."""

from typing import Any

import numpy as np

from secure_fedrec.recording import Recording

PER_MESSAGE = ("senders", "receivers", "sizes", "lengths")


def contents(recording: Recording, *, named: bool = True) -> dict[tuple[Any, ...], Any]:
    """Every column of every block, by round, kind, block and name.

    Args:
        recording: of which uploads are named.
        named: messages by their senders; else by what they hold, whoever sent it.
    """
    found: dict[tuple[Any, ...], Any] = {}
    for round_ in recording.seen.rounds():
        for kind in recording.seen.kinds(round_):
            for block, columns in enumerate(recording.seen.read(round_, kind)):
                for name, column in _ordered(columns, named).items():
                    found[round_, kind, block, name] = (column.dtype.str, column.tolist())
    return found


def _ordered(columns: Any, named: bool) -> Any:
    if "lengths" not in columns:
        return columns
    ends, lengths = np.cumsum(columns["lengths"]), columns["lengths"]
    places = [np.arange(end - size, end) for end, size in zip(ends, lengths, strict=True)]
    held = [columns["values"][each].tobytes() for each in places]
    keys = columns["senders"].tolist() if named else held
    order = sorted(range(len(keys)), key=keys.__getitem__)
    rows = np.concatenate([places[each] for each in order])
    return {
        name: column[order if name in PER_MESSAGE else rows]
        for name, column in columns.items()
        if named or name != "senders"
    }
