"""The report as data: everything measured, in the shape of ``report_schema``."""

import platform
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from attacks import SUITE, Finding
from attacks.planted.controls import ControlResult
from audits.config.audit import AuditConfig
from audits.config.judged import JudgedConfig
from audits.gates.gate import GateResult, Outcome
from audits.gates.verdict import Objection, decide, objections_to
from audits.report import SCHEMA_VERSION
from audits.report.claims import protection_json
from audits.report.costs import cost_json
from audits.report.not_tried import not_tried
from audits.report.remedies import findings_json, remedies
from audits.report.text import capital, round_ranges
from audits.run.build import Federation
from audits.run.privacy import draws_noise
from audits.run.training import run_identity
from audits.run.utility import Utility
from audits.system import Task
from secure_fedrec import __version__
from secure_fedrec.engines import RecordedRun
from secure_fedrec.properties import Comparison
from secure_fedrec.protection import Claim
from secure_fedrec.wire import Transcript

if TYPE_CHECKING:
    from audits.run.privacy import Price


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """Everything an audit measured.

    Args:
        federation: the configured federation.
        run: the recorded run.
        transcript: its messages, as they were attacked.
        utility: over all folds, beside trivial rules.
        lossless: comparison with the plain twin; None if it was not made.
        findings: findings of all attacks.
        controls: positive controls by attack.
        gates: judged gates.
        privacy: what the run cost, for each reader and noised layer.
        switched_off: attacks that were not tried and would have read messages of the run.
    """

    federation: Federation[Task]
    run: RecordedRun
    transcript: Transcript
    utility: Utility
    lossless: Comparison | None
    findings: Sequence[Finding]
    controls: Mapping[str, ControlResult]
    gates: Sequence[GateResult]
    privacy: "Sequence[Price]"
    switched_off: Sequence[str]

    @property
    def config(self) -> AuditConfig:
        """What was asked."""
        return self.federation.config


def assemble(
    measured: Measured,
    *,
    command: Sequence[str],
    started: float,
) -> dict[str, Any]:
    """Make the content of ``report.json``, with the verdict.

    Args:
        measured: what was found.
        command: the command line.
        started: when, in seconds since 1970.
    """
    seconds, config = time.time() - started, measured.config
    bags = None if config.bag_claim is None else (config.bag_protection, config.bag_claim)
    statement = {key: text for key, text in asdict(config.statement).items() if text is not None}
    protection = protection_json(
        config.protection,
        prices=measured.privacy,
        adversaries=config.adversaries,
        claim=config.claim,
        bags=bags,
    )
    report = {
        "schema_version": SCHEMA_VERSION,
        "title": config.title,
        "configuration": _without_paths(config.as_json()),
        "verdict": {},
        "gates": [gate_json(result) for result in measured.gates],
        "findings": findings_json(
            config, measured.findings, measured.controls, adversaries=config.adversaries
        ),
        "remedies": remedies(config, measured.findings, measured.federation.sizes),
        "utility": _utility(measured),
        "cost": cost_json(
            measured.run,
            layers={**config.protection, **config.bag_protection},
            denoisers=measured.federation.denoiser_clients,
            seconds=seconds,
        ),
        "lossless": _lossless(measured),
        "protection": {**protection, "algorithm": statement},
        "data": _data(measured),
        "capped_clients": _capped(measured),
        "attack_cards": {name: asdict(SUITE[name].card) for name in config.attacks},
        "switched_off": list(measured.switched_off),
        "manifest": {
            **manifest_json(config, measured.transcript, command, started, seconds),
            "libraries": {name: version(name) for name in config.audited.libraries},
            "data_fingerprint": measured.federation.task.facts.fingerprint,
            "seeds": {"streams": config.seed, "split": config.seed, "bootstrap": config.seed},
            "rerun": _rerun(config),
            "determinism": _determinism(measured),
        },
    }
    claims = [config.claim, config.bag_claim]
    system, standing = _named(claims), measured.utility.standing
    return concluded(
        report,
        system=system,
        rounds=config.algorithm.rounds,
        denoisers=bool(measured.federation.denoiser_clients),
        worthless=None if standing is None else standing.verdict,
    )


def _named(claims: Sequence[Claim | None]) -> str:
    return "; ".join(claim.system for claim in claims if claim is not None)


