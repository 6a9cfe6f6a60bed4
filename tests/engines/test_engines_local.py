"""The local engine: batches, cohorts and interruptions change no bit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import (
    CohortConfig,
    LocalEngine,
    RecordedRun,
    rating_evaluation,
    rating_problem,
    read_checkpoint,
    vault_of,
    write_checkpoint,
)
from secure_fedrec.engines.local_engine import BATCH_BYTES
from secure_fedrec.errors import CheckpointError, ConfigError, EncodingError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import (
    Cloak,
    Denoisers,
    DenoisersConfig,
    DirectSum,
    RandomizedResponse,
    RandomizedResponseConfig,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.protection.base import Collector
from secure_fedrec.streams import Streams
from secure_fedrec.wire import (
    Adversary,
    BlockStore,
    Meter,
    Recorder,
    RecordingPolicy,
    Step,
    Transcript,
    Wire,
)

N_CLIENTS, N_ITEMS, RANK = 26, 31, 5
STACKS = ["plain", "fedrec", "fedrec++", "sdcf"]


def rating_table(seed: int = 6) -> RatingTable:
    """Client 4 has rated nothing, client 25 everything."""
    rng = np.random.default_rng(seed)
    rated = rng.random((N_CLIENTS, N_ITEMS)) < 0.3
    rated[4], rated[25] = False, True
    clients, items = np.nonzero(rated)
    return RatingTable.from_columns(
        name="made up",
        n_clients=N_CLIENTS,
        n_items=N_ITEMS,
        clients=clients,
        items=items,
        ratings=rng.integers(1, 6, len(clients)).astype(np.float64),
        scale=RatingScale(1.0, 5.0, 1.0),
        client_labels=np.arange(N_CLIENTS),
        item_labels=np.arange(N_ITEMS),
    )


def stack_of(
    kind: str, streams: Streams, *, rho: float = 1.0, eta: int = 3, clip: float = 4096.0
) -> Stack:
    codec = FixedPoint(clip=clip)
    sizes = {"n_clients": N_CLIENTS, "n_items": N_ITEMS, "width": RANK}
    collector: Collector = DirectSum(codec=codec, **sizes)
    if kind == "fedrec++":
        collector = Denoisers(DenoisersConfig(count=eta), codec=codec, streams=streams, **sizes)
    virtual = VirtualRatingsConfig(rho=rho, predict_after=1, local_steps=3)
    cloaks: dict[str, Cloak | None] = {
        "plain": None,
        "sdcf": RandomizedResponse(RandomizedResponseConfig(), n_items=N_ITEMS, streams=streams),
    }
    fedrec = VirtualRatings(virtual, n_items=N_ITEMS, streams=streams)
    cloak = cloaks.get(kind, fedrec)
    return Stack(codec=codec, cloak=cloak, collector=collector, n_clients=N_CLIENTS)


def engine_of(
    kind: str = "fedrec++",
    *,
    seed: int = 10,
    rho: float = 1.0,
    eta: int = 3,
    cohort: CohortConfig | None = None,
    batch_bytes: int = BATCH_BYTES,
    recorder: Recorder | None = None,
    clip: float = 4096.0,
    **settings: Any,
) -> LocalEngine:
    streams, ratings = Streams.from_seed(seed), rating_table()
    held_out = ratings.subset(np.arange(len(ratings)) % 5 == 0)
    train = ratings.subset(np.arange(len(ratings)) % 5 != 0)
    algorithm = PMF(PMFConfig.printed(rank=RANK, **settings))
    return LocalEngine(
        algorithm=algorithm,
        stack=stack_of(kind, streams, rho=rho, eta=eta, clip=clip),
        vault=vault_of(train),
        n_rows=train.n_items,
        evaluate=rating_evaluation(algorithm, held_out),
        streams=streams,
        wire=Wire(meter=Meter(N_CLIENTS), recorder=recorder),
        cohort=cohort,
        batch_bytes=batch_bytes,
    )


def same(left: dict[str, npt.NDArray[Any]], right: dict[str, npt.NDArray[Any]]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and left[name].tobytes() == right[name].tobytes()
        for name in left
    )


def run(engine: LocalEngine, rounds: int) -> LocalEngine:
    for _ in range(rounds):
        engine.run_round()
    return engine


@pytest.mark.parametrize("kind", STACKS)
@pytest.mark.parametrize("temperature", [0.0, 1e-6])
def test_batch_size_changes_no_bit(kind: str, temperature: float) -> None:
    whole = run(engine_of(kind, temperature=temperature), 3).state()
    assert {"round", "table", "vault.user_vectors", "meter.server"} <= whole.keys()
    for batch_bytes in (1, 13 * 64, 60 * 64):
        parts = run(engine_of(kind, temperature=temperature, batch_bytes=batch_bytes), 3)
        assert same(parts.state(), whole)


@pytest.mark.parametrize("eta", [1, 3, N_CLIENTS // 2])
def test_batch_size_changes_nothing_that_parties_see(eta: int) -> None:
    def seen(batch_bytes: int) -> list[Any]:
        recorder = Recorder(
            policy=RecordingPolicy(payload_rounds=(1, 2)),
            seen=BlockStore(None),
            truth=BlockStore(None),
            n_items=N_ITEMS,
            arrival=Streams.from_seed(1).stream("arrival"),
        )
        run(engine_of(eta=eta, batch_bytes=batch_bytes, recorder=recorder), 2)
        ring = {"bits": 64, "fraction_bits": 32, "clip": 4096.0}
        everyone = Adversary(name="all", corrupt=frozenset({"server", "denoisers"}))
        view = Transcript(recorder.seen, {"ring": ring}).view(everyone)
        found: list[Any] = []
        for step in (Step.UPLOAD, Step.NOISE, Step.DENOISE, Step.AGGREGATE):
            messages = view.messages(step, 2, payload=True)
            block: Any = messages.payload
            found.append([messages.senders.ids.tolist(), messages.receivers.ids.tolist()])
            found.append([block.indptr.tolist(), block.rows.tolist(), block.values.tolist()])
            found.append([None if c is None else c.tolist() for c in (block.counts, messages.tags)])
        return found

    whole = seen(8192)
    assert all(seen(batch_bytes) == whole for batch_bytes in (1, 40 * 64))


def test_batches_are_as_large_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = PMF.client_step

    def spy(self: PMF, clients: IntArray, *rest: Any) -> Any:
        sizes.append(len(clients))
        return original(self, clients, *rest)

    monkeypatch.setattr(PMF, "client_step", spy)
    run(engine_of("plain", batch_bytes=1), 1)
    assert sizes == [1] * N_CLIENTS
    sizes.clear()
    run(engine_of("plain"), 1)
    assert sizes == [N_CLIENTS]


@pytest.mark.parametrize("kind", STACKS)
@pytest.mark.parametrize("interrupted_after", [0, 1, 3])
def test_a_resumed_run_equals_an_uninterrupted_one(
    kind: str, interrupted_after: int, tmp_path: Path
) -> None:
    cohort = CohortConfig(clients_per_round=18)
    path = tmp_path / "checkpoint.npz"
    first = run(engine_of(kind, cohort=cohort), interrupted_after)
    write_checkpoint(path, first.state(), run_id="id")
    resumed = engine_of(kind, cohort=cohort)
    resumed.restore(read_checkpoint(path, run_id="id"))
    assert resumed.public.round == interrupted_after
    whole = run(engine_of(kind, cohort=cohort), 5)
    assert same(run(resumed, 5 - interrupted_after).state(), whole.state())
    assert resumed.evaluate() == whole.evaluate()


def test_a_state_is_a_snapshot() -> None:
    engine = run(engine_of(), 1)
    kept = engine.state()
    copies = {name: column.copy() for name, column in kept.items()}
    run(engine, 1)
    assert same(kept, copies)
    assert not same(engine.state(), kept)
    engine.restore(kept)
    assert same(engine.state(), copies)
    run(engine, 1)
    assert same(kept, copies)  # going on from a state does not change it either


def recorded(directory: Path) -> RecordedRun:
    streams, ratings = Streams.from_seed(10), rating_table()
    algorithm = PMF(PMFConfig.printed(rank=RANK, rounds=4))
    held_out = np.arange(len(ratings)) % 5 == 0
    return RecordedRun(
        algorithm=algorithm,
        stack=stack_of("fedrec++", streams),
        problem=rating_problem(algorithm, ratings.subset(~held_out), ratings.subset(held_out)),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1, 3)),
        directory=directory,
    )


def test_a_killed_recording_resumes_to_the_same_transcript(tmp_path: Path) -> None:
    whole, killed = recorded(tmp_path / "whole"), recorded(tmp_path / "killed")
    for _ in range(4):
        whole.run_round()
    for completed in range(3):
        killed.run_round()
        if completed == 1:
            killed.save(tmp_path / "killed", run_id="id")
    # The third round is on disk, beyond the checkpoint, and is recorded again.
    resumed = recorded(tmp_path / "killed")
    resumed.resume(tmp_path / "killed", run_id="id")
    assert resumed.completed == 2
    assert resumed.history == whole.history[:2]
    for _ in range(2):
        resumed.run_round()
    assert resumed.transcript.digest() == whole.transcript.digest()
    assert resumed.table_digests == whole.table_digests
    assert resumed.history == whole.history
    assert same(resumed.engine.state(), whole.engine.state())
    for round_ in range(1, 5):
        mine, theirs = (r.truth.columns(round_, "noise-origins") for r in (resumed, whole))
        assert mine is not None and theirs is not None
        assert same(mine, theirs)
    with pytest.raises(CheckpointError):
        recorded(tmp_path / "killed").resume(tmp_path / "killed", run_id="other")


def cohorts(engine: LocalEngine, rounds: int) -> list[list[int]]:
    invited = []
    for _ in range(rounds):
        invited.append(engine.participants(engine.public.round + 1).tolist())
        engine.run_round()
    return invited


def test_cohorts_do_not_depend_on_rho() -> None:
    cohort = CohortConfig(clients_per_round=9)
    drawn = [cohorts(engine_of("fedrec", rho=rho, cohort=cohort), 4) for rho in (0.0, 1.0, 3.0)]
    assert drawn[0] == drawn[1] == drawn[2]
    assert len({tuple(invited) for invited in drawn[0]}) == 4


def test_impossible_cohorts_are_refused() -> None:
    with pytest.raises(ConfigError) as refusal:
        CohortConfig(clients_per_round=0)
    assert refusal.value.key == "cohort.clients_per_round"
    with pytest.raises(ConfigError, match=f"only {N_CLIENTS} clients"):
        engine_of(cohort=CohortConfig(clients_per_round=N_CLIENTS + 1)).run_round()


def test_only_participants_learn() -> None:
    engine = engine_of("fedrec++", cohort=CohortConfig(clients_per_round=8))
    everybody = np.arange(N_CLIENTS)
    before = engine.vault.read("user_vectors", everybody)
    present = engine.participants(1)
    assert 0 < len(present) < N_CLIENTS
    report = engine.run_round()
    assert (report.round, report.participants) == (1, len(present))
    moved = np.any(engine.vault.read("user_vectors", everybody) != before, axis=1)
    trained = engine.vault.example_counts() > 0
    assert np.flatnonzero(moved).tolist() == [c for c in present.tolist() if trained[c]]


def test_a_round_of_nobody_changes_nothing_but_its_number() -> None:
    engine = engine_of("fedrec++", cohort=CohortConfig(clients_per_round=1))
    table = engine.public.table.copy()
    assert engine.run_round().participants == 0
    assert engine.public.round == 1
    assert engine.public.table.tobytes() == table.tobytes()


def test_values_that_do_not_fit_the_ring_stop_the_round() -> None:
    engine = engine_of("fedrec++", init_scale=0.5, batch_bytes=20 * 64, clip=3.0)
    with pytest.raises(EncodingError):
        for _ in range(10):
            before = engine.state()
            engine.run_round()
    after = engine.state()
    learned = ("round", "table", "vault.user_vectors")
    assert all(after[name].tobytes() == before[name].tobytes() for name in learned)


def test_given_participants_override_the_cohort() -> None:
    ratings, streams = rating_table(), Streams.from_seed(1)
    asked: list[int] = []

    def present(round_: int) -> IntArray:
        asked.append(round_)
        return np.array([2, 3, 5])

    algorithm = PMF(PMFConfig.printed(rank=RANK))
    engine = LocalEngine(
        algorithm=algorithm,
        stack=stack_of("plain", streams),
        vault=vault_of(ratings),
        n_rows=ratings.n_items,
        evaluate=rating_evaluation(algorithm, ratings),
        streams=streams,
        wire=Wire(meter=Meter(N_CLIENTS)),
        participants=present,
    )
    assert [engine.run_round().participants for _ in range(2)] == [3, 3]
    assert asked == [1, 2]


def costs(engine: LocalEngine, names: Sequence[str]) -> list[IntArray]:
    return [engine.wire.meter.clients(name) for name in names]


def test_communication_follows_the_paper() -> None:
    """An ordinary client sends (1 + 2 rho) vectors per rating, as in FedRec++'s table 3."""
    engine = engine_of("fedrec++", rho=1.0)
    engine.run_round()
    collector = engine.stack.collector
    assert isinstance(collector, Denoisers)
    binding, rated = collector.binding, engine.vault.example_counts()
    virtual = np.minimum(rated, N_ITEMS - rated)
    sent, received = costs(engine, ["vectors_sent", "vectors_received"])
    ordinary = ~binding.is_denoiser
    assert sent[ordinary].tolist() == (rated + 2 * virtual)[ordinary].tolist()
    assert not received[ordinary].any()
    for group, denoiser in enumerate(binding.denoisers.tolist()):
        bound = ordinary & (binding.group == group)
        assert received[denoiser] == virtual[bound].sum()
        assert rated[denoiser] <= sent[denoiser] <= rated[denoiser] + received[denoiser]
    server = engine.wire.meter.server("vectors_received")
    assert server == int((rated + virtual)[ordinary].sum() + sent[binding.denoisers].sum())
    messages, _ = costs(engine, ["messages_sent", "messages_received"])
    assert messages[ordinary].tolist() == [2] * int(ordinary.sum())
    assert messages[binding.denoisers].tolist() == [1] * 3
