"""Recorded runs: their size is known beforehand, and a folder holds what memory holds."""

from pathlib import Path

import numpy as np
import pytest

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import (
    CohortConfig,
    LocalEngine,
    Problem,
    RecordedRun,
    projected_own_bytes,
    projected_transcript_bytes,
    rating_problem,
)
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import Denoisers, DenoisersConfig, Stack, VirtualRatings
from secure_fedrec.protection.base import stack
from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.cloaks.virtual_ratings import VirtualRatingsConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Meter, RecordingPolicy, Transcript, Wire
from secure_fedrec.wire.recording import OWN

N_CLIENTS, N_ITEMS, ROUNDS = 30, 40, 3


def made_up() -> RatingTable:
    clients, items = np.nonzero(np.random.default_rng(1).random((N_CLIENTS, N_ITEMS)) < 0.3)
    return RatingTable.from_columns(
        name="made up",
        n_clients=N_CLIENTS,
        n_items=N_ITEMS,
        clients=clients,
        items=items,
        ratings=np.asarray(1 + (clients + items) % 5, dtype=np.float64),
        scale=RatingScale(1.0, 5.0, 1.0),
        client_labels=np.arange(N_CLIENTS),
        item_labels=np.arange(N_ITEMS),
    )


def small_run(
    policy: RecordingPolicy,
    *,
    eta: int = 2,
    rho: float = 1.0,
    rank: int = 4,
    directory: Path | None = None,
    cohort: CohortConfig | None = None,
) -> RecordedRun:
    """FedRec++ on the made-up ratings, not yet run; of rank 0 with biases alone."""
    ratings, streams, codec = made_up(), Streams.from_seed(3), FixedPoint()
    algorithm = PMF(PMFConfig.printed(rank=rank, rounds=ROUNDS, biases=not rank))
    cloak = VirtualRatings(VirtualRatingsConfig(rho=rho), n_items=N_ITEMS, streams=streams)
    collector = Denoisers(
        DenoisersConfig(count=eta),
        n_clients=N_CLIENTS,
        n_items=N_ITEMS,
        width=algorithm.width,
        codec=codec,
        streams=streams,
    )
    return RecordedRun(
        algorithm=algorithm,
        stack=Stack(codec=codec, cloak=cloak, collector=collector, n_clients=N_CLIENTS),
        problem=rating_problem(algorithm, ratings),
        streams=streams,
        policy=policy,
        directory=directory,
        cohort=cohort,
    )


def projection(
    run: RecordedRun, policy: RecordingPolicy, cohort: CohortConfig | None = None
) -> int:
    engine = run.engine
    problem = Problem(vault=engine.vault, n_rows=N_ITEMS)
    return projected_transcript_bytes(engine.algorithm, engine.stack, problem, policy, cohort)


@pytest.mark.parametrize(
    "policy",
    [
        RecordingPolicy(payload_rounds=()),
        RecordingPolicy(payload_rounds=(2,)),
        RecordingPolicy(payload_rounds=(1, 2, 3, 4, 50)),
        RecordingPolicy(payload_rounds=(1, 3), payload_senders=tuple(range(0, 30, 2))),
    ],
)
@pytest.mark.parametrize(("eta", "rho"), [(1, 1.0), (2, 1.5), (3, 1.0)])
def test_the_size_of_a_recording_is_known_before_the_run(
    policy: RecordingPolicy, eta: int, rho: float
) -> None:
    run = small_run(policy, eta=eta, rho=rho)
    projected = projection(run, policy)
    for _ in range(ROUNDS):
        run.run_round()
    assert projected == pytest.approx(run.transcript.bytes, rel=0.1)


