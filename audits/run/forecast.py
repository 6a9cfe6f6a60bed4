"""What an audit will take, and what its gates can see, before it is begun.

Memory and disk follow from the sizes of everything; seconds are measured: some rounds of the run,
of its plain twin, and every attack on what they recorded are tried in a folder that is thrown away,
and laid out over the whole. The clients behind a figure there are those that its gate can see.
Nothing of them is kept.
"""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import NamedTuple

from tqdm import tqdm

from attacks import SUITE, Finding, GroundTruth, evaluate
from attacks.planted.controls import positive_controls
from attacks.scoring.measures import Gained
from attacks.suite import MEASURES
from audits.config.audit import AuditConfig
from audits.gates.gate import FEWEST_CLIENTS, GateConfig
from audits.run.build import Federation
from audits.run.memory import crews, memory_parts, require_memory
from audits.run.training import projection, twin_engine
from audits.run.truth import ground_truth
from audits.system import Dataset, Task
from secure_fedrec.core.special import ndtri
from secure_fedrec.engines import RecordedRun, table_digest

_SOON = 20.0
"""Seconds of attacks up to which they are tried twice: the first time loads their loops."""

_REPORT = 1.0
"""Seconds of writing a report."""

_MORE = 9
"""Rounds that are tried besides, to see what attacks take more for a round more."""

_POWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePower:
    """What a gate can see.

    Args:
        gate: its name.
        clients: about how many are behind its figure, by the rounds that were tried.
        least: figure from which the gate is decided in four of five runs, however much clients
            differ; None where it needs no figure of clients, or has too few.
    """

    gate: str
    clients: int
    least: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What an audit will take.

    Args:
        seconds: of one core, by part.
        memory_gb: largest resident memory, in 10^9 bytes.
        disk_gb: of the run folder.
        lowered: a line for each part of the work that fewer processes share than would, because
            memory has no room for more.
        gates: what each can see.
    """

    seconds: Mapping[str, float]
    memory_gb: float
    disk_gb: float
    lowered: tuple[str, ...]
    gates: tuple[GatePower, ...]


def forecast(
    federation: Federation[Task], dataset: Dataset, *, started: float, progress: bool = True
) -> Forecast:
    """Try an audit for as long as it takes to know it.

    Args:
        federation: what is to be run.
        dataset: its data, with all folds.
        started: seconds that it took to come this far, which the audit takes as well.
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
        gates=tuple(gate_power(gate, federation, findings) for gate in federation.config.gates),
    )


def _beside(federation: Federation[Task]) -> float:
    """Bytes of a run folder beside the transcript: checkpoint, truth, report."""
    problem, rounds = federation.task.fresh().problem, federation.config.recording.payload_rounds
    state = sum(values.nbytes for values in problem.vault.tables().values())
    return state * (1.0 + len(rounds)) + 20.0 * float(problem.vault.example_counts().sum()) + 1e6


# --- seconds --------------------------------------------------------------------------------------


def _tried(
    federation: Federation[Task], folds: int, *, progress: bool
) -> tuple[dict[str, float], list[Finding]]:
    """Seconds by part, and what attacks found in the rounds that were tried."""
    config = federation.config
    rounds, kept = config.algorithm.rounds, len(config.recording.payload_rounds)
    with tempfile.TemporaryDirectory(prefix="secure-fedrec-") as scratch:
        run, tried = _fresh_run(federation, Path(scratch)), _tried_rounds(rounds)
        bar = partial(tqdm, desc="trying", unit="round", disable=not progress)
        spent = [_round(run, round_) for round_ in bar(tried)]
        truth = ground_truth(
            federation.task.secrets(),
            run.truth,
            name=config.data.name,
            denoisers=federation.denoiser_clients,
        )
        timed, findings = _attacks(config, run, truth)
        loading, each, more = 0.0, 0.5 * _of_all_rounds(timed) / len(tried), []
        if sum(timed.values()) < _SOON:
            again, findings = _attacks(config, run, truth)
            loading, timed = max(0.0, sum(timed.values()) - sum(again.values())), again
            more = [_round(run, round_) for round_ in bar(_more_rounds(rounds, sum(spent)))]
        if more:
            longer, _ = _attacks(config, run, truth, all_rounds=True)
            each = max(0.0, _of_all_rounds(longer) - _of_all_rounds(timed)) / len(more)
        training = _training(spent, more, rounds, kept)
        found = {
            "training": training.first + training.usual * rounds + training.kept,
            "other folds": (folds - 1) * training.usual * rounds,
            "plain twin": _twin_round(federation, run) * rounds if config.run.check_lossless else 0,
        }
    whole = _of_all_rounds(timed)
    once = (sum(timed.values()) - whole) * max(1, kept)
    found["attacks"] = loading + once + whole + each * (rounds - len(tried))
    start = process_time()
    positive_controls()
    found["start, controls and report"] = process_time() - start + _REPORT
    return found, findings


class _Training(NamedTuple):
    """Seconds of training: what the first round takes more, any round, what recorded ones do."""

    first: float
    usual: float
    kept: float


