"""How similar a client's two views of the items are: the consensus and its own.

Of methods with a personal table P_n. The consensus is C = G W_n if a generator makes a transfer
matrix, else the common table. Both are those that a client would begin the next round with: its own
as it trained it, the common one averaged.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from secure_fedrec.algorithms.item_tables import Enhanced, ItemTables
from secure_fedrec.algorithms.item_tables.local import Models, SingleArray
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.engines import LocalEngine
from secure_fedrec.evaluation.overlap import DEPTH, rank_biased_overlap, top_items

SHOWN: Final = 22
"""The client of the paper's figure 7."""


class Views(NamedTuple):
    """The measured similarity.

    Attributes:
        overlap: float64[n], rank-biased overlap of the items that either view puts first.
        correlation: float64[d, d], of the columns of C with those of P_n, of client ``SHOWN``.
    """

    overlap: FloatArray
    correlation: FloatArray


def compare_views(engine: LocalEngine) -> Views | None:
    """Both, after training; None where clients have no table of their own.

    Args:
        engine: whose algorithm is one of the item-table family.
    """
    algorithm: Any = engine.algorithm
    if not isinstance(algorithm, ItemTables) or not algorithm.method.personal:
        return None
    depth = min(DEPTH, algorithm.n_items)
    n_clients = engine.vault.n_clients
    overlap, shown = np.empty(n_clients), min(SHOWN, n_clients - 1)
    correlation = np.empty(0)
    for client in range(n_clients):
        models = algorithm.between_rounds(np.array([client]), engine.public, engine.vault)
        views = _views(algorithm, models)
        tops = [top_items(_scores(algorithm, models, table), depth) for table in views]
        overlap[client] = rank_biased_overlap(*tops)[0]
        if client == shown:
            correlation = correlated(*views)
    return Views(overlap, correlation)


def correlated(common: SingleArray, own: SingleArray) -> FloatArray:
    """C^T P with columns of length 1: float64[d, d]."""
    one, other = (table.astype(np.float64) for table in (common, own))
    tiny = np.finfo(np.float64).tiny
    one /= np.maximum(np.sqrt((one * one).sum(axis=0)), tiny)
    other /= np.maximum(np.sqrt((other * other).sum(axis=0)), tiny)
    return np.asarray(one.T @ other)


def _views(algorithm: ItemTables, models: Models) -> tuple[SingleArray, SingleArray]:
    method = algorithm.method
    if not isinstance(method, Enhanced):
        return models.table, models.personal
    return method.consensus(models, 0), method.own_view(models, 0)


def _scores(algorithm: ItemTables, models: Models, table: SingleArray) -> SingleArray:
    """Scores by one view alone: of two tables, the other one is set to 0."""
    method = algorithm.method
    below = method.below if isinstance(method, Enhanced) else method
    alone = models._replace(table=table, personal=np.zeros_like(table))
    if isinstance(method, Enhanced):
        kept = models.shared.shape[1] - method.generator_size
        alone = alone._replace(shared=models.shared[:, :kept])
    return below.scores(alone, table)