def concluded(
    report: dict[str, Any],
    *,
    system: str,
    rounds: int,
    denoisers: bool,
    worthless: str | None = None,
) -> dict[str, Any]:
    """A report with its list of what was not tried, and with its verdict.

    Args:
        report: all else.
        system: what was audited, in words.
        rounds: rounds of the whole run.
        denoisers: whether the federation has denoisers.
        worthless: the sentence that the model is no better than a trivial rule; None if it is
            better.
    """
    untried = not_tried(report, rounds=rounds, denoisers=denoisers)
    report |= {"not_tried": untried, "not_tested": _not_tested(report, untried)}
    found = objections_to(report)
    verdict = decide(found, report)
    report["verdict"] = {
        "outcome": str(verdict.outcome),
        "exit_code": verdict.exit_code,
        "summary": _summary(report["gates"], verdict.outcome, found, system, worthless),
        "reasons": list(verdict.reasons),
    }
    return report


def _summary(
    gates: Sequence[Mapping[str, Any]],
    outcome: Outcome,
    found: Sequence[Objection],
    system: str,
    worthless: str | None,
) -> str:
    outcomes = [gate["outcome"] for gate in gates]
    fallen, undecided = outcomes.count(Outcome.FAIL), outcomes.count(Outcome.INCONCLUSIVE)
    held, leaks = len(gates) - fallen - undecided, outcomes.count(Outcome.LEAK)
    text = f"{system}: {f'{outcome}; ' if outcome is Outcome.LEAK else ''}"
    text += f"{held - leaks} of {len(gates)} gates hold"
    if leaks:
        text += f", {leaks} {'documents' if leaks == 1 else 'document'} a leak"
    if fallen:
        text += f", {fallen} fell"
    if undecided:
        text += f", {undecided} could not be decided"
    if outcome is Outcome.LEAK:
        text += "; this is not a privacy claim"
    if beside := sum(each.gate is None for each in found):
        text += f", {beside} {'thing is' if beside == 1 else 'things are'} open beside them"
    if worthless:
        text += f"; {worthless}"
    return text + "."


def gate_json(result: GateResult) -> dict[str, Any]:
    """A judged gate as stored in ``report.json``."""
    gate = result.gate
    return {
        "name": gate.name,
        "attack": gate.attack,
        "adversary": gate.adversary,
        "metric": gate.metric,
        "bound": gate.bound,
        "threshold": getattr(gate, gate.bound),
        "most": gate.most,
        "value": result.value,
        "low": result.low,
        "high": result.high,
        "outcome": str(result.outcome),
        "reason": result.reason,
        "documented": gate.reason,
    }


def _warnings(measured: Measured) -> list[str]:
    """Warnings for readers of figures of utility."""
    history, task = measured.run.history, measured.federation.task
    found = [] if task.facts.warning is None else [task.facts.warning]
    where = [report.round for report in history if report.clipped]
    if where:
        count = sum(report.clipped for report in history)
        found.append(
            f"{count} values were beyond ring.clip and were clipped, in rounds "
            f"{round_ranges(where)}: losslessness holds up to these values"
        )
    return found


def _utility(measured: Measured) -> dict[str, Any]:
    utility = measured.utility
    names, deviation = list(utility.mean), None
    if len(utility.folds) > 1:
        deviation = {
            name: float(np.std([fold[name] for fold in utility.folds], ddof=1)) for name in names
        }
    return {
        "metric_names": names,
        "rounds": [
            {"round": report.round, **report.metrics}
            for report in measured.run.history
            if report.metrics is not None
        ],
        "final": {name: utility.folds[0][name] for name in names},
        "folds": [dict(fold) for fold in utility.folds],
        "mean": dict(utility.mean),
        "sd": deviation,
        "baselines": {name: dict(rule.figures) for name, rule in utility.rules.items()},
        "standing": None if utility.standing is None else asdict(utility.standing),
        "warning": "; ".join(_warnings(measured)) or None,
    }


def _lossless(measured: Measured) -> dict[str, Any]:
    outcome = measured.lossless
    if outcome is None:
        statement = "No plain run was made to compare with."
    elif outcome.vacuous:
        statement = f"{capital(str(outcome))}."
    elif outcome.holds:
        statement = (
            f"{outcome.verdict.capitalize()}: after each of {outcome.rounds} rounds the public "
            "table equals the plain twin's, bit for bit."
        )
    else:
        statement = "The run differs from its plain twin."
    return {
        "claimed": measured.config.claims_lossless,
        "holds": None if outcome is None or outcome.vacuous else outcome.holds,
        "rounds_compared": 0 if outcome is None else outcome.rounds,
        "statement": statement,
        "first_difference": None if outcome is None else outcome.first_difference,
    }


