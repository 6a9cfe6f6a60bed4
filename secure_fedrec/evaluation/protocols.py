"""Protocols of an evaluation by ranking: what is held out, and what it is ranked among.

Both hold out a client's latest item for the test and the one before for validation, and rank each
among sampled items that the client never interacted with. They differ in what clients *train* on.

``clean``: training negatives come from everything outside the client's training set. For the
client, a held-out item is then one unrated item among many.

``published``: the public codes of PFedRec, GPFedRec and FedRAP leave validation and test items out
of that pool as well. The held-out item is then the one unrated item that is never pushed down, and
a model that learns this needs no taste at all (``leaks``). Only for comparison with printed tables.

Neither hides the catalogue: an item that no client trains on is in it because it is held out of
some client's training (``RankingCase.cold``). If items outnumber clients, test items are more often
such items than negatives are, and a rule that ranks these first gains by it; figures of ``warm_``
leave out the clients whose test item it is (``ranks.client_figures``).
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IndexArray, IntArray
from secure_fedrec.data.negatives import Ragged, draw_distinct
from secure_fedrec.data.ratings import RatingTable
from secure_fedrec.data.splits import leave_two_out
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.streams import Streams

PROTOCOLS: Final = ("clean", "published")
"""The named protocols; the first is the one to use."""

_STREAM: Final = "evaluation negatives"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankingCase:
    """The training items of clients, and the held-out ones.

    Args:
        protocol: one of ``PROTOCOLS``.
        train: positives; their values are not read.
        validation: int64[n], the item a model is chosen by; -1 where a client has none.
        test: int64[n], the item a model is judged by.
        validation_negatives: int32[n, K], none of them a positive of the client; -1 at the end
            where there are too few.
        test_negatives: int32[n, K], likewise, and none of the client's validation negatives.
        kept_out: items outside training that a client's training negatives are never drawn from.

    Attributes:
        rated: the training items of every client.
        cold: bool[n], whether no client's training set holds a client's test item.
    """

    protocol: str
    train: RatingTable
    validation: IntArray = field(repr=False)
    test: IntArray = field(repr=False)
    validation_negatives: IndexArray = field(repr=False)
    test_negatives: IndexArray = field(repr=False)
    kept_out: Ragged = field(repr=False)
    rated: Ragged = field(init=False, repr=False)
    cold: BoolArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        known = self.train.item_popularity() > 0
        cold = (self.test >= 0) & ~known[self.test]
        object.__setattr__(self, "rated", Ragged(self.train.indptr(), self.train.items))
        object.__setattr__(self, "cold", cold)

    @property
    def n_clients(self) -> int:
        """Number n of clients."""
        return self.train.n_clients

    @property
    def n_items(self) -> int:
        """Number m of items."""
        return self.train.n_items

    @property
    def without_validation(self) -> int:
        """Clients too small for a validation item."""
        return int(np.count_nonzero(self.validation < 0))


def ranking_case(
    table: RatingTable,
    *,
    protocol: str = PROTOCOLS[0],
    seed: int,
    negatives: int = 99,
    latest: IntArray | None = None,
) -> RankingCase:
    """Hold two items of every client out and draw what they are ranked among.

    What "latest" means follows from what the table knows. With times: by time, of ties the first in
    the source. With ``latest`` (ML-1M without times): that item for the test, a random one for
    validation. With neither: random items under ``clean``; under ``published`` the items that occur
    latest for the first time in the source, if the table knows its order. A client with two
    interactions has a test item and no validation item, and is counted (``without_validation``).

    Args:
        table: all interactions, already filtered.
        protocol: one of ``PROTOCOLS``.
        seed: seed of the draws, at least 0.
        negatives: K, at least 1.
        latest: int64[n], the last item of every client where another source knows it.

    Returns:
        The case; a function of the arguments.

    Raises:
        ConfigError: the protocol is unknown, or a number is out of range.
        DataError: a client has fewer than two interactions: nothing can be both learnt from and
            held out; or as ``leave_two_out``.
    """
    if protocol not in PROTOCOLS:
        raise ConfigError("evaluation.protocol", protocol, "unknown protocol", PROTOCOLS)
    if negatives < 1:
        raise ConfigError("evaluation.negatives", negatives, "must be at least 1")
    _require_two(table)
    published = protocol == "published"
    train, validation, test = leave_two_out(table, latest=latest, first_seen=published, seed=seed)
    drawn = draw_distinct(
        Ragged(table.indptr(), table.items),
        table.n_items,
        count=2 * negatives,
        stream=Streams.from_seed(seed).stream(_STREAM),
        clients=np.arange(table.n_clients, dtype=np.int64),
    )
    return RankingCase(
        protocol=protocol,
        train=train,
        validation=validation,
        test=test,
        validation_negatives=np.ascontiguousarray(drawn[:, 0::2]),
        test_negatives=np.ascontiguousarray(drawn[:, 1::2]),
        kept_out=_sets(validation, test) if published else Ragged.empty(table.n_clients),
    )


def _require_two(table: RatingTable) -> None:
    """Refuse a client with nothing to hold out."""
    counts = table.counts()
    if counts.min() < 2:
        client = int(np.argmax(counts < 2))
        problem = (
            f"client {client} has {counts[client]} interaction(s): to learn from one and hold one "
            "out takes two (data.min_ratings)"
        )
        raise DataError(table.name, problem)


def _sets(validation: IntArray, test: IntArray) -> Ragged:
    """Both held-out items of every client, as ascending sets."""
    both = np.sort(np.stack([validation, test], axis=1), axis=1)
    there = both >= 0
    indptr = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(there.sum(axis=1))])
    return Ragged(indptr, both[there].astype(np.int32))
