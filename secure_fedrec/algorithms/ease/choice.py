"""The shrinkage chosen by the clients, each by an item that it kept out of the sum.

A client draws one of its items and 99 others, ranks them by its other items with every candidate,
and notes for which candidates its own item is among the first ten. It sends these results as a row
of 0 and 1; the candidate with the most clients is taken. All data used for the choice is priced:
the row is one more contribution to a sum, under the same layers.
"""

from typing import Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.data.negatives import Ragged, draw_distinct
from secure_fedrec.evaluation.ranks import place_among
from secure_fedrec.streams import Streams, uniform_reals

_KEPT: Final = "ease-kept-out"
_OTHERS: Final = "ease-others"
_NEGATIVES: Final = 99
_FIRST: Final = 10


def kept_out(clients: IntArray, owned: Ragged, streams: Streams) -> IntArray:
    """The item that each client keeps out of the sum: int64[B], -1 for fewer than two items.

    Args:
        clients: int64[B].
        owned: their items.
        streams: streams of the run.
    """
    sizes = np.diff(owned.indptr)
    zeros = np.zeros(len(clients), dtype=np.int64)
    draws = uniform_reals(streams.private(_KEPT).words_at(0, clients, zeros, width=1))[:, 0]
    places = owned.indptr[:-1] + np.minimum((draws * sizes).astype(np.int64), sizes - 1)
    return np.array(
        [owned.items[place] if size > 1 else -1 for place, size in zip(places, sizes, strict=True)],
        dtype=np.int64,
    )


def without(owned: Ragged, items: IntArray) -> Ragged:
    """The items of each client except the one kept out."""
    owners = np.repeat(np.arange(len(items)), np.diff(owned.indptr))
    left: BoolArray = owned.items != items[owners]
    counts = np.bincount(owners[left], minlength=len(items))
    return Ragged(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), owned.items[left])


class Contest:
    """Counts, for each candidate, the clients whose kept-out item it finds.

    Args:
        clients: int64[B].
        owned: their items, the kept out ones included.
        items: int64[B], kept out.
        n_items: m.
        streams: streams of the run.
    """

    def __init__(
        self, clients: IntArray, owned: Ragged, items: IntArray, n_items: int, streams: Streams
    ) -> None:
        self._items = items
        self._others: IndexArray = draw_distinct(
            owned,
            n_items,
            count=_NEGATIVES,
            stream=streams.private(_OTHERS),
            clients=clients,
        )

    def found(self, scores: FloatArray) -> FloatArray:
        """Whether each client's item is among the first ten: float64[B], 0 or 1."""
        places = [
            place_among(own, item, others)
            for own, item, others in zip(scores, self._items.tolist(), self._others, strict=True)
        ]
        return np.array([float(0 < place <= _FIRST) for place in places])
