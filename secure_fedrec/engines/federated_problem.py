"""The data of a federation and its evaluation, as an engine needs them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from secure_fedrec.algorithms.base import (
    Algorithm,
    NamedBlocks,
    PublicState,
    RatingAlgorithm,
    SizedSteps,
    SizedUploads,
)
from secure_fedrec.blocks import TABLE, BlockKind, BlockLayout, BlockShape
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.protection import Sizes
from secure_fedrec.protection.bags import BagShape
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault

_CLIENTS_TRIED = 64

Evaluate: TypeAlias = Callable[[PublicState, Vault], Mapping[str, float] | None]
"""Metrics of a state by name; None where there is nothing to measure."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """The data side of one run.

    Args:
        vault: the clients' private state; an engine fills it with the algorithm's tables, so every
            run needs its own.
        n_rows: rows of the shared table; 0 where the algorithm sets the sizes of its blocks.
        evaluate: measures a state; None does not measure.
        knowledge: public facts about the data, as JSON values.
        popularity: int64[n_rows], clients that hold each item, if popularity is public. None where
            rows are not items.
    """

    vault: Vault
    n_rows: int = 0
    evaluate: Evaluate | None = None
    knowledge: Mapping[str, Any] = field(default_factory=dict)
    popularity: IntArray | None = None


def blocks_of(algorithm: Algorithm, problem: Problem) -> tuple[BlockShape, ...]:
    """The blocks of an upload: those the algorithm names, or the rows of one table."""
    if isinstance(algorithm, NamedBlocks):
        return algorithm.blocks(problem.n_rows)
    items = "n_items" in problem.knowledge or isinstance(algorithm, RatingAlgorithm)
    kind = BlockKind.ITEMS if items else BlockKind.ROWS
    return (BlockShape(name=TABLE, kind=kind, size=problem.n_rows, width=algorithm.width),)


def sizes_of(
    algorithm: Algorithm,
    problem: Problem,
    *,
    cohort: int | None = None,
    bags: Mapping[str, BagShape] | None = None,
) -> Sizes:
    """The sizes that a stack for a problem has to be built for.

    Args:
        algorithm: the algorithm to train.
        problem: what it learns from.
        cohort: largest number of clients in a round; None for all.
        bags: sizes of the bags that the algorithm gives to, by name.
    """
    blocks, n_clients = blocks_of(algorithm, problem), problem.vault.n_clients
    table = BlockLayout(blocks)
    return Sizes(
        n_clients=n_clients,
        n_items=table.rows,
        width=table.width,
        cohort=n_clients if cohort is None else cohort,
        bags=bags or {},
        popularity=problem.popularity,
        blocks=blocks,
    )


def upload_rows(algorithm: Algorithm, vault: Vault, n_rows: int) -> IntArray:
    """int64[n], most rows each client sends, unless the algorithm states it.

    For a block of items one row per example, for any other block all of its rows.
    """
    if isinstance(algorithm, SizedUploads):
        return algorithm.upload_rows(vault, n_rows)
    if not isinstance(algorithm, NamedBlocks):
        return vault.example_counts()
    places = BlockLayout(algorithm.blocks(n_rows)).places.values()
    items = [place.rows for place in places if place.shape.kind is BlockKind.ITEMS]
    others = sum(place.rows for place in places) - sum(items)
    own = (np.minimum(vault.example_counts(), rows) for rows in items)
    return np.asarray(sum(own, np.full(vault.n_clients, others)), dtype=np.int64)


def upload_vectors(algorithm: Algorithm, vault: Vault) -> Mapping[str, IntArray]:
    """int64[n] by name of the bag, vectors each client gives to it; none unless it says so."""
    if isinstance(algorithm, SizedUploads):
        return algorithm.upload_vectors(vault)
    return {}


def state_bytes(algorithm: Algorithm, problem: Problem) -> int:
    """Bytes of all private tables, before there are any: those of some clients, laid out over all.

    Args:
        algorithm: a fresh one, which gives these clients their first state.
        problem: what it learns from.
    """
    vault = problem.vault
    some = vault.clients[:: max(1, vault.n_clients // _CLIENTS_TRIED)]
    tried = vault.only(some)
    algorithm.initialise(tried, Streams.from_seed(0))
    held = sum(values.nbytes for values in tried.tables().values())
    return held * vault.n_clients // max(1, len(some))


def step_bytes(algorithm: Algorithm, vault: Vault, n_rows: int) -> IntArray:
    """int64[n], bytes that each client's step works in, as the algorithm says or by its messages.

    A sent row is held as reals and as words; an example as an item number and a real.
    """
    if isinstance(algorithm, SizedSteps):
        return algorithm.step_bytes(vault, n_rows)
    rows = upload_rows(algorithm, vault, n_rows)
    return 16 * (np.maximum(vault.example_counts(), rows) + 1) * (1 + algorithm.width)
