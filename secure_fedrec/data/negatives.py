"""Negatives of a round's training: items that a client did not rate, drawn anew for every positive.

A draw is a function of (seed, stream, round, client, index) alone, like every other draw of a
client, so it does not depend on the batch.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray, WordArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.kernels import segments
from secure_fedrec.errors import ConfigError
from secure_fedrec.streams import Stream

# A rank below n takes the high 42 bits of a word: its bias is below n / 2^42 (as ``streams``).
_MOST_ITEMS = 2**22


class Ragged(NamedTuple):
    """A set of items per client.

    Attributes:
        indptr: int64[B + 1]; set b is ``items[indptr[b]:indptr[b + 1]]``.
        items: int32[N], ascending in each set.
    """

    indptr: IntArray
    items: IndexArray

    @classmethod
    def empty(cls, sets: int) -> "Ragged":
        """That many empty sets."""
        return cls(np.zeros(sets + 1, dtype=np.int64), np.zeros(0, dtype=np.int32))

    def of(self, client: int) -> IndexArray:
        """One set."""
        return self.items[int(self.indptr[client]) : int(self.indptr[client + 1])]

    def of_all(self, clients: npt.NDArray[np.integer]) -> "Ragged":
        """The sets of some clients, int[B], in their order."""
        rows, indptr = segments(self.indptr, np.asarray(clients))
        return Ragged(indptr, self.items[rows])


class Examples(NamedTuple):
    """What clients train on in one round, client after client.

    Attributes:
        indptr: int64[B + 1]; client b owns rows ``indptr[b]:indptr[b + 1]``.
        items: int32[N]; every positive, in the order given, followed by its negatives.
        labels: float64[N], 1 for a positive and 0 for a negative.
    """

    indptr: IntArray
    items: IndexArray
    labels: FloatArray


def draw_negatives(
    rated: Ragged,
    kept_out: Ragged,
    n_items: int,
    *,
    per_positive: int = 4,
    stream: Stream,
    round: int,
    clients: IntArray,
) -> Examples:
    """Draw negatives for every positive: without replacement for one, independently for the next.

    So do the public codes of PFedRec, GPFedRec and FedRAP: an item can be drawn for several
    positives of a client. Every set of ``per_positive`` items of the pool is equally likely; their
    order among themselves is not random, so a trainer that takes examples in batches shuffles them.

    Args:
        rated: the positives of each client of the batch, ascending and distinct.
        kept_out: per client of the batch, items that are not negatives either, ascending and
            distinct; some may be positives.
        n_items: m, at most 2^22.
        per_positive: negatives of a positive, at least 1; all there are where the pool has fewer.
        stream: stream of the draws.
        round: number of the round; the first of a training is 1.
        clients: int64[B], the lanes of the batch's clients.

    Raises:
        ConfigError: ``per_positive`` is below 1, or there are too many items.
        ValueError: the arguments belong to different numbers of clients, or an item number is out
            of range.
    """
    if per_positive < 1:
        raise ConfigError("data.negatives", per_positive, "must be at least 1")
    if not 1 <= n_items <= _MOST_ITEMS:
        raise ConfigError("data.items", n_items, f"negatives are drawn of 1 to {_MOST_ITEMS} items")
    if not len(rated.indptr) == len(kept_out.indptr) == len(clients) + 1:
        raise ValueError("the sets belong to another number of clients")
    for each in (rated.items, kept_out.items):
        if len(each) and not 0 <= int(each.min()) <= int(each.max()) < n_items:
            raise ValueError(f"an item is outside 0 .. {n_items - 1}")
    positives = np.diff(rated.indptr)
    words_each = positives * per_positive
    words = stream.words(round, clients, words_each, np.zeros(len(clients), dtype=np.int64))
    indptr = np.zeros(len(clients) + 1, dtype=np.int64)
    items = np.empty(len(rated.items) * (1 + per_positive), dtype=np.int32)
    labels = np.zeros(len(items))
    _draw(rated, kept_out, n_items, per_positive, words, Examples(indptr, items, labels))
    return Examples(indptr, items[: indptr[-1]], labels[: indptr[-1]])


def draw_distinct(
    excluded: Ragged, n_items: int, *, count: int, stream: Stream, clients: IntArray
) -> IndexArray:
    """Draw distinct items outside a set, in random order, once per client.

    Args:
        excluded: per client, ascending and distinct.
        n_items: m, at most 2^22.
        count: items of a client.
        stream: stream of the draws.
        clients: int64[B], the lanes.

    Returns:
        int32[B, count]; -1 at the end of a row whose pool has fewer items.
    """
    drawn = np.full((len(clients), count), -1, dtype=np.int32)
    counts = np.full(len(clients), count + (count & 1), dtype=np.int64)
    words = stream.words(0, clients, counts, np.zeros_like(counts)).reshape(len(clients), -1)
    _shuffle(excluded, n_items, words, drawn)
    return drawn


@compiled_loop
def _shuffle(excluded: Ragged, n_items: int, words: WordArray, drawn: IndexArray) -> None:
    """The first places of a Fisher-Yates shuffle of each pool."""
    out = np.empty(n_items, dtype=np.bool_)
    pool = np.empty(n_items + 1, dtype=np.int32)
    for client in range(len(drawn)):
        out[:] = False
        for row in range(excluded.indptr[client], excluded.indptr[client + 1]):
            out[excluded.items[row]] = True
        size = 0
        for item in range(n_items):
            pool[size] = item
            size += not out[item]
        for place in range(min(drawn.shape[1], size)):
            left = np.uint64(size - place)
            rank = (words[client, place] >> np.uint64(22)) * left >> np.uint64(42)
            other = place + np.int64(rank)
            drawn[client, place] = pool[other]
            pool[other] = pool[place]


@compiled_loop
def _draw(
    rated: Ragged, kept: Ragged, n_items: int, per_positive: int, words: WordArray, found: Examples
) -> None:
    """Floyd's sampling (Bentley and Floyd 1987): as many words as items, none refused."""
    indptr, items, labels = found
    out = np.empty(n_items, dtype=np.bool_)
    pool = np.empty(n_items + 1, dtype=np.int32)
    place, word = 0, 0
    for client in range(len(indptr) - 1):
        out[:] = False
        for row in range(rated.indptr[client], rated.indptr[client + 1]):
            out[rated.items[row]] = True
        for row in range(kept.indptr[client], kept.indptr[client + 1]):
            out[kept.items[row]] = True
        size = 0
        for item in range(n_items):
            pool[size] = item  # written first and counted after: avoids a branch
            size += not out[item]
        drawn = min(per_positive, size)
        for row in range(rated.indptr[client], rated.indptr[client + 1]):
            items[place] = rated.items[row]
            labels[place] = 1.0
            begin = place + 1
            for index in range(drawn):
                top = size - drawn + index  # a rank of 0 .. top
                rank = (words[word + index] >> np.uint64(22)) * np.uint64(top + 1) >> np.uint64(42)
                item = pool[np.int64(rank)]
                for earlier in range(begin, begin + index):
                    if items[earlier] == item:
                        item = pool[top]
                        break
                items[begin + index] = item
            place = begin + drawn
            word += per_positive
        indptr[client + 1] = place
