"""A federation whose clients give their examples to two bags and a weight to a sum."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms import PublicState
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.engines import Problem, RecordedRun
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import BagShape, LocalDPConfig, Sizes, Stack, build_stack
from secure_fedrec.protection.routing.config import RoutingLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, RowBlock, SetBlock, Upload
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Fault, RecordingPolicy

N_CLIENTS = 6
COUNTS = (3, 0, 1, 4, 2, 4)
BAGS = {"users": BagShape(width=2, most=4), "users-2": BagShape(width=3, most=4)}
STREAMS = Streams.from_seed(5)


class Drafts:
    """Public extras are the bags of the last round; every client counts its rounds."""

    width, rounds = 1, 3

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        del streams
        return PublicState(round=0, table=np.zeros((n_rows, 1)))

    def initialise(self, vault: Vault, streams: Streams) -> None:
        del streams
        vault.create("rounds", np.zeros((vault.n_clients, 1)))

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> "DraftsStep":
        del streams
        return DraftsStep(clients, public, vault)

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        return PublicState(
            round=public.round + 1, table=aggregate.values, extras=dict(aggregate.bags)
        )

    def public_knowledge(self) -> dict[str, Any]:
        return {"name": "drafts"}

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        return np.full(vault.n_clients, n_rows)

    def upload_vectors(self, vault: Vault) -> Mapping[str, IntArray]:
        return dict.fromkeys(BAGS, vault.example_counts())


@dataclass
class DraftsStep:
    clients: IntArray
    public: PublicState
    vault: Vault

    @property
    def upload(self) -> Upload:
        own = [self.vault.examples(int(client))["vectors"] for client in self.clients]
        lengths = [len(each) for each in own]
        indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        vectors = np.concatenate(own) + self.public.round
        rows = RowBlock(
            indptr=np.arange(len(own) + 1),
            rows=np.zeros(len(own), dtype=np.int32),
            values=np.array(lengths, dtype=np.float64)[:, None],
        )
        bags = {
            name: SetBlock(indptr=indptr, values=vectors[:, : shape.width].copy())
            for name, shape in BAGS.items()
        }
        return Upload(clients=self.clients, blocks={"table": rows}, bags=bags)

    def commit(self, vault: Vault) -> None:
        vault.write("rounds", self.clients, vault.read("rounds", self.clients) + 1)


class Scene:
    """The federation, and settings of the layers."""

    counts = COUNTS
    bags = BAGS
    n_clients = N_CLIENTS
    streams = STREAMS
    algorithm = Drafts

    @staticmethod
    def vault() -> Vault:
        indptr = np.concatenate([[0], np.cumsum(COUNTS)]).astype(np.int64)
        vectors = np.random.default_rng(8).normal(size=(sum(COUNTS), 3))
        return Vault.of_examples(indptr, {"vectors": vectors})

    def problem(self) -> Problem:
        return Problem(vault=self.vault(), n_rows=1)

    def vectors(self, bag: str, *, round_: int = 1) -> FloatArray:
        """What all clients give to a bag, in their order."""
        vault = self.vault()
        own = [vault.examples(client)["vectors"] for client in range(N_CLIENTS)]
        joined: FloatArray = np.concatenate(own) + (round_ - 1)
        return joined[:, : BAGS[bag].width]

    @staticmethod
    def sizes(**changes: Any) -> Sizes:
        fields = {"n_clients": N_CLIENTS, "n_items": 1, "width": 1, "cohort": N_CLIENTS}
        return Sizes(**{**fields, "bags": BAGS, **changes})

    def stack(self, bag_layers: Mapping[str, Any], **layers: Any) -> Stack:
        return build_stack(
            layers, sizes=self.sizes(), codec=FixedPoint(), streams=STREAMS, bag_layers=bag_layers
        )

    def run(
        self, bag_layers: Mapping[str, Any], *, faults: Sequence[Fault] = (), **layers: Any
    ) -> RecordedRun:
        return RecordedRun(
            algorithm=Drafts(),
            stack=self.stack(bag_layers, **layers),
            problem=self.problem(),
            streams=STREAMS,
            policy=RecordingPolicy(payload_rounds=(1, 2)),
            faults=faults,
        )

    @staticmethod
    def mixes(execution: str = "simulated", **settings: Any) -> dict[str, Any]:
        made = {"cell_bytes": 512, "execution": execution, **settings}
        return {"routing": RoutingLayerConfig(**made)}

    @staticmethod
    def noise(**settings: Any) -> dict[str, Any]:
        return {"local-dp": LocalDPConfig(**{"fraction_bits": 5, **settings})}


@pytest.fixture
def drafts() -> Scene:
    return Scene()
