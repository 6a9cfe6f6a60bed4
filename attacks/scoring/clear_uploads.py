"""Uploads that are said to be hidden and can be read, whole or row by row: claims and figures."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from attacks.base import need
from attacks.scoring.gains import Figures, Persons
from attacks.scoring.truth import ALL_CORRUPTED, Case, Scored, is_honest
from attacks.view.coalition import words_of
from secure_fedrec.core.arrays import BoolArray, IntArray, RingArray, nobody
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire.recording import OWN, rows_in


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClearUploadsClaim:
    """Messages that can be read.

    Args:
        clients: int64[B], all clients whose messages were examined.
        read: by round, the clients whose messages can be read, int64[K], and their rows with words.
    """

    clients: IntArray
    read: Mapping[int, tuple[IntArray, RowBlock]]

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by what every client put into the sums."""
        honest = is_honest(self.clients, case.corrupted)
        need(honest.any(), ALL_CORRUPTED)
        said, right = nobody(), nobody()
        for round_, senders, own in _put(case, self.read):
            clients, block = self.read[round_]
            true = _is_own(clients, block, senders, own)
            said, right = np.union1d(said, clients), np.union1d(right, clients[true])
        about = self.clients[honest]
        hits = np.isin(about, right)
        named = int(np.isin(about, said).sum())
        precision = float(hits.sum()) / named if named else None
        yield _scored("clear_clients", hits, {"clear_precision": precision})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoneRowsClaim:
    """Rows of sums that are said to be one client's each.

    Args:
        rows: by round, their numbers, int64[K], and their words [K, d].
    """

    rows: Mapping[int, tuple[IntArray, RingArray]]

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by what every client put into the sums."""
        about, right = nobody(), nobody()
        for round_, senders, own in _put(case, self.rows):
            owners = np.repeat(senders, own.lengths)
            about, others = np.union1d(about, owners), is_honest(owners, case.corrupted)
            for number, row in zip(*self.rows[round_], strict=True):
                there = np.flatnonzero((own.rows == number) & others)
                if len(there) == 1 and np.array_equal(words_of(own)[there[0], : len(row)], row):
                    right = np.union1d(right, owners[there])
        about = about[is_honest(about, case.corrupted)]
        yield _scored("lone_clients", np.isin(about, right), {})


def _put(case: Case, rounds: Collection[int]) -> list[tuple[int, IntArray, RowBlock]]:
    """If known, by round: the clients that put rows into the sums, and these rows."""
    told = [(round_, case.truth.recorded.columns(round_, OWN)) for round_ in rounds]
    found = [(round_, own) for round_, own in told if own is not None and "values" in own]
    need(found or not rounds, "the truth does not hold what clients put into the sums")
    return [(round_, own["senders"], rows_in(own)) for round_, own in found]


def _scored(key: str, hits: BoolArray, figures: Figures) -> Scored:
    """Score clients that were matched; chance cannot produce a match."""
    return Scored(
        figures=figures,
        gains={key: Persons(hits, np.full(len(hits), -np.inf))},
        units={"clients": len(hits), "pairs": len(hits), "positives": int(hits.sum())},
    )


def _is_own(clients: IntArray, block: RowBlock, senders: IntArray, own: RowBlock) -> BoolArray:
    """Whether each message holds the rows that its client put into the sum, word for word: bool[K].

    Args:
        clients: int64[K], the claimed senders of the messages.
        block: their rows.
        senders: int64[P], the clients that put rows into the sum.
        own: those rows.
    """
    true = np.zeros(len(clients), dtype=bool)
    put = dict(zip(senders.tolist(), own.split(), strict=True))
    for number, (client, sent) in enumerate(zip(clients.tolist(), block.split(), strict=True)):
        if client in put:
            there, mine = np.isin(sent.rows, put[client].rows), words_of(put[client])
            true[number] = np.array_equal(words_of(sent)[there], mine)
    return true
