"""No pass beside what nobody answers for, whatever gates, waivers, baselines and attacks are drawn.

Findings, gates as configurations may have them, waivers, a baseline and switched-off attacks are
drawn; the verdict is held against a rule that is written here once more, from figures alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from attacks import Finding
from attacks.scoring.measures import MEASURES, Behind
from audits.gates.figures import grades
from audits.gates.gate import EVERYTHING, GateConfig, judge
from audits.gates.policy import Policy, applied
from audits.gates.verdict import decide, objections_to
from audits.gates.waivers import UNREAD
from audits.report.assemble import gate_json
from audits.report.findings import finding_json
from secure_fedrec.errors import ConfigError

TODAY = date(2027, 1, 15)
ADVERSARIES, ATTACKS = ("server", "denoisers"), ("direct", "lattice", "drafts")
IDLE = [
    Finding(
        attack="idle",
        adversary=name,
        game="a game",
        units={"clients": 100},
        figures={"clients_exposed": 0.0},
    )
    for name in ADVERSARIES
]
"""What gates on an adversary judge that say nothing of any other finding."""
KEYS = (
    *("precision_at_k", "precision_gain", "headroom_lift", "rating_accuracy", "rating_lift"),
    *("reidentified_share", "reidentified_lift", "user_vector_share", "linked_share"),
    *("histogram_error", "histogram_error_lift"),
)
VALUES = st.sampled_from((0.0, 0.01, 0.03, 0.06, 0.1, 0.25, 0.6, 0.95, 1.0))
EXAMPLES = 1300
SEEN: Counter[str] = Counter()


@st.composite
def findings(draw: st.DrawFn) -> list[Finding]:
    """Of every adversary and attack, most of them quiet."""
    found = []
    for adversary in ADVERSARIES:
        for attack in ATTACKS:
            figures: dict[str, float | None] = {}
            most = draw(st.sampled_from((0, 0, 0, 0, 1, 2)))
            for key in draw(st.lists(st.sampled_from(KEYS), max_size=most, unique=True)):
                value = draw(VALUES)
                figures |= {key: value, f"{key}_low": value, f"{key}_high": value}
                rule = MEASURES[key].severity
                for gain in rule.gains if isinstance(rule, Behind) else (key,):
                    figures[f"{gain}_certain"] = draw(VALUES) - 0.02
                    figures.setdefault(gain, draw(VALUES))
            rare, unread = draw(st.integers(0, 30)), draw(st.integers(0, 90)) == 1
            found.append(
                Finding(
                    attack=attack,
                    adversary=adversary,
                    game="a game",
                    reason="it sees nothing" if rare == 1 else None,
                    lacks=("upload",) if rare == 2 else (),
                    received=("upload", "noise") if unread else ("upload",),
                    read=() if rare == 1 else ("upload",),
                    figures={} if rare == 1 else figures,
                    units={"clients": 100},
                )
            )
    return found


@st.composite
def gates(draw: st.DrawFn, found: Sequence[Finding]) -> list[GateConfig]:
    """Gates on what was found and on other figures, those that are refused left out."""
    drawn = []
    about = [(each, key) for each in found for key in each.figures if key in MEASURES]
    about = [each for each in about if draw(st.sampled_from((True, True, True, False)))]
    if draw(st.booleans()):
        about.append((draw(st.sampled_from(found)), draw(st.sampled_from(KEYS))))
    for finding, metric in about:
        bound = draw(st.sampled_from(("max", "max", "leak", "leak", "min")))
        own = finding.figures.get(metric) or 0.0
        value = draw(st.sampled_from((own, own, own, 0.05, 0.9, 1.0, 1e-6)))
        asked: dict[str, Any] = {bound: value}
        if bound == "leak":
            most = draw(st.sampled_from((None, 1.0, value)))
            asked = {"expect": "leak", "least": value, "most": most, "reason": "so it is"}
        whose: dict[str, Any] = {"attack": finding.attack, "adversary": finding.adversary}
        try:
            drawn.append(GateConfig(metric=metric, **whose, **asked))
        except ConfigError:
            SEEN["a gate is refused"] += 1
    every = ADVERSARIES if draw(st.sampled_from((True,) * 7 + (False,))) else ()
    asked = {"metric": "clients_exposed", "attack": "idle", "max": 8.0}
    able = [GateConfig(adversary=name, **asked) for name in every]
    priced = [GateConfig(metric="epsilon", adversary=name, max=8.0) for name in ADVERSARIES]
    return [GateConfig(metric="rmse", max=1.0), *priced, *able, *drawn]


@st.composite
def waivers(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Some that hold and some that do not, of findings or of figures."""
    return [
        {
            "adversary": draw(st.sampled_from(ADVERSARIES)),
            "attack": draw(st.sampled_from((*ATTACKS, UNREAD))),
            "reason": "for now",
            "owner": "ann",
            "expires": draw(st.sampled_from(("2027-01-15", "2027-01-15", "2026-01-01"))),
        }
        | ({"metric": draw(st.sampled_from(KEYS))} if draw(st.booleans()) else {})
        for _ in range(draw(st.integers(0, 6)))
    ]


