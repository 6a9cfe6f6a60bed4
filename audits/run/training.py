"""Training for an audit: the recorded fold, the other folds, and the plain twin.

A run folder holds ``config.json`` (the resolved configuration), ``checkpoint.npz``, ``transcript/``
(what parties saw), ``truth/`` (what no party saw, with the clients' secrets), ``recording.json``
(the digests of both), ``folds.json``, and ``releases.log`` where noise is drawn (which rounds were
begun, including repeated ones). A process that opens a run in a folder locks it:
``audits.run.folder.one_writer``. Everything is written so that a kill at any moment can be resumed
to the same bits.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from tqdm import tqdm

from audits.config.audit import parse_config
from audits.plugins import same_training
from audits.run.build import Federation, build_federation
from audits.run.folder import CONFIG_NAME, read_own_config, write_json, write_own_config
from audits.run.privacy import draws_noise
from audits.run.releases import ReleaseJournal
from audits.run.truth import write_secrets
from audits.run.workers import shared_out
from audits.system import Dataset, Task
from secure_fedrec.core.files import read_json
from secure_fedrec.engines import (
    RecordedRun,
    RoundReport,
    projected_transcript_bytes,
    read_checkpoint,
)
from secure_fedrec.errors import CheckpointError, ConfigError, EncodingError
from secure_fedrec.properties import BesideRecorded, Comparison
from secure_fedrec.protection import RECORDS

_CHECKPOINT = "checkpoint.npz"


def run_identity(federation: Federation[Task]) -> str:
    """Digest of everything that decides the bits of a run."""
    parts = (federation.config.training_digest(), federation.task.identity())
    return sha256("|".join(parts).encode()).hexdigest()


def projection(federation: Federation[Task]) -> int:
    """Projected bytes of the transcript, checked against the limit.

    Raises:
        ConfigError: it is larger than ``recording.max_transcript_gb``.
    """
    policy, cohort = federation.config.recording, federation.config.cohort
    algorithm, problem, _ = federation.fresh()
    size = projected_transcript_bytes(algorithm, federation.stack, problem, policy, cohort)
    policy.require_fits(size)
    return size


def open_run(federation: Federation[Task], out: Path | None, *, resume: bool) -> RecordedRun:
    """A recorded run in a folder, fresh or resumed.

    Args:
        federation: what to run.
        out: run folder, held with ``one_writer``; None keeps everything in memory.
        resume: continue the run in the folder.

    Raises:
        CheckpointError: the checkpoint is damaged or of another configuration, or ``config.json``
            was edited.
        TranscriptError: the recording up to the checkpoint is incomplete.
    """
    identity = run_identity(federation)
    if out is not None:
        _prepare_folder(federation, out, resume=resume)
    run = federation.recorded(federation.config.recording, out)
    if out is None:
        return run
    if resume and (out / _CHECKPOINT).exists():
        run.resume(out, run_id=identity)
        repeated_releases(federation, run, out)  # refuses a run that has lost count
    else:
        run.restart_recording()
        run.save(out, run_id=identity)
    return run


def train_recorded(
    federation: Federation[Task],
    run: RecordedRun,
    out: Path | None,
    *,
    on_round: Callable[[RoundReport], None] | None = None,
    progress: bool = True,
) -> None:
    """Train the recorded fold to its last round."""
    identity = run_identity(federation)
    rounds = federation.config.algorithm.rounds
    every = federation.config.run.checkpoint_every
    journal = ReleaseJournal(out) if out is not None and draws_noise(federation.stack) else None
    with tqdm(
        total=rounds, initial=run.completed, desc="training", unit="round", disable=not progress
    ) as bar:
        while run.completed < rounds:
            if journal is not None:
                journal.begin(run.completed + 1)
            with _bearing_hinted(federation, run.completed + 1):
                report = run.run_round()
            if on_round is not None:
                on_round(report)
            for name, value in (report.metrics or {}).items():
                bar.set_postfix({name: f"{value:.4f}"})
                break  # the first figure is the headline
            bar.update()
            if out is not None and (run.completed % every == 0 or run.completed == rounds):
                run.save(out, run_id=identity)


def repeated_releases(federation: Federation[Task], run: RecordedRun, out: Path | None) -> int:
    """Rounds of a noised run that were begun more than once, up to the last completed one.

    Raises:
        CheckpointError: the run's journal of releases is missing or damaged.
    """
    if out is None or not draws_noise(federation.stack):
        return 0
    return ReleaseJournal(out).repeated(run.completed)


def train_others(
    federation: Federation[Task],
    dataset: Dataset,
    run: RecordedRun,
    out: Path | None,
    *,
    progress: bool = True,
    workers: int = 1,
) -> tuple[list[dict[str, float]], Comparison | None]:
    """Train the other folds, unrecorded, and the plain twin.

    Finished folds are kept in ``folds.json`` and not trained again on resume.

    Args:
        federation: federation of the recorded fold.
        dataset: with all folds.
        run: the recorded fold, trained.
        out: its folder, if any.
        progress: whether to show progress.
        workers: processes that share the trainings.

    Returns:
        Utility of the other folds, and the comparison with the twin if requested.

    Raises:
        CheckpointError: that file is damaged.
        HostError: a worker was killed.
    """
    store = None if out is None else out / "folds.json"
    identity = run_identity(federation)
    folds = [] if store is None else _finished_folds(store, identity)
    finished, twins = {entry["fold"] for entry in folds}, int(federation.config.run.check_lossless)
    left = [fold for fold in dataset.folds[1:] if fold not in finished]
    alone = min(workers, len(left) + twins) < 2

    def train(number: int) -> dict[str, float] | Comparison | None:
        if number == len(left):
            return check_lossless(federation, run, progress=progress and alone)
        fold = left[number]
        return {
            "fold": fold,
            **_train_fold(federation, dataset.task(fold), fold, progress and alone),
        }

    def done(number: int, figures: Any) -> None:
        bar.update()
        if number < len(left):
            folds.append(figures)
            folds.sort(key=lambda entry: dataset.folds.index(int(entry["fold"])))
            if store is not None:
                write_json(store, {"run": identity, "folds": folds})

    total = len(left) + twins
    with tqdm(total=total, desc="folds, twin", disable=alone or not progress) as bar:
        found: list[Any] = shared_out(train, total, workers=workers, done=done)
    return folds, found[-1] if twins else None


def _finished_folds(store: Path, identity: str) -> list[dict[str, float]]:
    try:
        found = read_json(store)
        if found["run"] != identity:
            return []
        kept = [dict(entry) for entry in found["folds"]]
        if not all(
            isinstance(figure, int | float)
            for entry in kept
            for figure in (entry["fold"], *entry.values())
        ):
            raise TypeError("of another kind")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as damage:
        raise CheckpointError(f"{store} is damaged") from damage
    return kept


def check_lossless(
    federation: Federation[Task], run: RecordedRun, *, progress: bool = True
) -> Comparison:
    """Train on plain sums beside a recorded run and compare every round."""
    total = len(run.table_digests)
    with tqdm(total=total, desc="plain twin", unit="round", disable=not progress) as bar:
        return plain_twin(federation, run).compare(bar.update)


def plain_twin(federation: Federation[Task], run: RecordedRun) -> BesideRecorded:
    """The plain run beside a recorded one, before its first round."""
    algorithm, problem, bags = federation.task.fresh()
    return BesideRecorded(
        run,
        algorithm=algorithm,
        problem=problem,
        streams=federation.streams,
        cohort=federation.config.cohort,
        # The claim of a layer of the package states what it drops.
        drops_reports=federation.config.claim.drops_reports,
        bags={name: shape.width for name, shape in bags.items()},
    )


def _train_fold(
    federation: Federation[Task], task: Task, fold: int, progress: bool
) -> dict[str, float]:
    other = build_federation(federation.config, task)
    engine = other.engine(other.fresh(), cohort=other.config.cohort)
    report: RoundReport | None = None
    rounds = range(1, other.config.algorithm.rounds + 1)
    for round_ in tqdm(rounds, desc=f"fold {fold}", unit="round", disable=not progress):
        with _bearing_hinted(federation, round_):
            report = engine.run_round()
    if report is None or report.metrics is None:
        raise ConfigError("data.fold", fold, "has nothing to measure on")
    return dict(report.metrics)


@contextmanager
def _bearing_hinted(federation: Federation[Task], round_: int) -> Iterator[None]:
    """Add to an encoding error its round, and settings that train with the noise or any scale.

    Raises:
        EncodingError: as the code inside does.
    """
    try:
        yield
    except EncodingError as refused:
        algorithm, hints = federation.config.algorithm, []
        for name in federation.config.protection:
            bears = RECORDS[name].bears
            if any(getattr(algorithm, key, value) != value for key, value in bears.items()):
                said = " and ".join(f"algorithm.{key} = {json.dumps(bears[key])}" for key in bears)
                hints.append(f"; models of few parameters train with the noise of {name}: {said}")
        tame = {name: getattr(type(algorithm), name) for name in getattr(algorithm, "trains", ())}
        others = [name for name in tame if getattr(algorithm, name) != tame[name]]
        if others and not hints:
            said = ", ".join(f"algorithm.{name} = {json.dumps(tame[name])}" for name in others)
            hints.append(f"; these settings train on ratings of any scale: {said}")
        raise EncodingError(f"round {round_}: {refused}{''.join(hints)}") from refused


def _prepare_folder(federation: Federation[Task], out: Path, *, resume: bool) -> None:
    if resume:
        _require_same_run(federation, out)
    # First the file that makes a folder a run; gates and attacks in it may have changed on resume.
    write_own_config(out, federation.config.as_json())
    truth = out / "truth"
    truth.mkdir(mode=0o700, exist_ok=True)
    if not (out / _CHECKPOINT).exists():
        write_secrets(federation.task.secrets(), truth)


def _require_same_run(federation: Federation[Task], out: Path) -> None:
    """Refuse to resume another run before anything in its folder is touched."""
    kept = read_own_config(out)
    if (changed := same_training(kept, federation.config.plugins)) is not None:
        raise CheckpointError(f"{out / CONFIG_NAME}: {changed}")
    if (out / _CHECKPOINT).exists():
        read_checkpoint(out / _CHECKPOINT, run_id=run_identity(federation))
        return
    if parse_config(kept).training_digest() != federation.config.training_digest():
        raise CheckpointError(f"{out / CONFIG_NAME} belongs to a run with another configuration")
