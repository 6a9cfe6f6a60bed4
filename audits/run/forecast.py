"""Forecast of an audit's time, memory and disk, and of what its gates can decide.

Memory and disk are computed from sizes. Seconds are measured: some rounds of the run, of its plain
twin, and every attack on what they recorded are tried in a temporary folder, and extrapolated to
the whole audit. The clients behind a figure in this trial are those that its gate can use. No
results are kept.
"""

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from attacks import SUITE, Finding, GroundTruth
from attacks.planted.controls import positive_control
from attacks.scoring.games import tried
from audits.config.audit import AuditConfig
from audits.run.build import Federation
from audits.run.memory import crews, memory_parts, require_memory
from audits.run.power import GatePower, gate_power, reads_one_round, reads_payloads
from audits.run.training import plain_twin, projection
from audits.run.truth import truth_of
from audits.system import Dataset, Task
from secure_fedrec.blocks import BlockLayout
from secure_fedrec.core.compiler import clock_without_compiling
from secure_fedrec.engines import RecordedRun, projected_own_bytes
from secure_fedrec.engines.federated_problem import blocks_of, state_bytes

_SOON = 60.0
"""Attacks up to this many seconds are tried twice, since the first time loads their loops."""

_REPORT, _REPORT_BYTES = 1.0, 2e5
"""Seconds of writing a report, and its size."""

_MORE = 9
"""Further rounds that are tried to measure the cost of attacks per round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The forecast of an audit.

    Args:
        seconds: of one core, by part.
        memory_gb: largest resident memory, in 10^9 bytes.
        disk_gb: disk space of the run folder.
        lowered: a line for each part of the work that is shared by fewer processes than wanted, for
            lack of memory.
        gates: what each gate can decide.
    """

    seconds: Mapping[str, float]
    memory_gb: float
    disk_gb: float
    lowered: tuple[str, ...]
    gates: tuple[GatePower, ...]


def forecast(
    federation: Federation[Task], dataset: Dataset, *, started: float, progress: bool = True
) -> Forecast:
    """Try parts of an audit to estimate the whole.

    Args:
        federation: to be audited.
        dataset: its data, with all folds.
        started: seconds spent before this call, which the audit spends as well.
        progress: whether to show a progress bar.

    Raises:
        ConfigError: its recording or its memory is above the limit.
    """
    disk = projection(federation) + _beside(federation)
    folds = len(dataset.folds)
    parts = memory_parts(federation, folds)
    require_memory(federation.config, parts)
    seconds, findings = _tried(federation, folds, progress=progress)
    seconds["start, controls and report"] += started
    return Forecast(
        seconds=seconds,
        memory_gb=sum(parts.values()) / 1e9,
        disk_gb=disk / 1e9,
        lowered=tuple(filter(None, (crew.lowered for crew in crews(federation, folds)))),
        gates=tuple(
            gate_power(gate, federation, findings, _payloads_of(federation))
            for gate in federation.config.gates
        ),
    )


def _beside(federation: Federation[Task]) -> float:
    """Bytes of a run folder without the transcript: checkpoint, truth, report."""
    algorithm, problem, _ = federation.fresh()
    policy, cohort = federation.config.recording, federation.config.cohort
    table = BlockLayout(blocks_of(algorithm, problem))
    state = state_bytes(algorithm, problem)
    own = projected_own_bytes(algorithm, federation.stack, problem, policy, cohort)
    secrets = sum(
        np.asarray(column).nbytes
        for columns in federation.task.secrets().values()
        for column in columns.values()
    )
    recorded = policy.kept(range(1, federation.config.algorithm.rounds + 1))
    kept = state * (1.0 + recorded) + 8.0 * table.rows * table.width
    return kept + own + secrets + _REPORT_BYTES


Clock = Callable[[], float]


