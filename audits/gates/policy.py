"""How a pipeline changes a verdict: waivers, a baseline, and what else fails.

A policy can be stricter than the gates (``fail_on``), and it can excuse. Until its last day a
waiver excuses what an attack found, and an attack that was switched off or lacked what was not
recorded. A baseline report excuses what it already contained. A policy never excuses a gate whose
figure was not measured, a failed control, or utility. What is excused is not a pass: the audit
leaks as documented.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from attacks.scoring.measures import MEASURES
from audits.config.tables import as_table, build, require_tables
from audits.gates.figures import WHOLE, figure_of, gains_behind, grades, rank
from audits.gates.gate import Outcome
from audits.gates.verdict import (
    EXIT_CODES,
    FAIL,
    KNOWN,
    OPEN,
    WAIVED,
    Excuse,
    Objection,
    Report,
    decide,
    objections_to,
)
from audits.gates.waivers import WaiverConfig
from secure_fedrec.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a report must satisfy in addition to its gates.

    Args:
        today: the day for which waivers are judged (UTC); the current day if left out.
        fail_on: one of ``options.LEVELS``: figures of that severity or worse fail unless a gate
            documents their secret; "inconclusive" makes an inconclusive audit fail.
        baseline: an earlier report of the same system on the same data, whose findings are known;
            None for none.
    """

    today: date = field(default_factory=lambda: datetime.now(UTC).date())
    fail_on: tuple[str, ...] = ()
    baseline: Report | None = None


def applied(report: Report, policy: Policy) -> dict[str, Any]:
    """A report under a policy.

    Args:
        report: report of an audit; an earlier policy in it is removed first.
        policy: what to apply.

    Returns:
        The report with a new verdict; its ``policy`` states how it was decided. Without waivers and
        with an empty policy it is the report as measured.

    Raises:
        ConfigError: a waiver in its configuration is invalid.
        DataError: the baseline is of another system or of other data.
    """
    measured = dict(report) | {"verdict": _measured(report)}
    measured.pop("policy", None)
    tables = require_tables("waivers", measured["configuration"].get("waivers", []))
    waivers = [as_table(build(WaiverConfig, "waivers", table)) for table in tables]
    if not (waivers or policy.fail_on or policy.baseline):
        return measured
    if policy.baseline is not None:
        require_same_federation(policy.baseline, measured)
    excuses = _Excuses(report=measured, waivers=waivers, policy=policy)
    found = objections_to(measured, excuse=excuses, fail_on=policy.fail_on)
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
    return measured | {"verdict": _verdict(measured, found, policy), "policy": told}


def require_same_federation(baseline: Report, now: Report) -> None:
    """Refuse a baseline of another system, of other data, or of another split of the same data.

    Args:
        baseline: an earlier report.
        now: a report, or the part known before it is made: "configuration", and "data" once it is
            read.

    Raises:
        DataError: the baseline is of another federation; names what differs.
    """
    then, own = _federation(baseline), _federation(now)
    for what, value in own.items():
        if then.get(what) != value:
            problem = f"is not of this federation: {what} is {then.get(what)!r}, here {value!r}"
            raise DataError("--baseline", problem)


def _federation(report: Report) -> dict[str, Any]:
    """What two reports must have in common to be of one federation."""
    settings = report["configuration"]
    algorithm, data = (_table(settings.get(name)) for name in ("algorithm", "data"))
    found = {"algorithm.name": algorithm.get("name"), "seed": settings.get("seed")}
    # Paths are left out: the fingerprint covers the contents.
    found |= {f"data.{key}": value for key, value in data.items() if not key.endswith("path")}
    if "data" in report:
        found["fingerprint of the data"] = report["data"]["fingerprint"]
    return found


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def objections(report: Report) -> list[Objection]:
    """The objections to a pass of a report, under its policy."""
    if "policy" in report:
        return [Objection(**each) for each in report["policy"]["objections"]]
    return objections_to(report)


def gate_states(report: Report) -> list[str]:
    """The state of each gate of a report: its outcome, or "waived" or "known" if it is excused."""
    states = {each.gate: each.state for each in objections(report)}
    gates = enumerate(report["gates"])
    return [states.get(number, gate["outcome"]) for number, gate in gates]


def excuses(report: Report) -> dict[tuple[str | None, str | None], str]:
    """Adversaries and attacks whose objections are all excused, and by what."""
    states: dict[tuple[str | None, str | None], set[str]] = {}
    for each in objections(report):
        states.setdefault((each.adversary, each.attack), set()).add(each.state)
    return {
        pair: " and ".join(sorted(found))
        for pair, found in states.items()
        if found <= {WAIVED, KNOWN}
    }


