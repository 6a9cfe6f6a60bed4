"""The verdict of an audit: from its gates, what was learned beside them, and the controls."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from attacks import Finding
from attacks.planted.controls import ControlResult
from attacks.scoring.catalogue import severity_of
from audits.gates.gate import FEWEST_CLIENTS, GateResult, Outcome

EXIT_CODES: Mapping[Outcome, int] = MappingProxyType(
    {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.INCONCLUSIVE: 3, Outcome.LEAK: 0}
)
"""What the command line returns."""


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

    @classmethod
    def told(cls, verdict: Mapping[str, Any]) -> "Verdict":
        """The verdict that a report states."""
        return cls(outcome=Outcome(verdict["outcome"]), reasons=tuple(verdict["reasons"]))

    @property
    def exit_code(self) -> int:
        """0 pass or as documented, 1 a gate fell, 3 inconclusive."""
        return EXIT_CODES[self.outcome]


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
    pairs = {(each.gate.adversary, each.gate.attack) for each in gates}
    leaking = {each.gate.adversary for each in gates if each.gate.documents_leak}
    open_ += [each.text for each in unjudged(_seen(findings), judged=pairs, leaking=leaking)]
    if open_:
        return Verdict(outcome=Outcome.INCONCLUSIVE, reasons=tuple(open_))
    leaks = [f"{g.gate.name}: {g.gate.reason or g.reason}" for g in gates if g.gate.documents_leak]
    if leaks:
        return Verdict(outcome=Outcome.LEAK, reasons=tuple(leaks))
    return Verdict(outcome=Outcome.PASS, reasons=())


Pair: TypeAlias = tuple[str | None, str | None]
"""An adversary and an attack."""


class Seen(NamedTuple):
    """A measured finding, as far as a verdict looks at it.

    Attributes:
        adversary, attack: whose.
        severity: how bad it is.
        clients: behind its figures.
    """

    adversary: str
    attack: str
    severity: str
    clients: int


class Unjudged(NamedTuple):
    """Something that no gate speaks of.

    Attributes:
        adversary: who learned it, or who has too few clients left.
        attack: by which attack; None for too few clients.
        text: the same in words.
    """

    adversary: str
    attack: str | None
    text: str


def unjudged(
    findings: Sequence[Seen], *, judged: AbstractSet[Pair], leaking: AbstractSet[str | None]
) -> list[Unjudged]:
    """What adversaries learned that no gate speaks of, and who has left too few to judge by.

    Args:
        findings: the measured ones.
        judged: adversaries and attacks that gates speak of.
        leaking: adversaries whose leak is documented; nothing is asked beyond it.
    """
    honest = [each for each in findings if each.adversary not in leaking]
    reasons = [
        Unjudged(
            each.adversary,
            each.attack,
            f"{each.adversary}/{each.attack}: severity {each.severity}, and no gate judges it",
        )
        for each in honest
        if each.severity != "info" and (each.adversary, each.attack) not in judged
    ]
    for adversary in dict.fromkeys(each.adversary for each in honest):
        clients = max(each.clients for each in honest if each.adversary == adversary)
        if clients < FEWEST_CLIENTS:
            text = (
                f"{adversary}: {clients} clients are left to judge by, a statement about a "
                f"federation needs {FEWEST_CLIENTS}"
            )
            reasons.append(Unjudged(adversary, None, text))
    return reasons


def _seen(findings: Sequence[Finding]) -> list[Seen]:
    return [
        Seen(each.adversary, each.attack, severity_of(each.figures), each.units.get("clients", 0))
        for each in findings
        if each.measured
    ]


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
