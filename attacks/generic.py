"""The generic adversary: decides which of two worlds is the real one, by all that a coalition sees.

A claim to hide something is a claim that two worlds which differ in it cannot be told apart. This
adversary knows both worlds in full, all ratings of all clients; it is told nothing of the layers
but their traits, and weighs everything that its view holds: rows and row numbers under names, where
shares of all holders have come together; vectors; sums, less what its own clients put into them,
over those who took part; and, where it sees no sums, the public table, for the planted algorithm's
next table is the sum. Each source is weighted by its residual in the better of the two worlds: only
rounding if it is exact, everything if it is masked, and the noise if noise is added, which rounds
average out. So it need not be known what is hidden: hidden sources get no weight.

To run it on another stack: ``attacks.planted.worlds.play``.
"""

from typing import NamedTuple

import numpy as np

from attacks.view.coalition import others_sum, others_vectors, own_clients, rows_of
from attacks.view.knowledge import Knowledge
from attacks.view.named import named_rounds, named_rows, sees_named_rows
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Step, View


class Worlds(NamedTuple):
    """Two candidates for what all clients hold.

    A client's row of an item is its rating; its vector for a bag, all its ratings.

    Attributes:
        first, second: float64[n, m] ratings; 0 for unrated items.
    """

    first: FloatArray
    second: FloatArray

    def sums(self, clients: IntArray) -> tuple[FloatArray, FloatArray]:
        """float64[m] of each world, over some clients."""
        return self.first[clients].sum(axis=0), self.second[clients].sum(axis=0)


def weigh_view(view: View, worlds: Worlds) -> float:
    """Evidence for the second world over the first: positive or negative; 0 without evidence.

    Raises:
        UnknownTraitError: the stack does not state a trait that is needed to read the view.
    """
    knowledge = Knowledge.of(view)
    found = 0.0
    if sees_named_rows(view):
        found += sum(_rows(view, knowledge, worlds, round_) for round_ in named_rounds(view))
    if view.sees(Step.BAG):
        found += sum(_vectors(view, worlds, round_) for round_ in view.rounds(Step.BAG))
    if view.sees(Step.AGGREGATE):
        return found + sum(_sums(view, worlds, r) for r in view.payload_rounds(Step.AGGREGATE))
    if view.sees(Step.MODEL):
        found += sum(_table(view, worlds, r) for r in view.payload_rounds(Step.MODEL))
    return found


def weigh(seen: FloatArray, first: FloatArray, second: FloatArray, *, finest: float) -> float:
    """Log-likelihood ratio of the second over the first, under Gaussian noise of unknown size.

    Args:
        seen: float64[K].
        first: float64[K], the noiseless values in the first world.
        second: float64[K], the noiseless values in the second world.
        finest: largest error of exact values.
    """
    if not len(seen):
        return 0.0
    error = min(float(np.mean((seen - world) ** 2)) for world in (first, second))
    return float((seen - (first + second) / 2) @ (second - first)) / (error + finest**2)


def _rows(view: View, knowledge: Knowledge, worlds: Worlds, round_: int) -> float:
    """Evidence from rows under names: their numbers and values."""
    finest, own = view.codec.resolution, own_clients(view)
    kept = round_ in view.payload_rounds(Step.UPLOAD) if view.sees(Step.UPLOAD) else True
    messages, block = rows_of(named_rows(view, round_, payload=kept))
    found = 0.0
    for client, one in zip(messages.senders.ids.tolist(), block.split(), strict=True):
        if client in own:
            continue
        first, second = worlds.first[client], worlds.second[client]
        if not knowledge.dense:
            there = np.zeros(len(first))
            there[one.rows] = 1.0
            found += weigh(there, (first != 0.0) * 1.0, (second != 0.0) * 1.0, finest=finest)
        if one.values is not None:
            found += weigh(_spread(view, one, len(first)), first, second, finest=finest)
    return found


def _vectors(view: View, worlds: Worlds, round_: int) -> float:
    """Evidence from vectors with names, one by one; from anonymous ones, by their sum."""
    finest, own, found = view.codec.resolution, own_clients(view), 0.0
    others = np.setdiff1d(np.arange(len(worlds.first)), sorted(own))
    for bag in view.bags(round_):
        messages = others_vectors(view, round_, bag)
        values = getattr(messages.payload, "values", None)
        if values is None:
            continue
        vectors = view.codec.decode(values)
        if messages.tags is not None:
            found += weigh(vectors.sum(axis=0), *worlds.sums(others), finest=finest)
            continue
        for client, vector in zip(messages.senders.ids.tolist(), vectors, strict=True):
            both = worlds.first[client], worlds.second[client]
            found += weigh(vector, *both, finest=finest)
    return found


def _sums(view: View, worlds: Worlds, round_: int) -> float:
    """Evidence from the aggregate over the participants, rows and counts."""
    left, knowledge = others_sum(view, round_, payload=True), Knowledge.of(view)
    n_items, finest = worlds.first.shape[1], view.codec.resolution
    present = np.arange(len(worlds.first))
    if view.rounds(Step.UPLOAD):
        present = view.messages(Step.UPLOAD, round_).senders.ids
        present = np.union1d(present, np.asarray(knowledge.denoisers, dtype=np.int64))
    if knowledge.sums_are_real:  # then the coalition's own rows have been subtracted
        present = np.setdiff1d(present, sorted(own_clients(view)))
    found = weigh(_spread(view, left, n_items), *worlds.sums(present), finest=finest)
    if left.counts is None:
        return found
    counts = np.zeros(n_items)
    counts[left.rows] = left.counts
    rated: tuple[BoolArray, ...] = (worlds.first[present] != 0.0, worlds.second[present] != 0.0)
    first, second = (each.sum(axis=0, dtype=np.float64) for each in rated)
    if not knowledge.exact:  # estimates are clamped, so the extremes tell little
        inside = (counts > counts.min()) & (counts < counts.max())
        counts, first, second = counts[inside], first[inside], second[inside]
    return found + weigh(counts, first, second, finest=finest)


def _table(view: View, worlds: Worlds, round_: int) -> float:
    """The next public table: the sum over all clients."""
    everybody = np.arange(len(worlds.first))
    told = view.table(round_, after=True)[:, 0]
    return weigh(told, *worlds.sums(everybody), finest=view.codec.resolution)


def _spread(view: View, block: RowBlock, n_items: int) -> FloatArray:
    values = np.zeros(n_items)
    if block.values is not None:
        values[block.rows] = view.codec.decode(block.values)[:, 0]
    return values
