"""What an audit will take, and what its gates can see, before it is begun.

Memory and disk follow from the sizes of everything; seconds are measured: some rounds of the run,
of its plain twin, and every attack on what they recorded are tried in a folder that is thrown away,
and laid out over the whole. Nothing of them is kept.
"""

import math
import os
import sys
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
from audits.run.training import projection, twin_engine
from audits.run.truth import ground_truth
from audits.system import Dataset, Task
from secure_fedrec.core.special import ndtri
from secure_fedrec.engines import RecordedRun, table_digest
from secure_fedrec.wire import Step

_LOADED = 0.23e9
"""Bytes of the packages and of a small audit."""

_HELD = 2**28
_AT_ONCE = 1 << 21
"""Pairs that a figure holds in all their columns, and bytes of each: see ``attacks.scoring``."""

_PAIR, _KEPT_PAIR = 180, 12
_WORD_COPIES = 3
_CUTS, _DRAWS = 1026, 2000
_PAIR_SECONDS = 1e-5
"""Of all attacks of an adversary, for each pair that uploads show: measured on ml-100k."""

_ROW_SECONDS = 1e-6
"""Of a training, for each row that a round's uploads have: measured on ml-100k."""

_LONG = 30.0
"""Seconds of attacks, or of trainings beside the recorded one, from which they are shared out."""

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
        gates: what each can see.
    """

    seconds: Mapping[str, float]
    memory_gb: float
    disk_gb: float
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
    parts = memory_parts(federation, len(dataset.folds))
    require_memory(federation.config, parts)
    return Forecast(
        seconds=_seconds(federation, len(dataset.folds), progress=progress),
        memory_gb=sum(parts.values()) / 1e9,
        disk_gb=disk / 1e9,
        gates=tuple(gate_power(gate, federation) for gate in federation.config.gates),
    )


# --- memory and disk ------------------------------------------------------------------------------


def memory_parts(federation: Federation[Task], folds: int = 1) -> dict[str, float]:
    """Bytes that an audit holds at its peak, by what has to change for them to be fewer.

    Args:
        federation: what is to be run.
        folds: that are trained, the recorded one included.
    """
    vault, facts = federation.task.fresh().problem.vault, federation.task.facts
    traffic = federation.stack.traffic(vault.example_counts())
    words = max((part.rows * part.width for part in traffic), default=0) * 8.0
    real = float(vault.example_counts().sum())
    pairs = _shown_pairs(federation)
    state = 2.0 * sum(values.nbytes for values in vault.tables().values())
    exact = 2 if facts.items < 2**16 else 4
    draws = min(float(_HELD), 2.0 * _DRAWS * facts.clients) + facts.clients * _CUTS * exact
    crew = attack_workers(federation)
    held = max(crew, training_workers(federation, folds))
    blocks = min(_HELD, projection(federation))
    shown = pairs * _KEPT_PAIR + min(pairs, _AT_ONCE) * _PAIR
    return {
        "the packages": _LOADED,
        "blocks of the recording (recording.payload_rounds, run.workers)": crew * blocks,
        "words of a round (algorithm.rank, recording.payload_senders)": held * _WORD_COPIES * words,
        "pairs that uploads show (protection.rho, algorithm.rounds, run.workers)": crew * shown,
        "clients (data)": held * state + draws + 100.0 * real,
    }


def _shown_pairs(federation: Federation[Task]) -> float:
    """Pairs of a client and an item that its uploads show, of all rounds together."""
    algorithm, problem, _ = federation.task.fresh()
    facts, rows = federation.task.facts, _rows_of_round(federation)
    real = float(problem.vault.example_counts().sum())
    unseen = max(1.0, float(facts.clients) * max(1, facts.items) - real)
    share = min(0.999, max(0.0, rows - real) / unseen)
    return real - unseen * math.expm1(algorithm.rounds * math.log1p(-share))


def attack_workers(federation: Federation[Task]) -> int:
    """Processes for the attacks: as many as asked for, else one for each core if they take long."""
    config = federation.config
    if config.run.workers is not None:
        return config.run.workers
    seconds = _PAIR_SECONDS * _shown_pairs(federation) * max(1, len(config.adversaries))
    return len(os.sched_getaffinity(0)) if seconds > _LONG else 1


def training_workers(federation: Federation[Task], folds: int) -> int:
    """Processes for the folds beside the recorded one and the twin, as for the attacks.

    One where trainings are PyTorch's: its threads do not outlive a fork.
    """
    config = federation.config
    trainings = folds - 1 + int(config.run.check_lossless)
    if trainings < 2 or "torch" in sys.modules:
        return 1
    if config.run.workers is not None:
        return config.run.workers
    seconds = _ROW_SECONDS * _rows_of_round(federation) * config.algorithm.rounds * trainings
    return len(os.sched_getaffinity(0)) if seconds > _LONG else 1


def _rows_of_round(federation: Federation[Task]) -> float:
    """Rows of all clients' uploads, virtual ones included."""
    traffic = federation.stack.traffic(federation.task.fresh().problem.vault.example_counts())
    return float(
        max((part.rows for part in traffic if part.step in (Step.UPLOAD, Step.SHARE)), default=0)
    )


def require_memory(config: AuditConfig, parts: Mapping[str, float]) -> None:
    """Refuse an audit above the limit.

    Raises:
        ConfigError: it is; the message says what to change.
    """
    limit, needed = config.run.max_memory_gb, sum(parts.values())
    if limit is None or needed <= limit * 1e9:
        return
    if limit * 1e9 <= _LOADED:
        raise config.run.refusal(
            "max_memory_gb", f"no audit takes less than {_LOADED / 1e9:.2f} GB"
        )
    most = max((name for name in parts if name != "the packages"), key=parts.__getitem__)
    raise config.run.refusal(
        "max_memory_gb",
        f"the audit would take about {needed / 1e9:.2f} GB, most of it for {most}",
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