def _tried(
    federation: Federation[Task], folds: int, *, progress: bool
) -> tuple[dict[str, float], list[Finding]]:
    """Seconds by part, and what attacks found in the rounds that were tried."""
    config = federation.config
    rounds, kept = config.algorithm.rounds, len(config.recording.payload_rounds)
    bar = partial(tqdm, desc="trying", unit="round", disable=not progress)
    with (
        tempfile.TemporaryDirectory(prefix="secure-fedrec-") as scratch,
        clock_without_compiling() as clock,
    ):
        run, tried = _fresh_run(federation, Path(scratch)), _tried_rounds(rounds)
        spent = [_round(run, round_, clock) for round_ in bar(tried)]
        attack = partial(_attacks, config, run, truth_of(federation, run.truth), clock)
        first, findings = attack(config.attacks)
        soon = sum(first.values()) < _SOON
        timed, findings = attack(config.attacks) if soon else (first, findings)
        later = _more_rounds(rounds, sum(spent)) if soon else ()
        more = [_round(run, round_, clock) for round_ in bar(later)]
        growing = _growing(findings, _payloads_of(federation))
        longer, _ = attack(growing if more else ())
        training = _training(spent, more, rounds, kept)
        saving = _saving(run, Path(scratch), clock) * (1 + rounds // config.run.checkpoint_every)
        twin = _twin_round(federation, run, clock) if config.run.check_lossless else 0.0
        start = clock()
        for name in config.attacks:
            positive_control(name)
        controls = clock() - start
    whole = sum(timed[name] for name in growing)
    each = (sum(longer.values()) - whole) / len(more) if more else 0.5 * whole / len(tried)
    once = sum(timed.values()) - whole
    loading = max(0.0, sum(first.values()) - sum(timed.values()))
    attacks = loading + once * max(1, kept) + whole + max(0.0, each) * (rounds - len(tried))
    return {
        "training": training.first + training.usual * rounds + training.kept + saving,
        "other folds": (folds - 1) * training.usual * rounds,
        "plain twin": twin * rounds,
        "attacks": attacks,
        "start, controls and report": controls + _REPORT,
    }, findings


def _growing(findings: Sequence[Finding], payloads_of: int | None) -> list[str]:
    """Attacks whose time grows with all rounds; that of others grows with rounds with payloads."""
    of_payloads = {found.attack for found in findings if reads_payloads(found, payloads_of)}
    names = dict.fromkeys(found.attack for found in findings)
    return [name for name in names if name not in of_payloads and not reads_one_round(name)]


class _Training(NamedTuple):
    """Seconds of training: extra time of the first round, of any round, and of recorded rounds."""

    first: float
    usual: float
    kept: float


def _training(spent: Sequence[float], more: Sequence[float], rounds: int, kept: int) -> _Training:
    """Estimate from the rounds tried: the first, one recorded (``_fresh_run``), and others."""
    first, *others = spent
    recorded = others.pop(len(spent) // 2 - 1) if len(others) > 1 else None
    usual = fmean([*others, *more] or spent)
    extra = 0.0 if recorded is None else max(0.0, recorded - usual)
    return _Training(max(0.0, first - usual), usual, extra * min(kept, rounds))


def _tried_rounds(rounds: int) -> list[int]:
    """The first round, which loads code, and the middle of each third, since sizes change."""
    return sorted({1, *(max(1, math.ceil(rounds * part / 6)) for part in (1, 3, 5))})


def _more_rounds(rounds: int, seconds: float) -> range:
    """Further rounds to try; none if the tried rounds took long."""
    first = _tried_rounds(rounds)[-1] + 1
    return range(first, min(rounds, first + _MORE - 1) + 1 if seconds < _SOON else first)


def _payloads_of(federation: Federation[Task]) -> int | None:
    """The tried round whose payloads are recorded."""
    config = federation.config
    tried = _tried_rounds(config.algorithm.rounds)
    return tried[len(tried) // 2] if config.recording.payload_rounds else None


def _fresh_run(federation: Federation[Task], folder: Path) -> RecordedRun:
    """The run, with the payloads of one tried round."""
    payloads = () if (one := _payloads_of(federation)) is None else (one,)
    policy = replace(federation.config.recording, payload_rounds=payloads)
    return federation.recorded(policy, folder)


def _round(run: RecordedRun, round_: int, clock: Clock) -> float:
    """Seconds of a round, without start-up."""
    run.engine.public = replace(run.engine.public, round=round_ - 1)
    start = clock()
    run.run_round()
    return clock() - start


def _saving(run: RecordedRun, folder: Path, clock: Clock) -> float:
    """Seconds of a checkpoint."""
    start = clock()
    run.save(folder, run_id="tried")
    return clock() - start


def _twin_round(federation: Federation[Task], run: RecordedRun, clock: Clock) -> float:
    """Seconds of a round of the plain twin: of the last one tried, after the first."""
    twin, start = plain_twin(federation, run), 0.0
    tried = _tried_rounds(federation.config.algorithm.rounds)
    for round_ in (tried[0], tried[-1]):
        twin.plain.public = replace(twin.plain.public, round=round_ - 1)
        start = clock()
        twin.round(run.table_digests[-1])
    return clock() - start


def _attacks(
    config: AuditConfig, run: RecordedRun, truth: GroundTruth, clock: Clock, names: Sequence[str]
) -> tuple[dict[str, float], list[Finding]]:
    """Seconds of each of some attacks by all adversaries on what was tried; what they found."""
    transcript, held = run.transcript.held(), replace(truth, recorded=truth.recorded.held())
    spent, findings = dict.fromkeys(names, 0.0), []
    for adversary in config.adversaries:
        for name in names:
            start = clock()
            findings.append(tried(SUITE[name], adversary, transcript, held, seed=config.seed))
            spent[name] += clock() - start
    return spent, findings
