"""The verdict of an audit: from its gates, what was learned beside them, and the controls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attacks import Finding
from attacks.planted.controls import ControlResult
from audits.gates.gate import FEWEST_CLIENTS, GateResult, Outcome
from audits.report.findings import severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an audit concludes.

    Args:
        outcome: pass, fail, inconclusive, or leaks as documented.
        reasons: fallen gates, undecided gates and failed controls, in that order; of a documented
            leak the gates that document it.
    """

    outcome: Outcome
    reasons: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 pass or as documented, 1 a gate fell, 3 inconclusive."""
        return {Outcome.FAIL: 1, Outcome.INCONCLUSIVE: 3}.get(self.outcome, 0)


def decide(
    gates: Sequence[GateResult],
    findings: Sequence[Finding],
    controls: Mapping[str, ControlResult],
) -> Verdict:
    """The verdict: a fallen gate decides, then anything undecided, then a leak, then a pass.

    A failed control, an adversary nothing was measured for, or something learned that no gate
    judges makes an audit inconclusive, but never excuses a fallen gate.
    """
    fallen = [f"{g.gate.name}: {g.reason}" for g in gates if g.outcome is Outcome.FAIL]
    open_ = [f"{g.gate.name}: {g.reason}" for g in gates if g.outcome is Outcome.INCONCLUSIVE]
    open_ += undecided(findings, controls)
    if not gates:
        open_.append("the configuration has no gates")
    if fallen:
        return Verdict(outcome=Outcome.FAIL, reasons=(*fallen, *open_))
    open_ += unjudged(gates, findings)
    if open_:
        return Verdict(outcome=Outcome.INCONCLUSIVE, reasons=tuple(open_))
    leaks = [f"{g.gate.name}: {g.gate.reason or g.reason}" for g in gates if g.gate.documents_leak]
    if leaks:
        return Verdict(outcome=Outcome.LEAK, reasons=tuple(leaks))
    return Verdict(outcome=Outcome.PASS, reasons=())


def unjudged(gates: Sequence[GateResult], findings: Sequence[Finding]) -> list[str]:
    """What adversaries learned that no gate speaks of, and who has left too few to judge by.

    Of an adversary whose leak is documented, nothing is asked beyond it.
    """
    leaking = {result.gate.adversary for result in gates if result.gate.documents_leak}
    judged = {(result.gate.adversary, result.gate.attack) for result in gates}
    honest = [each for each in findings if each.measured and each.adversary not in leaking]
    reasons = [
        f"{finding.adversary}/{finding.attack}: severity {severity(finding)}, and no gate judges it"
        for finding in honest
        if severity(finding) != "info" and (finding.adversary, finding.attack) not in judged
    ]
    for adversary in dict.fromkeys(finding.adversary for finding in honest):
        clients = max(
            finding.units.get("clients", 0) for finding in honest if finding.adversary == adversary
        )
        if clients < FEWEST_CLIENTS:
            reasons.append(
                f"{adversary}: {clients} clients are left to judge by, a statement about a "
                f"federation needs {FEWEST_CLIENTS}"
            )
    return reasons


def undecided(findings: Sequence[Finding], controls: Mapping[str, ControlResult]) -> list[str]:
    """Reasons why the findings by themselves allow no verdict."""
    reasons = []
    if not findings:
        reasons.append("no attack ran: the configuration names no adversary or no attack")
    measured = {finding.adversary for finding in findings if finding.measured}
    reasons += [
        f"{adversary}: no attack applies to this adversary, nothing was measured"
        for adversary in dict.fromkeys(finding.adversary for finding in findings)
        if adversary not in measured
    ]
    reasons += [
        f"{finding.adversary}/{finding.attack}: null control is not at chance "
        f"({_null_figure(finding.null_control)})"
        for finding in findings
        if finding.null_control is not None and not finding.null_control["passed"]
    ]
    reasons += [
        f"{name}: positive control reached {control.metric} {control.value}, needs {control.floor}"
        for name, control in controls.items()
        if not control.passed
    ]
    return reasons


def _null_figure(control: Mapping[str, Any]) -> str:
    if "metric" in control:
        return f"{control['metric']} {control['value']:.4f}"
    return f"AUC {control['auc']:.4f}"
