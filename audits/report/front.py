"""Page one: the verdict in a sentence, what was audited, what is undecided, and what to do."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from attacks.scoring.severities import SEVERITIES
from audits.gates.verdict import UNEXCUSED, UNJUDGED, UNSOLVED
from audits.report.endings import (
    answers,
    as_toml,
    attack_rows,
    beyond_exact_sums,
    leaks,
    price,
    replaced,
)
from audits.report.not_tried import attacks_that_ran, not_tried_line
from audits.report.text import capital
from audits.report.view import gate_rows

_HEADINGS: Mapping[str, str] = {
    "pass": "What held",
    "fail": "What did not hold",
    "inconclusive": "What is undecided",
    "leaks as documented": "Documented leaks",
}
_GATES, _FINDINGS, _ACTIONS = 4, 3, 3


class Action(NamedTuple):
    """Something to do.

    Attributes:
        what: to do, in a sentence.
        lines: lines for the configuration, if any.
        costs: of it.
    """

    what: str
    lines: str = ""
    costs: str = ""


def front(report: Mapping[str, Any]) -> dict[str, Any]:
    """The content of page one; the rest is further down."""
    rows = attack_rows(report)
    gates = gate_rows(report["gates"])
    found = [row for row in rows if row["leaks"]]
    verdict = report["verdict"]["outcome"]
    open_ = [gate for gate in gates if gate["outcome"] in ("fail", "inconclusive")]
    shown = open_ or [gate for gate in gates if gate["outcome"] == verdict]
    beside = [
        reason
        for reason in report["verdict"]["reasons"]
        if not any(reason.startswith(f"{gate['name']}:") for gate in gates)
    ]
    return {
        "heading": _HEADINGS[verdict],
        "gates": shown[:_GATES],
        "more_gates": len(shown) - _GATES,
        "beside": beside[:_GATES],
        "more_beside": beside[_GATES:],
        "held": sum(gate["outcome"] == "pass" for gate in gates),
        "findings": found[:_FINDINGS],
        "more_findings": len(found) - _FINDINGS,
        "actions": list(_actions(report))[:_ACTIONS],
        "severities": _severities(found),
        "ran": attacks_that_ran(report),
        "not_tried": not_tried_line(report),
    }


def _severities(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many attacks found how much: ``6 critical, 2 high``."""
    found = [row["worst"]["severity"] for row in rows]
    return ", ".join(f"{found.count(each)} {each}" for each in SEVERITIES if each in found)


def _actions(report: Mapping[str, Any]) -> Iterator[Action]:
    """Changes that remove leaks, then leaks without a remedy, then figures without a gate."""
    left = [finding for finding in report["findings"] if leaks(finding)]
    total, beyond = len(left), ", ".join(beyond_exact_sums(report))
    for remedy in report.get("remedies", ()):
        answered = [finding for finding in left if answers(remedy, finding)]
        if not answered:
            continue
        left = [finding for finding in left if finding not in answered]
        what = f"{capital(remedy['system'])} answers {len(answered)} of {total} findings."
        if len(left) + len(answered) == total and beyond:
            what += f" No stack of exact sums withstands {beyond}."
        what += f" Put this in place of {replaced(remedy)}:"
        yield Action(what, as_toml(remedy), f"Costs {price(report, remedy)}")
    if left and "remedies" in report:
        names = ", ".join(dict.fromkeys(finding["attack"] for finding in left))
        yield Action(f"Nothing in this toolkit stops {names} here: decide whether to accept it.")
    yield from _undecided(report)
    if not total and report["verdict"]["outcome"] == "pass":
        ran = attacks_that_ran(report)
        yield Action(
            f"Nothing, by the {ran} {'attack' if ran == 1 else 'attacks'} that ran. Keep the gates "
            "in continuous integration: one that falls exits 1."
        )


def _undecided(report: Mapping[str, Any]) -> Iterator[Action]:
    straddling = [
        gate
        for gate in report["gates"]
        if gate["outcome"] == "inconclusive" and gate["low"] is not None
    ]
    if straddling:
        yield Action(
            f"{len(straddling)} undecided: an interval straddles its bound. More clients narrow "
            "it; where the bound does not matter that much, move it."
        )
    reasons = report["verdict"]["reasons"]
    if any(UNSOLVED in reason for reason in reasons):
        yield Action(
            "Nothing that clients send without noise ends in a pass: add noise with a price (a "
            "budget, protection.epsilon, finds it), or let a person answer for what is sent, for a "
            'while, [[waivers]] attack = "unpriced".'
        )
    if any(UNJUDGED in reason for reason in reasons):
        yield Action("Set a gate for every figure above info, or document the leak.")
    if any(UNEXCUSED in reason for reason in reasons):
        yield Action(
            "Document what is high or critical, or waive it until a given day: "
            "a gate does not excuse it."
        )
    if report.get("switched_off"):
        yield Action("Run every attack of the algorithm: remove the key 'attacks'.")
    if any(each.get("lacks") for each in report["findings"]):
        yield Action("Record what attacks read: see [recording].")
    for absent in dict.fromkeys(each.get("not_installed") for each in report["findings"]):
        if absent:
            yield Action(f"Install the extra that an attack would use: {absent}.")
    if not report["gates"]:
        yield Action("Set gates: without gates an audit measures but does not judge.")
