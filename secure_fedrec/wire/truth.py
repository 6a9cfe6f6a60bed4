"""Records separate from the transcript: what no party saw, and what only a client knows.

Each client knows its own inputs to a round's sum. An adversary that corrupts clients gets theirs,
since it can subtract them from the sum.
"""

from collections.abc import Iterator, Set

import numpy as np

from secure_fedrec.core.arrays import WordArray
from secure_fedrec.wire.held import held
from secure_fedrec.wire.message_batches import Messages, Parties, Step
from secure_fedrec.wire.recording import ORIGINS, OWN, BlockStore, kind_of, rows_in
from secure_fedrec.wire.spool import Columns, concatenate_columns
from secure_fedrec.wire.within import Within


class Truth:
    """Facts that no party saw: for scoring by the harness, never handed to an attack."""

    __slots__ = ("_store", "_within")

    def __init__(self, store: BlockStore, within: Within | None = None) -> None:
        self._store, self._within = store, within

    def held(self) -> "Truth":
        """The same truth, of a finished recording that is read often."""
        return Truth(held(self._store), self._within)

    def within(self, block: Within | None) -> "Truth":
        """The same truth, with clients' inputs to the sum limited to one block."""
        return Truth(self._store, block)

    def columns(self, round_: int, name: str) -> Columns | None:
        """Recorded columns of that name, or None."""
        parts = list(self._store.read(round_, name))
        columns = concatenate_columns(parts) if parts else None
        if columns is None or self._within is None or name != OWN:
            return columns
        block = self._within.rows_of(rows_in(columns))
        return {"senders": columns["senders"], "lengths": block.lengths, "rows": block.rows}

    def own(self, round_: int) -> Iterator[Columns]:
        """The clients' inputs to the sum of a round, some clients at a time: see ``OWN``."""
        return self._store.read(round_, OWN)

    def kinds(self, round_: int) -> tuple[str, ...]:
        """Names of the columns of a round."""
        return self._store.kinds(round_)

    def rounds(self) -> tuple[int, ...]:
        """Rounds for which a truth was recorded."""
        return self._store.rounds()


class OwnUploads:
    """The rows that corrupted clients put into the sums, without virtual and other clients' rows.

    Args:
        truth: truth of the recorded run; it is read here and not kept, since attacks have access to
            this object.
        clients: the corrupted clients.
    """

    __slots__ = ("_tags", "_uploads", "clients")

    def __init__(self, truth: Truth, clients: Set[int]) -> None:
        self.clients = frozenset(clients)
        self._uploads: dict[int, Messages] = {}
        self._tags: dict[tuple[int, str], WordArray] = {}
        if not clients:
            return
        mine = sorted(clients)
        for round_ in truth.rounds():
            rows = truth.columns(round_, OWN)
            if rows is not None:
                own = np.flatnonzero(np.isin(rows["senders"], mine))
                self._uploads[round_] = _messages(round_, rows).select(own)
            for kind in truth.kinds(round_):
                origins = truth.columns(round_, kind) if kind.endswith(ORIGINS) else None
                if origins is not None:
                    known = np.isin(origins["clients"], mine)
                    self._tags[round_, kind] = origins["tags"][known]

    def within(self, block: Within) -> "OwnUploads":
        """The same clients, with only the rows of one block."""
        cut = OwnUploads.__new__(OwnUploads)
        cut.clients, cut._tags = self.clients, self._tags
        cut._uploads = {round_: block.cut(sent) for round_, sent in self._uploads.items()}
        return cut

    def uploads(self, round_: int) -> Messages | None:
        """One message per corrupted client of the round; None where none was recorded.

        Ring words are present in rounds whose payloads were kept.
        """
        return self._uploads.get(round_)

    def tags(self, round_: int, step: Step, bag: str | None = None) -> WordArray:
        """uint64[K]: the anonymous messages of a round that are the corrupted clients' own."""
        nothing = np.zeros(0, dtype=np.uint64)
        return self._tags.get((round_, f"{kind_of(step, bag)}{ORIGINS}"), nothing)


def _messages(round_: int, columns: Columns) -> Messages:
    senders = columns["senders"]
    everybody = Parties(role="client", ids=senders)
    return Messages(
        round=round_,
        step=Step.UPLOAD,
        senders=everybody,
        receivers=everybody,
        payload=rows_in(columns),
        sizes=np.zeros(len(senders), dtype=np.int64),
    )
