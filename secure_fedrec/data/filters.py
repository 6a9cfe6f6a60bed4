"""Leaving out clients and items with few ratings, or all but a sample of the clients."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.data.ratings import RatingTable
from secure_fedrec.data.splits import random_words
from secure_fedrec.errors import ConfigError, DataError

# Separates this draw from other uses of the same seed (see ``splits``).
_SAMPLE = 5


class Filtered(NamedTuple):
    """A part of a rating table.

    Attributes:
        table: clients and items numbered anew, in the order they had.
        rows: bool[N], the ratings of the whole table that are left.
        items: int64[m], new number of every item; -1 of those left out.
        clients: bool[n], the clients that are left.
    """

    table: RatingTable
    rows: BoolArray
    items: IntArray
    clients: BoolArray


def filtered(
    table: RatingTable,
    *,
    min_ratings: int | None = None,
    min_raters: int | None = None,
    sample_clients: int | None = None,
    seed: int = 0,
) -> Filtered:
    """Leave clients and items out.

    Args:
        table: the ratings.
        min_ratings: fewest ratings of a client; None keeps those without any.
        min_raters: fewest clients who rated an item; None keeps those without any. With both,
            removals for one are repeated for the other, until both hold.
        sample_clients: how many clients are kept, drawn at random from what the others left; items
            that none of them rated stay.
        seed: seed of the draw, at least 0.

    Raises:
        ConfigError: there are fewer clients than are to be drawn.
        DataError: nothing is left.
    """
    clients = np.ones(table.n_clients, dtype=np.bool_)
    items = np.ones(table.n_items, dtype=np.bool_)
    rows = np.ones(len(table), dtype=np.bool_)
    while min_ratings is not None or min_raters is not None:
        before = int(rows.sum())
        if min_ratings is not None:
            clients = np.bincount(table.clients[rows], minlength=table.n_clients) >= min_ratings
        rows = clients[table.clients] & items[table.items]
        if min_raters is not None:
            items = np.bincount(table.items[rows], minlength=table.n_items) >= min_raters
        rows = clients[table.clients] & items[table.items]
        if int(rows.sum()) == before:
            break
    if sample_clients is not None:
        clients = _sampled(clients, sample_clients, seed)
        rows &= clients[table.clients]
    if not rows.any():
        limits = {
            "min_ratings": min_ratings,
            "min_raters": min_raters,
            "sample_clients": sample_clients,
        }
        said = ", ".join(f"data.{key} = {each}" for key, each in limits.items() if each is not None)
        raise DataError(table.name, f"no rating is left by {said}")
    return Filtered(_part(table, rows, clients, items), rows, _renumbered(items), clients)


def _sampled(clients: BoolArray, count: int, seed: int) -> BoolArray:
    left = np.flatnonzero(clients)
    if count > len(left):
        problem = f"there are only {len(left)} clients"
        raise ConfigError("data.sample_clients", count, problem)
    drawn = np.argsort(random_words(seed, _SAMPLE, len(clients))[left], kind="stable")[:count]
    chosen = np.zeros(len(clients), dtype=np.bool_)
    chosen[left[drawn]] = True
    return chosen


def _renumbered(kept: BoolArray) -> IntArray:
    return np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int64)


def _part(table: RatingTable, rows: BoolArray, clients: BoolArray, items: BoolArray) -> RatingTable:
    return replace(
        table,
        n_clients=int(clients.sum()),
        n_items=int(items.sum()),
        clients=_renumbered(clients)[table.clients[rows]].astype(np.int32),
        items=_renumbered(items)[table.items[rows]].astype(np.int32),
        ratings=table.ratings[rows],
        client_labels=table.client_labels[clients],
        item_labels=table.item_labels[items],
        demographics={name: values[clients] for name, values in table.demographics.items()},
        timestamps=None if table.timestamps is None else table.timestamps[rows],
        places=None if table.places is None else table.places[rows],
    )
