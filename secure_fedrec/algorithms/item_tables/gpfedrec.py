"""GPFedRec (Zhang et al., KDD 2024): a graph of clients, whose item tables come from neighbours.

The server compares the clients' item tables by the cosine of all their values; clients are
neighbours where that is at least ``neighbourhood`` times the mean over all pairs. A client is given
the mean table of its neighbours, itself among them, starts from it, and is pulled back to it by
``regularization`` while it trains as in PFedRec. The public code takes the cosine *distance* for
the similarity, so that its neighbours are the least alike; here they are the most alike.
"""

import numpy as np

from secure_fedrec.algorithms.item_tables.local import Batch, Models
from secure_fedrec.algorithms.item_tables.pfedrec import PFedRec, PFedRecConfig
from secure_fedrec.algorithms.item_tables.single_tables import parts_of_tables
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.settings import NonNegative


class GPFedRecConfig(PFedRecConfig, section="algorithm"):
    """Hyper-parameters, beside those of PFedRec.

    Args:
        neighbourhood: least similarity of neighbours, in mean similarities.
        regularization: pull of all rows to the table that the server gave; in shares per step.

    Raises:
        ConfigError: a field is out of range.
    """

    neighbourhood: NonNegative = 1.0
    regularization: NonNegative = 0.01


class GPFedRec(PFedRec):
    """The method; see the module docstring. ``own`` is w and, behind it, b."""

    name = "gpfedrec"
    dense = True
    config: GPFedRecConfig

    def step(self, models: Models, batch: Batch, losses: FloatArray) -> None:
        """PFedRec's step, then back towards the table that the server gave."""
        super().step(models, batch, losses)
        _pull_back(models, batch, np.float32(self.config.regularization))

    def mix(self, tables: FloatArray, own: FloatArray) -> FloatArray:
        """Mean tables of neighbours, written over the tables: float64[B, m, d]."""
        alike = np.zeros((len(tables), len(tables)))
        for part in parts_of_tables(tables):
            single = part.astype(np.float32)  # in the clients' precision
            alike += single @ single.T
        lengths = np.sqrt(np.maximum(np.diagonal(alike), np.finfo(np.float32).tiny))
        alike /= np.outer(lengths, lengths)
        near = alike >= self.config.neighbourhood * alike.mean()
        np.fill_diagonal(near, val=True)
        shares = near / near.sum(axis=1, keepdims=True, dtype=np.float32)
        for part in parts_of_tables(tables):
            part[:] = shares @ part.astype(np.float32)
        return tables


@compiled_loop
def _pull_back(models: Models, batch: Batch, share: np.float32) -> None:
    for place in range(len(batch.clients)):
        client = batch.clients[place]
        for row in range(models.indptr[client], models.indptr[client + 1]):
            for k in range(models.table.shape[1]):
                models.table[row, k] -= share * (models.table[row, k] - models.personal[row, k])
