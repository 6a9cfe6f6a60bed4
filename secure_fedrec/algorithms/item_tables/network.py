"""The network of FedNCF: one hidden layer over a user's vector and an item's, and its score.

Its parameters are a row of ``Models.shared``: the weights of every hidden unit, for the user and
then for the item; the units' biases; the weights of the score; its bias.
"""

from typing import Any

import numpy as np

from secure_fedrec.algorithms.item_tables.local import Models, SingleArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.lanes import dot


@compiled_loop
def logit_of(
    table: SingleArray,
    row: int,
    shared: SingleArray,
    client: int,
    of_user: SingleArray,
    hidden: SingleArray,
) -> Any:
    """The logit of one item; ``hidden`` gets the outputs of the hidden layer."""
    width, units = table.shape[1], len(hidden)
    tail = units * (2 * width + 1)
    logit = shared[client, tail + units]
    for unit in range(units):
        pre = of_user[unit] + dot(table, row, shared, client, unit * 2 * width + width)
        hidden[unit] = max(pre, np.float32(0.0))
        logit += shared[client, tail + unit] * hidden[unit]
    return logit


@compiled_loop
def part_of_user(models: Models, client: int, of_user: SingleArray) -> None:
    """The part of the hidden layer that is the same for all items: W u + a."""
    width, units = models.own.shape[1], len(of_user)
    for unit in range(units):
        product = dot(models.own, client, models.shared, client, unit * 2 * width)
        of_user[unit] = product + models.shared[client, units * 2 * width + unit]


@compiled_loop
def score_all(models: Models, table: SingleArray, units: int, scores: SingleArray) -> None:
    """Logits of all items for every client, by its copy of an item's vector where it has one."""
    of_user, hidden = np.empty(units, np.float32), np.empty(units, np.float32)
    for client in range(len(scores)):
        part_of_user(models, client, of_user)
        for item in range(len(table)):
            scores[client, item] = logit_of(table, item, models.shared, client, of_user, hidden)
        for row in range(models.indptr[client], models.indptr[client + 1]):
            logit = logit_of(models.table, row, models.shared, client, of_user, hidden)
            scores[client, models.items[row]] = logit
