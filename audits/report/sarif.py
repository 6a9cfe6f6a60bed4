"""The report as SARIF 2.1.0 (OASIS, errata 01): for code scanning, at lines of the configuration.

A result is a finding of an attack, or another gate that does not hold. A result that a gate
documents, a waiver excuses or the baseline contains is suppressed. Attacks that did not apply or
were not requested, and controls that failed, are notifications of the run.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from attacks import SUITE
from attacks.scoring.measures import MEASURES
from audits.gates.policy import objections
from audits.gates.verdict import FAIL, KNOWN, OPEN, WAIVED, Objection, Report, documenting
from audits.report.places import (
    config_line,
    config_path,
    key_of_adversary,
    key_of_finding,
    key_of_gate,
    key_of_objection,
    setting,
)
from audits.report.text import measure

SCHEMA_URI = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_FINGERPRINT = "secureFedrec/v1"
_LEVELS = {"critical": "error", "high": "error", "medium": "warning", "low": "note", "info": "note"}
_WORST = ("error", "warning", "note")
_SCORES = {"critical": "9.0", "high": "8.0", "medium": "5.0", "low": "3.0"}
"""Security severities of rules, by which code scanning sorts; each in the middle of its range."""


def render_sarif(report: Report) -> str:
    """Writes a report as a SARIF log of one run."""
    results = _results(report)
    rules = list(dict.fromkeys(each["ruleId"] for each in results))
    for each in results:
        each["ruleIndex"] = rules.index(each["ruleId"])
    run = {
        "tool": {"driver": _driver(report, rules)},
        "automationDetails": {"id": f"secure-fedrec/{config_path(report)}/"},
        "invocations": [_invocation(report)],
        "artifacts": [{"location": _artifact(report), "roles": ["analysisTarget"]}],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    log = {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _results(report: Report) -> list[dict[str, Any]]:
    """Findings and gates that do not pass, each once."""
    found = objections(report)
    of_attacks = [each for each in found if each.attack is not None]
    others = [each for each in found if each.attack is None and each.gate is not None]
    results = []
    for finding in report["findings"]:
        pair = finding["adversary"], finding["attack"]
        mine = [each for each in of_attacks if (each.adversary, each.attack) == pair]
        if mine or finding["severity"] not in (None, "info"):
            results.append(_finding(report, finding, mine))
    return results + [_gate(report, each) for each in others]


def _finding(
    report: Report, finding: Mapping[str, Any], against: Sequence[Objection]
) -> dict[str, Any]:
    adversary, attack = finding["adversary"], finding["attack"]
    gates = [
        (number, gate)
        for number, gate in enumerate(report["gates"])
        if (gate["adversary"], gate["attack"]) == (adversary, attack)
    ]
    first = against[0] if against else None
    key = key_of_objection(report, first) if first else key_of_finding(report, finding)
    levels = [_level(each, finding) for each in against]
    if not levels:  # judged by gates that hold
        levels = ["note" if gates else _LEVELS[finding["severity"]]]
    about = [f"{gate['name']}: {gate['outcome']} ({gate['reason']})" for _, gate in gates]
    text = " ".join((finding["sentence"], *(f"Gate {each}." for each in about)))
    return {
        "ruleId": attack,
        "level": min(levels, key=_WORST.index),
        "message": {"text": text},
        "locations": [_location(report, key)],
        "relatedLocations": [
            {**_location(report, key_of_gate(report, number)), "message": {"text": gate["name"]}}
            for number, gate in gates
        ],
        "partialFingerprints": _fingerprint(report, adversary, attack),
        **_standing(report, against, finding),
        "properties": {
            "adversary": adversary,
            "severity": finding["severity"],
            "configurationKey": key,
            "against": [each.text for each in against],
        },
    }


def _gate(report: Report, objection: Objection) -> dict[str, Any]:
    """A gate on utility, losslessness or epsilon that does not hold."""
    assert objection.gate is not None  # noqa: S101 - asked for by the caller
    gate = report["gates"][objection.gate]
    key = key_of_gate(report, objection.gate)
    covers = setting(report, f"gates[{objection.gate}].covers")
    covered = [str(covers)] if gate["metric"] == "epsilon" and covers else []
    return {
        "ruleId": f"gate/{gate['metric']}",
        "level": _level(objection, None),
        "message": {"text": f"{gate['name']}: {gate['reason']}"},
        "locations": [_location(report, key)],
        "partialFingerprints": _fingerprint(
            report, gate["adversary"], gate["metric"], gate["bound"], *covered
        ),
        "properties": {"configurationKey": key, "against": [objection.text]},
    }


def _level(objection: Objection, finding: Mapping[str, Any] | None) -> str:
    """Level of a result: error if it fell, at least warning if undecided, else by severity."""
    severity = None if finding is None else finding["severity"]
    by_severity = _LEVELS[severity or "info"]
    if objection.state == FAIL:
        return "error"
    return (
        min((by_severity, "warning"), key=_WORST.index) if objection.state == OPEN else by_severity
    )


def _standing(
    report: Report, against: Sequence[Objection], finding: Mapping[str, Any]
) -> dict[str, Any]:
    """Whether a result is suppressed, why, and whether the baseline had it."""
    told: dict[str, Any] = {}
    states = {each.state for each in against}
    if report.get("policy", {}).get("baseline"):
        told["baselineState"] = "unchanged" if KNOWN in states else "new"
    if states & {FAIL, OPEN}:
        return told
    why = [
        {"kind": "external", "status": "accepted", "justification": each.text}
        for each in against
        if each.state in (WAIVED, KNOWN)
    ]
    gates = {gate["name"]: gate for gate in documenting(report, finding).values()}
    why += [
        {"kind": "inSource", "status": "accepted", "justification": gate["documented"]}
        for gate in gates.values()
        if gate.get("documented")
    ]
    return {**told, "suppressions": why} if why else told


def _numbers_first(value: object) -> tuple[float, str]:
    return (float(value), "") if isinstance(value, int | float) else (float("inf"), str(value))


def _fingerprint(report: Report, adversary: str | None, *what: str) -> dict[str, str]:
    """A fingerprint of a leak, independent of its figures, its line and the adversary's name.

    It covers the system, the data, the parties of the adversary, and the attack.
    """
    key = key_of_adversary(report, adversary)
    told = setting(report, key)
    sets = told.values() if isinstance(told, dict) else ()
    lists = [part for part in sets if isinstance(part, list)]
    parties = [str(each) for part in lists for each in sorted(part, key=_numbers_first)]
    parties = parties or [str(adversary)]
    system = str(setting(report, "algorithm.name"))
    whole = json.dumps([system, report["data"]["name"], parties, *what])
    return {_FINGERPRINT: sha256(whole.encode()).hexdigest()[:32]}


def _location(report: Report, key: str) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": _artifact(report),
            "region": {"startLine": config_line(report, key)},
        },
        "logicalLocations": [{"fullyQualifiedName": key, "kind": "member"}],
    }


def _artifact(report: Report) -> dict[str, str]:
    return {"uri": config_path(report), "uriBaseId": "%SRCROOT%"}


def _driver(report: Report, rules: Sequence[str]) -> dict[str, Any]:
    version = report["manifest"]["tool_version"]
    return {
        "name": "secure-fedrec",
        "version": version,
        "rules": [_rule(report, each) for each in rules],
        "notifications": [
            {"id": name, "shortDescription": {"text": text}} for name, text in _NOTICES.items()
        ],
    }


def _rule(report: Report, name: str) -> dict[str, Any]:
    if name in SUITE or name in report["attack_cards"]:
        card = report["attack_cards"].get(name) or vars(SUITE[name])
        worst = [each["severity"] for each in report["findings"] if each["attack"] == name]
        score = next((_SCORES[level] for level in _SCORES if level in worst), None)
        return {
            "id": name,
            "name": name.title().replace("-", ""),
            "shortDescription": {"text": card["game"]},
            "fullDescription": {"text": card["statistic"]},
            "help": {
                "text": "\n".join(f"{part.capitalize()}: {text}" for part, text in card.items()),
                "markdown": "\n".join(
                    f"- **{part.capitalize()}**: {text}" for part, text in card.items()
                ),
            },
            "defaultConfiguration": {"level": "error"},
            "properties": {
                "tags": ["security", "privacy", "attack"],
                **({"security-severity": score} if score else {}),
            },
        }
    metric = name.removeprefix("gate/")
    about = MEASURES[metric].about if metric in MEASURES else _GATES.get(metric, measure(metric))
    return {
        "id": name,
        "name": "Gate" + metric.title().replace("_", ""),
        "shortDescription": {"text": about},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["gate"]},
    }


_GATES = {
    "lossless": "The protected run equals its plain twin, bit for bit.",
    "epsilon": "The stated privacy loss against an adversary.",
    "utility_gain": "The gain of the model over the best trivial rule.",
}
_NOTICES = {
    "attack-not-applicable": "An attack found nothing in the view that it could read.",
    "attack-switched-off": "An attack on such messages was switched off in the configuration.",
    "control-failed": "A control of an attack failed, so its result or silence is meaningless.",
    "undecided": "Something else keeps the audit from a verdict.",
    "waiver-unused": "A waiver excuses nothing.",
}


def _invocation(report: Report) -> dict[str, Any]:
    manifest, verdict = report["manifest"], report["verdict"]
    times = {}
    try:
        began = datetime.fromisoformat(manifest["started"])
        ended = began + timedelta(seconds=manifest["seconds"])
        times = {
            f"{end}TimeUtc": moment.strftime("%Y-%m-%dT%H:%M:%SZ")
            for end, moment in (("start", began), ("end", ended))
        }
    except (ValueError, OverflowError):
        pass  # a foreign report; its times do not matter
    return {
        **times,
        "executionSuccessful": True,
        "exitCode": verdict["exit_code"],
        "exitCodeDescription": f"{verdict['outcome']}: {verdict['summary']}",
        "toolExecutionNotifications": _executed(report),
        "toolConfigurationNotifications": _configured(report),
    }


def _executed(report: Report) -> list[dict[str, Any]]:
    """Notifications for attacks without a result and for failed controls."""
    notices = []
    for each in report["findings"]:
        name = f"{each['adversary']}/{each['attack']}"
        key = key_of_adversary(report, each["adversary"])
        if each["status"] != "measured":
            text = f"{name}: {each['reason']}"
            notices.append(_notice(report, "attack-not-applicable", "note", text, key))
        for kind in ("null_control", "positive_control"):
            if each[kind] is not None and not each[kind]["passed"]:
                text = f"{name}: the {kind.replace('_', ' ')} failed"
                notices.append(_notice(report, "control-failed", "error", text, key))
    notices += [
        _notice(report, "undecided", "error", each.text, "gates")
        for each in objections(report)
        if each.attack is None and each.gate is None
    ]
    return notices


def _configured(report: Report) -> list[dict[str, Any]]:
    ran = {(each["adversary"], each["attack"]) for each in report["findings"]}
    notices = [
        _notice(
            report,
            "attack-switched-off",
            "error" if each.state in (FAIL, OPEN) else "note",
            each.text,
            "attacks",
        )
        for each in objections(report)
        if each.attack is not None and (each.adversary, each.attack) not in ran
    ]
    for number, waiver in enumerate(report.get("policy", {}).get("waivers", ())):
        if waiver["state"] == "unused":
            text = f"the waiver of {waiver['owner']} for {waiver['adversary']}/{waiver['attack']}"
            text, key = f"{text} excuses nothing: take it out", f"waivers[{number}]"
            notices.append(_notice(report, "waiver-unused", "warning", text, key))
    return notices


def _notice(report: Report, name: str, level: str, text: str, key: str) -> dict[str, Any]:
    return {
        "descriptor": {"id": name},
        "level": level,
        "message": {"text": text},
        "locations": [_location(report, key)],
    }
