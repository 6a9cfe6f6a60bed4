"""Scores that are products of item vectors with a vector of the client's."""

import numpy as np

from secure_fedrec.algorithms.item_tables.local import Models, SingleArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.lanes import dot


def products(models: Models, table: SingleArray) -> SingleArray:
    """``own`` times the vector of every item, of the client's copy where it has one.

    Args:
        models: their ``own`` begins with the vector.
        table: float32[m, d], of the items without a copy.

    Returns:
        float32[B, m].
    """
    scores = np.zeros((len(models.own), len(table)), dtype=np.float32)
    if len(models.items) < scores.size:  # otherwise every item has its own row
        _add_columns(np.ascontiguousarray(table.T), models.own, scores)
    score_rows(models, scores)
    return scores


@compiled_loop
def _add_columns(columns: SingleArray, vectors: SingleArray, scores: SingleArray) -> None:
    """Every client's vector, the first d of its values, times every row of one table."""
    for client in range(len(scores)):
        for factor in range(len(columns)):
            weight = vectors[client, factor]
            for item in range(scores.shape[1]):
                scores[client, item] += weight * columns[factor, item]


@compiled_loop
def score_rows(models: Models, scores: SingleArray) -> None:
    """Scores of the items that a client has rows of: its ``own`` times its copy of the row."""
    for client in range(len(scores)):
        for row in range(models.indptr[client], models.indptr[client + 1]):
            scores[client, models.items[row]] = dot(models.table, row, models.own, client, 0)
