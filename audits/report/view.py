"""From the report's data to numbers that the page shows: adversaries, gates, findings.

Everything that decides what a reader sees first (the order of findings, an adversary's outcome, the
number shown with a verdict) is here, in plain functions; the template only does the layout.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from attacks.scoring.measures import MEASURES, Behind, Measure, leading, measures_of
from attacks.scoring.severities import SEVERITIES
from audits.gates.gate import documents_leak
from audits.gates.policy import objections
from audits.gates.verdict import FAIL, KNOWN, OPEN, WAIVED
from audits.report import text
from audits.report.curves import FPR_FLOOR, negatives, resolution, tpr_reached
from audits.report.text import (
    NOT_MEASURED,
    count,
    decimal,
    gate_value,
    interval,
    percent,
    round_ranges,
    signed,
)

_LEAK = "leaks as documented"
_OUTCOMES = ("fail", "inconclusive", _LEAK, "pass")
_BOUNDS = {"max": "≤", "min": "≥", "equals": "=", "least": "≥"}
_WRITTEN = {"percent": percent, "decimal": decimal, "signed": signed, "count": count}


def metric_name(metric: str) -> str:
    """Returns a metric's display name; one without a record keeps its key."""
    known = MEASURES.get(metric)
    name = text.measure(metric) if known is None else known.name
    return text.capital(name)


def headline(finding: Mapping[str, Any]) -> str:
    """Returns the one number that is shown with a finding wherever it is mentioned.

    A number whose control failed is marked as such.
    """
    if finding["status"] != "measured":
        return "not applicable"
    measure = telling(finding)
    if measure is None:
        return NOT_MEASURED
    write = _WRITTEN[measure.scale.unit.write]
    prior = None if measure.prior is None else finding.get(measure.prior.key)
    if measure.prior is not None and prior is not None:
        beside = f", {measure.prior.words} {write(prior)}"
    else:
        beside = f" {_span(finding, measure)}".rstrip()
    caveat = " (a control failed)" if control_failed(finding) else ""
    return f"{measure.name} {write(finding[measure.key])}{beside}{caveat}"


def telling(finding: Mapping[str, Any]) -> Measure | None:
    """The figure that represents a finding, or the first with the finding's severity."""
    figures = {**finding.get("details", {}), **finding}

    def rank(measure: Measure) -> int:
        rule = measure.severity
        names = (measure.key, *(rule.gains if isinstance(rule, Behind) else ()))
        grades = (MEASURES[name].severity.grade(name, figures) for name in names)
        return min(map(SEVERITIES.index, grades))

    lead = leading(finding)
    listed = [each for each in measures_of(finding) if each.page.listed]
    return None if lead is None else min((lead, *listed), key=rank)


def _span(finding: Mapping[str, Any], measure: Measure) -> str:
    low, high = (finding.get(end) for end in measure.ends)
    return interval(low, high, as_percent=measure.scale.unit.write == "percent")


