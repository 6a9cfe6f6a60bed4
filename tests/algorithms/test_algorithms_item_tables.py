"""The item-table family: contracts, steps against torch's autograd, early stop, what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.algorithms.item_tables import (
    Enhanced,
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
    ItemTableStart,
    ItemTableTraining,
    PFedRec,
    PFedRecConfig,
    ranked,
)
from secure_fedrec.algorithms.item_tables.local import Batch, Models
from secure_fedrec.algorithms.item_tables.method import OWN, PERSONAL
from secure_fedrec.algorithms.item_tables.trainer import PARTICIPANTS, SHARED
from secure_fedrec.blocks import TABLE
from secure_fedrec.core.lanes import dot
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.engines import LocalEngine, Problem, sizes_of
from secure_fedrec.errors import ConfigError, DataError, DivergedError, WireError
from secure_fedrec.evaluation.protocols import ranking_case
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.testing import AlgorithmContract
from secure_fedrec.uploads import FlatBlock, RowBlock
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Meter, Wire

N, M, D = 6, 14, 3
SHORT = ItemTableTraining(epochs=2, batch_size=8, decay=0.9, batch_decay=0.8)
GENTLE = {"learning_rate": 1.0, "item_learning_rate": 50.0}
NETWORK = {"learning_rate": 0.1, "user_learning_rate": 1.0, "item_learning_rate": 50.0}
METHODS: dict[str, Any] = {
    "pfedrec": lambda m=M, **more: PFedRec(PFedRecConfig(rank=D, local=SHORT, **more), m),
    "fedrap": lambda m=M, **more: FedRAP(
        FedRAPConfig(rank=D, item_learning_rate=5.0, local=SHORT, **more), m
    ),
    "fedmf": lambda m=M, **more: FedMF(
        FedMFConfig(rank=D, local=SHORT, **{**GENTLE, "regularization": 0.01, **more}), m
    ),
    "fedncf": lambda m=M, **more: FedNCF(
        FedNCFConfig(rank=D, hidden=4, local=SHORT, **{**NETWORK, **more}), m
    ),
}
TABLE_OF = generate(SyntheticConfig(clients=N, items=M, mean_ratings=6.0, seed=2))
CASE = ranking_case(TABLE_OF, seed=1, negatives=3)


def vault() -> Vault:
    train = CASE.train
    return Vault(indptr=train.indptr(), items=train.items, ratings=train.ratings)


def problem() -> Problem:
    return Problem(vault=vault(), n_rows=M, knowledge={"n_items": M})


def engine_of(algorithm: Algorithm, data: Problem | None = None, **more: Any) -> LocalEngine:
    data, streams = data or problem(), Streams.from_seed(3)
    stack = build_stack({}, sizes=sizes_of(algorithm, data), codec=FixedPoint(), streams=streams)
    return LocalEngine(
        algorithm=algorithm,
        stack=stack,
        vault=data.vault,
        n_rows=data.n_rows,
        streams=streams,
        wire=Wire(meter=Meter(data.vault.n_clients)),
        **more,
    )


class Contract(AlgorithmContract):
    name = ""

    def algorithm(self) -> Algorithm:
        return ranked(METHODS[self.name](), CASE)

    def problem(self) -> Problem:
        return problem()


class TestPFedRec(Contract):
    name = "pfedrec"


class TestFedRAP(Contract):
    name = "fedrap"


class TestFedMF(Contract):
    name = "fedmf"


class TestFedNCF(Contract):
    name = "fedncf"


# One step of every method against automatic differentiation.


def one_step(method: Any) -> tuple[Models, Models, Batch, float]:
    """A client's model before and after a step in which an item occurs twice."""
    rng = np.random.default_rng(5)
    streams = Streams.from_seed(4)
    rows = np.array([0, 3, 3, 7, 11], dtype=np.int64)
    labels = np.array([1, 0, 0, 1, 0], dtype=np.float32)
    start = method.start(streams)
    size = (M, D) if method.personal else (0, D)
    models = Models(
        indptr=np.array([0, M]),
        items=np.arange(M, dtype=np.int32),
        table=rng.normal(size=(M, D)).astype(np.float32),
        personal=rng.normal(size=size).astype(np.float32),
        positives_indptr=np.array([0, 2]),
        positives=rows[labels == 1],
        shared=start.shared[None].astype(np.float32),
        own=method.own(np.array([2]), streams),
    )
    copies: Any = [part.copy() for part in models]
    before = Models(*copies)
    batch = Batch(
        clients=np.array([0]),
        begin=np.array([0]),
        end=np.array([len(rows)]),
        rows=rows,
        labels=labels,
        rates=np.array([0.5], dtype=np.float32),
    )
    losses = np.zeros(1)
    method.step(models, batch, losses)
    return before, models, batch, float(losses[0])


