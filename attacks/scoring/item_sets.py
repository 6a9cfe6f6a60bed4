"""Sets of items of every client, and the pairs of two families of sets, by blocks of clients.

A view shows, for each client, the few items that its messages name: ragged sets, not a grid of
clients by items. They are read block by block where they do not fit in memory at once.
"""

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.core.bounded import Bounded
from secure_fedrec.core.kernels import bounds_of, segments
from secure_fedrec.data import RatingTable
from secure_fedrec.uploads import RowBlock

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_PAIRS_AT_ONCE = 1 << 21
"""Number of pairs held in memory with all columns, some 180 bytes each."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ItemSets:
    """A set of items of every client.

    Args:
        indptr: int64[B + 1], client c has ``items[indptr[c]:indptr[c + 1]]``.
        items: int32[K], ascending for each client.
        n_items: number of items of the catalogue, m.
    """

    indptr: IntArray
    items: IndexArray
    n_items: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @classmethod
    def of_sizes(cls, sizes: IntArray, items: IndexArray, n_items: int) -> "ItemSets":
        """Sets of so many items each, int64[B], which lie one after the other."""
        return cls(indptr=bounds_of(sizes), items=items, n_items=n_items)

    @classmethod
    def of_grid(cls, grid: BoolArray) -> "ItemSets":
        """The sets marked in bool[B, m]."""
        items = np.nonzero(grid)[1].astype(np.int32)
        return cls.of_sizes(grid.sum(axis=1), items, grid.shape[1])

    @classmethod
    def empty(cls, clients: int, n_items: int) -> "ItemSets":
        """Nothing of anybody."""
        nothing = np.zeros(0, dtype=np.int32)
        return cls(indptr=np.zeros(clients + 1, dtype=np.int64), items=nothing, n_items=n_items)

    @classmethod
    def whole(cls, clients: int, n_items: int) -> "ItemSets":
        """The whole catalogue for every client."""
        items = np.tile(np.arange(n_items, dtype=np.int32), clients)
        return cls(indptr=np.arange(clients + 1) * n_items, items=items, n_items=n_items)

    @classmethod
    def rated(cls, table: RatingTable) -> "ItemSets":
        """The rated items of every client of a table."""
        return cls(indptr=table.indptr(), items=table.items, n_items=table.n_items)

    @property
    def lengths(self) -> IntArray:
        """int64[B], the sizes of the sets."""
        sizes: IntArray = np.diff(self.indptr)
        return sizes

    @property
    def owners(self) -> IntArray:
        """int64[K], the place of each item's client."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def owners_of(self, pairs: IntArray) -> IntArray:
        """The places of the clients of some of the pairs: int64[N] -> int64[N]."""
        return np.searchsorted(self.indptr, pairs, side="right") - 1

    def grid(self) -> BoolArray:
        """bool[B, m]; for tests and small catalogues."""
        marked = np.zeros((len(self), self.n_items), dtype=bool)
        marked[self.owners, self.items] = True
        return marked

    def take(self, clients: IntArray) -> "ItemSets":
        """The sets of some clients, in that order."""
        if np.array_equal(clients, np.arange(len(self))):
            return self
        places, indptr = segments(self.indptr, clients)
        return ItemSets(indptr=indptr, items=self.items[places], n_items=self.n_items)

    def sparse(self, values: npt.NDArray[Any]) -> "csr_array[Any, tuple[int, int]]":
        """Sparse [B, m] with the values of the pairs; zeros are left out."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - who only reads of attacks need not wait

        # 32-bit indices like those of items: SciPy would copy mixed widths to the larger one.
        columns = values, self.items, self.indptr.astype(np.int32)
        return csr_array(columns, (len(self), self.n_items))

    def marks(self, kind: npt.DTypeLike = bool) -> "csr_array[Any, tuple[int, int]]":
        """[B, m] with a one for each pair."""
        return self.sparse(np.ones(len(self.items), dtype=kind))

    def united(self, other: "ItemSets") -> "ItemSets":
        """Each client's items of either."""
        both = self.marks() + other.marks()
        return ItemSets.of_sizes(np.diff(both.indptr), both.indices, self.n_items)

    @cached_property
    def popularity(self) -> FloatArray:
        """float64[m], sets that hold each item."""
        return np.bincount(self.items, minlength=self.n_items).astype(np.float64)

    @cached_property
    def digest(self) -> bytes:
        """Digest of its contents."""
        whole = sha256(f"{len(self)} {self.n_items} ".encode())
        for column in (self.indptr, self.items):
            whole.update(np.ascontiguousarray(column).data)
        return whole.digest()

    def dealt(self, seed: int) -> "ItemSets":
        """Sets of the same sizes, drawn at random; cached if many attacks use them."""
        return _DEALT.get((self.digest, seed), lambda: self._dealt(seed))

    def _dealt(self, seed: int) -> "ItemSets":
        rng = np.random.default_rng(seed)
        items, marked = np.empty_like(self.items), np.empty(self.n_items, dtype=bool)
        for start, stop in zip(self.indptr[:-1].tolist(), self.indptr[1:].tolist(), strict=True):
            marked.fill(False)
            marked[self.items[start:stop]] = True
            rng.shuffle(marked)
            items[start:stop] = marked.nonzero()[0]
        return ItemSets(indptr=self.indptr, items=items, n_items=self.n_items)


