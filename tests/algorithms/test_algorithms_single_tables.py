"""PerFedRec and GPFedRec: servers that mix single tables, and what they refuse."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

from secure_fedrec import fixedpoint
from secure_fedrec.algorithms.item_tables import (
    Enhanced,
    Enhancement,
    ItemTables,
    ItemTableTraining,
    single_tables,
)
from secure_fedrec.algorithms.item_tables.gpfedrec import GPFedRec, GPFedRecConfig
from secure_fedrec.algorithms.item_tables.method import OWN
from secure_fedrec.algorithms.item_tables.perfedrec import (
    PerFedRec,
    PerFedRecConfig,
    clusters_of,
)
from secure_fedrec.algorithms.item_tables.single_tables import SINGLES, SingleTables
from secure_fedrec.data import RatingTable, SyntheticConfig, generate
from secure_fedrec.engines import LocalEngine, Problem, sizes_of
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import build_stack
from secure_fedrec.protection.bags import BAG_ROUTING, BagShape
from secure_fedrec.protection.masking.layer import MASKING
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Meter, Wire

N, M, D = 6, 12, 3
TABLE = generate(SyntheticConfig(clients=N, items=M, mean_ratings=5.0, seed=2))
SHORT = ItemTableTraining(epochs=2, batch_size=8)
METHODS: dict[str, Any] = {
    "gpfedrec": lambda items=M, rank=D: GPFedRec(
        GPFedRecConfig(rank=rank, item_scale=0.5, local=SHORT), items
    ),
    "perfedrec": lambda items=M, rank=D: PerFedRec(
        PerFedRecConfig(rank=rank, clusters=2, item_learning_rate=2.0, local=SHORT), items
    ),
}


def engine_of(
    name: str,
    *,
    table: RatingTable = TABLE,
    rank: int = D,
    masked: bool = False,
    mixed: bool = False,
    **more: Any,
) -> LocalEngine:
    clients, items = table.n_clients, table.n_items
    algorithm = SingleTables(METHODS[name](items, rank), clients, threads=1)
    streams = Streams.from_seed(3)
    vault = Vault(indptr=table.indptr(), items=table.items, ratings=table.ratings)
    data = Problem(vault=vault, n_rows=items, knowledge={"n_items": items})
    shapes = {
        bag: BagShape(width=width, most=most)
        for bag, (width, most) in algorithm.bag_sizes().items()
    }
    sizes = sizes_of(algorithm, data, bags=shapes)
    layers = {MASKING.name: MASKING.settings(**MASKING.start(sizes))} if masked else {}
    beside = {BAG_ROUTING.name: BAG_ROUTING.settings()} if mixed else {}
    return LocalEngine(
        algorithm=algorithm,
        stack=build_stack(
            layers, sizes=sizes, codec=FixedPoint(), streams=streams, bag_layers=beside
        ),
        vault=vault,
        n_rows=items,
        streams=streams,
        wire=Wire(meter=Meter(clients)),
        **more,
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_client_is_sent_the_mixture_of_single_tables_that_its_method_names(name: str) -> None:
    engine = engine_of(name)
    algorithm: Any = engine.algorithm
    clients, streams = np.arange(N), Streams.from_seed(3)
    step = algorithm.client_step(clients, engine.public, engine.vault, streams)
    singles = step.upload.bags[SINGLES].values.reshape(N, M + 1, -1)
    engine.run_round()
    own = engine.vault.read(OWN, clients)
    assert singles[:, 0, 2 : 2 + own.shape[1]].tobytes() == own.astype(np.float64).tobytes()
    mixed = algorithm.method.mix(singles[:, 1:, 2:5].copy(), own.astype(np.float64))
    sent = algorithm.addressed(engine.public)
    assert sorted(int(to[0]) for to in sent.values()) == clients.tolist()
    for extra, to in sent.items():
        np.testing.assert_allclose(engine.public.extras[extra], mixed[to[0]], atol=1e-8)
    assert len({table.tobytes() for table in mixed}) > 1
    engine.run_round()
    assert engine.public.round == 2


@pytest.mark.parametrize("name", METHODS)
def test_between_rounds_clients_have_the_tables_that_were_mixed_for_them(name: str) -> None:
    """Found in a review: all had the mean."""
    engine, streams, clients = engine_of(name), Streams.from_seed(3), np.array([4, 1])
    algorithm: Any = engine.algorithm
    for _ in range(2):
        table = engine.public.table.astype(np.float32)
        found = algorithm.between_rounds(clients, engine.public, engine.vault)
        begun, _ = algorithm._prepared(clients, engine.public, engine.vault, streams, table)
        for part in ("indptr", "items", "table", "personal", "shared", "own"):
            assert np.array_equal(getattr(found, part), getattr(begun, part)), part
        assert np.array_equal(found.table[:M], table) == (engine.public.round == 0)
        engine.run_round()


@pytest.mark.parametrize("name", METHODS)
def test_the_order_of_a_bag_is_nobodys(name: str) -> None:
    """And what is not one table of every client is refused."""
    algorithm, streams = SingleTables(METHODS[name](), N), Streams.from_seed(3)
    engine = engine_of(name)
    step = algorithm.client_step(np.arange(N), engine.public, engine.vault, streams)
    vectors = np.asarray(step.upload.bags[SINGLES].values)
    clients, tables = algorithm._put_together(vectors)
    shuffled = np.random.default_rng(1).permutation(len(vectors))
    others, same = algorithm._put_together(vectors[shuffled])
    assert clients.tolist() == others.tolist() == list(range(N))
    assert tables.tobytes() == same.tobytes()
    coarse = np.round(vectors * 8) / 8  # eight steps cannot tell twelve items apart
    for broken in (vectors[1:], np.repeat(vectors, 2, axis=0), coarse):
        with pytest.raises(ProtocolError, match="not one vector per item of each client"):
            algorithm._put_together(broken)


def test_items_beyond_the_clip_of_the_ring_have_their_vectors() -> None:
    """Found by attacking: numbers of items went through the ring as they are, up to 4,096."""
    items, streams = 5000, Streams.from_seed(1)
    config = PerFedRecConfig(rank=1, learning_rate=0.1, item_learning_rate=0.1, local=SHORT)
    algorithm = SingleTables(PerFedRec(config, items), 2)
    table = generate(SyntheticConfig(clients=2, items=items, mean_ratings=5.0, seed=2))
    vault = Vault(indptr=table.indptr(), items=table.items, ratings=table.ratings)
    algorithm.initialise(vault, streams)
    public = algorithm.initial_public(items, streams)
    step = algorithm.client_step(np.arange(2), public, vault, streams)
    values, codec = np.asarray(step.upload.bags[SINGLES].values), FixedPoint()
    received = codec.decode(codec.encode(values))
    clients, tables = algorithm._put_together(received)
    assert clients.tolist() == [0, 1]
    assert tables.shape == (2, items + 1, 3)


@pytest.mark.parametrize("name", METHODS)
def test_batches_change_no_bit(name: str) -> None:
    one, other = engine_of(name, batch_bytes=2**30), engine_of(name, batch_bytes=1)
    for engine in (one, other):
        engine.run_round()
        engine.run_round()
    ours, theirs = one.state(), other.state()
    for key in (key for key in ours if "meter" not in key):
        assert ours[key].tobytes() == theirs[key].tobytes(), key


@pytest.mark.parametrize("name", METHODS)
def test_hidden_sums_and_mixes_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match=r"masking.*compares single clients' item tables"):
        engine_of(name, masked=True)
    with pytest.raises(ConfigError, match="hides single uploads, or their senders, from"):
        engine_of(name, mixed=True)


def test_neighbours_are_the_clients_most_alike() -> None:
    method = METHODS["gpfedrec"]()
    one, other = np.eye(M, D), -np.eye(M, D)
    tables = np.stack([one, 1.1 * one, other, 0.9 * other])
    mixed = method.mix(tables, np.zeros((4, D + 1)))
    np.testing.assert_allclose(mixed[:2], np.stack([1.05 * one] * 2))
    np.testing.assert_allclose(mixed[2:], np.stack([0.95 * other] * 2))


def test_mixing_part_by_part_changes_nothing_but_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, own = np.random.default_rng(1).normal(size=(6, M, D)), np.arange(6.0)[:, None]
    for name, make in METHODS.items():
        whole = make().mix(tables.copy(), own)
        with monkeypatch.context() as patch:
            patch.setattr(single_tables, "_MIXED_AT_ONCE", 6 * 5)
            given = tables.copy()
            parts = make().mix(given, own)
        assert np.shares_memory(parts, given)
        np.testing.assert_allclose(parts, whole, rtol=1e-6, err_msg=name)
        with pytest.raises(ValueError, match="copy"):
            make().mix(tables.transpose(0, 2, 1), own)


@pytest.mark.parametrize("name", METHODS)
def test_a_round_holds_all_tables_twice_and_little_beside(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that clients came with, and those that they go on with."""
    monkeypatch.setattr(single_tables, "_MIXED_AT_ONCE", 2**14)
    monkeypatch.setattr(fixedpoint, "_DECODED_AT_ONCE", 2**12)
    items, clients, rank = 400, 100, 16
    table = generate(SyntheticConfig(clients=clients, items=items, mean_ratings=5.0, seed=2))
    engine = engine_of(name, table=table, rank=rank, batch_bytes=2**16)
    all_tables = 8 * clients * (items + 1) * (rank + 3)
    for _ in range(2):  # compiled loops are loaded
        engine.run_round()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        engine.run_round()
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert 0.9 * all_tables < peak < 1.35 * all_tables