def told(
    found: Sequence[Finding], asked: Sequence[GateConfig], off: Sequence[str]
) -> dict[str, Any]:
    """A report, as far as a verdict reads it."""
    given: dict[str, Any] = {"findings": [*found, *IDLE]}
    given |= {"utility": {"rmse": 0.9}, "lossless": None}
    given["epsilons"] = dict.fromkeys(((name, EVERYTHING) for name in ADVERSARIES), 1.0)
    judged = [judge(each, **given) for each in asked]
    report: dict[str, Any] = {
        "configuration": {"adversaries": [{"name": name} for name in ADVERSARIES]},
        "data": {"fingerprint": "one"},
        "manifest": {},
        "gates": [gate_json(each) for each in judged],
        "findings": [finding_json(each, None) for each in found],
        "switched_off": list(off),
    }
    verdict = decide(objections_to(report), report)
    report["verdict"] = {
        "outcome": str(verdict.outcome),
        "exit_code": verdict.exit_code,
        "summary": "",
        "reasons": list(verdict.reasons),
    }
    return report


def unanswered(report: Mapping[str, Any]) -> list[str]:
    """What a pass may not stand beside: by figures, gates and their bounds alone."""
    left = []
    for finding in report["findings"]:
        whose = finding["adversary"], finding["attack"]
        for key, grade in grades(finding).items():
            measure = MEASURES[key]
            bounded = [
                gate
                for gate in report["gates"]
                if (gate["adversary"], gate["attack"], gate["metric"]) == (*whose, key)
                and gate["bound"] == ("min" if measure.scale.lower_is_worse else "max")
                and gate["outcome"] == "pass"
            ]
            if grade in ("high", "critical") or not bounded:
                left.append(f"{'/'.join(whose)}: {key} is {grade}")
        if finding["lacks"]:
            left.append(f"{'/'.join(whose)} lacked evidence")
    left += [f"{attack} was switched off" for attack in report["switched_off"]]
    for name in {each["adversary"] for each in report["findings"]}:
        mine = [each for each in report["findings"] if each["adversary"] == name]
        read = {step for each in mine for step in each["read"]}
        left += [f"{step} is not read" for each in mine for step in {*each["received"]} - read]
        if not any(gate["adversary"] == name and gate["attack"] for gate in report["gates"]):
            left.append(f"{name} has no gate")
    return left


@seed(1)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def judged_examples(data: st.DataObject) -> None:
    """One drawn audit, judged by itself and under a policy."""
    found = data.draw(findings())
    asked = data.draw(gates(found))
    off = data.draw(st.sampled_from(((), (), (), ("sum-decoding",))))
    report = told(found, asked, off)
    report["configuration"]["waivers"] = data.draw(waivers())
    before = data.draw(st.sampled_from(("none", "none", "the same", "another")))
    baseline = None
    if before != "none":
        earlier = found if before == "the same" else data.draw(findings())
        baseline = told(earlier, asked, ())
    policy = Policy(today=TODAY, baseline=baseline)
    ended = applied(report, policy)
    left = unanswered(report)
    for outcome in (report["verdict"]["outcome"], ended["verdict"]["outcome"]):
        assert outcome != "pass" or not left, left
    states = {each["state"] for each in ended.get("policy", {}).get("objections", ())}
    assert ended["verdict"]["outcome"] != "pass" or not states
    documented = any(gate["bound"] == "least" for gate in report["gates"])
    if ended["verdict"]["outcome"] == "leaks as documented":
        assert documented or states <= {"waived", "known"}
        assert documented or states
        # What is documented is of the secrets that are documented, the rest has been excused.
        secrets = {
            (gate["adversary"], MEASURES[gate["metric"]].secret)
            for gate in report["gates"]
            if gate["bound"] == "least"
        }
        excused = {
            (e["adversary"], e["attack"]) for e in ended.get("policy", {}).get("objections", ())
        }
        for finding in report["findings"]:
            for key, grade in grades(finding).items():
                if grade in ("high", "critical"):
                    mine = finding["adversary"], finding["attack"]
                    assert mine in excused or (mine[0], MEASURES[key].secret) in secrets
    SEEN[ended["verdict"]["outcome"]] += 1
    for state in states:
        SEEN[f"something is {state}"] += 1
    if before != "none":
        SEEN["with a baseline"] += 1
    if off:
        SEEN["with an attack switched off"] += 1
    if any("noise" in finding.received for finding in found):
        SEEN["with messages unread"] += 1
    if all(gate["attack"] is None for gate in report["gates"]):
        SEEN["without gates on adversaries"] += 1
    if any(finding.lacks for finding in found):
        SEEN["with evidence missing"] += 1
    if documented and ended["verdict"]["outcome"] == "leaks as documented":
        SEEN["a documented leak"] += 1
    if ended["verdict"]["outcome"] == "pass" and any(map(grades, report["findings"])):
        SEEN["a pass with a finding that a gate judges"] += 1


@pytest.mark.claim("verdicts-judge-everything")
def test_nothing_passes_beside_what_nobody_answers_for() -> None:
    SEEN.clear()
    judged_examples()
    print(dict(SEEN))
    floors = {
        **{"pass": 100, "fail": 60, "inconclusive": 200, "leaks as documented": 40},
        **{"something is waived": 60, "something is known": 60, "with a baseline": 200},
        **{"with an attack switched off": 100, "with evidence missing": 100},
        **{"a documented leak": 12, "a gate is refused": 300},
        **{"with messages unread": 60, "without gates on adversaries": 20},
        **{"a pass with a finding that a gate judges": 5},
    }
    assert {name: SEEN[name] for name in floors if SEEN[name] < floors[name]} == {}