_DEALT: Bounded[ItemSets] = Bounded(256 * 2**20, lambda kept: kept.items.nbytes)


class Joined(NamedTuple):
    """Pairs of a block of clients that are listed, or in the sets that a claim is judged by.

    Attributes:
        span: the clients.
        indptr: int64[b + 1], of the block.
        items: int32[T], ascending for each client.
        source: int64[T], which listed pair of all; -1 where it is in the set alone.
        labels: bool[T], whether it is in the set.
    """

    span: slice
    indptr: IntArray
    items: IndexArray
    source: IntArray
    labels: BoolArray

    @property
    def owners(self) -> IntArray:
        """int64[T], the place in the block of each pair's client."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))


def spans_of(*sets: ItemSets) -> list[slice]:
    """Blocks of clients whose pairs fit in memory with all columns; one client at least."""
    ends = np.sum([each.indptr for each in sets], axis=0)
    found, first = [], 0
    while first < len(ends) - 1:
        last = int(np.searchsorted(ends, ends[first] + _PAIRS_AT_ONCE, side="right")) - 1
        last = max(first + 1, last)
        found.append(slice(first, last))
        first = last
    return found or [slice(0, 0)]


def joined(listed: ItemSets, sets: ItemSets, span: slice) -> Joined:
    """The pairs of a block of clients that are listed or in their sets."""
    one, other = (each.take(np.arange(span.start, span.stop)) for each in (listed, sets))
    # Values are twice the place in the list, from 1, plus one if the item is in the set.
    numbers = 2 * np.arange(1, len(one.items) + 1, dtype=np.int32)
    both = one.sparse(numbers) + other.marks(np.int32)
    number, labels = both.data // 2, both.data % 2 == 1
    source = np.where(number > 0, number - 1 + listed.indptr[span.start], -1)
    return Joined(span, both.indptr.astype(np.int64), both.indices, source, labels)


def listed_rows(
    clients: IntArray, senders: IntArray, block: RowBlock, n_items: int
) -> tuple[ItemSets, IntArray]:
    """Rows under their senders' names as sets, and where each row lies among the listed pairs.

    Args:
        clients: int64[B], ascending.
        senders: int64[S], of each segment of the block, each one of ``clients``.
        block: N rows.
        n_items: number of items of the catalogue.

    Returns:
        (sets of the clients, int64[N], place of each row's pair in them).
    """
    owners = np.repeat(np.searchsorted(clients, senders), block.lengths)
    keys, where = owners * n_items + block.rows.astype(np.int64), np.arange(len(block.rows))
    if not (np.diff(keys) > 0).all():
        keys, where = np.unique(keys, return_inverse=True)
        owners = keys // n_items
    sizes, items = np.bincount(owners, minlength=len(clients)), keys % n_items
    sets = ItemSets.of_sizes(sizes, items.astype(np.int32), n_items)
    return sets, where.reshape(-1).astype(np.int64)


def keys_of(sets: ItemSets) -> IntArray:
    """int64[K], ``client * n_items + item``, ascending."""
    return np.asarray(sets.owners * sets.n_items + sets.items)