def _data(measured: Measured) -> dict[str, Any]:
    facts = measured.federation.task.facts
    return {
        "name": facts.name,
        "fingerprint": facts.fingerprint,
        "clients": facts.clients,
        "items": facts.items,
        "ratings": facts.examples,
        "train": facts.train,
        "test": facts.test,
        "nouns": asdict(facts.nouns),
    }


def _capped(measured: Measured) -> dict[str, Any]:
    capped = measured.federation.stack.capped(measured.run.engine.vault.example_counts())
    # Keyed by the run, so that the digests identify clients inside this report only.
    key = run_identity(measured.federation)
    digests = [sha256(f"{key}|client|{c}".encode()).hexdigest()[:12] for c in capped.tolist()]
    statement = "No client has fewer unrated items than virtual items asked for."
    if measured.federation.stack.cloak is None:
        statement = "No layer adds virtual ratings."
    if len(capped):
        statement = (
            f"{len(capped)} clients have rated so much of the catalogue that rho times their "
            "ratings exceeds their unrated items; they send virtual rows for all of those."
        )
    return {"count": len(capped), "examples": digests, "statement": statement}


def _not_tested(report: Mapping[str, Any], untried: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = [f"the attack {name} was switched off" for name in report["switched_off"]]
    notes += _inapplicable(report["findings"])
    return [
        *notes,
        *(each["text"] for each in untried if each["kind"] in ("no attack", "no adversary")),
        "other data sets and hyper-parameters than the ones named here",
    ]


def _inapplicable(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why attacks did not apply; attacks that share reason and adversaries share a sentence."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        if finding["status"] != "measured":
            why = finding["attack"], str(finding["reason"])
            reasons.setdefault(why, []).append(finding["adversary"])
    shared: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (attack, reason), adversaries in reasons.items():
        shared.setdefault((reason, tuple(adversaries)), []).append(attack)
    return [
        f"{', '.join(attacks)} (adversary: {', '.join(adversaries)}): {reason}"
        for (reason, adversaries), attacks in shared.items()
    ]


def manifest_json(
    config: JudgedConfig,
    transcript: Transcript,
    command: Sequence[str],
    started: float,
    seconds: float,
) -> dict[str, Any]:
    """How a report was made: versions, inputs and command line.

    Args:
        config: what was asked.
        transcript: what was attacked.
        command: the command line.
        started: when, in seconds since 1970.
        seconds: wall time.
    """
    return {
        "tool_version": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "plugins": [plugin.told() for plugin in config.plugins],
        "platform": f"{platform.system()} {platform.machine()}",
        "config_sha256": config.digest(),
        "transcript_sha256": transcript.digest(),
        "command": shlex.join(_without_folders(word) for word in command),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": seconds,
    }


def _rerun(config: AuditConfig) -> str:
    """A command line, with a comment that explains words in capitals."""
    audit, where = "secure-fedrec audit RUN/config.json --out DIR", "RUN: the run folder"
    if not hasattr(config.data, "path"):
        return f"{audit}  # {where}"
    return f"{audit} --data-dir DATA  # {where}; DATA: the folder that data.path is relative to"


def _determinism(measured: Measured) -> str:
    same = "Same configuration, data and library versions give the same transcript, tables and "
    if draws_noise(measured.federation.stack):
        same = (
            "Noise comes from the operating system's generator: another run has other noise, so "
            "its transcript, tables and findings differ. Without noise they are the same, "
        )
    else:
        same += "findings, "
    return f"{same}for any batch size and across interruptions; byte order {sys.byteorder}."


def _without_folders(word: str) -> str:
    """A word of a command line, a path out of the working folder cut to its last part."""
    option, sign, value = word.rpartition("=")
    return option + sign + _inside(value)


def _without_paths(settings: Any, key: str = "") -> Any:
    """Settings whose paths out of the working folder are cut to their last part."""
    if isinstance(settings, dict):
        return {name: _without_paths(each, name) for name, each in settings.items()}
    if isinstance(settings, list):
        return [_without_paths(each, key) for each in settings]
    names_file = key == "path" or key.endswith("_path")
    return _inside(settings) if names_file and isinstance(settings, str) else settings


def _inside(text: str) -> str:
    path = PurePath(text)
    outside = path.is_absolute() or ".." in path.parts or text.startswith("~")
    return path.name or path.anchor if outside else text
