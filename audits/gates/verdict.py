"""The verdict of an audit: objections to a pass, and what excuses them.

A verdict is computed from a report, so that a run of hours can be judged again in a second. Nothing
passes by being omitted: every attack that the system has must run, everything that it reads must be
recorded, and every figure above ``info`` needs a gate of its own that could have fallen. A gate
does not excuse a high or critical figure; a documented leak of its secret or a waiver does. What is
excused is not a pass: the audit leaks as documented.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from attacks.scoring.severities import SEVERITIES
from audits.gates.figures import WHOLE, figure_of, gains_behind, grades, rank, secret_of
from audits.gates.gate import FEWEST_CLIENTS, Outcome, documents_leak, falls
from audits.gates.waivers import UNPRICED, UNREAD

EXIT_CODES: Mapping[Outcome, int] = MappingProxyType(
    {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.INCONCLUSIVE: 3, Outcome.LEAK: 0}
)
"""What the command line returns."""

Report: TypeAlias = Mapping[str, Any]

FAIL, OPEN, WAIVED, KNOWN = "fail", "inconclusive", "waived", "known"

UNJUDGED = "no gate judges it"
"""Last words of the objection to a figure without a gate; other code searches for them."""

UNEXCUSED = "no gate excuses it, a waiver or a documented leak would"
"""Last words of the objection to a severe figure with a gate; other code searches for them."""

MOST_EPSILON = 10.0
"""A larger epsilon does not count as a bound: the second tier of Ponomareva et al. 2023, section
5.2."""

UNSOLVED = (
    f"no price of its own bounds that (epsilon up to {MOST_EPSILON:g}, delta up to 1 / clients), "
    "and no search shows all that it tells"
)
"""Last words of the objection to unpriced information; other code searches for them."""

_READS = frozenset({"attack", "figures", "data set"})
"""Kinds of plug-ins that do not determine what is sent."""

_WHOLE = "everything"
_PARTS: Mapping[str, str] = MappingProxyType({"aggregate": "sums", "bag": "bags"})
_MOVED = frozenset({"table", "public", "part"})
"""Parts whose prices cover what an adversary holds, by the first word of its name."""

_JUDGED = ("low", "medium")
"""Severities that a gate can let pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an audit concludes.

    Args:
        outcome: pass, fail, inconclusive, or leaks as documented.
        reasons: what fell and what is undecided, in that order; if the audit leaks as documented,
            the gates that document it, and what is excused.
    """

    outcome: Outcome
    reasons: tuple[str, ...]

    @classmethod
    def told(cls, verdict: Mapping[str, Any]) -> "Verdict":
        """Read the verdict of a report."""
        return cls(outcome=Outcome(verdict["outcome"]), reasons=tuple(verdict["reasons"]))

    @property
    def exit_code(self) -> int:
        """0 pass or as documented, 1 a gate fell, 3 inconclusive."""
        return EXIT_CODES[self.outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """One objection to a pass.

    Args:
        state: "fail", "inconclusive", or excused: "waived", "known" (the baseline has it).
        text: in words.
        adversary, attack: of the finding; None without a finding.
        metric: the figure of the gate, or the worst figure without a gate.
        gate: number of that gate in the report; None without a gate.
        waiver: number of the waiver in the configuration that excuses it, or did until it expired.
    """

    state: str
    text: str
    adversary: str | None = None
    attack: str | None = None
    metric: str | None = None
    gate: int | None = None
    waiver: int | None = None


class Excuse(NamedTuple):
    """How an objection is excused.

    Attributes:
        state: "waived" or "known"; "fail" if the waiver has expired.
        note: who excuses it, appended to the text.
        waiver: number of the waiver; None if the baseline excuses it.
    """

    state: str
    note: str
    waiver: int | None = None


Excuses: TypeAlias = Callable[[str, str, str | None], Excuse | None]
"""Returns the excuse for an adversary, an attack and its figure; without a figure, for the left-out
attack.
"""


def nothing_excused(adversary: str, attack: str, metric: str | None) -> Excuse | None:
    """Excuse nothing: without waivers and baseline."""
    return None


def decide(found: Sequence[Objection], report: Report) -> Verdict:
    """The verdict: fail if anything fell, else inconclusive, else a leak, else a pass.

    Args:
        found: all objections, see ``objections_to``.
        report: the report, whose gates may document leaks.
    """
    reasons = [each.text for state in (FAIL, OPEN) for each in found if each.state == state]
    if reasons:
        fell = any(each.state == FAIL for each in found)
        return Verdict(
            outcome=Outcome.FAIL if fell else Outcome.INCONCLUSIVE, reasons=tuple(reasons)
        )
    documented = [each for each in report["gates"] if documents_leak(each)]
    reasons = [f"{each['name']}: {each['documented'] or each['reason']}" for each in documented]
    reasons += [each.text for each in found]
    return Verdict(outcome=Outcome.LEAK if reasons else Outcome.PASS, reasons=tuple(reasons))


def objections_to(
    report: Report, *, excuse: Excuses = nothing_excused, fail_on: Sequence[str] = ()
) -> list[Objection]:
    """All objections to a report.

    Args:
        report: report of an audit; its own verdict is not read.
        excuse: finds the excuse for a figure or an attack.
        fail_on: severities that fail; worse ones fail, too.
    """
    found = [
        *_gates(report, excuse),
        *(Objection(state=OPEN, text=text) for text in undecided(report["findings"])),
        *_left_out(report, excuse),
        *_unread(report, excuse),
        *_without_gates(report),
        *_broken_claim(report),
        *_few(report),
        *_figures(report, excuse, fail_on),
    ]
    # A pass covers every adversary, so each needs a gate on what it learns. No search shows all
    # that messages and sums tell.
    leaks = found or any(documents_leak(gate) for gate in report["gates"])
    return found if leaks else [*_ungated(report), *_unpriced(report, excuse)]


def undecided(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why the findings of a report alone do not allow a verdict."""
    reasons = []
    if not findings:
        reasons.append("no attack ran: the configuration names no adversary or no attack")
    reasons += [
        f"{each['adversary']}/{each['attack']}: {each['reason']}"
        for each in findings
        if each.get("raised") is not None
    ]
    measured = {each["adversary"] for each in findings if each["status"] == "measured"}
    reasons += [
        f"{adversary}: no attack applies to this adversary, nothing was measured"
        for adversary in dict.fromkeys(each["adversary"] for each in findings)
        if adversary not in measured
    ]
    reasons += [
        f"{each['adversary']}/{each['attack']}: null control is not at chance "
        f"({_null_figure(each['null_control'])})"
        for each in findings
        if each["null_control"] is not None and not each["null_control"]["passed"]
    ]
    failed = {
        each["attack"]: each["positive_control"]
        for each in findings
        if each["positive_control"] is not None and not each["positive_control"]["passed"]
    }
    reasons += [
        f"{attack}: positive control reached {control['metric']} {control['value']}, needs "
        f"{control['floor']}"
        for attack, control in failed.items()
    ]
    return reasons


