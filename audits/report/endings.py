"""For every attack that ran: its result, what to change, and what that costs.

An ending distinguishes a documented leak, a leak about which the protection makes no claim, a
broken claim, and an attack that learned nothing.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from audits.gates.figures import grades
from audits.gates.gate import documents_leak
from audits.gates.verdict import documenting
from audits.report.text import byte_size, capital
from audits.report.view import by_severity, control_failed, finding_card, headline, telling


class Ending(NamedTuple):
    """Result of an attack.

    Attributes:
        words: in a report.
        tone: class of the style sheet.
    """

    words: str
    tone: str


BROKEN = Ending("Claim broken", "fail")
FELL = Ending("Gate failed", "fail")
UNDECIDED = Ending("Undecided", "inconclusive")
OPEN = Ending("Leaks, not withstood", "leak")
DOCUMENTED = Ending("Leaks as documented", "leak")
HELD = Ending("Held", "pass")
NOTHING = Ending("Nothing learned", "none")
ENDINGS = (BROKEN, FELL, UNDECIDED, OPEN, DOCUMENTED, HELD, NOTHING)
"""Endings of a finding, worst first."""


def leaks(finding: Mapping[str, Any]) -> bool:
    """Whether an attack learned something."""
    return finding["status"] == "measured" and finding.get("severity") not in (None, "info")


def ending(finding: Mapping[str, Any], report: Mapping[str, Any]) -> Ending:
    """Result of an attack by one adversary.

    Args:
        finding: what it found.
        report: with the gates of the whole audit.
    """
    whose = finding["adversary"], finding["attack"]
    mine = [gate for gate in report["gates"] if (gate["adversary"], gate["attack"]) == whose]
    outcomes = {gate["outcome"] for gate in mine}
    if leaks(finding) and finding.get("claimed"):
        return BROKEN
    if "fail" in outcomes:
        return FELL
    if "inconclusive" in outcomes or control_failed(finding):
        return UNDECIDED
    if leaks(finding):
        return DOCUMENTED if grades(finding).keys() <= documenting(report, finding).keys() else OPEN
    return HELD if mine else NOTHING


def attack_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per attack that ran, worst first."""
    ran = [each for each in by_severity(report["findings"]) if each["status"] == "measured"]
    rows = [
        _row(report, name, [each for each in ran if each["attack"] == name])
        for name in dict.fromkeys(each["attack"] for each in ran)
    ]
    for place, row in enumerate(rows, start=1):
        row["anchor"] = f"attack-{place}"
    return rows


