"""Uploads that are said to be hidden and can be read, whole or row by row: claims and figures."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from attacks.scoring.gains import Persons
from attacks.scoring.scored import NotApplicable, Scored, is_honest
from attacks.scoring.sets import ALL_CORRUPTED
from attacks.scoring.truth import Case
from secure_fedrec.core.arrays import BoolArray, IntArray, RingArray
from secure_fedrec.core.kernels import segments
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire.recording import OWN, rows_in


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClearUploadsClaim:
    """Messages that can be read.

    Args:
        clients: int64[B], all whose messages were looked at.
        read: by round, the clients whose can be read, int64[K], and their rows with words.
    """

    clients: IntArray
    read: Mapping[int, tuple[IntArray, RowBlock]]

    def scored(self, case: Case) -> Iterator[Scored | NotApplicable]:
        """Judge it by what every client put into the sums."""
        honest = is_honest(self.clients, case.corrupted)
        if not honest.any():
            yield NotApplicable(reason=ALL_CORRUPTED)
            return
        said, right = (np.zeros(0, dtype=np.int64) for _ in range(2))
        for round_, (clients, block) in self.read.items():
            columns = case.truth.recorded.columns(round_, OWN)
            if columns is None or "values" not in columns:
                continue
            own = rows_in(columns)
            true = _is_own(clients, block, columns["senders"], own)
            said, right = np.union1d(said, clients), np.union1d(right, clients[true])
        about = self.clients[honest]
        hits = np.isin(about, right)
        named = int(np.isin(about, said).sum())
        yield Scored(
            figures={"clear_precision": float(hits.sum()) / named if named else None},
            gains={"clear_clients": Persons(hits, np.full(len(hits), -np.inf))},
            units={"clients": len(hits), "pairs": len(hits), "positives": int(hits.sum())},
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoneRowsClaim:
    """Rows of sums that are said to be one client's each.

    Args:
        rows: by round, their numbers, int64[K], and their words [K, d].
    """

    rows: Mapping[int, tuple[IntArray, RingArray]]

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by what every client put into the sums."""
        senders, right = (np.zeros(0, dtype=np.int64) for _ in range(2))
        for round_, (numbers, words) in self.rows.items():
            columns = case.truth.recorded.columns(round_, OWN)
            own = None if columns is None else rows_in(columns)
            if columns is None or own is None or own.values is None:
                continue
            owners = np.repeat(columns["senders"], columns["lengths"])
            senders = np.union1d(senders, owners)
            for number, row in zip(numbers.tolist(), words, strict=True):
                there = np.flatnonzero(own.rows == number)
                if len(there) == 1 and np.array_equal(own.values[there[0]], row):
                    right = np.union1d(right, owners[there])
        about = senders[is_honest(senders, case.corrupted)]
        hits = np.isin(about, right)
        yield Scored(
            figures={},
            gains={"lone_clients": Persons(hits, np.full(len(hits), -np.inf))},
            units={"clients": len(hits), "pairs": len(hits), "positives": int(hits.sum())},
        )


def _is_own(clients: IntArray, block: RowBlock, senders: IntArray, own: RowBlock) -> BoolArray:
    """Whether each message holds the rows that its client put into the sum, word for word: bool[K].

    Args:
        clients: int64[K], whose the messages are.
        block: their rows.
        senders: int64[P], who put rows into the sum.
        own: those rows.
    """
    if own.values is None or block.values is None or own.values.shape[1] != block.values.shape[1]:
        return np.zeros(len(clients), dtype=bool)
    true = np.zeros(len(clients), dtype=bool)
    places = {int(sender): place for place, sender in enumerate(senders.tolist())}
    for number, client in enumerate(clients.tolist()):
        if client not in places:
            continue
        put, _ = segments(own.indptr, np.array([places[client]]))
        sent = np.arange(block.indptr[number], block.indptr[number + 1])
        there = sent[np.isin(block.rows[sent], own.rows[put])]
        true[number] = len(there) == len(put) and np.array_equal(
            block.values[there], own.values[put]
        )
    return true
