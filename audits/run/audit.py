"""An audit from a configuration to a report: train, record, attack, judge, write."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from tqdm import tqdm

from attacks import SUITE, Finding, GroundTruth
from attacks.planted.controls import positive_control
from attacks.scoring.games import Raised, reads, tried
from audits.config.audit import AuditConfig
from audits.gates.gate import judge
from audits.gates.policy import Policy, applied, require_same_federation
from audits.gates.verdict import Verdict
from audits.report import FORMATS, write_report
from audits.report.assemble import Measured, assemble
from audits.report.findings import finding_json
from audits.results import AuditResult
from audits.run.build import Federation, build_federation, load_dataset, load_federation
from audits.run.folder import one_writer, read_client_secrets
from audits.run.memory import crews, memory_parts, require_memory, training_parts
from audits.run.privacy import draws_noise, epsilons, prices, readers
from audits.run.training import (
    open_run,
    projection,
    repeated_releases,
    train_others,
    train_recorded,
)
from audits.run.truth import truth_of
from audits.run.utility import Utility, utility_of
from audits.run.workers import shared_out
from audits.system import Task
from secure_fedrec.engines import RecordedRun, RoundReport, require_complete
from secure_fedrec.properties import Comparison
from secure_fedrec.wire import Adversary, Meter, Transcript

Tell: TypeAlias = Callable[[str], None]
"""Called with a line about what is about to run."""


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def audit(
    config: AuditConfig,
    *,
    out: Path,
    data_dir: Path | None,
    resume: bool,
    command: Sequence[str],
    progress: bool = True,
    source: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    formats: Sequence[str] = FORMATS,
    tell: Tell = _say,
) -> AuditResult:
    """Run a whole audit and write its report, whatever its verdict.

    Args:
        config: what to audit.
        out: run folder; report, transcript, truth and checkpoint go there.
        data_dir: folder of the data sets.
        resume: continue the run in ``out``.
        command: the command line, for the report's reproducibility block.
        progress: whether to show progress bars on stderr.
        source: the configuration's file (``audits.config.lines``), for the report; None for none.
        policy: what else affects the verdict; waivers as of today if left out.
        formats: formats of the report's files.
        tell: called with what is about to run; prints to standard error if left out.

    Raises:
        ConfigError, DataError: refused before anything is written.
        CheckpointError, TranscriptError: the run in ``out`` is damaged or was changed.
        OSError: something could not be written; the run can be continued.
    """
    started = time.time()
    dataset = load_dataset(config, data_dir)
    federation = build_federation(config, dataset.task(dataset.folds[0]))
    if policy is not None and policy.baseline is not None:
        known = {"fingerprint": federation.task.facts.fingerprint}
        now = {"configuration": config.as_json(), "data": known}
        require_same_federation(policy.baseline, now)
    projected = projection(federation)
    require_memory(config, memory_parts(federation, len(dataset.folds)))
    with one_writer(out, resume=resume):
        federation = federation.under(read_client_secrets(out))
        run = open_run(federation, out, resume=resume)
        _announce(federation, run, projected, tell)
        trainers, attackers = crews(federation, len(dataset.folds))
        for lowered in filter(None, (each.lowered for each in (trainers, attackers))):
            tell(lowered)
        train_recorded(federation, run, out, progress=progress)
        first = {"fold": dataset.folds[0], **(run.history[-1].metrics or {})}
        folds, lossless = train_others(
            federation, dataset, run, out, progress=progress, workers=trainers.workers
        )
        utility = utility_of(
            config.metrics,
            [first, *folds],
            [dataset.task(fold).facts.baselines for fold in dataset.folds],
            local_only=draws_noise(federation.stack),
        )
        require_complete(out, config.algorithm.rounds)
        parts = (federation, run, utility, lossless, out)
        measured = _measured(*parts, progress=progress, workers=attackers.workers)
        report = assemble(measured, command=command, started=started)
        if source is not None:
            report["source"] = dict(source)
        report = applied(report, policy or Policy())
        return AuditResult(
            report=report,
            verdict=Verdict.told(report["verdict"]),
            files=write_report(report, out, formats),
            folder=out,
        )


def train(
    config: AuditConfig,
    *,
    out: Path | None,
    data_dir: Path | None,
    resume: bool,
    progress: bool = True,
    observer: Callable[[Meter], Callable[[RoundReport], None]] | None = None,
    tell: Tell = _say,
) -> RecordedRun:
    """Train only the recorded fold.

    Args:
        config: what to train.
        out: run folder; None keeps everything in memory.
        data_dir: folder of the data sets.
        resume: continue the run in ``out``.
        progress: whether to show a progress bar on stderr.
        observer: makes from the run's meter a function that is called after every round.
        tell: called with what is about to run; prints to standard error if left out.

    Raises:
        ConfigError, DataError, CheckpointError, TranscriptError, OSError: as ``audit`` does.
    """
    federation = load_federation(config, data_dir)
    projected = projection(federation)
    require_memory(config, training_parts(federation), work="training")
    with nullcontext() if out is None else one_writer(out, resume=resume):
        run = open_run(federation, out, resume=resume)
        _announce(federation, run, projected, tell)
        on_round = None if observer is None else observer(run.engine.wire.meter)
        train_recorded(federation, run, out, on_round=on_round, progress=progress)
        if out is not None:
            require_complete(out, config.algorithm.rounds)
    return run


def _measured(
    federation: Federation[Task],
    run: RecordedRun,
    utility: Utility,
    lossless: Comparison | None,
    out: Path,
    *,
    progress: bool,
    workers: int,
) -> Measured:
    """Attack a finished run, compute its privacy cost and judge it."""
    config = federation.config
    transcript, truth = run.transcript.held(), truth_of(federation, run.truth)
    findings = attack_all(
        transcript,
        truth,
        config.adversaries,
        config.attacks,
        seed=config.seed,
        bars=progress,
        workers=workers,
    )
    priced = prices(
        federation.stack,
        rounds=run.completed,
        repeated=repeated_releases(federation, run, out),
        readers=readers(config.adversaries),
    )
    gates = [
        judge(
            gate,
            findings=findings,
            utility=utility.figures(),
            lossless=None if lossless is None or lossless.vacuous else lossless.holds,
            lossless_words="lossless" if lossless is None else lossless.verdict,
            epsilons=epsilons(config.adversaries, federation.stack, priced),
        )
        for gate in config.gates
    ]
    return Measured(
        federation=federation,
        run=run,
        transcript=transcript,
        utility=utility,
        lossless=lossless,
        findings=findings,
        controls={name: positive_control(name) for name in config.attacks},
        gates=gates,
        privacy=priced,
        switched_off=[
            name
            for name in config.known_attacks
            if name not in config.attacks
            and any(reads(SUITE[name], each, transcript, truth) for each in config.adversaries)
        ],
    )


def _announce(federation: Federation[Task], run: RecordedRun, projected: int, tell: Tell) -> None:
    """Print what is about to run and the projected size of its transcript."""
    facts, nouns = federation.task.facts, federation.task.facts.nouns
    capped = federation.stack.capped(run.engine.vault.example_counts())
    tell(
        f"{facts.name}: {facts.clients} {nouns.clients}, {facts.items} {nouns.items}, "
        f"{facts.train} training {nouns.examples}; projected transcript {projected / 1e6:.1f} MB"
        + (f"; virtual ratings capped for {len(capped)} clients" if len(capped) else "")
    )


def writable(finding: Finding, *, inside: str) -> Finding:
    """A finding unchanged if a report can hold it; else one that names what a report cannot hold.

    Args:
        finding: the result of an attack; rounds and units must be whole numbers, everything else
            JSON values.
        inside: name of the attack's module.
    """
    try:
        rounds = (("its round", each) for each in finding.rounds)
        units = ((f"its number of {name}", each) for name, each in finding.units.items())
        for name, value in (*rounds, *units):
            if type(value) is not int:
                raise TypeError(f"{name} is {value!r}, not a whole number")
        try:
            json.dumps(finding_json(finding, None), allow_nan=False)
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as problem:
            raise TypeError(f"what it found is not JSON: {problem}") from problem
    except TypeError as error:
        raised = Raised.of(error, inside=inside)
        blank = Finding(attack=finding.attack, adversary=finding.adversary, game=finding.game)
        return replace(blank, reason=str(raised), raised=raised)
    return finding


def attack_all(
    transcript: Transcript,
    truth: GroundTruth,
    adversaries: Sequence[Adversary],
    attacks: Sequence[str],
    *,
    seed: int,
    judged: int = 0,
    bars: bool = True,
    workers: int = 1,
) -> list[Finding]:
    """Every attack on every adversary's view.

    Args:
        transcript: the recorded run.
        truth: opened after the claims.
        adversaries: the adversaries whose views are attacked.
        attacks: their names.
        seed: seed of all draws.
        judged: number of pairs of attack and adversary that the limits of gains allow for, if more
            than run here.
        bars: whether to show progress.
        workers: processes that share the work.

    Raises:
        HostError: a worker was killed.
    """
    pairs = [(name, adversary) for adversary in adversaries for name in attacks]
    judged = max(judged, len(pairs))
    transcript, truth = transcript.held(), replace(truth, recorded=truth.recorded.held())

    def found(number: int) -> Finding:
        name, adversary = pairs[number]
        found = tried(SUITE[name], adversary, transcript, truth, seed=seed, judged=judged)
        return writable(found, inside=type(SUITE[name]).__module__)

    with tqdm(total=len(pairs), desc="attacking", unit="attack", disable=not bars) as bar:
        # Equations take longest, and the suite has them last.
        return shared_out(
            found, len(pairs), workers=workers, dear_last=True, done=lambda *_: bar.update()
        )
