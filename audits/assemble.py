"""The report as data: everything measured, in the shape of ``report/schema.json``."""

import platform
import resource
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import PurePath
from typing import Any

import numpy as np
import scipy

from attacks import SUITE, Finding
from attacks.controls import ControlResult
from audits.build import Federation
from audits.claims import protection_json
from audits.config import AuditConfig
from audits.findings import finding_json
from audits.gates import GateResult, Outcome
from audits.report import SCHEMA_VERSION
from audits.training import Lossless, run_identity
from secure_fedrec.data import RatingTable
from secure_fedrec.engines import RecordedRun
from secure_fedrec.protection import require_compatible

__all__ = ["Measured", "assemble"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """Everything an audit measured.

    Args:
        config: what was asked.
        federation: what was run.
        run: the recorded run.
        table: the whole data set.
        folds: test errors per fold, the audited one first.
        mean: test errors averaged over the folds.
        lossless: comparison with the plain twin; None if it was not made.
        findings: of all attacks.
        controls: positive controls by attack.
        gates: judged gates.
    """

    config: AuditConfig
    federation: Federation
    run: RecordedRun
    table: RatingTable
    folds: Sequence[Mapping[str, float]]
    mean: Mapping[str, float]
    lossless: Lossless | None
    findings: Sequence[Finding]
    controls: Mapping[str, ControlResult]
    gates: Sequence[GateResult]


def assemble(
    measured: Measured,
    *,
    outcome: Outcome,
    exit_code: int,
    reasons: Sequence[str],
    command: Sequence[str],
    started: float,
) -> dict[str, Any]:
    """The content of ``report.json``."""
    seconds = time.time() - started
    return {
        "schema_version": SCHEMA_VERSION,
        "title": measured.config.title,
        "configuration": measured.config.as_json(),
        "verdict": {
            "outcome": str(outcome),
            "exit_code": exit_code,
            "summary": _summary(measured, outcome),
            "reasons": list(reasons),
        },
        "gates": [_gate(result) for result in measured.gates],
        "findings": [
            finding_json(finding, measured.controls.get(finding.attack))
            for finding in measured.findings
        ],
        "utility": _utility(measured),
        "cost": _cost(measured, seconds),
        "lossless": _lossless(measured),
        "protection": protection_json(
            measured.config.protection,
            measured.federation.stack.collector,
            rounds=measured.run.completed,
        ),
        "data": _data(measured),
        "capped_clients": _capped(measured),
        "attack_cards": {name: _card(name) for name in measured.config.attacks},
        "not_tested": _not_tested(measured),
        "manifest": _manifest(measured, command, started, seconds),
    }


def _summary(measured: Measured, outcome: Outcome) -> str:
    claim = require_compatible(tuple(measured.config.protection))
    gates = measured.gates
    fallen = sum(result.outcome is Outcome.FAIL for result in gates)
    undecided = sum(result.outcome is Outcome.INCONCLUSIVE for result in gates)
    text = f"{claim.system}: {len(gates) - fallen - undecided} of {len(gates)} gates hold"
    if fallen:
        text += f", {fallen} fell"
    if undecided:
        text += f", {undecided} could not be decided"
    leaks = sum(r.gate.attack is not None and r.gate.bound == "min" for r in gates)
    if leaks and outcome is Outcome.PASS:
        text += f"; {leaks} of them document a leak that is expected, so this is no privacy claim"
    if outcome is Outcome.INCONCLUSIVE and not undecided:
        text += ", but a control failed or there was nothing to judge"
    return text + "."


def _gate(result: GateResult) -> dict[str, Any]:
    gate = result.gate
    return {
        "name": gate.name,
        "attack": gate.attack,
        "adversary": gate.adversary,
        "metric": gate.metric,
        "bound": gate.bound,
        "threshold": getattr(gate, gate.bound),
        "value": result.value,
        "low": result.low,
        "high": result.high,
        "outcome": str(result.outcome),
        "reason": result.reason,
    }


def _utility(measured: Measured) -> dict[str, Any]:
    names = ("mae", "rmse")
    deviation = None
    if len(measured.folds) > 1:
        deviation = {
            name: float(np.std([fold[name] for fold in measured.folds], ddof=1)) for name in names
        }
    rounds = [
        {"round": report.round, "mae": report.error.mae, "rmse": report.error.rmse}
        for report in measured.run.history
        if report.error is not None
    ]
    final = {name: measured.folds[0][name] for name in names}
    return {
        "metric_names": list(names),
        "rounds": rounds,
        "final": final,
        "folds": [dict(fold) for fold in measured.folds],
        "mean": dict(measured.mean),
        "sd": deviation,
    }


def _cost(measured: Measured, seconds: float) -> dict[str, Any]:
    meter = measured.run.engine.wire.meter
    rounds = max(1, measured.run.completed)
    n_clients = measured.federation.split.train.n_clients
    denoisers = np.zeros(n_clients, dtype=bool)
    denoisers[list(measured.federation.denoiser_clients)] = True
    roles = []
    for role, members in (("ordinary client", ~denoisers), ("denoiser", denoisers)):
        count = int(members.sum())
        if not count:
            continue
        total = {
            name: float(meter.clients(name)[members].sum()) / count / rounds
            for name in ("messages_sent", "bytes_sent", "bytes_received", "vectors_sent")
        }
        received = float(meter.clients("vectors_received")[members].sum()) / count / rounds
        roles.append(
            {
                "role": role,
                "parties": count,
                "messages_per_round": total["messages_sent"],
                "vectors_per_round": total["vectors_sent"] + received,
                "bytes_up_per_round": total["bytes_sent"],
                "bytes_down_per_round": total["bytes_received"],
            }
        )
    roles.append(
        {
            "role": "server",
            "parties": 1,
            "messages_per_round": meter.server("messages_sent") / rounds,
            "vectors_per_round": meter.server("vectors_received") / rounds,
            "bytes_up_per_round": meter.server("bytes_received") / rounds,
            "bytes_down_per_round": meter.server("bytes_sent") / rounds,
        }
    )
    sent = int(meter.clients("bytes_sent").sum()) + meter.server("bytes_sent")
    messages = int(meter.clients("messages_sent").sum()) + meter.server("messages_sent")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak += resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "roles": roles,
        "total_bytes": sent,
        "total_messages": messages,
        "seconds": seconds,
        "peak_memory_mb": peak / 1024,
        "transcript_bytes": measured.run.transcript.bytes,
    }