def _measured(report: Report) -> Mapping[str, Any]:
    verdict: Mapping[str, Any] = report.get("policy", {}).get("measured", report["verdict"])
    return verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class _Excuses:
    """Waivers and the baseline of a policy, asked figure by figure.

    Args:
        report: the report to be judged.
        waivers: waivers of its configuration.
        policy: has the day and the baseline.
    """

    report: Report
    waivers: Sequence[Mapping[str, Any]]
    policy: Policy

    def __call__(self, adversary: str, attack: str, metric: str | None) -> Excuse | None:
        """The excuse for a figure, or for an attack that was left out or lacked evidence."""
        found = _grades(self.report, adversary, attack)
        number = self._waiver(adversary, attack, metric, found)
        if number is not None:
            last, by = self.waivers[number]["expires"], self.waivers[number]
            if self.policy.today.isoformat() <= last:
                note = f"waiver of {by['owner']} until {last}: {by['reason']}"
                return Excuse(WAIVED, note, number)
            return Excuse(FAIL, f"the waiver of {by['owner']} expired on {last}", number)
        if self.policy.baseline is not None and metric is not None:
            whose = adversary, attack, metric
            if _is_known(*whose, found, self.report, self.policy.baseline):
                return Excuse(KNOWN, "in the baseline")
        return None

    def _waiver(
        self, adversary: str, attack: str, metric: str | None, found: Mapping[str, str]
    ) -> int | None:
        """Number of the waiver that covers a figure for the longest time.

        A waiver on a gain covers the figures judged by that gain. With several gains each needs a
        waiver, and the earliest last day counts.
        """
        covering = [
            number
            for number, each in enumerate(self.waivers)
            if (each["adversary"], each["attack"]) == (adversary, attack)
            and each.get("metric") in (None, metric)
        ]

        def expires(number: int) -> str:
            return str(self.waivers[number]["expires"])

        if covering:
            return max(covering, key=lambda number: (expires(number), number))
        gains = [] if metric is None else gains_behind(metric, found)
        each = [self._waiver(adversary, attack, name, found) for name in gains]
        known = [number for number in each if number is not None]
        return min(known, key=expires) if known and len(known) == len(gains) else None


def _is_known(
    adversary: str,
    attack: str,
    metric: str,
    found: Mapping[str, str],
    report: Report,
    baseline: Report,
) -> bool:
    """Whether the baseline already had the figure, as bad as now.

    That is so if the figure was as severe, and is not worse than its earlier interval.
    """
    now, then = (_finding(each, adversary, attack) for each in (report, baseline))
    if now is None or then is None or {now["status"], then["status"]} != {"measured"}:
        return False
    before = _grades(baseline, adversary, attack).get(metric, "info")
    if rank(before) > rank(found.get(metric, "info")):
        return False
    if metric == WHOLE:
        return True
    earlier, later = (figure_of(each, metric) for each in (then, now))
    if earlier is None or later is None:
        return False
    (_, old_low, old_high), (_, low, high) = earlier, later
    worse_low = MEASURES[metric].scale.lower_is_worse
    return bool(high >= old_low if worse_low else low <= old_high)


def _finding(report: Report, adversary: str, attack: str) -> Mapping[str, Any] | None:
    whose = adversary, attack
    return next(
        (each for each in report["findings"] if (each["adversary"], each["attack"]) == whose), None
    )


def _grades(report: Report, adversary: str, attack: str) -> dict[str, str]:
    finding = _finding(report, adversary, attack)
    return {} if finding is None else grades(finding)


def _state(waiver: int, found: Sequence[Objection]) -> str:
    states = {each.state for each in found if each.waiver == waiver}
    return "applied" if WAIVED in states else "expired" if FAIL in states else "unused"


def _verdict(report: Report, found: Sequence[Objection], policy: Policy) -> dict[str, Any]:
    verdict = decide(found, report)
    outcome, reasons = verdict.outcome, list(verdict.reasons)
    if outcome is Outcome.INCONCLUSIVE and OPEN in policy.fail_on:
        outcome = Outcome.FAIL
        reasons.insert(0, "the audit is inconclusive, which is asked to fail")
    told = {
        "waived": sum(each.state == WAIVED for each in found),
        "known from the baseline": sum(each.state == KNOWN for each in found),
        "with an expired waiver": sum(e.state == FAIL and e.waiver is not None for e in found),
    }
    words = ", ".join(f"{number} {state}" for state, number in told.items() if number)
    return {
        "outcome": str(outcome),
        "exit_code": EXIT_CODES[outcome],
        "summary": report["verdict"]["summary"] + (f" Under the policy: {words}." if words else ""),
        "reasons": reasons,
    }
