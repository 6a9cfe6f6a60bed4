"""What is recorded apart from the transcript: what no party saw, and what clients know alone.

What clients put into a round's sum each knows of itself. An adversary that corrupts clients gets
theirs, because whoever knows a part of a sum knows the rest of it.
"""

from collections.abc import Set

import numpy as np

from secure_fedrec.arrays import WordArray
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire.messages import Messages, Parties, Step
from secure_fedrec.wire.recording import (
    ORIGINS,
    OWN,
    BlockStore,
    Columns,
    concatenate_columns,
    kind_of,
)

__all__ = ["OwnUploads", "Truth"]


class Truth:
    """What no party saw: for scoring by the harness, never handed to an attack."""

    __slots__ = ("_store",)

    def __init__(self, store: BlockStore) -> None:
        self._store = store

    def columns(self, round_: int, name: str) -> Columns | None:
        """Recorded columns of that name, or None."""
        parts = list(self._store.read(round_, name))
        return concatenate_columns(parts) if parts else None

    def rounds(self) -> tuple[int, ...]:
        """Rounds for which a truth was recorded."""
        return self._store.rounds()


class OwnUploads:
    """The rows that corrupted clients put into the sums, virtual ones left out.

    Args:
        truth: of the recorded run.
        clients: who is corrupted.
    """

    __slots__ = ("_truth", "clients")

    def __init__(self, truth: Truth, clients: Set[int]) -> None:
        self._truth = truth
        self.clients = frozenset(clients)

    def uploads(self, round_: int) -> Messages | None:
        """One message per corrupted client of the round; None where none was recorded.

        Ring words are there in rounds whose payloads were kept.
        """
        columns = self._truth.columns(round_, OWN) if self.clients else None
        if columns is None:
            return None
        senders = columns["senders"]
        everybody = Parties(role="client", ids=senders)
        block = RowBlock(
            indptr=np.concatenate([[0], np.cumsum(columns["lengths"])]),
            rows=columns["rows"].astype(np.int32),
            values=columns.get("values"),
            counts=columns.get("counts"),
        )
        messages = Messages(
            round=round_,
            step=Step.UPLOAD,
            senders=everybody,
            receivers=everybody,
            payload=block,
            sizes=np.zeros(len(senders), dtype=np.int64),
        )
        return messages.select(np.flatnonzero(np.isin(senders, sorted(self.clients))))

    def tags(self, round_: int, step: Step, bag: str | None = None) -> WordArray:
        """uint64[K]: the anonymous messages of a round that are the corrupted clients' own."""
        columns = self._truth.columns(round_, f"{kind_of(step, bag)}{ORIGINS}")
        if columns is None:
            return np.zeros(0, dtype=np.uint64)
        return columns["tags"][np.isin(columns["clients"], sorted(self.clients))]
