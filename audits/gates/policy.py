"""What a pipeline makes of a verdict: waivers, a baseline, and what else is to fail.

A policy works on a finished report, so that a run of hours can be judged again in a second. It can
be stricter than the gates (``fail_on``), and it can excuse findings of attacks: what a waiver
covers until its day, and what a baseline report had already. It never excuses what was not
measured, a failed control, or utility; and what is excused is no pass, the audit leaks as
documented.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

from attacks.scoring.measures import SEVERITIES
from attacks.suite import MEASURES
from audits.config.tables import as_table, build, require_tables
from audits.gates.gate import Outcome, documents_leak
from audits.gates.verdict import EXIT_CODES, Seen, unjudged
from audits.gates.waivers import WaiverConfig

Report = Mapping[str, Any]

FAIL, OPEN, WAIVED, KNOWN = "fail", "inconclusive", "waived", "known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is asked of a report beside its gates.

    Args:
        today: the day on which waivers are looked at (UTC).
        fail_on: of ``options.LEVELS``: findings of that severity or worse fail unless a gate
            documents them; "inconclusive" makes an audit fail that is.
        baseline: an earlier report, whose findings are known; None for none.
    """

    today: date
    fail_on: tuple[str, ...] = ()
    baseline: Report | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """One thing that stands between an audit and its pass.

    Args:
        state: "fail", "inconclusive", or excused: "waived", "known" (the baseline has it).
        text: in words.
        adversary, attack: whose finding it is; None where it is none.
        metric: the figure, where a gate on one is concerned.
        gate: number of that gate in the report; None where no gate is concerned.
        waiver: number of the waiver in the configuration that excuses it, or did.
    """

    state: str
    text: str
    adversary: str | None = None
    attack: str | None = None
    metric: str | None = None
    gate: int | None = None
    waiver: int | None = None


def applied(report: Report, policy: Policy) -> dict[str, Any]:
    """A report under a policy.

    Args:
        report: of an audit; one that is under a policy already is freed of it first.
        policy: what to apply.

    Returns:
        The report, its verdict decided anew; ``policy`` in it tells how. Without waivers in its
        configuration and with nothing asked it is the report as measured.

    Raises:
        ConfigError: a waiver in its configuration is none.
    """
    measured = dict(report) | {"verdict": _measured(report)}
    measured.pop("policy", None)
    tables = require_tables("waivers", measured["configuration"].get("waivers", []))
    waivers = [as_table(build(WaiverConfig, "waivers", table)) for table in tables]
    if not (waivers or policy.fail_on or policy.baseline):
        return measured
    found = [_excused(each, measured, waivers, policy) for each in _raw(measured, policy.fail_on)]
    verdict = _verdict(measured, found, policy)
    told = {
        "date": policy.today.isoformat(),
        "fail_on": list(policy.fail_on),
        "baseline": policy.baseline and dict(policy.baseline["manifest"]),
        "measured": measured["verdict"],
        "objections": [asdict(each) for each in found],
        "waivers": [
            {**waiver, "state": _state(number, found)} for number, waiver in enumerate(waivers)
        ],
    }
    return measured | {"verdict": verdict, "policy": told}


def objections(report: Report) -> list[Objection]:
    """What stands between a report and its pass, under the policy that it was judged by."""
    if "policy" in report:
        return [Objection(**each) for each in report["policy"]["objections"]]
    return list(_raw(report, ()))


def gate_states(report: Report) -> list[str]:
    """How each gate of a report ended: its outcome, or "waived" or "known" where it is excused."""
    states = {each.gate: each.state for each in objections(report)}
    gates = enumerate(report["gates"])
    return [states.get(number, gate["outcome"]) for number, gate in gates]


def excuses(report: Report) -> dict[tuple[str | None, str | None], str]:
    """Adversaries and attacks of which all that stood in the way is excused, and by what."""
    states: dict[tuple[str | None, str | None], set[str]] = {}
    for each in objections(report):
        states.setdefault((each.adversary, each.attack), set()).add(each.state)
    return {
        pair: " and ".join(sorted(found))
        for pair, found in states.items()
        if found <= {WAIVED, KNOWN}
    }


def documented(report: Report) -> set[tuple[str, str]]:
    """Adversaries and attacks whose leak a gate documents."""
    return {(each["adversary"], each["attack"]) for each in report["gates"] if documents_leak(each)}


def _measured(report: Report) -> Mapping[str, Any]:
    verdict: Mapping[str, Any] = report.get("policy", {}).get("measured", report["verdict"])
    return verdict


def _raw(report: Report, fail_on: Sequence[str]) -> Iterator[Objection]:
    """Everything that speaks against a report, nothing excused."""
    gates, texts = report["gates"], set()
    for number, gate in enumerate(gates):
        if gate["outcome"] in (FAIL, OPEN):
            texts.add(text := f"{gate['name']}: {gate['reason']}")
            whose = {key: gate[key] for key in ("adversary", "attack", "metric")}
            yield Objection(state=gate["outcome"], text=text, gate=number, **whose)
    seen = [
        Seen(each["adversary"], each["attack"], each["severity"], each["units"]["clients"])
        for each in report["findings"]
        if each["status"] == "measured"
    ]
    left = unjudged(
        seen,
        judged={(each["adversary"], each["attack"]) for each in gates},
        leaking={each["adversary"] for each in gates if documents_leak(each)},
    )
    for each in left:
        texts.add(each.text)
        yield Objection(state=OPEN, text=each.text, adversary=each.adversary, attack=each.attack)
    if report["verdict"]["outcome"] in (FAIL, OPEN):  # controls, and what else was in the way
        others = (reason for reason in report["verdict"]["reasons"] if reason not in texts)
        yield from (Objection(state=OPEN, text=reason) for reason in others)
    yield from _too_bad(report, fail_on)