def tensors(models: Models) -> dict[str, torch.Tensor]:
    names = ("table", "personal", "shared", "own")
    return {
        name: torch.tensor(getattr(models, name), dtype=torch.float64, requires_grad=True)
        for name in names
    }


def stepped(loss: torch.Tensor, rates: dict[torch.Tensor, float]) -> list[np.ndarray[Any, Any]]:
    slopes = torch.autograd.grad(loss, list(rates))
    return [
        (part - 0.5 * rate * slope).detach().numpy()
        for (part, rate), slope in zip(rates.items(), slopes, strict=True)
    ]


def cross_entropy(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    labels = torch.tensor(batch.labels, dtype=torch.float64)
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)


def near(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


def test_a_step_of_pfedrec_moves_the_score_function_before_the_table() -> None:
    method = METHODS["pfedrec"](item_scale=2.0)
    before, after, batch, loss = one_step(method)
    held, rows = tensors(before), batch.rows

    def logits(table: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        return table[rows] @ own[0, :D] + own[0, D]

    (own,) = stepped(cross_entropy(logits(held["table"], held["own"]), batch), {held["own"]: 0.1})
    near(after.own, own)
    second = cross_entropy(logits(held["table"], torch.tensor(own)), batch)
    (table,) = stepped(second, {held["table"]: 0.1 * M * 2.0})
    near(after.table, table)
    near(after.shared[0, 0], own[0, D])
    near(loss, second.item())


def test_a_step_of_fedrap_goes_down_its_whole_loss_at_once() -> None:
    before, after, batch, loss = one_step(METHODS["fedrap"](weight_decay=0.01))
    held, rows = tensors(before), batch.rows
    common, personal, own = held["table"], held["personal"], held["own"]
    logits = (common[rows] + personal[rows]) @ own[0, :D] + own[0, D]
    apart = ((personal[rows] - common[rows]) ** 2).mean()
    told = cross_entropy(logits, batch) - 0.1 * apart + 0.1 * common[rows].abs().mean()
    decay = 0.005 * sum((part**2).sum() for part in (common, personal, own))
    found = stepped(told + decay, {common: 5.0, personal: 5.0, own: 0.5})
    for name, due in zip(("table", "personal", "own"), found, strict=True):
        near(getattr(after, name), due)
    near(loss, told.item())


def test_a_step_of_fedmf_moves_both_vectors_at_once() -> None:
    before, after, batch, _ = one_step(METHODS["fedmf"](regularization=0.0))
    held = tensors(before)
    logits = held["table"][batch.rows] @ held["own"][0]
    rates = {held["table"]: 50.0, held["own"]: 1.0}
    for name, due in zip(
        ("table", "own"), stepped(cross_entropy(logits, batch), rates), strict=True
    ):
        near(getattr(after, name), due)


@pytest.mark.parametrize("rank", [3, 8, 21])
def test_logits_of_many_items_have_the_bits_of_single_rows(rank: int) -> None:
    """Blocks of items are an optimisation: every sum has the order of ``lanes.dot``."""
    m, units, generator = 300, 5, np.random.default_rng(rank)
    method = FedNCF(FedNCFConfig(rank=rank, hidden=units), m)

    def drawn(*shape: int) -> Any:
        return generator.standard_normal(shape).astype(np.float32)

    table, shared, user = drawn(m, rank), drawn(1, units * (2 * rank + 2) + 1), drawn(1, rank)
    items = np.array([4, 77, 299], dtype=np.int32)
    copies = drawn(len(items), rank)
    held = {"positives_indptr": np.zeros(2, np.int64), "positives": np.empty(0, np.int64)}
    models = Models(
        indptr=np.array([0, len(items)]),
        items=items,
        table=copies,
        personal=np.empty((0, rank), np.float32),
        shared=shared,
        own=user,
        **held,
    )
    seen = table.copy()
    seen[items] = copies
    weights = np.ascontiguousarray(shared[0, : units * 2 * rank].reshape(units, 2 * rank))
    (biases, outputs, last) = np.split(shared[0, units * 2 * rank :], [units, 2 * units])
    logits = np.full(m, last[0])
    for unit in range(units):
        of_user = dot(user, 0, weights, unit, 0) + biases[unit]
        sums = np.array([dot(seen, row, weights, unit, rank) for row in range(m)], np.float32)
        logits += outputs[unit] * np.maximum(of_user + sums, np.float32(0))
    assert np.array_equal(method.scores(models, table)[0], logits)


STARTED: dict[str, Any] = {
    "pfedrec": lambda start, **_: PFedRec(PFedRecConfig(rank=D, start=start), M),
    "fedrap": lambda start, **_: FedRAP(FedRAPConfig(rank=D, start=start), M),
    "fed3cr": lambda start, **more: Fed3CR(
        Fed3CRConfig(rank=D, start=start, enhancement=Enhancement(**more)), M
    ),
}


@pytest.mark.parametrize("name", STARTED)
def test_factors_on_starts(name: str) -> None:
    """Factors of 1 change no bit and are not told, so that earlier studies stay what they are."""
    streams, clients = Streams.from_seed(3), np.arange(2)
    usual = STARTED[name](ItemTableStart())
    other = STARTED[name](ItemTableStart(items=0.5, own=0.25))
    assert np.array_equal(other.start(streams).table, 0.5 * usual.start(streams).table)
    assert np.array_equal(other.own(clients, streams), 0.25 * usual.own(clients, streams))
    if usual.personal:
        half = np.float32(0.5) * usual.personal_start(streams)
        assert np.array_equal(other.personal_start(streams), half)
    assert "start" not in usual.knowledge()
    assert other.knowledge()["start"] == {"items": 0.5, "own": 0.25}


def test_factors_on_what_networks_start_from() -> None:
    streams = Streams.from_seed(3)
    usual, other = (FedNCF(FedNCFConfig(rank=D, layer_scale=each), M) for each in (1.0, 0.5))
    assert np.array_equal(other.start(streams).shared, 0.5 * usual.start(streams).shared)
    assert np.array_equal(other.start(streams).table, usual.start(streams).table)
    usual, other = (STARTED["fed3cr"](ItemTableStart(), generator_scale=e) for e in (1.0, 0.5))
    one, two = usual.start(streams).shared, other.start(streams).shared
    assert np.array_equal(two[-D * D :], one[-D * D :])  # the identity
    assert np.array_equal(two[: -D * D], 0.5 * one[: -D * D])
    assert "generator_scale" not in usual.knowledge()["enhancement"]
    assert other.knowledge()["enhancement"]["generator_scale"] == 0.5
    below = FedMF(FedMFConfig(rank=D), M)
    far, near = (Enhanced(below, Enhancement(personal_scale=each)) for each in (1.0, 0.5))
    half = np.float32(0.5) * far.personal_start(streams)
    assert np.array_equal(near.personal_start(streams), half)


def test_a_step_of_fedncf_moves_vectors_and_network_at_once() -> None:
    before, after, batch, loss = one_step(METHODS["fedncf"]())
    held, units = tensors(before), 4
    first, bias, last, end = torch.split(held["shared"][0], [units * 2 * D, units, units, 1])
    both = torch.cat([held["own"].expand(len(batch.rows), -1), held["table"][batch.rows]], dim=1)
    hidden = torch.relu(both @ first.reshape(units, 2 * D).T + bias)
    told = cross_entropy(hidden @ last + end, batch)
    rates = {held["table"]: 50.0, held["own"]: 1.0, held["shared"]: 0.1}
    for name, due in zip(("table", "own", "shared"), stepped(told, rates), strict=True):
        near(getattr(after, name), due)
    near(loss, told.item())


@pytest.mark.parametrize("name", METHODS)
def test_scores_are_those_of_the_clients_own_model(name: str) -> None:
    algorithm = ItemTables(METHODS[name]())
    data, streams = vault(), Streams.from_seed(3)
    public = algorithm.initial_public(M, streams)
    algorithm.initialise(data, streams)
    step = algorithm.client_step(np.arange(N), public, data, streams)
    scores = step.score()
    assert scores.shape == (N, M) and scores.dtype == np.float32
    moved = step.upload.blocks[TABLE]
    assert isinstance(moved, RowBlock) and moved.values is not None
    own = public.table.astype(np.float32).astype(np.float64)
    rows = slice(*moved.indptr[2:4])
    own[moved.rows[rows]] += moved.values[rows]
    step.commit(data)
    vector = data.read(OWN, np.array([2]))[0].astype(np.float64)
    if name == "fedncf":
        shared = step.upload.blocks[SHARED]
        assert isinstance(shared, FlatBlock)
        network = public.extras[SHARED].astype(np.float32) + shared.values[2]
        first, bias, last, end = np.split(network, np.cumsum([4 * 2 * D, 4, 4]))
        both = np.concatenate([np.repeat(vector[None], M, axis=0), own], axis=1)
        due = np.maximum(both @ first.reshape(4, 2 * D).T + bias, 0) @ last + end
    else:
        if name == "fedrap":
            own += data.read(PERSONAL, np.array([2]))[0]
        due = own @ vector[:D]
    np.testing.assert_allclose(scores[2], due, rtol=1e-4, atol=1e-5)


# The trainer.


def test_the_table_moves_by_the_mean_change() -> None:
    engine = engine_of(ranked(METHODS["pfedrec"](), CASE))
    streams, before = Streams.from_seed(3), engine.public
    step = engine.algorithm.client_step(np.arange(N), before, engine.vault, streams)
    block: Any = step.upload.blocks[TABLE]
    total = np.zeros((M, D))
    np.add.at(total, block.rows, FixedPoint().decode(FixedPoint().encode(block.values)))
    ones = step.upload.blocks[PARTICIPANTS]
    assert isinstance(ones, FlatBlock) and ones.values.tolist() == [[1.0]] * N
    report = engine.run_round()
    np.testing.assert_allclose(engine.public.table, before.table + total / N, atol=1e-12)
    assert report.metrics is not None and {"training_loss", "ndcg_at_10"} <= set(report.metrics)


def test_a_client_stops_where_its_loss_settles_and_the_others_go_on() -> None:
    """A tolerance beyond any change ends every client after the second epoch."""

    def trained(**more: Any) -> Any:
        local = ItemTableTraining(batch_size=4, **more)
        engine = engine_of(
            ItemTables(PFedRec(PFedRecConfig(rank=D, item_scale=0.5, local=local), M))
        )
        engine.run_round()
        return engine.vault.read(OWN, np.arange(N))

    stopped, two, ten = (
        trained(epochs=10, tolerance=1e9),
        trained(epochs=2),
        trained(epochs=10),
    )
    assert np.array_equal(stopped, two)
    assert not np.array_equal(two, ten)
    some = trained(epochs=10, tolerance=0.05)
    same = [np.array_equal(*pair) for pair in zip(some, ten, strict=True)]
    assert 0 < sum(same) < N


def test_a_held_out_item_is_a_negative_under_the_clean_protocol_only() -> None:
    touched = {}
    for protocol in ("clean", "published"):
        case = ranking_case(TABLE_OF, protocol=protocol, seed=1, negatives=3)
        algorithm = ranked(METHODS["pfedrec"](), case)
        engine = engine_of(algorithm)
        held = np.zeros((N, M), dtype=bool)
        for _ in range(6):
            step = algorithm.client_step(
                np.arange(N), engine.public, engine.vault, Streams.from_seed(3)
            )
            block = step.upload.blocks[TABLE]
            assert isinstance(block, RowBlock)
            held[np.repeat(np.arange(N), block.lengths), block.rows] = True
            engine.run_round()
        touched[protocol] = held[np.arange(N), case.test]
    assert touched["clean"].all()
    assert not touched["published"].any()


# What is refused.


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("pfedrec", {"learning_rate": 1e30}),
        ("fedrap", {"independence": 1e30}),
        ("fedmf", {"item_learning_rate": 1e30}),
        ("fedncf", {"learning_rate": 1e30}),
        ("fedmf", {"learning_rate": 1e39, "item_learning_rate": 1e-3}),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_what_diverges_is_named_and_leaves_everything_as_it_was(name: str, more: Any) -> None:
    engine = engine_of(ranked(METHODS[name](**more), CASE))
    before = engine.state()
    with pytest.raises(DivergedError, match=r"round 1: the .* of client \d is not a number"):
        engine.run_round()
    after = engine.state()
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("part", ["own", "personal", "shared", "table"])
def test_no_part_that_is_no_number_leaves_its_client(part: str) -> None:
    """Found in a review: a personal table was kept so, and shared parameters were sent so."""

    class Spoiled(FedRAP if part == "personal" else FedNCF):  # type: ignore[misc]
        def step(self, models: Models, batch: Batch, losses: Any) -> None:
            super().step(models, batch, losses)
            if 3 in batch.clients:
                of_client = {"table": models.indptr[3], "personal": 3 * M + M - 1}
                getattr(models, part)[of_client.get(part, 3), 0] = np.inf

    config = (FedRAPConfig if part == "personal" else FedNCFConfig)(rank=D, local=SHORT)
    engine = engine_of(ranked(Spoiled(config, M), CASE))
    before = engine.state()
    with pytest.raises(DivergedError, match=r"round 1: the .* of client 3 is not a number"):
        engine.run_round()
    after = engine.state()
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_step_sizes_that_have_shrunk_to_nothing_move_nothing() -> None:
    """Found by attacking: methods divide by them, and training ended in a division by zero."""
    endless = ItemTableTraining(epochs=40, batch_size=1, batch_decay=0.1)
    config = FedRAPConfig(rank=D, item_learning_rate=2.0, local=endless)
    enhanced = Fed3CRConfig(rank=D, item_learning_rate=2.0, local=endless)
    for method in (FedRAP(config, M), Fed3CR(enhanced, M)):
        report = engine_of(ranked(method, CASE)).run_round()
        assert np.isfinite(report.of_clients["training_loss"]).all()


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (FedMFConfig, ("learning_rate", "item_learning_rate")),
        (FedNCFConfig, ("learning_rate", "user_learning_rate", "item_learning_rate")),
        (FedRAPConfig, ("learning_rate", "item_learning_rate")),
        (Fed3CRConfig, ("learning_rate", "item_learning_rate")),
        (PFedRecConfig, ("learning_rate",)),
        (Enhancement, ("generator_rate", "item_rate")),
    ],
)
def test_a_step_size_that_single_precision_would_lose_is_refused(
    config: Any, names: tuple[str, ...]
) -> None:
    """Found in a review: one of 1e-300 was 0 to a client, which divided by it."""
    for name in names:
        for size in (1e-300, 2.0**-25, 0.0, -1.0):
            with pytest.raises(ConfigError, match=rf"{name}.*2\^-24"):
                config(**{name: size})
        least = config(**{name: 2.0**-24})
        assert np.float32(getattr(least, name)) * np.float32(1e-30) > 0


