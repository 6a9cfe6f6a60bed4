"""Uploads of a client of HPFL: weighted rows into a sum, drafts into bags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from secure_fedrec.algorithms.hpfl.aggregation import HPFLTable, count_accuracies
from secure_fedrec.algorithms.hpfl.client_update import ClientModel
from secure_fedrec.algorithms.hpfl.config import HPFLConfig
from secure_fedrec.algorithms.hpfl.drafts import cluster_centres
from secure_fedrec.blocks import TABLE
from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.core.kernels import bounds_of
from secure_fedrec.uploads import RowBlock, SetBlock, Upload

USER_DRAFTS: Final = "user-drafts"
ITEM_DRAFTS: Final = "item-drafts"
"""Names of the bags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The values that determine delta of eq. 3 in a round.

    Args:
        threshold: p, by "quantile"; accuracies above it are admitted.
        draw: r, uniform in (0, 1), the client's own, by "stochastic".
        seeds: seeds of the clustering of users and of items.
    """

    threshold: float
    draw: float
    seeds: tuple[int, int]

    def admits(self, accuracies: FloatArray, rule: str) -> BoolArray:
        """delta(Acc_k, p) for every attribute: bool[K]."""
        if rule == "stochastic":
            best = max(float(accuracies.max()), np.finfo(np.float64).tiny)
            return np.asarray(np.sqrt(self.draw) <= accuracies / best)
        return np.asarray(accuracies > self.threshold)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Given:
    """One client's output in a round.

    Args:
        rows: int32[R], ascending.
        values: float64[R, width].
        drafts: by name of the bag, float64[m, K] of users and float64[m, K] or float64[m, K + 2]
            of items; empty without drafts to give.
    """

    rows: IndexArray
    values: FloatArray
    drafts: Mapping[str, FloatArray]


def give_out(
    model: ClientModel,
    iterations: IntArray,
    config: HPFLConfig,
    table: HPFLTable,
    selection: Selection,
) -> Given:
    """One client's rows and drafts.

    Args:
        model: after the local training.
        iterations: int64[K + 1], I_k of the round and, last, of all records.
        config: says which components are federated.
        table: where rows lie.
        selection: the values that decide delta.
    """
    rows, values = np.empty(0, dtype=np.int32), np.empty((0, table.width))
    if config.shares_public:
        rows, values = _rows(model, iterations, config, table, selection)
    drafts = {}
    if config.shares_private:
        users, items = selection.seeds
        drafts = {
            name: cluster_centres(
                points,
                share,
                seed=seed,
                seeding=config.seeding,
                least_members=config.least_members,
            )
            for name, points, share, seed in (
                (USER_DRAFTS, model.users, config.user_drafts, users),
                (ITEM_DRAFTS, model.items, config.item_drafts, items),
            )
        }
    return Given(rows=rows, values=values, drafts=drafts)


def pack(clients: IntArray, given: Sequence[Given]) -> Upload:
    """The upload of a batch of clients; either all of them give drafts, or none does."""
    block = RowBlock(
        indptr=bounds_of([len(each.rows) for each in given]),
        rows=np.concatenate([each.rows for each in given]),
        values=np.concatenate([each.values for each in given]),
    )
    parts = {name: [each.drafts[name] for each in given] for name in given[0].drafts}
    bags = {
        name: SetBlock(indptr=bounds_of([*map(len, drafts)]), values=np.concatenate(drafts))
        for name, drafts in parts.items()
    }
    return Upload(clients=clients, blocks={TABLE: block}, bags=bags)


def _rows(
    model: ClientModel,
    iterations: IntArray,
    config: HPFLConfig,
    table: HPFLTable,
    selection: Selection,
) -> tuple[IndexArray, FloatArray]:
    """``w c_k`` and ``w = delta I_k Acc_k`` of every attribute (eq. 3), and the histogram."""
    accuracies, trained_on = model.accuracies[:-1], iterations[:-1] > 0
    delta = selection.admits(accuracies, config.threshold)
    weights = delta * iterations[:-1] * accuracies
    vectors = model.vectors
    if table.share_hidden:
        weights = np.append(weights, iterations[-1] * model.accuracies[-1])
        hidden = np.pad(model.hidden, (0, table.vector - len(model.hidden)))
        vectors = np.vstack([vectors, hidden])
    histogram = np.zeros(0, dtype=np.int64)
    if table.buckets:
        histogram = count_accuracies(accuracies[trained_on], table.buckets)
    return table.contribution(vectors, weights / config.weight_unit, histogram)
