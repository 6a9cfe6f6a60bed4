"""Chooses the one message that a fault hits, by its round and its place."""

from dataclasses import dataclass, field

import numpy as np

from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Messages


@dataclass(kw_only=True)
class Strike:
    """A chooser for the faults of ``secure_fedrec.wire``: strikes one message of one round.

    Args:
        round: when.
        place: which message of the batch, modulo their number.
        with_rows: strike among the messages that carry rows.
        hits: messages struck so far; 0 after a run means that the fault did nothing.
    """

    round: int
    place: int
    with_rows: bool = False
    hits: int = field(default=0, compare=False)

    def __call__(self, messages: Messages) -> BoolArray:
        """Per message, whether it is struck."""
        struck = np.zeros(len(messages), dtype=bool)
        eligible = np.arange(len(messages))
        if self.with_rows and isinstance(messages.payload, RowBlock):
            eligible = np.flatnonzero(messages.payload.lengths)
        if messages.round == self.round and len(eligible) and not self.hits:
            struck[eligible[self.place % len(eligible)]] = True
            self.hits += 1
        return struck
