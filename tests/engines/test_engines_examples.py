"""An algorithm without ratings runs on the same engine, recording, stacks and wire."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secure_fedrec.algorithms import PublicState
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.engines import LocalEngine, Problem, RecordedRun, table_digest
from secure_fedrec.engines.recorded_run import projected_transcript_bytes
from secure_fedrec.errors import ConfigError, ProtocolError, TranscriptError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import (
    DirectSum,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, DenseBlock, RowBlock, Upload
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Adversary, Drop, Fault, Meter, RecordingPolicy, Step, Wire

N_CLIENTS, N_ROWS, WIDTH = 7, 3, 2
ROW_BYTES = 16 * (WIDTH + 2)
STREAMS = Streams.from_seed(3)
SERVER = Adversary(name="server", corrupt=frozenset({"server"}))


class Averaging:
    """Every client sends every row of its mean example, weighted by how many examples it has.

    Privately, a client counts its steps and keeps a running copy of its examples, one row each.
    The server broadcasts the total weight and a history beside the table.
    """

    width, rounds = WIDTH + 1, 5

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        del streams
        extras = {"total": np.zeros(1), "history": np.zeros((2, 2))}
        return PublicState(round=0, table=np.zeros((n_rows, WIDTH)), extras=extras)

    def initialise(self, vault: Vault, streams: Streams) -> None:
        del streams
        counts = vault.example_counts()
        vault.create("steps", np.zeros((vault.n_clients, 1)))
        starts = np.concatenate([[0], np.cumsum(counts)])
        vault.create_ragged("copies", starts, np.zeros((int(starts[-1]), N_ROWS, WIDTH)))

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> "AveragingStep":
        del streams
        return AveragingStep(clients, public, vault)

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        weight = aggregate.values[:, -1:]
        total = public.extras["total"] + weight[0]
        history = np.full((2, 2), float(public.round))
        table = aggregate.values[:, :-1] / weight
        extras = {"total": total, "history": history}
        return PublicState(round=public.round + 1, table=table, extras=extras)

    def public_knowledge(self) -> dict[str, Any]:
        return {"name": "averaging"}

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        return np.full(vault.n_clients, n_rows)

    def upload_vectors(self, vault: Vault) -> Mapping[str, IntArray]:
        del vault
        return {}


class AveragingStep:
    def __init__(self, clients: IntArray, public: PublicState, vault: Vault) -> None:
        self.clients = clients
        self._public = public
        self._own = {int(c): vault.examples(int(c))["values"] for c in clients}
        self._steps = vault.read("steps", clients)

    @property
    def upload(self) -> Upload:
        parts = []
        for own in self._own.values():
            moved = own.mean(axis=0) + self._public.table
            parts.append(np.concatenate([moved, np.ones((N_ROWS, 1))], axis=1) * len(own))
        batch = len(self.clients)
        block = RowBlock(
            indptr=N_ROWS * np.arange(batch + 1),
            rows=np.tile(np.arange(N_ROWS, dtype=np.int32), batch),
            values=np.concatenate(parts),
        )
        return Upload(clients=self.clients, blocks={"table": block})

    def commit(self, vault: Vault) -> None:
        vault.write("steps", self.clients, self._steps + 1)
        for client, own in self._own.items():
            vault.write_ragged("copies", client, vault.read_ragged("copies", client) + own)


def vault_of_examples() -> Vault:
    rng = np.random.default_rng(4)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(1, 5, N_CLIENTS))])
    size = int(indptr[-1])
    texts = np.array([f"text {number}" for number in range(size)])
    return Vault.of_examples(
        indptr, {"values": rng.normal(size=(size, N_ROWS, WIDTH)), "texts": texts}
    )


def stack_of(n_clients: int = N_CLIENTS) -> Stack:
    codec = FixedPoint()
    sizes = {"n_clients": n_clients, "n_items": N_ROWS, "width": WIDTH + 1}
    direct = DirectSum(codec=codec, **sizes)
    return Stack(codec=codec, cloak=None, collector=direct, n_clients=n_clients)


def measure(public: PublicState, vault: Vault) -> Mapping[str, float] | None:
    if public.round == 2:
        return None
    metrics = {"largest": float(public.table.max()), "clients": float(vault.n_clients)}
    return metrics if public.round < 4 else {"clients": metrics["clients"]}


def run_of(directory: Path | None = None, *faults: Fault) -> RecordedRun:
    return RecordedRun(
        algorithm=Averaging(),
        stack=stack_of(),
        problem=Problem(
            vault=vault_of_examples(),
            n_rows=N_ROWS,
            evaluate=measure,
            knowledge={"organisations": 3},
        ),
        streams=STREAMS,
        policy=RecordingPolicy(payload_rounds=(1, 2, 3)),
        directory=directory,
        faults=faults,
    )


def bits(state: Mapping[str, npt.NDArray[Any]]) -> dict[str, bytes]:
    return {name: np.asarray(value).tobytes() for name, value in state.items()}


def test_the_weighted_mean_is_that_of_all_examples() -> None:
    run = run_of()
    report = run.run_round()
    vault = vault_of_examples()
    every = np.concatenate([vault.examples(c)["values"] for c in range(N_CLIENTS)])
    np.testing.assert_allclose(run.engine.public.table, every.mean(axis=0), atol=1e-8)
    assert run.engine.public.extras["total"].tolist() == [len(every)]
    assert report.metrics == {
        "largest": float(run.engine.public.table.max()),
        "clients": float(N_CLIENTS),
    }
    kept = run.engine.vault.read_ragged("copies", 3)
    assert kept.tolist() == vault.examples(3)["values"].tolist()


def test_batches_follow_rows_and_change_no_bit() -> None:
    def trained(batch_bytes: int) -> tuple[dict[str, bytes], list[int]]:
        sizes: list[int] = []

        class Counting(Averaging):
            def client_step(self, clients: IntArray, *rest: Any) -> AveragingStep:
                sizes.append(len(clients))
                return super().client_step(clients, *rest)

        engine = LocalEngine(
            algorithm=Counting(),
            stack=stack_of(),
            vault=vault_of_examples(),
            n_rows=N_ROWS,
            streams=STREAMS,
            wire=Wire(meter=Meter(N_CLIENTS)),
            batch_bytes=batch_bytes,
        )
        engine.run_round()
        return bits(engine.state()), sizes

    whole, sizes = trained(8192)
    assert sizes == [N_CLIENTS]
    for batch_bytes in (1, 10 * ROW_BYTES):
        parts, sizes = trained(batch_bytes)
        assert parts == whole
        assert max(sizes) <= max(1, batch_bytes // ((N_ROWS + 1) * ROW_BYTES))


def test_extras_are_broadcast_metered_and_seen() -> None:
    run = run_of()
    for _ in range(2):
        run.run_round()
    per_round = 8 * (N_ROWS * WIDTH + 1 + 4)
    received = run.engine.wire.meter.clients("bytes_received")
    assert received.tolist() == [2 * per_round] * N_CLIENTS
    view = run.transcript.view(Adversary(name="one", corrupt=frozenset({"client:2"})))
    seen = view.extras(2)
    assert seen.keys() == {"total", "history"}
    assert seen["total"].tolist() == [len(vault_examples())]
    assert seen["history"].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert not seen["total"].flags.writeable
    with pytest.raises(TranscriptError, match="not recorded"):
        view.extras(9)
    tapped = Adversary(name="tap", taps=frozenset({"network"}))
    with pytest.raises(TranscriptError, match="saw no message"):
        run.transcript.view(tapped).extras(2)


def vault_examples() -> FloatArray:
    vault = vault_of_examples()
    return np.concatenate([vault.examples(c)["values"] for c in range(N_CLIENTS)])


def test_public_knowledge_is_that_of_the_problem() -> None:
    public = run_of().transcript.public
    assert public["n_clients"] == N_CLIENTS
    assert public["organisations"] == 3
    assert public["algorithm"] == {"name": "averaging"}
    assert "n_items" not in public and "rating_levels" not in public


def test_the_digest_covers_extras() -> None:
    public = Averaging().initial_public(N_ROWS, STREAMS)
    digests = {
        table_digest(public),
        table_digest(replace(public, extras={})),
        table_digest(replace(public, extras={**public.extras, "total": np.ones(1)})),
        table_digest(replace(public, extras={"totals": np.zeros(1), "history": np.zeros((2, 2))})),
        table_digest(replace(public, table=public.table + 1)),
    }
    assert len(digests) == 5


def test_the_truth_keeps_ragged_tables_apart() -> None:
    run = run_of()
    run.run_round()
    run.run_round()
    columns = run.truth.columns(2, "private-copies")
    assert columns is not None
    assert columns["lengths"].tolist() == run.engine.vault.example_counts().tolist()
    assert columns["values"].tolist() == vault_examples().tolist()


def test_a_killed_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole, killed = run_of(tmp_path / "whole"), run_of(tmp_path / "killed")
    for _ in range(5):
        whole.run_round()
    for completed in range(4):
        killed.run_round()
        if completed == 2:
            killed.save(tmp_path / "killed", run_id="id")
    resumed = run_of(tmp_path / "killed")
    resumed.resume(tmp_path / "killed", run_id="id")
    assert resumed.history == whole.history[:3]
    assert resumed.history[1].metrics is None
    for _ in range(2):
        resumed.run_round()
    assert resumed.history == whole.history
    assert bits(resumed.engine.state()) == bits(whole.engine.state())
    assert resumed.table_digests == whole.table_digests
    assert resumed.transcript.digest() == whole.transcript.digest()
    assert {"vault.copies", "vault.steps", "extras.total"} <= whole.engine.state().keys()


def test_a_broken_round_changes_nothing() -> None:
    strikes: list[int] = []

    def second_round(messages: Any) -> npt.NDArray[np.bool_]:
        strikes.append(messages.round)
        return np.asarray((messages.senders.ids == 6) & (messages.round == 2))

    run = run_of(None, Drop(step=Step.UPLOAD, chooser=second_round))
    run.run_round()
    before = bits(run.engine.state())
    with pytest.raises(ProtocolError, match="client 6"):
        run.run_round()
    assert strikes == [1, 2]
    assert bits(run.engine.state()) == before
    with pytest.raises(TranscriptError):
        run.transcript.view(SERVER).messages(Step.UPLOAD, 2)


def test_a_cloak_needs_ratings() -> None:
    virtual = VirtualRatings(VirtualRatingsConfig(), n_items=N_ROWS, streams=STREAMS)
    stack = replace(stack_of(), cloak=virtual)
    with pytest.raises(ConfigError, match=r"protection = 'virtual-ratings'.*ratings.*impute"):
        LocalEngine(
            algorithm=Averaging(),
            stack=stack,
            vault=vault_of_examples(),
            n_rows=N_ROWS,
            streams=STREAMS,
            wire=Wire(meter=Meter(N_CLIENTS)),
        )
    session = stack.open(
        round_=1, participants=np.arange(N_CLIENTS), wire=Wire(meter=Meter(N_CLIENTS))
    )
    with pytest.raises(ConfigError, match="covers rated sets"):
        session.submit(SimpleNamespace(clients=np.array([0]), upload=None))


def test_a_projection_counts_the_rows_that_are_sent() -> None:
    class Unsized(Averaging):
        upload_rows = None  # type: ignore[assignment]

    policy = RecordingPolicy(payload_rounds=(1,))
    problem = Problem(vault=vault_of_examples(), n_rows=N_ROWS)
    dense = projected_transcript_bytes(Averaging(), stack_of(), problem, policy)
    sparse = projected_transcript_bytes(Unsized(), stack_of(), problem, policy)
    rows = N_CLIENTS * N_ROWS - len(vault_examples())
    assert dense - sparse == rows * (2 * Averaging.rounds + 8 * (WIDTH + 1))


@pytest.mark.parametrize(
    "extras",
    [
        {"a b": np.zeros(1)},
        {"": np.zeros(1)},
        {"a": np.zeros(1, dtype=np.float32)},
        {"a": np.array(1.0)},
        {"a": [1.0]},
        {"a": np.ma.zeros(2)},
    ],
)
def test_extras_are_plain_named_arrays(extras: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        DenseBlock(values=np.zeros((1, 1)), shape=(1, 1), extras=extras)
