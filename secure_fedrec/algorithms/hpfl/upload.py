"""What leaves a client of HPFL: weighted rows into a sum, drafts into bags."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from secure_fedrec.algorithms.hpfl.aggregation import HPFLTable, count_accuracies
from secure_fedrec.algorithms.hpfl.client import ClientModel
from secure_fedrec.algorithms.hpfl.config import HPFLConfig
from secure_fedrec.algorithms.hpfl.drafts import cluster_centres
from secure_fedrec.blocks import TABLE
from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.uploads import RowBlock, SetBlock, Upload

__all__ = ["ITEM_DRAFTS", "USER_DRAFTS", "Given", "Selection", "give_out", "pack"]

USER_DRAFTS: Final = "user-drafts"
ITEM_DRAFTS: Final = "item-drafts"
"""Names of the bags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What decides delta of eq. 3 in a round.

    Args:
        threshold: p, by "quantile"; admitted is what exceeds it.
        draw: r, uniform in (0, 1), the client's own, by "stochastic".
        seeds: of the clustering of users and of items.
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
    """What one client gives out in a round.

    Args:
        rows: int32[R], ascending.
        values: float64[R, width].
        user_drafts: float64[m, K].
        item_drafts: float64[m, K] or float64[m, K + 2].
    """

    rows: IndexArray
    values: FloatArray
    user_drafts: FloatArray
    item_drafts: FloatArray


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
        selection: what decides delta.
    """
    rows, values = np.empty(0, dtype=np.int32), np.empty((0, table.width))
    if config.shares_public:
        rows, values = _rows(model, iterations, config, table, selection)
    users, items = model.users[:0], model.items[:0]
    if config.shares_private:
        least = config.least_members
        users, items = (
            cluster_centres(points, share, seed=seed, seeding=config.seeding, least_members=least)
            for points, share, seed in (
                (model.users, config.user_drafts, selection.seeds[0]),
                (model.items, config.item_drafts, selection.seeds[1]),
            )
        )
    return Given(rows=rows, values=values, user_drafts=users, item_drafts=items)


def pack(clients: IntArray, given: Sequence[Given], *, bags: bool) -> Upload:
    """The upload of a batch of clients; without ``bags`` there are no drafts in it."""
    block = RowBlock(
        indptr=_ends([len(each.rows) for each in given]),
        rows=np.concatenate([each.rows for each in given]),
        values=np.concatenate([each.values for each in given]),
    )
    if not bags:
        return Upload(clients=clients, blocks={TABLE: block})
    drafts = {
        USER_DRAFTS: [each.user_drafts for each in given],
        ITEM_DRAFTS: [each.item_drafts for each in given],
    }
    return Upload(
        clients=clients,
        blocks={TABLE: block},
        bags={
            name: SetBlock(
                indptr=_ends([len(vectors) for vectors in parts]), values=np.concatenate(parts)
            )
            for name, parts in drafts.items()
        },
    )


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


def _ends(lengths: Sequence[int]) -> IntArray:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])
