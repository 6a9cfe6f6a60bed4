"""What the commands do that train or attack; returns the exit code."""

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from time import process_time

import numba  # noqa: F401 - loops import it late; here an interrupt is still taken care of

from attacks import GroundTruth
from attacks.planted.controls import positive_controls
from attacks.view.knowledge import Knowledge
from audits.config.audit import AuditConfig, load_config, parse_config
from audits.config.lines import source_of
from audits.gates.gate import FEWEST_CLIENTS, Outcome
from audits.gates.verdict import undecided, unrecorded
from audits.pipeline import policy_of, print_policy
from audits.plugins import attack_called
from audits.presets import QUICKSTART
from audits.report import FORMATS
from audits.report.findings import sentence
from audits.report.html import render_summary
from audits.report.remedies import findings_json
from audits.run import audit as runner
from audits.run import training
from audits.run.build import build_federation, load_dataset, load_federation, require_parties
from audits.run.checking import watched
from audits.run.folder import (
    CONFIG_NAME,
    one_writer,
    read_client_secrets,
    read_own_config,
    unwritten,
)
from audits.run.forecast import forecast
from audits.run.memory import require_memory, training_parts
from audits.run.power import GatePower
from audits.run.truth import ground_truth, read_secrets
from audits.terminal import print_json
from secure_fedrec.engines import RoundReport, require_complete
from secure_fedrec.errors import ConfigError, TranscriptError
from secure_fedrec.properties import Comparison, Scope, compare_runs
from secure_fedrec.protection import Withstood
from secure_fedrec.wire import Adversary, BlockStore, Meter, Transcript, Truth


def audit(arguments: argparse.Namespace) -> int:
    """``audit [CONFIG]``: the whole audit."""
    config = load_config(arguments.config or QUICKSTART, dict(arguments.overrides))
    if arguments.dry_run:
        return _dry_run(config, arguments)
    result = runner.audit(
        config,
        out=arguments.out,
        data_dir=arguments.data_dir,
        resume=arguments.resume,
        command=arguments.command_line,
        progress=not arguments.quiet,
        source=None if arguments.config is None else source_of(arguments.config),
        policy=policy_of(arguments),
        formats=arguments.formats,
    )
    if arguments.json:
        keep = ("verdict", "gates", "findings", "utility", "lossless", "protection", "cost")
        print_json({key: result.report[key] for key in (*keep, "policy") if key in result.report})
        print_policy(result.report)
    else:
        _print_audit(result)
    return result.verdict.exit_code


def _dry_run(config: AuditConfig, arguments: argparse.Namespace) -> int:
    """Print what an audit will take and what its gates can see."""
    dataset = load_dataset(config, arguments.data_dir)
    federation = build_federation(config, dataset.task(dataset.folds[0]))
    found = forecast(federation, dataset, started=process_time(), progress=not arguments.quiet)
    if arguments.json:
        print_json(dataclasses.asdict(found))
        return 0
    for part, seconds in found.seconds.items():
        print(f"{part}: {seconds:.1f} s")
    print(
        f"altogether {sum(found.seconds.values()):.0f} s of one core, {found.memory_gb:.2f} GB of "
        f"memory, {found.disk_gb:.3f} GB on disk"
    )
    for line in found.lowered:
        print(line)
    for gate in found.gates:
        print(f"gate {gate.gate} ({gate.clients} clients): {_power_words(gate)}")
    return 0


def _power_words(gate: GatePower) -> str:
    if gate.reason is not None:
        return f"nothing was measured in the rounds that were tried: {gate.reason}"
    if gate.least is None:
        few = gate.clients < FEWEST_CLIENTS
        return "too few clients to decide" if few else "no figure of clients: exact, or not"
    words = f"decided in four of five runs from {gate.least:.3f} on"
    if gate.holds is None:
        return words
    most = math.ceil(1000 * gate.holds) / 1000
    return f"{words}; inconclusive even where nothing is gained: these clients can hold {most:.3f}"


def train(arguments: argparse.Namespace) -> int:
    """``train CONFIG``: one JSON line per round."""
    config = load_config(arguments.config, dict(arguments.overrides))
    if arguments.resume and arguments.out is None:
        raise ConfigError("--resume", True, "needs the run folder, --out DIR")
    federation = load_federation(config, arguments.data_dir)
    projected, out = training.projection(federation), arguments.out
    require_memory(config, training_parts(federation), work="training")
    with nullcontext() if out is None else one_writer(out, resume=arguments.resume):
        run = training.open_run(federation, out, resume=arguments.resume)
        runner.announce(federation, run, projected)
        on_round = _round_printer(run.engine.wire.meter)
        training.train_recorded(
            federation, run, out, on_round=on_round, progress=not arguments.quiet
        )
        if out is not None:
            require_complete(out, config.algorithm.rounds)
    return 0


def attack(arguments: argparse.Namespace) -> int:
    """``attack TRANSCRIPT``: the suite on a recorded run, without training."""
    transcript = Transcript.open(arguments.transcript)
    with unwritten(arguments.transcript.parent):
        return _attack(arguments, transcript)


