"""What an audit will take, and what its gates can see, before it is begun.

Memory and disk follow from the sizes of everything; seconds are measured: some rounds of the run,
of its plain twin, and every attack on what they recorded are tried in a folder that is thrown away,
and laid out over the whole. Nothing of them is kept.
"""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from time import process_time

from tqdm import tqdm

from attacks import SUITE, GroundTruth, evaluate
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

_STARTED = 2.0
"""Seconds of starting, reading data and writing a report."""

_POWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePower:
    """What a gate can see.

    Args:
        gate: its name.
        clients: behind its figure.
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


def forecast(federation: Federation[Task], dataset: Dataset, *, progress: bool = True) -> Forecast:
    """Try an audit for as long as it takes to know it.

    Args:
        federation: what is to be run.
        dataset: its data, with all folds.
        progress: whether to show a progress bar.

    Raises:
        ConfigError: its recording or its memory is above the limit.
    """
    disk = projection(federation) + _beside(federation)
    folds = len(dataset.folds)
    parts = memory_parts(federation, folds)
    require_memory(federation.config, parts)
    return Forecast(
        seconds=_seconds(federation, folds, progress=progress),
        memory_gb=sum(parts.values()) / 1e9,
        disk_gb=disk / 1e9,
        lowered=tuple(filter(None, (crew.lowered for crew in crews(federation, folds)))),
        gates=tuple(gate_power(gate, federation) for gate in federation.config.gates),
    )


def _beside(federation: Federation[Task]) -> float:
    """Bytes of a run folder beside the transcript: checkpoint, truth, report."""
    problem, rounds = federation.task.fresh().problem, federation.config.recording.payload_rounds
    state = sum(values.nbytes for values in problem.vault.tables().values())
    return state * (1.0 + len(rounds)) + 20.0 * float(problem.vault.example_counts().sum()) + 1e6


# --- seconds --------------------------------------------------------------------------------------


def _seconds(federation: Federation[Task], folds: int, *, progress: bool) -> dict[str, float]:
    config = federation.config
    rounds, kept = config.algorithm.rounds, len(config.recording.payload_rounds)
    with tempfile.TemporaryDirectory(prefix="secure-fedrec-") as scratch:
        run = _fresh_run(federation, Path(scratch))
        tried = _tried_rounds(rounds)
        spent = [
            _round(run, round_)
            for round_ in tqdm(tried, desc="trying", unit="round", disable=not progress)
        ]
        usual = fmean(spent[1:] or spent)
        found = {
            "training": max(0.0, spent[0] - usual) + usual * rounds,
            "other folds": (folds - 1) * usual * rounds,
            "plain twin": _twin_round(federation, run) * rounds if config.run.check_lossless else 0,
        }
        truth = ground_truth(
            federation.task.secrets(),
            run.truth,
            name=config.data.name,
            denoisers=federation.denoiser_clients,
        )
        timed = _attacks(config, run, truth)
        loading = 0.0
        if sum(timed.values()) < _SOON:
            again = _attacks(config, run, truth)
            loading, timed = max(0.0, sum(timed.values()) - sum(again.values())), again
    once = sum(seconds for name, seconds in timed.items() if _reads_one_round(name))
    grown = (1.0 + rounds / len(tried)) / 2
    found["attacks"] = loading + once * max(1, kept) + (sum(timed.values()) - once) * grown
    start = process_time()
    positive_controls()
    found["start, controls and report"] = process_time() - start + _STARTED
    return found


def _tried_rounds(rounds: int) -> list[int]:
    """The first, which loads what it needs, and the middle of each third: fillings change."""
    return sorted({1, *(max(1, math.ceil(rounds * part / 6)) for part in (1, 3, 5))})


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


def _attacks(config: AuditConfig, run: RecordedRun, truth: GroundTruth) -> dict[str, float]:
    """Seconds of each attack by all adversaries, on what was tried."""
    transcript, held = run.transcript.held(), replace(truth, recorded=truth.recorded.held())
    spent = dict.fromkeys(config.attacks, 0.0)
    for adversary in config.adversaries:
        for name in config.attacks:
            start = process_time()
            evaluate(SUITE[name], adversary, transcript, held, seed=config.seed)
            spent[name] += process_time() - start
    return spent


def _reads_one_round(name: str) -> bool:
    return bool(getattr(SUITE[name], "reads_one_round", False))


# --- power ----------------------------------------------------------------------------------------


def gate_power(gate: GateConfig, federation: Federation[Task]) -> GatePower:
    """What a gate can see: see ``GatePower``.

    Args:
        gate: the gate.
        federation: says how many clients there are, and how many rounds an attack may choose from.
    """
    config = federation.config
    adversary = next((each for each in config.adversaries if each.name == gate.adversary), None)
    own = () if adversary is None else adversary.members("client") or ()
    clients = federation.task.facts.clients - len(own)
    bound = getattr(gate, gate.bound)
    if gate.attack is None or gate.metric not in MEASURES or clients < FEWEST_CLIENTS:
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