def _row(
    report: Mapping[str, Any], name: str, findings: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    views: dict[str, dict[str, Any]] = {}
    endings = [ending(finding, report) for finding in findings]
    for finding, ended in zip(findings, endings, strict=True):
        words = headline(finding)  # adversaries that learn the same share a bar
        fresh: dict[str, Any] = {
            "headline": words,
            "bar": _bar(finding),
            "who": [],
            "ending": ended,
        }
        view = views.setdefault(f"{words} {ended}", fresh)
        view["who"].append(finding["adversary"])
    return {
        "attack": name,
        "worst": findings[0],
        "ending": min(endings, key=ENDINGS.index),
        "views": list(views.values()),
        "cards": _alike(findings),
        "about": report["attack_cards"].get(name),
        "leaks": any(leaks(finding) for finding in findings),
        "advice": _advice(report, findings),
    }


def _alike(findings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of attacks, in which adversaries with the same figures are joined."""
    shared: dict[str, dict[str, Any]] = {}
    for finding in findings:
        card = finding_card(finding)
        name = card.pop("adversary")
        shared.setdefault(repr(card), {**card, "adversaries": []})["adversaries"].append(name)
    return list(shared.values())


def _bar(finding: Mapping[str, Any]) -> dict[str, float] | None:
    """Positions on a bar, in percent: value, interval, and what is reached without the view."""
    measure = telling(finding)
    if measure is None or (measure.scale.unit.low, measure.scale.unit.high) != (0.0, 1.0):
        return None
    low, high = measure.ends
    keys = {"value": measure.key, "low": low, "high": high}
    if measure.prior is not None:
        keys["prior"] = measure.prior.key
    figures = {**finding.get("details", {}), **finding}
    ends = {name: figures.get(key) for name, key in keys.items()}
    return {
        name: round(100 * min(max(end, 0.0), 1.0), 1)
        for name, end in ends.items()
        if end is not None
    }


class Advice(NamedTuple):
    """What to do about an attack.

    Attributes:
        change: the cheapest change of the configuration; empty without one.
        text: what the change costs, or what to know instead.
    """

    change: str = ""
    text: str = ""


_NOTHING_HELPS = (
    "Nothing in this toolkit stops it on this algorithm. Let fewer parties look, send less, or "
    'document it with a gate: expect = "leak".'
)


def _advice(report: Mapping[str, Any], findings: Sequence[Mapping[str, Any]]) -> Advice:
    leaking = [finding for finding in findings if leaks(finding)]
    if not leaking or "remedies" not in report:
        return Advice()
    if any(finding.get("claimed") for finding in leaking):
        return Advice(text="The protection claims to withstand this. Do not rely on it.")
    ranked = [
        (sum(answers(remedy, each) for each in leaking), remedy) for remedy in report["remedies"]
    ]
    most = max((count for count, _ in ranked), default=0)
    if not most:
        return Advice(text=_NOTHING_HELPS)
    fitting = [remedy for count, remedy in ranked if count == most]
    best = min(fitting, key=lambda each: (not each["lossless"], len(each["costs"])))
    rest = [each["adversary"] for each in leaking if not answers(best, each)]
    beside = f" It does not hide this from {', '.join(rest)}." if rest else ""
    return Advice(in_words(best), price(report, best) + beside)


def answers(remedy: Mapping[str, Any], finding: Mapping[str, Any]) -> bool:
    """Whether a finding goes away under a change."""
    pair = {name: finding[name] for name in ("attack", "adversary")}
    return pair in remedy["against"]


def in_words(remedy: Mapping[str, Any]) -> str:
    """A change in a line: ``protection = masking (min_survivors = 216)``."""
    layers = []
    for layer in remedy["value"]:
        own = ", ".join(f"{key} = {_toml(value)}" for key, value in layer.items() if key != "layer")
        layers.append(f"{layer['layer']} ({own})" if own else str(layer["layer"]))
    algorithm = remedy.get("algorithm", {}).items()
    bears = ", ".join(f"{key} = {_toml(value)}" for key, value in algorithm if key != "name")
    return f"{remedy['key']} = {' + '.join(layers)}" + (f", algorithm: {bears}" if bears else "")


def as_toml(remedy: Mapping[str, Any]) -> str:
    """A change as written in a configuration file."""
    named = [(f"[[{remedy['key']}]]", layer) for layer in remedy["value"]]
    if "algorithm" in remedy:
        named.insert(0, ("[algorithm]", remedy["algorithm"]))
    tables = (
        [name, *(f"{key} = {_toml(value)}" for key, value in table.items())]
        for name, table in named
    )
    return "\n\n".join("\n".join(lines) for lines in tables)


def replaced(remedy: Mapping[str, Any]) -> str:
    """The tables that a change replaces."""
    return f"{'[algorithm] and ' if 'algorithm' in remedy else ''}all [[{remedy['key']}]]"


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def idle_gates(report: Mapping[str, Any], remedy: Mapping[str, Any]) -> list[int]:
    """Numbers of the gates that need what a change removes: exact sums, documented leaks."""

    def is_idle(gate: Mapping[str, Any]) -> bool:
        if gate["metric"] == "lossless":
            return bool(gate["threshold"] != remedy["lossless"])
        return documents_leak(gate) and answers(remedy, gate)

    return [number for number, gate in enumerate(report["gates"]) if is_idle(gate)]


def gates_at_risk(report: Mapping[str, Any], remedy: Mapping[str, Any]) -> list[int]:
    """Numbers of the gates on utility that a change of sums or algorithm puts at risk."""
    if remedy["lossless"] and "algorithm" not in remedy:
        return []
    return [
        number
        for number, gate in enumerate(report["gates"])
        if gate["adversary"] is None and gate["metric"] != "lossless"
    ]


def beyond_exact_sums(report: Mapping[str, Any]) -> list[str]:
    """Attacks on sums, found or open under a change, that no stack of exact sums withstands."""
    over_sums = [each for each in report.get("remedies", ()) if each["key"] == "protection"]
    exact = [each for each in over_sums if each["lossless"]]
    asked = [pair for each in over_sums for pair in (*each["against"], *each.get("open", ()))]
    return [
        attack
        for attack in dict.fromkeys(pair["attack"] for pair in asked)
        if all(
            attack in (pair["attack"] for pair in each.get("open", ()))
            or attack not in (pair["attack"] for pair in each["against"])
            for each in exact
        )
    ]


def price(report: Mapping[str, Any], remedy: Mapping[str, Any]) -> str:
    """What a change costs, in a sentence."""
    parts = []
    now = [role for role in report["cost"]["roles"] if role["role"] == "ordinary client"]
    if (moved := remedy["bytes_up_per_round"]) is not None:
        beside = f", now {byte_size(now[0]['bytes_up_per_round'])}" if now else ""
        parts.append(f"{byte_size(moved)} up per client and round{beside}")
    parts.append("sums stay exact" if remedy["lossless"] else "sums are no longer exact")
    idle = [report["gates"][number]["name"] for number in idle_gates(report, remedy)]
    if idle:
        one = len(idle) == 1
        gates = f"the {'gate' if one else 'gates'} {' and '.join(idle)}"
        parts.append(f"{gates} {'falls: take it' if one else 'fall: take them'} out")
    if asked := [report["gates"][number]["name"] for number in gates_at_risk(report, remedy)]:
        one = len(asked) == 1
        gates = f"the {'gate' if one else 'gates'} {' and '.join(asked)}"
        parts.append(f"{gates} may fall, because accuracy is lost")
    if open_ := dict.fromkeys(each["attack"] for each in remedy.get("open", ())):
        parts.append(f"nothing is claimed against {', '.join(open_)}")
    text = "; ".join([*parts, *remedy["costs"]])
    return f"{text}."


SMALLEST_CHANGES = (
    "Smallest changes under which a layer withstands what was found, by how much they answer. "
    "Bytes are metered on a round in which every client sends every row."
)
"""The heading of a report's changes."""


def changes(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All changes that remove a finding, in full."""
    return [
        {
            **remedy,
            "system": capital(remedy["system"]),
            "toml": as_toml(remedy),
            "replaced": replaced(remedy),
            "price": price(report, remedy),
            "attacks": list(dict.fromkeys(each["attack"] for each in remedy["against"])),
        }
        for remedy in report.get("remedies", ())
    ]
