"""A recorded run: the engine, what every party saw, and separately the truth that no party saw."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.algorithms.base import Algorithm, Exchanging, PublicState
from secure_fedrec.blocks import BlockLayout
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines.checkpoint import (
    part_of,
    read_checkpoint,
    unless_damaged,
    write_checkpoint,
)
from secure_fedrec.engines.federated_problem import Problem, blocks_of, upload_rows
from secure_fedrec.engines.local_engine import CohortConfig, LocalEngine, RoundReport
from secure_fedrec.engines.recording_seal import RecordingSeal
from secure_fedrec.protection.base.stack import Stack
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault
from secure_fedrec.wire import (
    BlockStore,
    Fault,
    Meter,
    Recorder,
    RecordingPolicy,
    Step,
    Traffic,
    Transcript,
    Truth,
    Wire,
    row_dtype,
)

_CHECKPOINT = "checkpoint.npz"
_METRIC = "history.metric"
_ABSENT = "history.absent"


class RecordedRun:
    """Trains one federation and records it.

    Args:
        algorithm: what is trained.
        stack: how uploads are protected.
        problem: what it learns from, and how it is judged.
        streams: the run's random streams.
        policy: what to record.
        directory: folder for transcript, truth and checkpoint; None keeps all in memory.
        cohort: who is invited to a round.
        faults: put on the wire, for tests.

    Attributes:
        absent: int64[k] by round: clients that were to take part and did not, of a run whose
            clients were on hosts of their own.

    Raises:
        ConfigError: the projected transcript is larger than the policy allows.
    """

    def __init__(
        self,
        *,
        algorithm: Algorithm,
        stack: Stack,
        problem: Problem,
        streams: Streams,
        policy: RecordingPolicy,
        directory: Path | None = None,
        cohort: CohortConfig | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        policy.require_fits(projected_transcript_bytes(algorithm, stack, problem, policy, cohort))
        self._policy = policy
        self._directory = directory
        self._seal = None if directory is None else RecordingSeal(directory, {}, rounds=0)
        self._seen = BlockStore(None if directory is None else directory / "transcript")
        self._hidden = BlockStore(None if directory is None else directory / "truth")
        # The seed stands in the configuration: tags that followed from it would name senders. They
        # are bound to the examples as well, and so are the same when the run is resumed or
        # repeated.
        arrival = streams.bound_to(problem.vault.secret()).stream("arrival")
        recorder = Recorder(
            policy=policy,
            seen=self._seen,
            truth=self._hidden,
            n_items=BlockLayout(blocks_of(algorithm, problem)).rows,
            arrival=arrival,
        )
        meter = Meter(problem.vault.n_clients)
        self.engine = LocalEngine(
            algorithm=algorithm,
            stack=stack,
            vault=problem.vault,
            n_rows=problem.n_rows,
            evaluate=problem.evaluate,
            streams=streams,
            wire=Wire(meter=meter, recorder=recorder, faults=faults),
            cohort=cohort,
        )
        known = public_knowledge(algorithm, stack, problem, cohort)
        self.transcript = Transcript(self._seen, known)
        self.truth = Truth(self._hidden)
        self.history: list[RoundReport] = []
        self.absent: dict[int, IntArray] = {}
        self.table_digests: list[str] = []
        if directory is not None:
            for local in ("truth", "transcript"):  # readable by their owner only
                (directory / local).mkdir(mode=0o700, parents=True, exist_ok=True)
                (directory / local).chmod(0o700)  # in case it exists with another mode
            self.transcript.save_manifest(directory / "transcript")

    @property
    def completed(self) -> int:
        """Rounds completed."""
        return self.engine.public.round

    def participants(self, round_: int) -> IntArray:
        """int64[P], ascending: the clients in a round's sum."""
        due = self.engine.participants(round_)
        return np.setdiff1d(due, self.absent.get(round_, np.zeros(0, dtype=np.int64)))

    def run_round(self) -> RoundReport:
        """Run one round; private tables of rounds with payloads are stored in the truth."""
        round_ = self.completed + 1
        if round_ in self._policy.payload_rounds:
            for kind, columns in private_columns(self.engine.vault):
                if self._directory is None:
                    columns["values"] = columns["values"].copy()
                self._hidden.append(round_, kind, columns)
        report = self.engine.run_round()
        self.history.append(report)
        self.table_digests.append(table_digest(self.engine.public))
        return report

    def save(self, directory: Path, *, run_id: str) -> None:
        """Write a checkpoint of the state after the last completed round.

        The recording up to it is sealed first.

        Raises:
            OSError: one of them could not be written; the earlier one is as it was.
        """
        absent = {f"{_ABSENT}.{round_}": clients for round_, clients in self.absent.items()}
        history = {
            **absent,
            "history.participants": np.array([report.participants for report in self.history]),
            "history.clipped": np.array([report.clipped for report in self.history]),
            "history.digests": np.array(self.table_digests, dtype="U64"),
            **_metric_columns([report.metrics for report in self.history]),
        }
        state = {**self.engine.state(copied=False), **history}
        if self._seal is not None:
            self._seal.extend(self.completed)
        write_checkpoint(directory / _CHECKPOINT, state, run_id=run_id)

    def resume(self, directory: Path, *, run_id: str) -> None:
        """Go back to the checkpoint and drop what was recorded after it.

        Raises:
            CheckpointError: the checkpoint is missing, damaged, or belongs to another run.
            TranscriptError: the recording up to the checkpoint was changed.
        """
        path = directory / _CHECKPOINT
        state = read_checkpoint(path, run_id=run_id, later="vault.")
        with unless_damaged(path):
            self._restore(state)
        if self._directory is not None:
            self._seal = RecordingSeal.read(self._directory)
            self._seal.cut(self.completed)
            self._seal.require_intact(manifest=False)
        self.restart_recording()

    def _restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        self.engine.restore(state)
        participants = state["history.participants"].tolist()
        metrics = _metrics_by_round(state, len(participants))
        clipped = state["history.clipped"].tolist()
        self.history = [
            RoundReport(round=number, participants=present, metrics=measured, clipped=values)
            for number, (present, measured, values) in enumerate(
                zip(participants, metrics, clipped, strict=True), start=1
            )
        ]
        self.table_digests = state["history.digests"].tolist()
        absent = part_of(state, _ABSENT)
        self.absent = {int(round_): clients for round_, clients in absent.items()}
        if not len(self.history) == len(self.table_digests) == self.completed:
            raise ValueError("a history of other rounds")

    def restart_recording(self) -> None:
        """Drop recorded rounds later than the engine's state."""
        self._seen.discard_after(self.completed)
        self._hidden.discard_after(self.completed)


