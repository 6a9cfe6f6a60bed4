"""A planted federation of two organisations that give each other vectors of all their items.

An organisation's vector of an item is a common direction times how much the item sells there, plus
noise. Nothing is trained or summed; both sell some of the items, and items sell about equally well
at both. In a variant, the vector of an item is the sum of the vectors of its users, and both sell
all items.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from attacks.planted.recording import PlantedSum, planted_secrets, protected, recorded
from attacks.scoring.truth import GroundTruth
from secure_fedrec.algorithms.base import FinishedStep, PublicState
from secure_fedrec.blocks import TABLE
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.engines import Problem, RecordedRun
from secure_fedrec.streams import Streams
from secure_fedrec.traits import OTHER_ROWS
from secure_fedrec.uploads import PeerBlock, RowBlock, Upload
from secure_fedrec.vault import Vault

_CLIENTS, _ITEMS, _WIDTH = 2, 160, 6
_USERS, _CHOICES, _USER_WIDTH = 40, 10, 24


@dataclass(frozen=True, slots=True, eq=False)
class PlantedPartners(PlantedSum):
    """The algorithm; see the module docstring.

    Args:
        listed: bool[n, m], which organisation has which item.
        vectors: float64[n, m, d], the vectors that they give.
        rounds: rounds of a run.
    """

    listed: BoolArray
    vectors: FloatArray
    rounds: int = 1

    def give(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> PeerBlock:
        """All vectors, for the other organisation."""
        rows = [np.flatnonzero(self.listed[client]).astype(np.int32) for client in clients.tolist()]
        values = [self.vectors[client, own] for client, own in zip(clients, rows, strict=True)]
        ends = np.cumsum([0, *map(len, rows)])
        block = RowBlock(indptr=ends, rows=np.concatenate(rows), values=np.concatenate(values))
        return PeerBlock(senders=clients, receivers=1 - clients, block=block)

    def take(self, clients: IntArray, given: PeerBlock, vault: Vault) -> None:
        """Nothing is kept."""

    def given_rows(self, n_clients: int) -> tuple[int, int, int]:
        """One message each."""
        return n_clients, int(self.listed.sum()), self.vectors.shape[2]

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FinishedStep:
        """One number, which marks that the client takes part."""
        ends, rows = np.arange(len(clients) + 1), np.zeros(len(clients), dtype=np.int32)
        block = RowBlock(indptr=ends, rows=rows, values=np.ones((len(clients), 1)))
        upload = Upload(clients=clients, blocks={TABLE: block})
        return FinishedStep(clients=clients, upload=upload, commit=lambda _: None)

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        """One."""
        return np.ones(vault.n_clients, dtype=np.int64)

    def public_knowledge(self) -> dict[str, Any]:
        """Rows of the sum are not items."""
        return {"name": "planted-partners", "traits": asdict(OTHER_ROWS)}


def plant_partners(*, told: bool = True, seed: int = 20230617) -> tuple[RecordedRun, GroundTruth]:
    """Run and record it.

    Args:
        told: whether vectors follow sales; otherwise they are noise.
        seed: seed of sales, items and noise.
    """
    rng = np.random.default_rng(seed)
    listed = np.zeros((_CLIENTS, _ITEMS), dtype=bool)
    listed[:, : _ITEMS // 2] = True
    listed[np.arange(_ITEMS) % _CLIENTS, np.arange(_ITEMS)] = True
    taste = rng.normal(2.0, 1.2, _ITEMS)
    sales = rng.poisson(np.exp(taste), (_CLIENTS, _ITEMS))
    vectors = rng.normal(size=(_CLIENTS, _ITEMS, _WIDTH))
    if told:
        direction = rng.normal(size=(_CLIENTS, 1, _WIDTH))
        vectors = 0.3 * vectors + np.log1p(sales)[:, :, None] * direction
    run = _run(PlantedPartners(listed, vectors), seed)
    secrets = planted_secrets({"sales": np.where(listed, sales, -1)}, "partners")
    return run, GroundTruth(recorded=run.truth, secrets=secrets)


def plant_partner_users(
    *, told: bool = True, seed: int = 20230617
) -> tuple[RecordedRun, GroundTruth]:
    """Run and record it with vectors that are made of those of users.

    Args:
        told: whether they are; otherwise they are noise.
        seed: seed of users, choices and noise.
    """
    rng = np.random.default_rng(seed)
    people = _CLIENTS * _USERS
    chosen = np.zeros((people, _ITEMS))
    for person in chosen:
        person[rng.choice(_ITEMS, _CHOICES, replace=False)] = 1
    owner = np.repeat(np.arange(_CLIENTS), _USERS)
    vectors = 0.3 * rng.normal(size=(_CLIENTS, _ITEMS, _USER_WIDTH))
    if told:
        tastes = rng.normal(size=(people, _USER_WIDTH))
        for client in range(_CLIENTS):
            vectors[client] += chosen[owner == client].T @ tastes[owner == client]
    listed = np.ones((_CLIENTS, _ITEMS), dtype=bool)
    run = _run(PlantedPartners(listed, vectors), seed)
    users = np.zeros((_CLIENTS, people, _ITEMS + 1), dtype=np.int8)
    users[:, :, :-1] = chosen
    users[:, :, -1] = owner == np.arange(_CLIENTS)[:, None]
    secrets = planted_secrets({"users": users}, "partner users")
    return run, GroundTruth(recorded=run.truth, secrets=secrets)


def _run(algorithm: PlantedPartners, seed: int) -> RecordedRun:
    vault = Vault.of_examples(np.arange(_CLIENTS + 1), {"there": np.ones(_CLIENTS)})
    problem = Problem(vault=vault, n_rows=1)
    streams = Streams.from_seed(seed)
    return recorded(algorithm, problem, protected(algorithm, problem, streams, {}), streams, (1,))
