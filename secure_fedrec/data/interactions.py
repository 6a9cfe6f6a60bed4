"""Implicit feedback: what each client interacted with, sampled negatives, and one held-out item.

Neural collaborative filtering learns from pairs that happened (1) and pairs that did not (0). The
latter are sampled, once for the whole run: a client's negatives are drawn without replacement from
all items outside its *training* interactions. Its held-out item is one of those that can be drawn.
Published code often leaves it out of the negatives; that would reveal the item to the model.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.core.kernels import bounds_of
from secure_fedrec.data.ratings import RatingTable
from secure_fedrec.data.splits import Split
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.vault import Vault

# Separates these draws from other uses of the same seed (see ``splits``).
_NEGATIVES: Final = 4
_NO_ITEM: Final = -1


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Interactions:
    """Implicit feedback of n clients on m items.

    Args:
        positives: the training interactions, as a table.
        indptr: int64[n + 1]; client c owns rows ``indptr[c]:indptr[c + 1]`` of the examples.
        items: int32[N], ascending per client.
        ratings: float64[N], 1 where the client interacted with the item and 0 where it is a
            negative.
        held_out: int64[n], item to be recommended; -1 where a client has none.
    """

    positives: RatingTable
    indptr: IntArray = field(repr=False)
    items: IndexArray = field(repr=False)
    ratings: FloatArray = field(repr=False)
    held_out: IntArray = field(repr=False)

    @property
    def n_clients(self) -> int:
        """Number n of clients."""
        return self.positives.n_clients

    @property
    def n_items(self) -> int:
        """Number m of items."""
        return self.positives.n_items

    def vault(self) -> Vault:
        """The clients' vaults with their examples, columns ``items`` and ``ratings``."""
        return Vault(indptr=self.indptr, items=self.items, ratings=self.ratings)

    def trained_on(self, client: int) -> IndexArray:
        """Items that a client interacted with in training, ascending."""
        indptr = self.positives.indptr()
        return self.positives.items[int(indptr[client]) : int(indptr[client + 1])]


def sample_interactions(split: Split, *, negatives: int, seed: int) -> Interactions:
    """Turn ratings into implicit feedback, whatever their value.

    Args:
        split: training ratings, and at most one test rating per client (``leave_one_out``).
        negatives: sampled per training interaction, at least 1; fewer where a client has too few
            other items.
        seed: seed of the draws, at least 0.

    Returns:
        The examples; a function of the arguments, fixed for all numpy versions.

    Raises:
        ConfigError: ``negatives`` or ``seed`` is out of range.
        DataError: a client has no training rating, or several test ratings.
    """
    if negatives < 1:
        raise ConfigError("data.negatives", negatives, "must be at least 1")
    if seed < 0:
        raise ConfigError("data.seed", seed, "must be at least 0")
    train, test = split
    counts = train.counts()
    if not counts.all():
        client = int(np.flatnonzero(counts == 0)[0])
        raise DataError(train.name, f"client {client} has no training interaction")
    if np.any(test.counts() > 1):
        raise DataError(test.name, "a client has more than one held-out item")
    held_out = np.full(train.n_clients, _NO_ITEM, dtype=np.int64)
    held_out[test.clients] = test.items
    indptr, items, ratings = _examples(train, negatives, seed)
    return Interactions(
        positives=train, indptr=indptr, items=items, ratings=ratings, held_out=held_out
    )


def _examples(
    train: RatingTable, negatives: int, seed: int
) -> tuple[IntArray, IndexArray, FloatArray]:
    indptr = train.indptr()
    items: list[IndexArray] = []
    ratings: list[FloatArray] = []
    for client in range(train.n_clients):
        own = train.items[int(indptr[client]) : int(indptr[client + 1])]
        positive: BoolArray = np.zeros(train.n_items, dtype=np.bool_)
        positive[own] = True
        words = np.random.PCG64([_NEGATIVES, seed, client]).random_raw(train.n_items)
        others = np.flatnonzero(~positive)
        drawn = others[np.argsort(words[others], kind="stable")[: negatives * len(own)]]
        chosen = np.sort(np.concatenate([own.astype(np.int64), drawn]))
        items.append(chosen.astype(np.int32))
        ratings.append(positive[chosen].astype(np.float64))
    return bounds_of([*map(len, items)]), np.concatenate(items), np.concatenate(ratings)
