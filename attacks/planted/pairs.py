"""A planted federation whose clients send their pairs of items, once.

Clients have items of one of three groups, and some have an item that no other client has. One item
of each is held out: the sums of the others' pairs tell its group.
"""

from dataclasses import asdict
from typing import Any, Final

import numpy as np

from attacks.planted.recording import PlantedSum, planted_secrets, protected, recorded
from attacks.scoring.truth import GroundTruth
from attacks.view.pairs import NAME
from secure_fedrec.algorithms.base import FinishedStep, PublicState
from secure_fedrec.blocks import BlockKind, BlockShape
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import Problem, RecordedRun
from secure_fedrec.streams import Streams
from secure_fedrec.traits import OTHER_ROWS
from secure_fedrec.uploads import Aggregate, FlatBlock, Upload
from secure_fedrec.vault import Vault

_CLIENTS, _ITEMS, _GROUPS, _OWN = 60, 96, 3, 8
_RARE: Final = 12
"""Number of items that one client each has; they are the last ones."""


class PlantedPairs(PlantedSum):
    """The algorithm; see the module docstring."""

    width, rounds = _ITEMS, 1

    def blocks(self, n_rows: int) -> tuple[BlockShape, ...]:
        """The triangle of pairs."""
        size = _ITEMS * (_ITEMS + 1) // 2
        shape = BlockShape(
            name=NAME, kind=BlockKind.FLAT, size=size, width=_ITEMS, fraction_bits=0, clip=1.0
        )
        return (shape,)

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """No sums."""
        return PublicState(round=0, table=np.zeros((1, 1)), extras={NAME: np.zeros(0)})

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FinishedStep:
        """Pairs of the clients' items."""
        rated = vault.rated(clients)
        rows = np.zeros((len(clients), _ITEMS))
        rows[np.repeat(np.arange(len(clients)), rated.counts), rated.items] = 1.0
        one, other = np.triu_indices(_ITEMS)
        pairs = FlatBlock(values=rows[:, one] * rows[:, other])
        upload = Upload(clients=clients, blocks={NAME: pairs})
        return FinishedStep(clients=clients, upload=upload, commit=lambda _: None)

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """The sums."""
        extras = {NAME: aggregate.vector(NAME)}
        return PublicState(round=public.round + 1, table=public.table, extras=extras)

    def extra_rows(self, completed: int) -> dict[str, int | None]:
        """One sum per pair."""
        return {NAME: _ITEMS * (_ITEMS + 1) // 2 if completed else 0}

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        """Rows that the triangle is cut into."""
        return np.full(vault.n_clients, -(-(_ITEMS + 1) // 2), dtype=np.int64)

    def public_knowledge(self) -> dict[str, Any]:
        """How the sums are made."""
        told = {"sketch": 0, "largest_norm": None, "pair_floor": 0, "shrinkage": 0.25}
        usual = {"candidates": (), "solved_at": "client"}
        return {"name": "planted-pairs", **told, **usual, "traits": asdict(OTHER_ROWS)}


def plant_pairs(*, seed: int = 20190520) -> tuple[RecordedRun, GroundTruth]:
    """Run and record it.

    Args:
        seed: seed of the rows.
    """
    rng = np.random.default_rng(seed)
    common = _ITEMS - _RARE
    rows = np.zeros((_CLIENTS, _ITEMS), dtype=bool)
    held_out = np.zeros((_CLIENTS, _ITEMS), dtype=np.int8)
    for client, row in enumerate(rows):
        group = np.flatnonzero(np.arange(common) % _GROUPS == client % _GROUPS)
        *own, next_ = rng.permutation(group)[: _OWN + 1].tolist()
        row[own], held_out[client, next_] = True, 1
        if client < _RARE:
            row[common + client] = True
    held_out[rows] = -1
    clients, items = np.nonzero(rows)
    algorithm = PlantedPairs()
    vault = Vault(
        indptr=np.searchsorted(clients, np.arange(_CLIENTS + 1)),
        items=items.astype(np.int32),
        ratings=np.ones(len(items)),
    )
    known = {"n_items": _ITEMS, "cohort": {"clients_per_round": None}}
    problem = Problem(vault=vault, n_rows=_ITEMS, knowledge=known)
    streams = Streams.from_seed(seed)
    run = recorded(algorithm, problem, protected(algorithm, problem, streams, {}), streams, (1,))
    train = RatingTable.from_columns(
        name="planted",
        n_clients=_CLIENTS,
        n_items=_ITEMS,
        clients=clients,
        items=items,
        ratings=np.ones(len(items)),
        scale=RatingScale(0.0, 1.0, 1.0),
        client_labels=np.arange(_CLIENTS),
        item_labels=np.arange(_ITEMS),
    )
    secrets = planted_secrets({"held_out": held_out}, "co-occurrences")
    return run, GroundTruth(recorded=run.truth, train=train, secrets=secrets)
