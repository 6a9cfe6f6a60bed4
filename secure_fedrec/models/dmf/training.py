"""Local training of DMF at one organisation: which pairs an epoch visits, and the epoch.

Interactions of a user are positives. Of everything else in the user's pool, the items that its
organisation has, an epoch takes ``negatives`` fresh ones for every positive, drawn with
replacement, or, if ``negatives`` is None, all pairs.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.models.dmf.arrays import Descent, Examples, Moving, Targets
from secure_fedrec.models.dmf.loops import place_negatives, run_epoch
from secure_fedrec.models.dmf.model import DMF
from secure_fedrec.settings import Count, Positive, Settings, Unit
from secure_fedrec.streams import Streams, uniform_ranks


class DMFTraining(Settings, section="training"):
    """How an organisation trains: epochs of Adam.

    Args:
        learning_rate: of Adam.
        batch_size: batch size of a step.
        negatives: pairs without an interaction per pair with one, fresh in every epoch; if absent,
            all pairs.

    Raises:
        ConfigError: a field is out of range.
    """

    learning_rate: Positive = 1e-3
    batch_size: Annotated[Count, Unit("examples")] = 32
    negatives: Annotated[Count, Unit("per positive")] | None = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interactions:
    """The interactions of the users of one organisation.

    Args:
        indptr: int64[U + 1].
        items: int64[N], places of items, ascending within a user.
        pools: items that a user could have interacted with, int64[k] ascending, by kind of user.
        kinds: int64[U], which of the pools is a user's.
    """

    indptr: IntArray
    items: IntArray
    pools: tuple[IntArray, ...]
    kinds: IntArray

    @classmethod
    def of_pairs(cls, users: IntArray, items: IntArray, dmf: DMF) -> "Interactions":
        """From pairs ordered by user and item, at an organisation with a single pool."""
        indptr = np.searchsorted(users, np.arange(dmf.users + 1)).astype(np.int64)
        return cls(
            indptr=indptr,
            items=items,
            pools=(np.arange(dmf.items),),
            kinds=np.zeros(dmf.users, dtype=np.int64),
        )

    @property
    def counts(self) -> IntArray:
        """int64[U], interactions of each user."""
        return np.diff(self.indptr)

    def draw(self, ranks: IntArray, per_positive: int) -> IntArray:
        """Items without an interaction, by their ranks among those of the user.

        Args:
            ranks: int64[per_positive * N], below ``rooms`` of the positive's user.
            per_positive: how many for each positive, side by side.

        Returns:
            int64[per_positive * N]; for a user that has interacted with its whole pool, the last
            item of the pool, which is not a negative.
        """
        positions, found = np.empty(len(self.items), dtype=np.int64), np.empty_like(ranks)
        owners = np.repeat(self.kinds, self.counts)
        for kind, pool in enumerate(self.pools):
            own = owners == kind
            positions[own] = np.searchsorted(pool, self.items[own])
        place_negatives(self.indptr, positions, ranks, per_positive, found)
        drawn = np.repeat(owners, per_positive)
        for kind, pool in enumerate(self.pools):
            own = drawn == kind
            found[own] = pool[np.minimum(found[own], len(pool) - 1)]
        return found

    @property
    def rooms(self) -> IntArray:
        """int64[U], items of its pool that a user has not interacted with."""
        return np.array([len(pool) for pool in self.pools])[self.kinds] - self.counts


def examples_of(
    interactions: Interactions, config: DMFTraining, streams: Streams, *, epoch: int, client: int
) -> Examples:
    """The pairs of an epoch in the order of the epoch: a function of seed, epoch and client."""
    users = np.repeat(np.arange(len(interactions.kinds)), interactions.counts)
    if config.negatives is None:
        rows, items = _all_pairs(interactions)
        keys = np.array([users, interactions.items]).T @ [2**32, 1]
        labels = np.isin(rows * 2**32 + items, keys, assume_unique=True).astype(np.float64)
    else:
        per_positive, rooms = config.negatives, interactions.rooms[users]
        words = _words(streams, "dmf-negatives", epoch, client, per_positive * len(users))
        ranks = uniform_ranks(words, np.repeat(rooms, per_positive))
        drawn = interactions.draw(ranks, per_positive)
        there = np.repeat(rooms > 0, per_positive)  # users with all items have no negatives
        rows = np.concatenate([users, np.repeat(users, per_positive)[there]])
        items = np.concatenate([interactions.items, drawn[there]])
        labels = (np.arange(len(rows)) < len(users)).astype(np.float64)
    order = np.argsort(_words(streams, "dmf-order", epoch, client, len(rows)), kind="stable")
    return Examples(rows[order].astype(np.int32), items[order].astype(np.int32), labels[order])


def part_of(examples: Examples, part: int, parts: int) -> Examples:
    """One of several parts of an epoch, as long as the others or one example longer."""
    size = len(examples.labels)
    own = slice(size * part // parts, size * (part + 1) // parts)
    return Examples(examples.users[own], examples.items[own], examples.labels[own])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingState:
    """The state that training continues from.

    Args:
        parameters: float64[P].
        first: float64[P], Adam's means of the slopes.
        second: float64[P], and of their squares.
        powers: float64[2], of the decays, one factor per step so far.
    """

    parameters: FloatArray
    first: FloatArray
    second: FloatArray
    powers: FloatArray


def train_epoch(
    dmf: DMF,
    state: TrainingState,
    examples: Examples,
    targets: Targets,
    config: DMFTraining,
    *,
    key: int,
) -> tuple[float, float]:
    """An epoch, or a part of one, in place.

    Args:
        dmf: the organisation's model.
        state: changed.
        examples: to visit.
        targets: vectors that item vectors are pulled towards.
        config: settings.
        key: key of the dropout, 0 to 2^63 - 1.

    Returns:
        (mean squared error, mean embedding loss of a batch).
    """
    descent = Descent(config.learning_rate, config.batch_size, dmf.config.dropout, key)
    model = Moving(*map(dmf.parts, (state.parameters, state.first, state.second)))
    errors, distances = run_epoch(model, state.powers, dmf.users, examples, targets, descent)
    batches = max(1, -(-len(examples.labels) // config.batch_size))
    return errors / max(1, len(examples.labels)), distances / batches


def _all_pairs(interactions: Interactions) -> tuple[IntArray, IntArray]:
    """Every user with every item of its pool."""
    sizes = [len(interactions.pools[kind]) for kind in interactions.kinds.tolist()]
    items = np.concatenate([interactions.pools[kind] for kind in interactions.kinds.tolist()])
    return np.repeat(np.arange(len(sizes)), sizes), items


def _words(
    streams: Streams, name: str, epoch: int, client: int, count: int
) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    one = np.array([client])
    found = streams.private(name).words(epoch, one, np.array([count]), np.array([0]))
    return np.asarray(found).reshape(-1)