def test_clusters_and_shares() -> None:
    own = np.array([[0.0], [0.1], [5.0], [5.2]])
    assert clusters_of(own, 2).tolist() == [0, 0, 1, 1]
    assert clusters_of(own, 4).tolist() == [0, 3, 2, 1]
    tables = np.arange(4.0)[:, None, None] * np.ones((4, M, D))
    method = PerFedRec(PerFedRecConfig(rank=D, clusters=2, of_all=0.5, of_cluster=0.25), M)
    wanted = 0.5 * 1.5 + 0.25 * np.array([0.5, 0.5, 2.5, 2.5]) + 0.25 * np.arange(4)
    np.testing.assert_allclose(method.mix(tables, own)[:, 0, 0], wanted)
    with pytest.raises(ConfigError, match="must not exceed 1"):
        PerFedRecConfig(of_all=0.8, of_cluster=0.3)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_whose_server_mixes_takes_that_server(name: str) -> None:
    """Found by attacking: without the table that its server gives, GPFedRec's loop read beyond."""
    with pytest.raises(ValueError, match="mixes single tables"):
        ItemTables(METHODS[name]())
    with pytest.raises(ConfigError, match="mixes single clients' tables"):
        Enhanced(METHODS[name](), Enhancement(item_rate=1.0))


@pytest.mark.parametrize(("kept", "value"), [("personal", True), ("dense", False)])
def test_a_server_that_mixes_needs_whole_tables_and_gives_them(kept: str, value: bool) -> None:
    method = METHODS["gpfedrec"]()
    setattr(method, kept, value)
    with pytest.raises(ValueError, match="one whole table"):
        SingleTables(method, N)