def _training(spent: Sequence[float], more: Sequence[float], rounds: int, kept: int) -> _Training:
    """From the rounds tried: the first, one that is recorded (``_fresh_run``), and others."""
    first, *others = spent
    recorded = others.pop(len(spent) // 2 - 1) if len(others) > 1 else None
    usual = fmean([*others, *more] or spent)
    extra = 0.0 if recorded is None else max(0.0, recorded - usual)
    return _Training(max(0.0, first - usual), usual, extra * min(kept, rounds))


def _tried_rounds(rounds: int) -> list[int]:
    """The first, which loads what it needs, and the middle of each third: fillings change."""
    return sorted({1, *(max(1, math.ceil(rounds * part / 6)) for part in (1, 3, 5))})


def _more_rounds(rounds: int, seconds: float) -> range:
    """Rounds behind those tried, which took so many seconds: none where that is long."""
    first = _tried_rounds(rounds)[-1] + 1
    return range(first, min(rounds, first + _MORE - 1) + 1 if seconds < _SOON else first)


def _fresh_run(federation: Federation[Task], folder: Path) -> RecordedRun:
    """The run, with the payloads of one tried round."""
    algorithm, problem, _ = federation.fresh()
    config, tried = federation.config, _tried_rounds(federation.config.algorithm.rounds)
    payloads = (tried[len(tried) // 2],) if config.recording.payload_rounds else ()
    return RecordedRun(
        algorithm=algorithm,
        stack=federation.stack,
        problem=problem,
        streams=federation.streams,
        policy=replace(config.recording, payload_rounds=payloads),
        directory=folder,
        cohort=config.cohort,
    )


def _round(run: RecordedRun, round_: int) -> float:
    """Seconds of a round, whatever came before it."""
    run.engine.public = replace(run.engine.public, round=round_ - 1)
    start = process_time()
    run.run_round()
    return process_time() - start


def _twin_round(federation: Federation[Task], run: RecordedRun) -> float:
    """Seconds of a round of the plain twin."""
    twin = twin_engine(federation, run.engine.participants)
    twin.run_round()
    start = process_time()
    twin.run_round()
    table_digest(twin.public)
    return process_time() - start


def _attacks(
    config: AuditConfig, run: RecordedRun, truth: GroundTruth, *, all_rounds: bool = False
) -> tuple[dict[str, float], list[Finding]]:
    """Seconds of each attack by all adversaries on what was tried, and what they found.

    Where ``all_rounds``, of those that read more than one round.
    """
    transcript, held = run.transcript.held(), replace(truth, recorded=truth.recorded.held())
    names = [name for name in config.attacks if not (all_rounds and _reads_one_round(name))]
    spent, findings = dict.fromkeys(names, 0.0), []
    for adversary in config.adversaries:
        for name in names:
            start = process_time()
            findings.append(evaluate(SUITE[name], adversary, transcript, held, seed=config.seed))
            spent[name] += process_time() - start
    return spent, findings


def _of_all_rounds(timed: Mapping[str, float]) -> float:
    """Seconds of the attacks that read more than one round."""
    return sum(seconds for name, seconds in timed.items() if not _reads_one_round(name))


def _reads_one_round(name: str) -> bool:
    return bool(getattr(SUITE[name], "reads_one_round", False))


# --- power ----------------------------------------------------------------------------------------


def gate_power(
    gate: GateConfig, federation: Federation[Task], findings: Sequence[Finding] = ()
) -> GatePower:
    """What a gate can see: see ``GatePower``.

    Args:
        gate: the gate.
        federation: says how many clients there are, and how many rounds an attack may choose from.
        findings: of attacks on some rounds, which say how many clients are behind a figure; all of
            them are, where there is none of the gate's attack.
    """
    config = federation.config
    adversary = next((each for each in config.adversaries if each.name == gate.adversary), None)
    own = () if adversary is None else adversary.members("client") or ()
    clients, there = federation.task.facts.clients - len(own), True
    for found in findings:
        if (found.attack, found.adversary) == (gate.attack, gate.adversary) and found.measured:
            clients = _behind(found, clients, config)
            there = found.figures.get(gate.metric) is not None
    bound = getattr(gate, gate.bound)
    of_clients = there and gate.attack is not None and gate.metric in MEASURES
    if not of_clients or gate.attack is None or clients < FEWEST_CLIENTS:
        return GatePower(gate=gate.name, clients=clients, least=None)
    tried = 1
    if _reads_one_round(gate.attack):
        tried = max(1, len(config.recording.payload_rounds))
    low = -1.0 if isinstance(MEASURES[gate.metric].severity, Gained) else 0.0
    deviations = float(ndtri(1.0 - 0.025 / tried) + ndtri(_POWER)) / math.sqrt(clients)
    end = low if gate.bound == "min" else 1.0
    # Exact intervals of shares are wider than normal ones, by a client or so.
    least = _surely(float(bound), end, low, deviations, 1.0 / clients)
    return GatePower(gate=gate.name, clients=clients, least=least)


def _behind(found: Finding, clients: int, config: AuditConfig) -> int:
    """How many of so many clients will be behind a figure, by what is behind it in tried rounds.

    Where not all are invited, or recorded, more rounds show others; those of named senders do not.
    """
    share = min(1.0, found.units.get("clients", 0) / clients)
    if len(found.rounds) > 1:
        times = config.algorithm.rounds / len(found.rounds)
    elif _reads_one_round(found.attack) or config.recording.payload_senders is not None:
        times = 1.0
    else:
        times = float(max(1, len(config.recording.payload_rounds)))
    seen: float = 1.0 - (1.0 - share) ** times
    return round(clients * seen)


def _surely(bound: float, end: float, low: float, deviations: float, step: float) -> float:
    """The mean between a bound and an end of its range that is told apart from the bound.

    It lies so many deviations of a value, and a step, away; at the end of the range if none does.
    Values between ``low`` and 1 deviate most where they lie at the ends, at neither of which they
    deviate at all.
    """
    near, far = bound, end
    for _ in range(60):
        middle = (near + far) / 2
        spread = math.sqrt(max(0.0, (middle - low) * (1.0 - middle)))
        told = abs(middle - bound) >= deviations * spread + step
        near, far = (near, middle) if told else (middle, far)
    return far