def _too_bad(report: Report, fail_on: Sequence[str]) -> Iterator[Objection]:
    """Findings of a severity that is to fail, unless their leak is documented."""
    asked = [SEVERITIES.index(level) for level in fail_on if level in SEVERITIES]
    for each in report["findings"] if asked else ():
        pair = each["adversary"], each["attack"]
        if each["severity"] is None or pair in documented(report):
            continue
        if SEVERITIES.index(each["severity"]) <= max(asked):
            text = f"{pair[0]}/{pair[1]}: severity {each['severity']}"
            yield Objection(
                state=FAIL,
                text=f"{text}, and {SEVERITIES[max(asked)]} is asked to fail",
                adversary=pair[0],
                attack=pair[1],
            )


def _excused(
    objection: Objection,
    report: Report,
    waivers: Sequence[Mapping[str, Any]],
    policy: Policy,
) -> Objection:
    """An objection, or what a waiver or the baseline makes of it."""
    if not _excusable(objection, report):
        return objection
    covering = sorted(
        (each["expires"], number)
        for number, each in enumerate(waivers)
        if (each["adversary"], each["attack"]) == (objection.adversary, objection.attack)
        and each.get("metric") in (None, objection.metric)
    )
    if covering:
        last, number = covering[-1]  # the one that holds longest
        by = f"waiver of {waivers[number]['owner']}"
        if policy.today.isoformat() <= last:
            text = f"{objection.text} ({by} until {last}: {waivers[number]['reason']})"
            return replace(objection, state=WAIVED, text=text, waiver=number)
        text = f"{objection.text} (the {by} expired on {last})"
        objection = replace(objection, state=FAIL, text=text, waiver=number)
    elif policy.baseline is not None and _is_known(objection, report, policy.baseline):
        return replace(objection, state=KNOWN, text=f"{objection.text} (in the baseline)")
    return objection


def _excusable(objection: Objection, report: Report) -> bool:
    """Whether it is a measured finding of an attack, and no leak that should be there."""
    if objection.attack is None:
        return False
    if objection.gate is None:
        return True
    gate = report["gates"][objection.gate]
    return gate["value"] is not None and not documents_leak(gate)


def _is_known(objection: Objection, report: Report, baseline: Report) -> bool:
    """Whether the baseline had the finding, no better than it is now.

    It did where its severity was as high and the figure of the gate, if it is about one, has not
    left the earlier interval for the worse.
    """
    now, then = (_finding(each, objection) for each in (report, baseline))
    if now is None or then is None or None in (now["severity"], then["severity"]):
        return False
    if SEVERITIES.index(then["severity"]) > SEVERITIES.index(now["severity"]):
        return False
    if objection.metric is None:
        return True
    earlier, later = (figure_of(each, objection.metric) for each in (then, now))
    if earlier is None or later is None:
        return False
    (_, old_low, old_high), (_, low, high) = earlier, later
    worse_low = MEASURES[objection.metric].scale.lower_is_worse
    return bool(high >= old_low if worse_low else low <= old_high)


def figures_of(finding: Mapping[str, Any]) -> dict[str, float]:
    """All figures of a finding by key, those of its details among them."""
    every = {**finding["details"], **finding}
    numbers = {key: each for key, each in every.items() if isinstance(each, int | float)}
    return {key: float(each) for key, each in numbers.items() if abs(each) < sys.maxsize}


def figure_of(finding: Mapping[str, Any], key: str) -> tuple[float, float, float] | None:
    """Value and ends of a figure; without an interval both are the value; None without a value."""
    figures = figures_of(finding)
    if key not in figures:
        return None
    value = figures[key]
    return value, figures.get(f"{key}_low", value), figures.get(f"{key}_high", value)


def _finding(report: Report, objection: Objection) -> Mapping[str, Any] | None:
    whose = objection.adversary, objection.attack
    return next(
        (each for each in report["findings"] if (each["adversary"], each["attack"]) == whose), None
    )


def _state(waiver: int, found: Sequence[Objection]) -> str:
    states = {each.state for each in found if each.waiver == waiver}
    return "applied" if WAIVED in states else "expired" if FAIL in states else "unused"


def _verdict(report: Report, found: Sequence[Objection], policy: Policy) -> dict[str, Any]:
    measured = report["verdict"]
    states = {each.state for each in found}
    reasons = [each.text for state in (FAIL, OPEN) for each in found if each.state == state]
    if FAIL in states:
        outcome = Outcome.FAIL
    elif OPEN in states:
        outcome = Outcome.INCONCLUSIVE
        if OPEN in policy.fail_on:
            outcome = Outcome.FAIL
            reasons.insert(0, "the audit is inconclusive, which is asked to fail")
    else:
        gates = [each for each in report["gates"] if documents_leak(each)]
        reasons = [f"{each['name']}: {each['documented'] or each['reason']}" for each in gates]
        reasons += [each.text for each in found]
        outcome = Outcome.LEAK if reasons else Outcome.PASS
    told = {
        "waived": sum(each.state == WAIVED for each in found),
        "known from the baseline": sum(each.state == KNOWN for each in found),
        "with an expired waiver": sum(e.state == FAIL and e.waiver is not None for e in found),
    }
    words = ", ".join(f"{number} {state}" for state, number in told.items() if number)
    return {
        "outcome": str(outcome),
        "exit_code": EXIT_CODES[outcome],
        "summary": measured["summary"] + (f" Under the policy: {words}." if words else ""),
        "reasons": reasons,
    }