def unrecorded(finding: Mapping[str, Any]) -> str | None:
    """Payloads that an attack reads and that were not recorded; None if all were recorded."""
    lacks = finding.get("lacks")
    if not lacks:
        return None
    whose = f"{finding['adversary']}/{finding['attack']}"
    steps = ", ".join(lacks)
    return f"{whose}: payloads that it reads were not all recorded ({steps}): see [recording]"


def documenting(report: Report, finding: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Figures of a finding above ``info`` that are documented, each with its gate.

    A documented leak is about one secret and one adversary. It covers every figure of that secret
    by the attack that it names. Another attack on the same secret is covered if it is not worse:
    the documented figure is not higher than documented, and its severity is not higher.
    """
    found = grades(finding)
    gates = [
        gate
        for gate in report["gates"]
        if documents_leak(gate)
        and gate["outcome"] == Outcome.LEAK
        and gate["adversary"] == finding["adversary"]
    ]
    covered: dict[str, Mapping[str, Any]] = {}
    for key, grade in found.items():
        for gate in gates:
            if secret_of(key) != secret_of(gate["metric"]) or secret_of(key) is None:
                continue
            if gate["attack"] == finding["attack"] or _no_worse(report, gate, finding, grade):
                covered.setdefault(key, gate)
    return covered


def _no_worse(
    report: Report, gate: Mapping[str, Any], finding: Mapping[str, Any], grade: str
) -> bool:
    """Whether a figure of another attack is not worse than the leak that a gate documents."""
    value, most = figure_of(finding, gate["metric"]), gate.get("most")
    if value is None or (most is not None and value[0] > most):
        return False
    secret = secret_of(gate["metric"])
    whose = gate["adversary"], gate["attack"]
    told = [
        worst
        for each in report["findings"]
        if (each["adversary"], each["attack"]) == whose
        for key, worst in grades(each).items()
        if secret_of(key) == secret
    ]
    return bool(told) and rank(grade) >= min(map(rank, told))


def _gates(report: Report, excuse: Excuses) -> Iterator[Objection]:
    """Objections from gates that fell or are undecided."""
    for number, gate in enumerate(report["gates"]):
        if gate["outcome"] not in (FAIL, OPEN):
            continue
        text = f"{gate['name']}: {gate['reason']}"
        whose = {key: gate[key] for key in ("adversary", "attack", "metric")}
        # Utility, unmeasured figures, and documented leaks that are missing cannot be excused.
        excusable = gate["attack"] is not None and gate["value"] is not None
        excused = None
        if excusable and not documents_leak(gate):
            excused = excuse(gate["adversary"], gate["attack"], gate["metric"])
        yield _objection(gate["outcome"], text, excused, gate=number, **whose)


def _left_out(report: Report, excuse: Excuses) -> Iterator[Objection]:
    """Objections from attacks that were switched off, or lacked evidence or an extra."""
    tables = report["configuration"].get("adversaries", ())
    for table in tables if isinstance(tables, list) else ():
        name = str(table.get("name")) if isinstance(table, dict) else str(table)
        for attack in report.get("switched_off", ()):
            text = f"{name}/{attack}: it reads messages of this algorithm, and was switched off"
            excused = excuse(name, attack, None)
            yield _objection(OPEN, text, excused, adversary=name, attack=attack)
    for finding in report["findings"]:
        name, attack = finding["adversary"], finding["attack"]
        absent = finding.get("not_installed")
        lacking = unrecorded(finding), f"{name}/{attack}: {absent}" if absent else None
        for text in filter(None, lacking):
            excused = excuse(name, attack, None)
            yield _objection(OPEN, text, excused, adversary=name, attack=attack)


def unread(findings: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """What reached each adversary from others and was read by no measured attack."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        found.setdefault(finding["adversary"], []).extend(finding.get("received", ()))
    for finding in findings:
        left = found[finding["adversary"]]
        left[:] = [name for name in dict.fromkeys(left) if name not in finding.get("read", ())]
    return {adversary: left for adversary, left in found.items() if left}


def _unread(report: Report, excuse: Excuses) -> Iterator[Objection]:
    """Objections from messages that no attack has read, so that it is unknown what they tell."""
    for adversary, names in unread(report["findings"]).items():
        text = f"{adversary}: it receives what no attack has read: {', '.join(names)}"
        yield _objection(OPEN, text, excuse(adversary, UNREAD, None), adversary=adversary)


def _unpriced(report: Report, excuse: Excuses) -> Iterator[Objection]:
    """Objections from information about clients that no price bounds.

    Messages and sums are equations: that a search has not solved them does not show that they
    cannot be solved. Noise bounds what they tell an adversary up to the price against that
    adversary, and a delta of 1 / clients allows one client to be revealed wholly. Algorithms and
    layers that are not shipped state themselves what they send and what it costs; this is not
    verified here.
    """
    priced: dict[str, set[str]] = {}
    for price in report.get("protection", {}).get("privacy", ()):
        bounded = price["epsilon"] <= MOST_EPSILON
        if bounded and price["delta"] <= 1 / max(1, report["data"]["clients"]):
            parts = {price.get("part", ""), *([_WHOLE] if price.get("whole") else [])}
            for adversary in price.get("of", ()):
                priced.setdefault(adversary, set()).update(parts)
    held: dict[str, list[str]] = {}
    for finding in report["findings"]:
        held.setdefault(finding["adversary"], []).extend(finding.get("held", ()))
    brought = [
        f"what {each['name']} makes"
        for each in report.get("manifest", {}).get("plugins", ())
        if each["kind"] not in _READS
    ]
    for adversary, told in held.items():
        bounds = priced.get(adversary, set())
        left = [name for name in dict.fromkeys(told) if _part_of(name) not in bounds]
        left += brought
        if left:
            text = f"{adversary}: it holds {', '.join(left)}: {UNSOLVED}"
            excused = excuse(adversary, UNPRICED, None)
            yield _objection(OPEN, text, excused, adversary=adversary)


def _part_of(name: str) -> str:
    """The part that a price must cover to bound what is held under a name."""
    head = name.partition(" ")[0].partition(".")[0]
    return _PARTS.get(head, _WHOLE if head in _MOVED else "")


def _without_gates(report: Report) -> Iterator[Objection]:
    if not report["gates"]:
        yield Objection(state=OPEN, text="the configuration has no gates")


def _ungated(report: Report) -> Iterator[Objection]:
    # Only gates on an attack that could fall count; one on epsilon does not judge an attack.
    gated = {
        gate["adversary"]
        for gate in report["gates"]
        if gate["attack"] is not None and _could_fall(gate)
    }
    for adversary in dict.fromkeys(each["adversary"] for each in report["findings"]):
        if adversary not in gated:
            text = f"{adversary}: no gate is on what it learns"
            yield Objection(state=OPEN, text=text, adversary=adversary)


def _broken_claim(report: Report) -> Iterator[Objection]:
    """The objection to layers that claim to be lossless and are not; no gate is needed for it."""
    told = report.get("lossless", {})
    if told.get("claimed") and told["holds"] is False:
        text = f"the layers claim to be lossless, but are not: {told['first_difference']}"
        yield Objection(state=FAIL, text=text)


def _few(report: Report) -> Iterator[Objection]:
    """Objections from adversaries that leave too few clients to judge by."""
    most: dict[str, int] = {}
    for each in report["findings"]:
        if each["status"] == "measured":
            name = each["adversary"]
            most[name] = max(most.get(name, 0), each["units"]["clients"])
    for adversary, clients in most.items():
        if clients < FEWEST_CLIENTS:
            text = (
                f"{adversary}: {clients} clients are left to judge by, a statement about a "
                f"federation needs {FEWEST_CLIENTS}"
            )
            yield Objection(state=OPEN, text=text)


def _figures(report: Report, excuse: Excuses, fail_on: Sequence[str]) -> Iterator[Objection]:
    """Objections from figures above ``info`` without a gate or a documented leak."""
    asked = [rank(level) for level in fail_on if level in SEVERITIES]
    for finding in report["findings"]:
        found, covered = grades(finding), documenting(report, finding)
        whose = finding["adversary"], finding["attack"]
        mine = [each for each in report["gates"] if (each["adversary"], each["attack"]) == whose]
        against: dict[tuple[str, str, Excuse | None], list[str]] = {}
        for key, grade in found.items():
            why = _why(key, grade, mine, found)
            state = OPEN
            if asked and rank(grade) <= max(asked):
                state, why = FAIL, f"and {SEVERITIES[max(asked)]} is asked to fail"
            if why is not None and key not in covered:
                excused = excuse(*whose, key)
                against.setdefault((state, why, excused), []).append(key)
        for (state, why, excused), keys in against.items():
            names = ", ".join(key for key in keys if key != WHOLE)
            text = f"{'/'.join(whose)}: severity {found[keys[0]]}"
            text += f" ({names}), {why}" if names else f", {why}"
            yield _objection(
                state, text, excused, adversary=whose[0], attack=whose[1], metric=keys[0] or None
            )


def _why(
    key: str, grade: str, gates: Sequence[Mapping[str, Any]], found: Mapping[str, str]
) -> str | None:
    """The objection to a figure; None if its gate already covers it."""
    if any(each["metric"] == key and each["outcome"] in (FAIL, OPEN) for each in gates):
        return None
    if not _spoken_for(key, gates, found):
        return UNJUDGED
    return None if grade in _JUDGED else UNEXCUSED


def _spoken_for(key: str, gates: Iterable[Mapping[str, Any]], found: Mapping[str, str]) -> bool:
    """Whether a gate that could fall covers a figure, or all gains that it is judged by."""
    if any(each["metric"] == key and _could_fall(each) for each in gates):
        return True
    gains = gains_behind(key, found)
    return bool(gains) and all(_spoken_for(name, gates, found) for name in gains)


def _could_fall(gate: Mapping[str, Any]) -> bool:
    return falls(gate["metric"], gate["bound"], gate["threshold"])


def _objection(state: str, text: str, excused: Excuse | None, **about: Any) -> Objection:
    """An objection, with its excuse applied."""
    if excused is None:
        return Objection(state=state, text=text, **about)
    told = f"{text} ({excused.note})"
    return Objection(state=excused.state, text=told, waiver=excused.waiver, **about)


def _null_figure(control: Mapping[str, Any]) -> str:
    if "metric" in control:
        return f"{control['metric']} {control['value']:.4f}"
    return f"AUC {control['auc']:.4f}"