@pytest.mark.parametrize("name", METHODS)
def test_between_rounds_clients_have_what_the_next_round_begins_with(name: str) -> None:
    algorithm: Any = ranked(METHODS[name](), CASE)
    engine, streams = engine_of(algorithm), Streams.from_seed(3)
    engine.run_round()
    clients, table = np.array([1, 4, 5]), engine.public.table.astype(np.float32)
    found = algorithm.between_rounds(clients, engine.public, engine.vault)
    begun, _ = algorithm._prepared(clients, engine.public, engine.vault, streams, table)
    for place in range(len(clients)):
        rows = place * M + begun.items[begun.indptr[place] : begun.indptr[place + 1]]
        assert np.array_equal(found.items[rows], rows - place * M)
        assert np.array_equal(
            found.table[rows], begun.table[begun.indptr[place] : begun.indptr[place + 1]]
        )
    assert np.array_equal(found.positives % M, begun.items[begun.positives])
    assert np.array_equal(
        found.positives // M, np.repeat([0, 1, 2], np.diff(begun.positives_indptr))
    )
    for part in ("personal", "positives_indptr", "shared", "own"):
        assert np.array_equal(getattr(found, part), getattr(begun, part)), part
    alone = [algorithm.between_rounds(one[None], engine.public, engine.vault) for one in clients]
    scores = [algorithm.method.scores(models, table) for models in alone]
    assert np.array_equal(algorithm.method.scores(found, table), np.concatenate(scores))