def private_columns(vault: Vault) -> Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]:
    """Private tables in the form of the truth: kind and columns of each."""
    for name, values in vault.tables().items():
        columns: dict[str, npt.NDArray[Any]] = {"values": values}
        if name in vault.ragged_names():
            columns["lengths"] = vault.lengths(name)
        yield f"private-{name}", columns


def table_digest(public: PublicState) -> str:
    """SHA-256 of the bits of a public table and of what is broadcast with it."""
    digest = sha256(np.ascontiguousarray(public.table).tobytes())
    for name in sorted(public.extras):
        values = public.extras[name]
        digest.update(f"\n{name} {values.shape}\n".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def public_knowledge(
    algorithm: Algorithm, stack: Stack, problem: Problem, cohort: CohortConfig | None = None
) -> dict[str, Any]:
    """The public knowledge about a run, as JSON values."""
    cohort = cohort or CohortConfig()
    codec, size = stack.codec, cohort.largest(stack.n_clients)
    layout = stack.layout or BlockLayout(blocks_of(algorithm, problem), codec)
    return {
        "n_clients": problem.vault.n_clients,
        "cohort": {**asdict(cohort), "everybody_in": list(cohort.everybody_in)},
        **problem.knowledge,
        "ring": {"bits": codec.bits, "fraction_bits": codec.fraction_bits, "clip": codec.clip},
        "blocks": layout.describe(),
        "algorithm": algorithm.public_knowledge(),
        "protection": stack.describe(),
        "model_hidden_from": list(stack.collector.model_hidden_from),
        "withstands": [asdict(claim) for claim in stack.withstands(size)],
    }


def projected_transcript_bytes(
    algorithm: Algorithm,
    stack: Stack,
    problem: Problem,
    policy: RecordingPolicy,
    cohort: CohortConfig | None = None,
) -> int:
    """Size of the transcript of a full run, known before it starts.

    Public extras count as large as before the first round; some algorithms add to them later.

    Args:
        algorithm: what is trained.
        stack: how uploads are protected.
        problem: what it learns from.
        policy: what is recorded.
        cohort: which clients are invited to a round; None for all.
    """
    public = algorithm.initial_public(problem.n_rows, Streams.from_seed(0))
    table, n_clients = BlockLayout(blocks_of(algorithm, problem)), problem.vault.n_clients
    return sum(
        policy.projected_bytes(
            _traffic(algorithm, stack, problem, invited),
            rounds=rounds,
            n_clients=n_clients,
            n_items=table.rows,
            word=np.dtype(stack.codec.dtype).itemsize,
            extras=sum(values.size for values in public.extras.values()),
        )
        for invited, rounds in _by_size(algorithm, n_clients, cohort).items()
    )


def projected_own_bytes(
    algorithm: Algorithm,
    stack: Stack,
    problem: Problem,
    policy: RecordingPolicy,
    cohort: CohortConfig | None = None,
) -> int:
    """Largest size of what clients put into the sums, which is kept beside the transcript.

    Args:
        algorithm: what is trained.
        stack: how uploads are protected; without a layer nothing is kept.
        problem: what it learns from.
        policy: what is recorded.
        cohort: which clients are invited to a round; None for all.
    """
    if not stack.protects:
        return 0
    vault, table = problem.vault, BlockLayout(blocks_of(algorithm, problem))
    rows = int(upload_rows(algorithm, vault, problem.n_rows).sum())
    words = rows * table.width * np.dtype(stack.codec.dtype).itemsize
    each = 16 if stack.cloak is None else 25  # bytes: number and length; exempt and virtual rows
    named = vault.n_clients * each + rows * row_dtype(table.rows).itemsize
    return sum(
        invited * (len(rounds) * named + policy.kept(rounds) * words) // vault.n_clients
        for invited, rounds in _by_size(algorithm, vault.n_clients, cohort).items()
    )


def _by_size(
    algorithm: Algorithm, n_clients: int, cohort: CohortConfig | None
) -> dict[int, list[int]]:
    """Rounds by how many clients are invited to them."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for round_ in range(1, algorithm.rounds + 1):
        by_size[(cohort or CohortConfig()).invited(round_, n_clients)].append(round_)
    return by_size


def _traffic(
    algorithm: Algorithm, stack: Stack, problem: Problem, invited: int
) -> tuple[Traffic, ...]:
    """Expected messages of a round with some of the clients."""
    n_clients = problem.vault.n_clients
    rows = upload_rows(algorithm, problem.vault, problem.n_rows)
    parts = stack.traffic(rows)
    if isinstance(algorithm, Exchanging):
        messages, given, width = algorithm.given_rows(n_clients)
        peer = Traffic(step=Step.PEER, messages=messages, rows=given, width=width)
        parts = (*parts, peer)
    if invited == n_clients:
        return parts
    share = invited / n_clients
    # A denoiser's sums hold the items of all its clients once: fewer clients have more than their
    # share of these.
    fewer = {part.step: part.rows for part in stack.traffic((share * rows).astype(np.int64))}
    sums = [replace(part, rows=fewer[part.step]) for part in parts if part.step is Step.DENOISE]
    others = [part for part in parts if part.step is not Step.DENOISE]
    return tuple(part.among(share) for part in (*others, *sums))


def _metric_columns(
    history: Sequence[Mapping[str, float] | None],
) -> dict[str, npt.NDArray[Any]]:
    """One column per metric, NaN in the rounds that did not measure it."""
    names = {name: None for metrics in history for name in metrics or ()}
    return {
        f"{_METRIC}.{name}": np.array([(metrics or {}).get(name, math.nan) for metrics in history])
        for name in names
    }


def _metrics_by_round(
    state: Mapping[str, npt.NDArray[Any]], rounds: int
) -> list[Mapping[str, float] | None]:
    columns = part_of(state, _METRIC)
    found = [
        {
            name: float(values[place])
            for name, values in columns.items()
            if not math.isnan(values[place])
        }
        for place in range(rounds)
    ]
    return [metrics or None for metrics in found]