def _severity_rank(finding: Mapping[str, Any]) -> int:
    severity = finding.get("severity")
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def by_severity(findings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Sorts findings worst first: by severity, by how much was learned, and by number of clients.

    Gains that differ in the second digit only are taken for equal: the attack that reaches more
    clients then comes first.
    """

    def key(finding: Mapping[str, Any]) -> tuple[bool, int, float, int, float]:
        measure = leading(finding)
        learned = finding.get("precision_gain")
        if learned is None:
            learned = 0.0 if measure is None else finding[measure.key]
        unmeasured, rank = finding["status"] != "measured", _severity_rank(finding)
        reached = int(finding.get("units", {}).get("clients", 0))
        return unmeasured, rank, -round(float(learned), 1), -reached, -float(learned)

    return sorted(findings, key=key)


def control_failed(finding: Mapping[str, Any]) -> bool:
    """Says whether a control of this finding failed, so that its numbers are meaningless."""
    controls = (finding.get("null_control"), finding.get("positive_control"))
    return any(control is not None and not control["passed"] for control in controls)


def adversary_rows(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """Builds the outcome for each adversary.

    An adversary passes only if it has a gate and there is no objection: one without a gate is "no
    gate", one to which no attack applied is "not tested", and a failed control turns a pass into
    "inconclusive". If a gate documents a leak and holds, or what was found is excused, the
    adversary "leaks as documented", which is not a pass.
    """
    findings, gates, found = report["findings"], report["gates"], objections(report)
    named = [entry["adversary"] for entry in (*findings, *gates) if entry["adversary"]]
    rows = []
    for adversary in dict.fromkeys(named):
        mine = [each for each in findings if each["adversary"] == adversary]
        measured = [finding for finding in mine if finding["status"] == "measured"]
        bounds = [gate for gate in gates if gate["adversary"] == adversary]
        states = {each.state for each in found if each.adversary == adversary}
        outcome = _adversary_outcome(measured, bounds, states)
        rows.append({"adversary": adversary, "outcome": outcome})
    return rows


def _adversary_outcome(
    measured: Sequence[Mapping[str, Any]],
    gates: Sequence[Mapping[str, Any]],
    states: AbstractSet[str],
) -> str:
    if FAIL in states:
        return "fail"
    if any(control_failed(finding) for finding in measured):
        return "inconclusive"
    if not measured:
        return "not tested"
    if OPEN in states:
        return "inconclusive" if gates else "no gate"
    if states & {WAIVED, KNOWN} or any(map(documents_leak, gates)):
        return _LEAK
    return "pass" if gates else "no gate"


def gate_rows(gates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Builds the gates table, fallen gates first, otherwise in configured order."""
    rows = []
    for gate in sorted(gates, key=lambda gate: _OUTCOMES.index(gate["outcome"])):
        threshold = gate["threshold"]
        write, value = _writer(gate["metric"]), gate["value"]
        told = value is not None and not isinstance(value, bool)  # the reason repeats the value
        limit = _limit(threshold, write)
        scope = " · ".join(part for part in (gate["adversary"], gate["attack"]) if part)
        low, high = gate["low"], gate["high"]
        span = "" if low is None or high is None else f"[{write(low)}, {write(high)}]"
        rows.append(
            {
                **gate,
                "scope": scope or "whole audit",
                "requirement": f"{metric_name(gate['metric'])} {_BOUNDS[gate['bound']]} {limit}",
                "measured": write(value),
                "why": gate.get("documented") or ("" if told else gate["reason"]),
                "span": span,
            }
        )
    return rows


def _writer(metric: str) -> Callable[[Any], str]:
    """How values of a figure are written; plain numbers if it is not a figure of an attack."""
    known = MEASURES.get(metric)
    return gate_value if known is None else _WRITTEN[known.scale.unit.write]


def _limit(threshold: bool | float, write: Callable[[Any], str]) -> str:
    """A bound, in its own digits."""
    if isinstance(threshold, bool):
        return gate_value(threshold)
    return f"{100 * threshold:,.7g}%" if write is percent else f"{threshold:,.7g}"


def finding_card(finding: Mapping[str, Any]) -> dict[str, Any]:
    """All details of a finding: its numbers, their units, and its controls."""
    units = finding["units"]
    return {
        "adversary": finding["adversary"],
        "numbers": _numbers(finding),
        "units": f"{count(units['clients'])} {_units_of(finding)}, {count(units['pairs'])} pairs, "
        f"{count(units['positives'])} positives; rounds {round_ranges(finding['rounds'])}",
        "controls": _controls(finding),
        "control_failed": control_failed(finding),
    }


def _units_of(finding: Mapping[str, Any]) -> str:
    measure = leading(finding)
    return "clients" if measure is None else measure.page.units


def _numbers(finding: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Lists a finding's measures as name, value and interval or remark."""
    rows = []
    for each in MEASURES.values():
        if each.page.listed and finding.get(each.key) is not None:
            rows.append(_measure_row(finding, each))
        elif each.page.rate is not None and finding.get("auc") is not None:
            rows.append((each.name, NOT_MEASURED, _too_few(finding, each.page.rate)))
    return rows or [(metric_name("auc"), NOT_MEASURED, "")]


def _measure_row(finding: Mapping[str, Any], measure: Measure) -> tuple[str, str, str]:
    """One measure as name, value and interval, with the value reached without the view."""
    write = _WRITTEN[measure.scale.unit.write]
    remark = _span(finding, measure)
    beside = None if measure.prior is None else finding.get(measure.prior.key)
    if measure.prior is not None and beside is not None:
        comparison = f"{measure.prior.words}: {write(beside)}"
        remark = f"{remark}; {comparison}" if remark else comparison
    return measure.name, write(finding[measure.key]), remark


def _too_few(finding: Mapping[str, Any], rate: float) -> str:
    """Explains why a rate was not measured, if there are too few negatives."""
    needed = round(10 / rate)
    have = negatives(finding)
    return f"needs {count(needed)} negatives, has {count(have)}" if have < needed else ""


def _controls(finding: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Lists both controls; one that was not run is shown as such."""
    null, positive = finding.get("null_control"), finding.get("positive_control")
    rows: list[dict[str, Any]] = [
        {"name": "Null control", "asks": "shuffled truth must look like guessing"},
        {"name": "Positive control", "asks": "a run known to leak must be caught"},
    ]
    if null is not None:
        span = interval(null["low"], null["high"])
        name, value = null.get("metric", "auc"), null.get("value", null.get("auc"))
        words = f"{metric_name(name)} {decimal(value)} {span}"
        rows[0] |= {"value": words, "passed": null["passed"]}
    if positive is not None:
        value, floor = decimal(positive["value"]), f"{positive['floor']:g}"
        words = f"{metric_name(positive['metric'])} {value}, floor {floor}"
        rows[1] |= {"value": words, "passed": positive["passed"]}
    return rows


def roc_rows(findings: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Reads each ROC curve at 0.1 %, 1 % and 10 %: the data table under a ROC chart.

    A rate with fewer than ten expected false positives reads "not measured", as on the cards.
    """
    rates = (10 * FPR_FLOOR, 100 * FPR_FLOOR, 1000 * FPR_FLOOR)
    rows = []
    for finding in findings:
        if not finding.get("roc"):
            continue
        hits = tpr_reached(finding["roc"], rates)
        finest = 10 * resolution(finding)
        cells = [
            percent(float(hit)) if rate >= finest else NOT_MEASURED
            for hit, rate in zip(hits, rates, strict=True)
        ]
        rows.append((str(finding["attack"]), cells))
    return rows
