"""Rows proven to be virtual: the claim, its figure, and how it is judged."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.scoring.gains import Figures, Gain
from attacks.scoring.item_sets import ItemSets, Joined, joined, spans_of
from attacks.scoring.loops import count_below
from attacks.scoring.rows import Rows, kept_rows, require_alike, require_marks
from attacks.scoring.tables import count_per_client, sort_each
from attacks.scoring.truth import Case, Scored, is_honest
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnmaskedClaim:
    """Items whose rows are proven to be virtual.

    The fields but the first are grids, or rows (``Rows``) that list the same pairs.

    Args:
        clients: int64[B].
        visible: bool[B, m], items the adversary saw in any message of that client.
        proven: bool[B, m], those of them that are proven virtual.

    Raises:
        ValueError: fields list different pairs, or mark pairs that they do not list.
    """

    clients: IntArray
    visible: BoolArray | Rows
    proven: BoolArray | Rows

    def __post_init__(self) -> None:
        require_alike(self.visible, self.proven)
        require_marks(self.visible, self.proven)

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by the rated sets.

        By the share of the virtual rows that were proven virtual, and of clients with over 90 % of
        them. The gain is a client's share less that of its rated rows that were "proven" virtual,
        beyond what naming as many of the least popular rows gives; a client of whom only one kind
        of row was seen has no gain.
        """
        if case.truth.train is None:
            return
        truth = ItemSets.rated(case.truth.train)
        honest = is_honest(self.clients, case.corrupted)
        labels = truth.take(self.clients[honest])
        visible, proven = kept_rows(honest, self.visible, self.proven)
        blocks = (joined(visible.listed, labels, s) for s in spans_of(visible.listed, labels))
        found = [_counts(each, visible, proven, truth.popularity) for each in blocks]
        columns = map(np.concatenate, zip(*found, strict=True))
        virtual, rated, right, wrong, shown_wrong, hidden, shown = columns
        if not virtual.any():
            unknown = ("unmasked_share", "clients_mostly_unmasked_share")
            yield Scored(figures=dict.fromkeys(unknown), units={})
            return
        per_client = _share(right, virtual)
        guessed = np.maximum(_share(hidden, virtual) - _share(shown, rated), 0)
        told = (virtual > 0) & (rated > 0)  # else "all of them" would be a gain
        gain = np.where(told, per_client - _share(shown_wrong, rated) - guessed, np.nan)
        figures: Figures = {
            "unmasked_share": float(right.sum() / virtual.sum()),
            "wrongly_unmasked_share": float(wrong.sum() / max(1, len(labels.items))),
            "clients_mostly_unmasked_share": float(np.mean(per_client > 0.9)),
        }
        yield Scored(figures=figures, gains={"unmasked_lift": Gain(gain)}, units={})


def _counts(
    pairs: Joined, visible: Rows, proven: Rows, popularity: FloatArray
) -> tuple[npt.NDArray[Any], ...]:
    """The counts behind the figures for a block of clients.

    Returns:
        Virtual and rated rows that were seen; rows proven virtual rightly, and wrongly, in all and
        of those seen; how many of the least popular rows are virtual, and how many are rated.
    """
    seen, said = (np.asarray(each.of(pairs), dtype=bool) for each in (visible, proven))
    virtual, rated = seen & ~pairs.labels, seen & pairs.labels
    counts = popularity[pairs.items] - pairs.labels
    least = _least(counts, seen, count_per_client(said, pairs.indptr), pairs)
    sums = [
        count_per_client(each, pairs.indptr)
        for each in (virtual, rated, virtual & said, pairs.labels & said, rated & said)
    ]
    least_of = (np.bincount(pairs.owners, least * e, len(sums[0])) for e in (virtual, rated))
    return (*sums, *least_of)


def _least(counts: FloatArray, seen: BoolArray, sizes: IntArray, pairs: Joined) -> FloatArray:
    """Share of each seen pair that is among a client's least popular ones, so many: float64[T].

    Rows tied for the last places share them.
    """
    ordered = np.where(seen, counts, np.inf)
    sort_each(ordered, pairs.indptr)
    below, up_to = (np.zeros(len(counts), dtype=np.int64) for _ in range(2))
    count_below(counts, pairs.indptr, ordered, pairs.indptr, below, up_to)
    places = (sizes[pairs.owners] - below) / np.maximum(up_to - below, 1)
    return np.asarray(seen * np.clip(places, 0.0, 1.0))


def _share(part: npt.NDArray[Any], whole: IntArray) -> FloatArray:
    return np.asarray(part / np.maximum(whole, 1))