@pytest.mark.parametrize(
    ("invited", "everybody"), [(N_CLIENTS // 2, ()), (N_CLIENTS // 2, (2,)), (6, ()), (6, (1, 3))]
)
def test_cohorts_are_as_large_as_they_are(invited: int, everybody: tuple[int, ...]) -> None:
    """A recording of a fifth of the clients is not projected, or refused, as one of all."""
    policy = RecordingPolicy(payload_rounds=(1, 2, 3))
    cohort = CohortConfig(clients_per_round=invited, everybody_in=everybody)
    eta = N_CLIENTS // 3  # whose denoiser is not invited sits out
    run = small_run(policy, eta=eta, cohort=cohort)
    projected = projection(run, policy, cohort)
    for _ in range(ROUNDS):
        run.run_round()
    assert projected == pytest.approx(run.transcript.bytes, rel=0.25)
    assert projected < projection(run, policy)
    tight = RecordingPolicy(
        payload_rounds=policy.payload_rounds, max_transcript_gb=(projected + 1) / 1e9
    )
    small_run(tight, eta=eta, cohort=cohort)  # not refused for clients that are not invited


@pytest.mark.parametrize("invited", [None, N_CLIENTS // 2])
@pytest.mark.parametrize("payload_rounds", [(), (2,), (1, 2, 3)])
def test_so_is_that_of_what_clients_put_into_the_sums(
    payload_rounds: tuple[int, ...], invited: int | None
) -> None:
    policy = RecordingPolicy(payload_rounds=payload_rounds)
    cohort = CohortConfig(clients_per_round=invited)
    run = small_run(policy, cohort=cohort)
    engine = run.engine
    problem = Problem(vault=engine.vault, n_rows=N_ITEMS)
    projected = projected_own_bytes(engine.algorithm, engine.stack, problem, policy, cohort)
    for _ in range(ROUNDS):
        run.run_round()
    kept = [run.truth.columns(round_, OWN) for round_ in range(1, ROUNDS + 1)]
    found = sum(column.nbytes for columns in kept for column in (columns or {}).values())
    # Of a cohort those sit out whose denoiser is not invited.
    assert 0 < found <= projected <= (1.02 if invited is None else 2.0) * found


def test_what_is_broadcast_beside_the_table_is_in_the_projection() -> None:
    """Sums and counts of biases, in the rounds whose tables are kept: 1 and 2."""
    sizes = []
    for payload_rounds in ((1,), ()):
        policy = RecordingPolicy(payload_rounds=payload_rounds, payload_senders=())
        run = small_run(policy, rank=0)
        projected = projection(run, policy)
        for _ in range(ROUNDS):
            run.run_round()
        sizes.append((projected, run.transcript.bytes))
    projected, kept = (with_ - without for with_, without in zip(*sizes, strict=True))
    assert projected >= kept > 2 * 8 * (1 + 2) * N_ITEMS


def test_many_denoisers_are_overestimated_rather_than_underestimated() -> None:
    policy = RecordingPolicy(payload_rounds=(1, 2, 3))
    run = small_run(policy, eta=N_CLIENTS // 2)
    for _ in range(ROUNDS):
        run.run_round()
    assert run.transcript.bytes < projection(run, policy) < 1.5 * run.transcript.bytes


def test_a_recording_beyond_its_limit_is_refused_before_it_starts() -> None:
    generous = RecordingPolicy(payload_rounds=(1,))
    projected = projection(small_run(generous), generous)
    small_run(RecordingPolicy(payload_rounds=(1,), max_transcript_gb=(projected + 1) / 1e9))
    with pytest.raises(ConfigError, match="payload_rounds or payload_senders") as refusal:
        small_run(RecordingPolicy(payload_rounds=(1,), max_transcript_gb=(projected - 1) / 1e9))
    assert refusal.value.key == "recording.max_transcript_gb"


def test_a_folder_holds_what_memory_holds(tmp_path: Path) -> None:
    policy = RecordingPolicy(payload_rounds=(1, 2), payload_senders=(1, 2, 3, 4))
    on_disk, in_memory = small_run(policy, directory=tmp_path), small_run(policy)
    for _ in range(ROUNDS):
        on_disk.run_round()
        in_memory.run_round()
    opened = Transcript.open(tmp_path / "transcript")
    assert opened.public == in_memory.transcript.public
    assert opened.digest() == on_disk.transcript.digest() == in_memory.transcript.digest()
    files = tmp_path.glob("transcript/rounds/*/*.npz")
    assert on_disk.transcript.bytes == sum(file.stat().st_size for file in files)
    assert on_disk.transcript.bytes > in_memory.transcript.bytes


def test_words_are_picked_where_they_are_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of real rows: never without a recording, and in a recording of payload rounds only."""
    picked: list[bool] = []
    real = stack._real

    def spied(folded: ClientRows, words: bool) -> RowBlock:
        picked.append(words)
        return real(folded, words)

    monkeypatch.setattr(stack, "_real", spied)
    run = small_run(RecordingPolicy(payload_rounds=(2,)))
    for round_ in range(1, ROUNDS + 1):
        picked.clear()
        run.run_round()
        assert set(picked) == {round_ == 2}
    picked.clear()
    engine = small_run(RecordingPolicy(payload_rounds=())).engine
    alone = LocalEngine(
        algorithm=engine.algorithm,
        stack=engine.stack,
        vault=rating_problem(PMF(PMFConfig.printed(rank=4, rounds=ROUNDS)), made_up()).vault,
        n_rows=N_ITEMS,
        streams=Streams.from_seed(3),
        wire=Wire(meter=Meter(N_CLIENTS)),
    )
    alone.run_round()
    assert not picked
