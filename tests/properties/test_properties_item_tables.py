"""The item-table family, any federation: the same bits in any company, and under any protection."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.algorithms.item_tables import (
    Enhancement,
    Fed3CR,
    Fed3CRConfig,
    FedMF,
    FedMFConfig,
    FedNCF,
    FedNCFConfig,
    FedRAP,
    FedRAPConfig,
    ItemTables,
    ItemTableTraining,
    PFedRec,
    PFedRecConfig,
)
from secure_fedrec.blocks import TABLE
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.negatives import Ragged
from secure_fedrec.engines import LocalEngine, Problem, sizes_of
from secure_fedrec.errors import LosslessnessError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import assert_lossless
from secure_fedrec.protection import Sizes, build_stack
from secure_fedrec.protection.masking.layer import MASKING
from secure_fedrec.protection.paillier.layer import PAILLIER
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Meter, Wire

GENTLE = {"learning_rate": 0.1, "item_learning_rate": 1.0}
SMALL = Enhancement(factor=2, generator_rate=0.01)
METHODS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "pfedrec": (PFedRec, PFedRecConfig, {"item_scale": 0.5}),
    "fedrap": (FedRAP, FedRAPConfig, {"item_learning_rate": 0.1, "weight_decay": 0.01}),
    "fedmf": (FedMF, FedMFConfig, {**GENTLE, "regularization": 0.01}),
    "fedncf": (FedNCF, FedNCFConfig, {**GENTLE, "user_learning_rate": 1.0}),
    "fed3cr": (Fed3CR, Fed3CRConfig, {"item_learning_rate": 0.05, "enhancement": SMALL}),
}
"""Method, settings, and rates for steps of a few examples."""
COMPANIES = 200
"""Federations that are looked at per method, at least."""


@dataclass(frozen=True, kw_only=True)
class Federation:
    """A small federation, and how its clients train."""

    sets: tuple[frozenset[int], ...]
    kept_out: tuple[frozenset[int], ...]
    n_items: int
    rank: int
    local: ItemTableTraining
    seed: int

    @property
    def n(self) -> int:
        return len(self.sets)

    def vault(self, clients: IntArray | None = None) -> Vault:
        chosen = np.arange(self.n) if clients is None else clients
        indptr, items = ragged([self.sets[client] for client in chosen.tolist()])
        ratings = np.ones(len(items))
        return Vault(indptr=indptr, items=items, ratings=ratings, clients=clients)

    def algorithm(self, name: str, **more: Any) -> ItemTables:
        method, config, rates = METHODS[name]
        made = method(config(rank=self.rank, local=self.local, **rates), self.n_items)
        return ItemTables(made, kept_out=ragged(self.kept_out), **more)

    def engine(self, name: str, *, threads: int = 1, **more: Any) -> LocalEngine:
        algorithm, streams = self.algorithm(name, threads=threads), Streams.from_seed(self.seed)
        data = Problem(vault=self.vault(), n_rows=self.n_items)
        return LocalEngine(
            algorithm=algorithm,
            stack=build_stack(
                {}, sizes=sizes_of(algorithm, data), codec=FixedPoint(), streams=streams
            ),
            vault=data.vault,
            n_rows=self.n_items,
            streams=streams,
            wire=Wire(meter=Meter(self.n)),
            **more,
        )


def ragged(sets: Any) -> Ragged:
    items = [item for each in sets for item in sorted(each)]
    indptr = np.cumsum([0, *map(len, sets)])
    return Ragged(indptr.astype(np.int64), np.array(items, dtype=np.int32))


@st.composite
def federations(draw: st.DrawFn, *, fewest: int = 2) -> Federation:
    n_items = draw(st.integers(2, 20))
    n = draw(st.integers(fewest, 9))
    item = st.integers(0, n_items - 1)
    sets = draw(st.lists(st.frozensets(item, min_size=1, max_size=8), min_size=n, max_size=n))
    kept = draw(st.lists(st.frozensets(item, max_size=2), min_size=n, max_size=n))
    local = ItemTableTraining(
        epochs=draw(st.integers(1, 3)),
        batch_size=draw(st.sampled_from((1, 3, 8, 64))),
        negatives=draw(st.integers(1, 5)),
        decay=draw(st.sampled_from((1.0, 0.9))),
        batch_decay=draw(st.sampled_from((1.0, 0.7))),
        tolerance=draw(st.sampled_from((0.0, 0.05, 10.0))),
    )
    return Federation(
        sets=tuple(sets),
        kept_out=tuple(kept),
        n_items=n_items,
        rank=draw(st.sampled_from((1, 3, 8, 11))),
        local=local,
        seed=draw(st.integers(0, 2**32 - 1)),
    )


def state_of(engine: LocalEngine) -> dict[str, FloatArray]:
    return {name: values for name, values in engine.state().items() if "meter" not in name}


def same(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    assert ours.keys() == theirs.keys()
    return all(ours[key].tobytes() == theirs[key].tobytes() for key in ours)


@pytest.mark.parametrize("name", METHODS)
def test_batches_threads_and_company_change_no_bit(name: str) -> None:
    """One batch in two threads; client by client; and a client with a vault of its own."""
    seen: Counter[str] = Counter()

    @given(federation=federations(), data=st.data())
    @settings(settings.get_profile("properties"), max_examples=COMPANIES)
    def holds(federation: Federation, data: st.DataObject) -> None:
        whole = federation.engine(name, batch_bytes=2**40, threads=2)
        public = whole.public
        whole.run_round()
        split = federation.engine(name, batch_bytes=1, threads=1)
        split.run_round()
        assert same(state_of(whole), state_of(split))
        client = data.draw(st.integers(0, federation.n - 1))
        alone, streams = np.array([client]), Streams.from_seed(federation.seed)
        vault, algorithm = federation.vault(alone), federation.algorithm(name, threads=1)
        algorithm.initialise(vault, streams)
        step = algorithm.client_step(alone, public, vault, streams)
        step.commit(vault)
        for table in vault.names():
            assert vault.read(table, alone).tobytes() == whole.vault.read(table, alone).tobytes()
        block: Any = step.upload.blocks[TABLE]
        examples = len(federation.sets[client]) * (1 + federation.local.negatives)
        seen["federations"] += 1
        seen["several batches"] += examples > federation.local.batch_size
        seen["threads of two"] += federation.n >= (2 if name in ("fedrap", "fed3cr") else 8)
        seen["early stop"] += federation.local.tolerance > 0 and federation.local.epochs > 1
        seen["moved"] += bool(np.any(block.values))

    holds()
    assert seen["federations"] >= COMPANIES
    for what in ("several batches", "early stop", "moved"):
        assert seen[what] >= COMPANIES // 8, seen
    assert seen["threads of two"] >= COMPANIES // 10, seen


def layers(kind: str, sizes: Sizes) -> dict[str, Any]:
    layer = MASKING if kind == "masked" else PAILLIER
    return {layer.name: layer.settings(**layer.start(sizes))}


def run(federation: Federation, name: str, kind: str) -> dict[str, Any]:
    streams, data = (
        Streams.from_seed(federation.seed),
        Problem(vault=federation.vault(), n_rows=federation.n_items),
    )
    sizes = sizes_of(federation.algorithm(name), data)
    return {
        "stack": build_stack(layers(kind, sizes), sizes=sizes, codec=FixedPoint(), streams=streams),
        "problem": lambda: Problem(vault=federation.vault(), n_rows=federation.n_items),
        "streams": streams,
        "rounds": 2,
    }


@pytest.mark.parametrize("kind", ["masked", "encrypted"])
@pytest.mark.parametrize("name", METHODS)
def test_hidden_sums_end_in_the_bits_of_plain_ones(name: str, kind: str) -> None:
    seen: Counter[str] = Counter()
    examples = 15 if kind == "masked" else 10

    @given(federation=federations(fewest=4))
    @settings(settings.get_profile("properties"), max_examples=examples)
    def holds(federation: Federation) -> None:
        assert_lossless(algorithm=lambda: federation.algorithm(name), **run(federation, name, kind))
        seen["federations"] += 1

    holds()
    assert seen["federations"] >= examples


class TrainsTogether(FedMF):
    """Clients of a batch end with their mean vector: what the first property forbids."""

    def step(self, models: Any, batch: Any, losses: Any) -> None:
        super().step(models, batch, losses)
        models.own[:] = models.own.mean(axis=0)


def test_a_method_whose_clients_see_each_other_is_caught() -> None:
    local = ItemTableTraining(batch_size=4)
    sets = tuple(frozenset({client, client + 1, client + 4}) for client in range(5))
    federation = Federation(
        sets=sets, kept_out=(frozenset(),) * 5, n_items=10, rank=3, local=local, seed=1
    )
    METHODS["together"] = (TrainsTogether, FedMFConfig, GENTLE)
    try:
        one = federation.engine("together", batch_bytes=2**40)
        other = federation.engine("together", batch_bytes=1)
        one.run_round()
        other.run_round()
        assert not same(state_of(one), state_of(other))
        with pytest.raises(LosslessnessError):
            assert_lossless(
                algorithm=lambda: federation.algorithm("together"),
                **run(federation, "together", "masked"),
            )
    finally:
        del METHODS["together"]