def _lossless(measured: Measured) -> dict[str, Any]:
    claim = require_compatible(tuple(measured.config.protection))
    trains_on_virtual = measured.config.algorithm.user_update == "rated+virtual"
    claimed = claim.lossless and not trains_on_virtual
    outcome = measured.lossless
    if outcome is None:
        statement, holds, rounds = "The plain twin was not trained.", None, 0
    elif outcome.holds:
        statement = (
            f"After each of {outcome.rounds} rounds the item table equals the plain twin's, bit "
            "for bit."
        )
        holds, rounds = True, outcome.rounds
    else:
        statement = "The item table differs from the plain twin's."
        holds, rounds = False, outcome.rounds
    return {
        "claimed": claimed,
        "holds": holds,
        "rounds_compared": rounds,
        "statement": statement,
        "first_difference": None if outcome is None else outcome.first_difference,
    }


def _data(measured: Measured) -> dict[str, Any]:
    train, test = measured.federation.split
    table = measured.table
    return {
        "name": table.name,
        "fingerprint": table.fingerprint(),
        "clients": table.n_clients,
        "items": table.n_items,
        "ratings": len(table),
        "train": len(train),
        "test": len(test),
    }


def _capped(measured: Measured) -> dict[str, Any]:
    train = measured.federation.split.train
    capped = measured.federation.stack.capped(train.counts())
    # Keyed by the run, so that the digests identify clients inside this report only.
    key = run_identity(measured.federation)
    digests = [sha256(f"{key}|client|{c}".encode()).hexdigest()[:12] for c in capped.tolist()]
    statement = "No client has fewer unrated items than virtual items asked for."
    if len(capped):
        statement = (
            f"{len(capped)} clients have rated so much of the catalogue that rho times their "
            "ratings exceeds their unrated items; they send virtual rows for all of those."
        )
    return {"count": len(capped), "examples": digests, "statement": statement}


def _card(name: str) -> dict[str, str]:
    card = SUITE[name].card
    return {
        "game": card.game,
        "adversary": card.adversary,
        "needs": card.needs,
        "statistic": card.statistic,
        "reference": card.reference,
        "limits": card.limits,
    }


def _not_tested(measured: Measured) -> list[str]:
    skipped = [name for name in SUITE if name not in measured.config.attacks]
    notes = [f"the attack {name} was not asked for" for name in skipped]
    notes += [
        f"{finding.adversary}/{finding.attack}: {finding.reason}"
        for finding in measured.findings
        if not finding.measured
    ]
    notes += [
        "adversaries that deviate from the protocol",
        "attribute inference, membership in the released model and traffic analysis",
        "other data sets and hyper-parameters than the ones named here",
    ]
    return notes


def _manifest(
    measured: Measured, command: Sequence[str], started: float, seconds: float
) -> dict[str, Any]:
    config = measured.config
    return {
        "tool_version": version("secure-fedrec"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "config_sha256": config.digest(),
        "data_fingerprint": measured.table.fingerprint(),
        "transcript_sha256": measured.run.transcript.digest(),
        "seeds": {"streams": config.seed, "split": config.seed, "bootstrap": config.seed},
        "command": shlex.join(_without_folders(word) for word in command),
        "rerun": "secure-fedrec audit RUN/config.json --out DIR, where RUN is the run folder",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": seconds,
        "determinism": (
            "Same configuration, data and library versions give the same transcript, tables and "
            f"findings, for any batch size and across interruptions; byte order {sys.byteorder}."
        ),
    }


def _without_folders(word: str) -> str:
    """A word of a command line, an absolute path cut to its last part."""
    option, sign, value = word.rpartition("=")
    path = PurePath(value)
    return option + sign + (path.name or path.anchor) if path.is_absolute() else word
