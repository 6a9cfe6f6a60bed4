"""The commands that train or attack; each returns the exit code."""

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import process_time

import numba  # noqa: F401 - loops import it late; here an interrupt is still taken care of

from audits import api
from audits.config.audit import AuditConfig, load_config
from audits.gates.gate import FEWEST_CLIENTS, Outcome
from audits.given import configured
from audits.pipeline import print_policy
from audits.plugins import attack_called
from audits.presets import QUICKSTART
from audits.recorded_command import is_foreign
from audits.report import FORMATS
from audits.report.html import render_summary
from audits.results import AuditResult
from audits.run import audit as runner
from audits.run.build import build_federation, load_dataset, load_federation
from audits.run.checking import watched
from audits.run.forecast import forecast
from audits.run.power import GatePower
from audits.terminal import print_json
from secure_fedrec.engines import RoundReport
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties import Comparison, Scope, compare_runs
from secure_fedrec.recording import Recording
from secure_fedrec.wire import Meter


def audit(arguments: argparse.Namespace) -> int:
    """``audit [CONFIG]``: the whole audit."""
    given, overrides = arguments.config, dict(arguments.overrides)
    if given is None:  # the default is not a file that a report could name
        given, overrides = load_config(QUICKSTART, overrides), {}
    if arguments.dry_run:
        return _dry_run(configured(given, overrides).config, arguments)
    result = api.audit(
        given,
        out=arguments.out,
        data_dir=arguments.data_dir,
        overrides=overrides,
        resume=arguments.resume,
        fail_on=arguments.fail_on,
        baseline=arguments.baseline,
        formats=arguments.formats,
        progress=not arguments.quiet,
        tell=_say,
        command=arguments.command_line,
    )
    if arguments.json:
        keep = ("verdict", "gates", "findings", "utility", "lossless", "protection", "cost")
        print_json({key: result.report[key] for key in (*keep, "policy") if key in result.report})
        print_policy(result.report)
    else:
        _print_audit(result)
    return result.verdict.exit_code


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _dry_run(config: AuditConfig, arguments: argparse.Namespace) -> int:
    """Print what an audit will cost and what its gates can decide."""
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
        return "too few clients to decide" if few else "does not depend on the number of clients"
    words = f"decided in four of five runs from {gate.least:.3f} on"
    if gate.holds is None:
        return words
    most = math.ceil(1000 * gate.holds) / 1000
    return f"{words}; inconclusive even if nothing is gained: these clients can decide {most:.3f}"


def train(arguments: argparse.Namespace) -> int:
    """``train CONFIG``: one JSON line per round."""
    if arguments.resume and arguments.out is None:
        raise ConfigError("--resume", True, "needs the run folder, --out DIR")
    # Like ``simulate``, except that nothing is kept without a folder.
    runner.train(
        load_config(arguments.config, dict(arguments.overrides)),
        out=arguments.out,
        data_dir=arguments.data_dir,
        resume=arguments.resume,
        progress=not arguments.quiet,
        observer=_round_printer,
    )
    return 0


def attack(arguments: argparse.Namespace) -> int:
    """``attack RUN``: the suite on a recorded run, without training."""
    if is_foreign(arguments):
        return _attack_recording(arguments)
    asked = arguments.attack and [attack_called(n, key="--attack") for n in arguments.attack]
    found = api.attack(
        arguments.transcript,
        attacks=asked,
        adversaries=arguments.adversary,
        progress=not arguments.quiet,
    )
    if arguments.json:
        print_json(found.findings)
    else:
        for each in found.findings:
            print(f"{each['adversary']}/{each['attack']}: {each['sentence']}")
    for reason in found.undecided:
        print(f"  inconclusive: {reason}", file=sys.stderr)
    return 3 if found.undecided else 0


def _attack_recording(arguments: argparse.Namespace) -> int:
    """The suite on a recording that was made elsewhere, judged by gates of a file."""
    result = api.audit(
        Recording.open(arguments.transcript, truth=arguments.truth),
        out=arguments.out,
        gates=arguments.gates,
        adversaries=arguments.adversary,
        attacks=arguments.attack,
        progress=not arguments.quiet,
        command=arguments.command_line,
    )
    if arguments.json:
        print_json({key: result.report[key] for key in ("verdict", "gates", "findings")})
    else:
        _print_audit(result, written=arguments.out is not None)
    return result.verdict.exit_code


def check(arguments: argparse.Namespace) -> int:
    """``check [CONFIG]``: losslessness, and the algorithm's own properties."""
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
            # Layers of the package state themselves whom they exempt and what they drop.
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


def _print_audit(result: AuditResult, *, written: bool = True) -> None:
    verdict = result.verdict
    print(render_summary(result.report), end="")
    if verdict.outcome is not Outcome.LEAK:  # the summary has just printed its gates
        for reason in verdict.reasons:
            print(f"  {verdict.outcome}: {reason}", file=sys.stderr)
    print_policy(result.report)
    print(f"verdict: {verdict.outcome} (exit code {verdict.exit_code})")
    if written:
        print(f"report: {', '.join(str(path) for path in _read(result.files))}")


def _read(files: Mapping[str, Path]) -> list[Path]:
    """The report's file for people or pipelines, otherwise the data file."""
    return [path for name, path in files.items() if name != FORMATS[0]] or list(files.values())