def test_a_client_without_a_training_item_is_refused() -> None:
    empty = Vault(
        indptr=np.array([0, 2, 2]), items=np.array([0, 1], dtype=np.int32), ratings=np.ones(2)
    )
    with pytest.raises(DataError, match="client 1 lacks a training item"):
        ItemTables(METHODS["fedmf"]()).initialise(empty, Streams.from_seed(0))
    lonely = TABLE_OF.subset(np.arange(len(TABLE_OF)) < TABLE_OF.indptr()[-2] + 1)
    with pytest.raises(DataError, match=f"client {N - 1} has 1 interaction"):
        ranking_case(lonely, seed=1)


def test_an_item_table_of_another_width_at_one_client_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of another width in one upload, and a personal table kept from another rank."""
    engine = engine_of(ranked(METHODS["fedrap"](), CASE))
    before = engine.public.table.copy()
    true: Any = engine.algorithm.client_step

    def wrong(clients: Any, *given: Any) -> Any:
        step = true(clients, *given)
        if 3 not in clients:
            return step
        block = step.upload.blocks[TABLE]
        wide = replace(block, values=np.zeros((len(block.rows), D + 1)))
        return replace(
            step, upload=replace(step.upload, blocks={**step.upload.blocks, TABLE: wide})
        )

    monkeypatch.setattr(engine.algorithm, "client_step", wrong)
    with pytest.raises(WireError, match=f"block table: rows of width {D + 1}, not of width {D}"):
        engine.run_round()
    assert np.array_equal(engine.public.table, before)
    other = ItemTables(FedRAP(FedRAPConfig(rank=D + 1, local=SHORT), M))
    streams = Streams.from_seed(3)
    public = other.initial_public(M, streams)
    with pytest.raises(ConfigError, match=r"personal tables of shape \(14, 3\)"):
        other.client_step(np.arange(1), public, engine.vault, streams)


@pytest.mark.claim("hosts-malformed-state")
@pytest.mark.parametrize("name", METHODS)
def test_a_shared_table_of_another_shape_is_refused(name: str) -> None:
    """Found by attacking: compiled loops read and wrote beyond it, and the heap was damaged."""
    engine, streams = engine_of(ranked(METHODS[name](), CASE)), Streams.from_seed(3)
    before = engine.public
    arrays = {"table": before.table, **before.extras}
    wrong = {which: values for which, values in arrays.items() if which in ("table", SHARED)}
    for which, values in wrong.items():
        for other in (values[:-1], np.concatenate([values, values]), values[..., None]):
            changed = {**arrays, which: other}
            public = replace(before, table=changed.pop("table"), extras=changed)
            with pytest.raises(ConfigError, match=f"a shared {which} of shape"):
                engine.algorithm.client_step(np.arange(1), public, engine.vault, streams)


def test_a_table_of_another_number_of_items_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"made for {M} items"):
        ItemTables(METHODS["fedmf"]()).initial_public(M + 1, Streams.from_seed(0))


def test_personal_tables_are_undone_within_the_memory_that_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With no memory for it at all, the undo log lies in a file, and a failed round is undone."""
    engine = engine_of(ranked(METHODS["fedrap"](), CASE), undo_bytes=0, batch_bytes=1)
    engine.run_round()
    before = engine.state()

    def fails(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.algorithm, "server_step", fails)
    with pytest.raises(KeyboardInterrupt):
        engine.run_round()
    after = engine.state()
    assert all(np.array_equal(before[key], after[key]) for key in before)
    monkeypatch.undo()
    engine.run_round()
    assert not np.array_equal(engine.state()[f"vault.{PERSONAL}"], before[f"vault.{PERSONAL}"])
