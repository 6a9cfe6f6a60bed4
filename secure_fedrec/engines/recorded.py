"""A recorded run: the engine, what every party saw, and, kept apart, what nobody saw."""

import math
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.arrays import FloatArray
from secure_fedrec.data import RatingTable
from secure_fedrec.engines.checkpoint import read_checkpoint, write_checkpoint
from secure_fedrec.engines.local import CohortConfig, LocalEngine, RoundReport, vault_of
from secure_fedrec.evaluation import RatingError
from secure_fedrec.protection.base import Stack
from secure_fedrec.streams import Streams
from secure_fedrec.wire import (
    BlockStore,
    Fault,
    Meter,
    Recorder,
    RecordingPolicy,
    Transcript,
    Truth,
    Wire,
)

__all__ = ["RecordedRun", "projected_transcript_bytes", "public_knowledge", "table_digest"]

_CHECKPOINT = "checkpoint.npz"


class RecordedRun:
    """Trains one federation and records it.

    Args:
        algorithm: what is trained.
        stack: how uploads are protected.
        train: training ratings; one vault per client.
        test: held-out ratings.
        streams: the run's random streams.
        policy: what to record.
        directory: folder for transcript, truth and checkpoint; None keeps all in memory.
        cohort: who is invited to a round.
        faults: put on the wire, for tests.

    Raises:
        ConfigError: the projected transcript is larger than the policy allows.
    """

    def __init__(
        self,
        *,
        algorithm: Algorithm,
        stack: Stack,
        train: RatingTable,
        test: RatingTable,
        streams: Streams,
        policy: RecordingPolicy,
        directory: Path | None = None,
        cohort: CohortConfig | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        policy.require_fits(projected_transcript_bytes(algorithm, stack, train, policy))
        self._policy = policy
        self._directory = directory
        self._seen = BlockStore(None if directory is None else directory / "transcript")
        self._hidden = BlockStore(None if directory is None else directory / "truth")
        recorder = Recorder(
            policy=policy, seen=self._seen, truth=self._hidden, n_items=train.n_items
        )
        self.engine = LocalEngine(
            algorithm=algorithm,
            stack=stack,
            vault=vault_of(train),
            test=test,
            streams=streams,
            wire=Wire(meter=Meter(train.n_clients), recorder=recorder, faults=faults),
            cohort=cohort,
        )
        self.transcript = Transcript(self._seen, public_knowledge(algorithm, stack, train))
        self.truth = Truth(self._hidden)
        self.history: list[RoundReport] = []
        self.table_digests: list[str] = []
        if directory is not None:
            (directory / "truth").mkdir(mode=0o700, parents=True, exist_ok=True)
            self.transcript.save_manifest(directory / "transcript")

    @property
    def completed(self) -> int:
        """Rounds completed."""
        return self.engine.public.round

    def run_round(self) -> RoundReport:
        """One round; private tables of rounds with payloads go to the truth."""
        round_ = self.completed + 1
        if round_ in self._policy.payload_rounds:
            everybody = np.arange(self.engine.vault.n_clients)
            for name in self.engine.vault.names():
                values = self.engine.vault.read(name, everybody)
                self._hidden.append(round_, f"private-{name}", {"values": values})
        report = self.engine.run_round()
        self.history.append(report)
        self.table_digests.append(table_digest(self.engine.public.table))
        return report

    def save(self, directory: Path, *, run_id: str) -> None:
        """Write a checkpoint of the state after the last completed round."""
        errors = [report.error for report in self.history]
        history = {
            "history.participants": np.array([report.participants for report in self.history]),
            "history.mae": np.array([math.nan if e is None else e.mae for e in errors]),
            "history.rmse": np.array([math.nan if e is None else e.rmse for e in errors]),
            "history.digests": np.array(self.table_digests, dtype="U64"),
        }
        state = {**self.engine.state(), **history}
        write_checkpoint(directory / _CHECKPOINT, state, run_id=run_id)

    def resume(self, directory: Path, *, run_id: str) -> None:
        """Go back to the checkpoint and drop what was recorded after it.

        Raises:
            CheckpointError: there is none, it is damaged, or it belongs to another run.
        """
        state = read_checkpoint(directory / _CHECKPOINT, run_id=run_id)
        self.engine.restore(state)
        columns = (state[f"history.{name}"].tolist() for name in ("participants", "mae", "rmse"))
        self.history = [
            RoundReport(
                round=number,
                participants=participants,
                error=None if math.isnan(mae) else RatingError(mae=mae, rmse=rmse),
            )
            for number, (participants, mae, rmse) in enumerate(zip(*columns, strict=True), start=1)
        ]
        self.table_digests = state["history.digests"].tolist()
        self.restart_recording()

    def restart_recording(self) -> None:
        """Drop recorded rounds later than the engine's state."""
        self._seen.discard_after(self.completed)
        self._hidden.discard_after(self.completed)


def table_digest(table: FloatArray) -> str:
    """SHA-256 of the bits of a public table."""
    return sha256(np.ascontiguousarray(table).tobytes()).hexdigest()


def public_knowledge(algorithm: Algorithm, stack: Stack, train: RatingTable) -> dict[str, Any]:
    """What everybody knows about a run, as JSON values."""
    codec = stack.codec
    return {
        "n_clients": train.n_clients,
        "n_items": train.n_items,
        "rating_levels": train.scale.levels.tolist(),
        "ring": {"bits": codec.bits, "fraction_bits": codec.fraction_bits, "clip": codec.clip},
        "algorithm": algorithm.public_knowledge(),
        "protection": stack.describe(),
        "model_hidden_from": list(stack.collector.model_hidden_from),
    }


def projected_transcript_bytes(
    algorithm: Algorithm, stack: Stack, train: RatingTable, policy: RecordingPolicy
) -> int:
    """Size of the transcript of a full run, known before it starts."""
    return policy.projected_bytes(
        stack.traffic(train.counts()),
        rounds=algorithm.rounds,
        n_clients=train.n_clients,
        n_items=train.n_items,
        word=np.dtype(stack.codec.dtype).itemsize,
    )
