"""The network of FedNCF: one hidden layer over a user's vector and an item's, and its score.

Its parameters are a row of ``Models.shared``: the weights of every hidden unit, for the user and
then for the item; the units' biases; the weights of the score; its bias.
"""

from typing import Final, NamedTuple

import numpy as np

from secure_fedrec.algorithms.item_tables.local import Models, SingleArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.lanes import dot

BLOCK: Final = 256
"""Most items that are scored at once."""


class Work(NamedTuple):
    """Scratch for the logits of a block of items, float32.

    Args:
        sums: [8, BLOCK], lanes of a unit's sums.
        totals: [BLOCK], their sums.
        hidden: [units, BLOCK], outputs of the hidden layer.
        logits: [BLOCK].
    """

    sums: SingleArray
    totals: SingleArray
    hidden: SingleArray
    logits: SingleArray


def work_for(units: int, block: int = BLOCK) -> Work:
    """Scratch for a network, and for blocks of so many items."""
    shapes = ((8, block), (block,), (units, block), (block,))
    return Work(*(np.empty(shape, dtype=np.float32) for shape in shapes))


def in_blocks(table: SingleArray) -> SingleArray:
    """A table float32[m, d] block by block: float32[b, d, BLOCK], an item's vector per column."""
    blocks = np.zeros((-(-len(table) // BLOCK), table.shape[1], BLOCK), dtype=np.float32)
    for block, turned in enumerate(blocks):
        rows = table[block * BLOCK : (block + 1) * BLOCK]
        turned[:, : len(rows)] = rows.T
    return blocks


@compiled_loop
def logits_of(
    turned: SingleArray,
    count: int,
    shared: SingleArray,
    client: int,
    of_user: SingleArray,
    work: Work,
) -> None:
    """Logits of some items by one client's network, side by side: a unit at a time for all of them.

    Sums have the order of ``lanes.dot``.

    Args:
        turned: float32[d, BLOCK or more], an item's vector per column.
        count: of items, the first columns.
        shared: float32[B, S], the networks.
        client: the client of the network.
        of_user: float32[units], of ``part_of_user``.
        work: gets ``logits`` and ``hidden``.
    """
    width, units, sums, totals = len(turned), len(of_user), work.sums, work.totals
    tail, whole = units * (2 * width + 1), width - width % 8
    for place in range(count):
        work.logits[place] = shared[client, tail + units]
    for unit in range(units):
        first = unit * 2 * width + width
        sums[:, :count] = 0
        for k in range(whole):
            weight, lane = shared[client, first + k], sums[k % 8]
            for place in range(count):
                lane[place] += turned[k, place] * weight
        for place in range(count):
            even = (sums[0, place] + sums[4, place]) + (sums[2, place] + sums[6, place])
            odd = (sums[1, place] + sums[5, place]) + (sums[3, place] + sums[7, place])
            totals[place] = even + odd
        for k in range(whole, width):
            weight = shared[client, first + k]
            for place in range(count):
                totals[place] += turned[k, place] * weight
        weight, hidden = shared[client, tail + unit], work.hidden[unit]
        for place in range(count):
            hidden[place] = max(of_user[unit] + totals[place], np.float32(0.0))
            work.logits[place] += weight * hidden[place]


@compiled_loop
def part_of_user(models: Models, client: int, of_user: SingleArray) -> None:
    """The part of the hidden layer that is the same for all items: W u + a."""
    width, units = models.own.shape[1], len(of_user)
    for unit in range(units):
        product = dot(models.own, client, models.shared, client, unit * 2 * width)
        of_user[unit] = product + models.shared[client, units * 2 * width + unit]


@compiled_loop
def score_all(
    models: Models, blocks: SingleArray, own: SingleArray, work: Work, scores: SingleArray
) -> None:
    """Logits of all items for every client, by its copy of an item's vector where it has one.

    Args:
        models: models of the clients.
        blocks: float32[b, d, BLOCK], the public table, see ``in_blocks``.
        own: float32[d, BLOCK], scratch.
        work: scratch.
        scores: float32[B, m], written.
    """
    of_user = np.empty(len(work.hidden), np.float32)
    for client in range(len(scores)):
        part_of_user(models, client, of_user)
        for block in range(len(blocks)):
            first, count = block * BLOCK, min(BLOCK, scores.shape[1] - block * BLOCK)
            logits_of(blocks[block], count, models.shared, client, of_user, work)
            scores[client, first : first + count] = work.logits[:count]
        last = models.indptr[client + 1]
        for first in range(models.indptr[client], last, BLOCK):
            count = min(BLOCK, last - first)
            for place in range(count):
                own[:, place] = models.table[first + place]
            logits_of(own, count, models.shared, client, of_user, work)
            for place in range(count):
                scores[client, models.items[first + place]] = work.logits[place]