def _attack(arguments: argparse.Namespace, transcript: Transcript) -> int:
    folder = arguments.transcript.parent
    config, truth = _recorded_truth(folder, transcript)
    adversaries = config.adversaries
    if arguments.adversary:
        adversaries = tuple(
            Adversary(name=text, corrupt=frozenset(text.split("+"))) for text in arguments.adversary
        )
        require_parties(
            adversaries,
            [Withstood(**claim) for claim in transcript.public.get("withstands", ())],
            n_clients=int(transcript.public["n_clients"]),
            denoisers=len(truth.denoiser_clients),
        )
    names = config.attacks
    if arguments.attack:
        names = tuple(attack_called(name, key="--attack") for name in arguments.attack)
    findings = runner.attack_all(
        transcript,
        truth,
        adversaries,
        names,
        seed=config.seed,
        judged=len(config.adversaries) * len(config.attacks),  # asked for alone, it is as sure
        bars=not arguments.quiet,
        workers=config.run.workers or 1,
    )
    told = findings_json(config, findings, positive_controls(), adversaries=adversaries)
    if arguments.json:
        print_json(told)
    else:
        for finding in findings:
            print(f"{finding.adversary}/{finding.attack}: {sentence(finding)}")
    reasons = [*undecided(told), *filter(None, map(unrecorded, told))]
    for reason in reasons:
        print(f"  inconclusive: {reason}", file=sys.stderr)
    return 3 if reasons else 0


def check(arguments: argparse.Namespace) -> int:
    """``check [CONFIG]``: is the configuration lossless, and what else its algorithm promises?"""
    config = load_config(arguments.config or QUICKSTART, dict(arguments.overrides))
    if arguments.rounds < 1:
        raise ConfigError("--rounds", arguments.rounds, "must be at least 1")
    federation = load_federation(config, arguments.data_dir, priced=False)
    rounds, n_clients = arguments.rounds, federation.stack.n_clients
    with watched(config, n_clients=n_clients, rounds=rounds, bar=not arguments.quiet) as on_round:
        outcome = compare_runs(
            algorithm=federation.algorithm,
            stack=federation.stack,
            problem=lambda: federation.task.fresh().problem,
            streams=federation.streams,
            rounds=rounds,
            cohort=config.cohort,
            # Layers of the package: whom they let sit out, and what they drop, is theirs to say.
            scope=Scope(
                taking_part=federation.stack.collector.participants,
                drops_reports=config.claim.drops_reports,
            ),
            on_round=on_round,
        )
    checks = config.audited.check(
        federation.task, config.algorithm, rounds=arguments.rounds, seed=config.seed
    )
    if arguments.json:
        figures = dataclasses.asdict(outcome)
        print_json(
            {
                "lossless": figures.pop("holds"),
                "verdict": outcome.verdict,
                **figures,
                "checks": [dataclasses.asdict(each) for each in checks],
            }
        )
    else:
        _print_comparison(outcome)
        for each in checks:
            print(each.text)
        if checks and config.statement.remark is not None:
            print(f"note: {config.statement.remark}")
    if outcome.first_difference is not None or any(each.holds is False for each in checks):
        return 1
    return 3 if outcome.vacuous or any(each.holds is None for each in checks) else 0


def _print_comparison(outcome: Comparison) -> None:
    if outcome.vacuous:
        print(f"inconclusive: {outcome}", file=sys.stderr)
    elif outcome.holds:
        print(f"{outcome.verdict}: {outcome.rounds} rounds equal the plain twin, bit for bit")
        print(f"  {outcome.counts}")
    else:
        print(
            f"not lossless: {outcome.first_difference}; largest difference "
            f"{outcome.largest_difference:.3g}"
        )


def _recorded_truth(folder: Path, transcript: Transcript) -> tuple[AuditConfig, GroundTruth]:
    """Configuration and truth that were written beside a transcript."""
    if not (folder / CONFIG_NAME).exists():
        raise TranscriptError(f"{folder} lacks config.json: claims cannot be scored without it")
    config = parse_config(read_own_config(folder))
    require_complete(folder, config.algorithm.rounds)
    secrets = read_secrets(folder)
    truth = ground_truth(
        secrets,
        Truth(BlockStore(folder / "truth")),
        name=config.data.name,
        seeded=read_client_secrets(folder) is None,
        denoisers=Knowledge.of(transcript).denoisers,
    )
    return config, truth


def _round_printer(meter: Meter) -> Callable[[RoundReport], None]:
    """Prints a round as one JSON line: error, participants, and what it cost."""

    def totals() -> dict[str, int]:
        names = ("messages_sent", "bytes_sent", "bytes_received")
        clients = {f"client_{name}": int(meter.clients(name).sum()) for name in names}
        return clients | {f"server_{name}": meter.server(name) for name in names}

    before = totals()

    def print_round(report: RoundReport) -> None:
        now = totals()
        costs = {name: now[name] - before[name] for name in now}
        before.update(now)
        line = {"round": report.round, "participants": report.participants}
        if report.clipped:
            line["clipped"] = report.clipped
        print(json.dumps(line | dict(report.metrics or {}) | costs), flush=True)

    return print_round


def _print_audit(result: runner.AuditResult) -> None:
    verdict = result.verdict
    print(render_summary(result.report), end="")
    if verdict.outcome is not Outcome.LEAK:  # whose gates have just said it
        for reason in verdict.reasons:
            print(f"  {verdict.outcome}: {reason}", file=sys.stderr)
    print_policy(result.report)
    print(f"verdict: {verdict.outcome} (exit code {verdict.exit_code})")
    print(f"report: {', '.join(str(path) for path in _read(result.files))}")


def _read(files: Mapping[str, Path]) -> list[Path]:
    """The files of a report that are for people or pipelines; the data itself, if there is none."""
    return [path for name, path in files.items() if name != FORMATS[0]] or list(files.values())
