"""The audit of a recording that this package did not make: attack, judge, write."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from attacks import SUITE, Finding, GroundTruth
from attacks.planted.controls import ControlResult, positive_control
from attacks.scoring.games import reads
from attacks.view.knowledge import Knowledge, UnknownTraitError
from audits.config.judged import RecordingConfig
from audits.gates.gate import judge
from audits.gates.policy import Policy, applied
from audits.gates.verdict import Verdict
from audits.peak_memory import peak_bytes
from audits.report import FORMATS, SCHEMA_VERSION, write_report
from audits.report.assemble import concluded, gate_json, manifest_json
from audits.report.findings import finding_json
from audits.results import AuditResult
from audits.run.audit import attack_all
from audits.run.build import require_parties
from audits.run.truth import ground_truth
from audits.system import Nouns, digest_of
from secure_fedrec.recording import Recording
from secure_fedrec.wire import Step, Transcript
from secure_fedrec.wire.recording import kind_of

_NAME = "recorded federation"


def audit_recording(
    recording: Recording,
    config: RecordingConfig,
    *,
    out: Path,
    command: Sequence[str],
    progress: bool = True,
    source: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    formats: Sequence[str] = FORMATS,
    workers: int = 1,
) -> AuditResult:
    """Attack a recording, judge what was found, and write the report, whatever the verdict.

    Args:
        recording: the messages, and the truth.
        config: how it is judged.
        out: folder of the report.
        command: the command line, for the report's reproducibility block.
        progress: whether to show progress bars on stderr.
        source: the configuration's file (``audits.config.lines``), for the report; None for none.
        policy: what else affects the verdict; waivers as of today if left out.
        formats: formats of the report's files.
        workers: processes that share the attacks.

    Raises:
        ConfigError: a gate or an adversary does not fit.
        TranscriptError: the recording is damaged.
        OSError: something could not be written.
    """
    started = time.time()
    transcript, truth = _as_stated(recording.transcript.held()), truth_of_recording(recording)
    n_clients = int(transcript.public["n_clients"])
    denoisers = len(truth.denoiser_clients)
    require_parties(config.adversaries, (), n_clients=n_clients, denoisers=denoisers)
    findings = attack_all(
        transcript,
        truth,
        config.adversaries,
        config.attacks,
        seed=config.seed,
        bars=progress,
        workers=workers,
    )
    gates = [judge(gate, findings=findings, utility={}, lossless=None) for gate in config.gates]
    controls = {name: positive_control(name) for name in config.attacks}
    seconds = time.time() - started
    algorithm = transcript.public["algorithm"]
    report: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "title": config.title,
        "configuration": {**config.as_json(), "recording": _recorded_rounds(recording)},
        "verdict": {},
        "gates": [gate_json(result) for result in gates],
        "findings": _findings_json(findings, controls),
        "utility": _NO_UTILITY,
        "cost": _cost_json(recording, seconds),
        "lossless": {
            "claimed": False,
            "holds": None,
            "rounds_compared": 0,
            "statement": "A recording is not compared with a plain run.",
            "first_difference": None,
        },
        "protection": {**_protection_json(transcript.public), "algorithm": _statement(algorithm)},
        "data": _data_json(transcript.public, truth),
        "capped_clients": {"count": 0, "examples": [], "statement": "No layer was run here."},
        "attack_cards": {name: asdict(SUITE[name].card) for name in config.attacks},
        "switched_off": [
            name
            for name in config.known_attacks
            if name not in config.attacks
            and any(reads(SUITE[name], each, transcript, truth) for each in config.adversaries)
        ],
        "manifest": {
            **manifest_json(config, transcript, command, started, seconds),
            "data_fingerprint": _fingerprint(truth),
            "seeds": {"bootstrap": config.seed},
            "rerun": "secure-fedrec attack TRANSCRIPT --truth TRUTH --gates CONFIG --out DIR",
            "determinism": "Same recording, configuration and library versions give the same "
            f"findings; byte order {sys.byteorder}.",
        },
    }
    last = max(recording.seen.rounds(), default=0)
    concluded(report, system=_NAME, rounds=last, denoisers=bool(denoisers))
    if source is not None:
        report["source"] = dict(source)
    report = applied(report, policy or Policy(today=datetime.now(UTC).date()))
    return AuditResult(
        report=report,
        verdict=Verdict.told(report["verdict"]),
        files=write_report(report, out, formats),
        folder=out,
    )


def truth_of_recording(recording: Recording) -> GroundTruth:
    """The truth that claims about a recording are scored against.

    Raises:
        TranscriptError: a secret is of a kind that cannot be scored.
    """
    secrets = {"secrets": recording.secrets.secrets}
    if recording.secrets.ratings is not None:
        secrets["ratings"] = recording.secrets.ratings
    try:
        denoisers = Knowledge.of(recording.transcript).denoisers
    except UnknownTraitError:
        denoisers = ()
    return ground_truth(secrets, recording.truth, name=_NAME, denoisers=denoisers)


_NO_UTILITY: Mapping[str, Any] = {
    "metric_names": [],
    "rounds": [],
    "final": {},
    "folds": [],
    "mean": {},
    "sd": None,
    "standing": None,
}
"""A recording does not measure the utility of its model."""


def _findings_json(
    findings: Sequence[Finding], controls: Mapping[str, ControlResult]
) -> list[dict[str, Any]]:
    """As for a run, without claims, since the stack was not built here."""
    return [
        finding_json(finding, controls.get(finding.attack)) | {"claimed": False}
        for finding in findings
    ]


def _recorded_rounds(recording: Recording) -> dict[str, Any]:
    """Rounds with payloads, in the words of a configuration."""
    seen, kept = recording.seen, []
    for round_ in seen.rounds():
        names = [names for kind in seen.kinds(round_) for names in seen.names(round_, kind)]
        if any({"values", "table"} & {*each} for each in names):
            kept.append(round_)
    left_out = recording.transcript.public.get("left_out", ())
    return {"payload_rounds": kept, **({"left_out": [*left_out]} if left_out else {})}


def _cost_json(recording: Recording, seconds: float) -> dict[str, Any]:
    """Bytes and messages that were recorded, of clients and server."""
    sent = {step: np.zeros(2, dtype=np.int64) for step in Step}
    for round_ in recording.seen.rounds():
        for step in (each for each in Step if each is not Step.AGGREGATE):
            for columns in recording.seen.read(round_, kind_of(step)):
                if "sizes" in columns:
                    sizes = columns["sizes"]
                    sent[step] += np.array([len(sizes), int(sizes.sum())])
    rounds = max(1, len(recording.seen.rounds()))
    clients = int(recording.transcript.public["n_clients"])
    messages, total = (int(each) for each in np.sum(list(sent.values()), axis=0))
    up = sent[Step.UPLOAD] + sent[Step.BAG] + sent[Step.COUNTS]
    roles = [
        _role("ordinary client", clients, messages / clients / rounds, total / clients / rounds),
        _role("server", 1, float(up[0]) / rounds, float(up[1]) / rounds),
    ]
    return {
        "roles": roles,
        "total_bytes": total,
        "total_messages": messages,
        "seconds": seconds,
        "peak_memory_mb": peak_bytes() / 1e6,
        "transcript_bytes": recording.seen.bytes,
    }


def _role(role: str, parties: int, messages: float, up: float) -> dict[str, Any]:
    return {
        "role": role,
        "parties": parties,
        "messages_per_round": messages,
        "vectors_per_round": 0.0,
        "bytes_up_per_round": up,
        "bytes_down_per_round": 0.0,
    }


def _as_stated(transcript: Transcript) -> Transcript:
    """The recording's facts without layers, since none of this package's layers ran."""
    protection = {**transcript.public["protection"], "layers": []}
    return transcript.stating({**transcript.public, "protection": protection})


def _protection_json(public: Mapping[str, Any]) -> dict[str, Any]:
    """What the recording states of how uploads reached the server."""
    traits = public["protection"].get("traits") or {}
    stated = ", ".join(f"{name}: {value}" for name, value in traits.items() if value is not None)
    return {
        "layers": [],
        "system": _NAME,
        "hides": "what its protocol hides was not checked: claims are those of its authors",
        "assumes": f"stated by the recording: {stated or 'nothing'}",
        "found": "see the findings",
        "execution": None,
        "execution_note": None,
        "privacy": [],
        "bags": None,
    }


def _statement(algorithm: Mapping[str, Any]) -> dict[str, str]:
    private = ", ".join(each["name"] for each in algorithm.get("private", ()))
    return {
        "name": str(algorithm.get("name", "an algorithm that the recording does not name")),
        "stays": private or "not stated by the recording",
        "leaves": "the messages of the recording",
    }


def _data_json(public: Mapping[str, Any], truth: GroundTruth) -> dict[str, Any]:
    train = 0 if truth.train is None else len(truth.train)
    return {
        "name": _NAME,
        "fingerprint": _fingerprint(truth),
        "clients": int(public["n_clients"]),
        "items": int(public.get("n_items", 0)),
        "ratings": train,
        "train": train,
        "test": 0,
        "nouns": asdict(Nouns()),
    }


def _fingerprint(truth: GroundTruth) -> str:
    """The fingerprint of the truth."""
    if truth.train is not None:
        return truth.train.fingerprint()
    return digest_of(truth.secrets)
