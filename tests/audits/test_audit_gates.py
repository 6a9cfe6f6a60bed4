"""Gates: pass, fail, or an honest "could not tell"; and the verdict they add up to."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from attacks import Finding
from attacks.planted.controls import ControlResult
from attacks.scoring.measures import MEASURES, Observed
from audits.gates import gate as module
from audits.gates.gate import GateConfig, GateResult, Outcome, judge
from audits.gates.verdict import UNSOLVED, Verdict, objections_to
from audits.gates.verdict import decide as verdict_of
from audits.report.assemble import gate_json
from audits.report.findings import finding_json
from secure_fedrec.errors import ConfigError

PASS, FAIL, UNDECIDED = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE
SOUND = {"auc": 0.5, "low": 0.49, "high": 0.51, "passed": True}
BROKEN = {"auc": 0.7, "low": 0.69, "high": 0.71, "passed": False}


def finding(
    figures: Mapping[str, float | None],
    *,
    reason: str | None = None,
    null: Mapping[str, Any] | None = None,
) -> Finding:
    return Finding(
        attack="lattice",
        adversary="server",
        game="a game",
        reason=reason,
        figures=figures,
        units={"clients": 100},
        null_control=null,
    )


def bounded(bound: str, threshold: float) -> GateConfig:
    bounds: dict[str, float] = {bound: threshold}
    return GateConfig(metric="auc", attack="lattice", adversary="server", **bounds)  # type: ignore[arg-type]


def error_bounded(threshold: float) -> GateConfig:
    """Of a figure that is the worse the lower it is."""
    return GateConfig(metric="histogram_error", attack="lattice", adversary="server", min=threshold)


def judged(gate: GateConfig, *found: Finding) -> GateResult:
    return judge(gate, findings=found, utility={"mae": 0.7, "rmse": 0.9}, lossless=None)


def told(
    gates: Sequence[GateResult], found: Sequence[Finding], controls: Mapping[str, ControlResult]
) -> dict[str, Any]:
    """As much of a report as a verdict reads."""
    return {
        "configuration": {"adversaries": [{"name": name} for name in {f.adversary for f in found}]},
        "gates": [gate_json(each) for each in gates],
        "findings": [finding_json(each, controls.get(each.attack)) for each in found],
    }


def decide(
    gates: Sequence[GateResult], found: Sequence[Finding], controls: Mapping[str, ControlResult]
) -> Verdict:
    """The verdict without a policy."""
    report = told(gates, found, controls)
    return verdict_of(objections_to(report), report)


@pytest.mark.parametrize(
    ("low", "high", "at_most", "at_least"),
    [
        # where the interval lies around the bound of 0.6
        (0.40, 0.50, PASS, FAIL),
        (0.50, 0.60, PASS, UNDECIDED),
        (0.50, 0.70, UNDECIDED, UNDECIDED),
        (0.60, 0.60, PASS, PASS),
        (0.60, 0.70, UNDECIDED, PASS),
        (0.61, 0.70, FAIL, PASS),
        (0.70, 0.70, FAIL, PASS),
        (0.50, 0.50, PASS, FAIL),
    ],
)
def test_a_bound_is_judged_by_the_interval(
    low: float, high: float, at_most: Outcome, at_least: Outcome
) -> None:
    found = finding({"auc": (low + high) / 2, "auc_low": low, "auc_high": high})
    result = judged(bounded("max", 0.6), found)
    assert (result.outcome, result.low, result.high) == (at_most, low, high)
    ends = {
        f"histogram_error{end}": value
        for end, value in zip(("", "_low", "_high"), (0.5, low, high), strict=True)
    }
    assert judged(error_bounded(0.6), finding(ends)).outcome is at_least
    assert f"auc is {(low + high) / 2:.4f}" in result.reason
    assert f"interval {low:.4f} to {high:.4f}" in result.reason


@pytest.mark.parametrize(("value", "at_most"), [(0.5, PASS), (0.6, PASS), (0.61, FAIL)])
def test_a_figure_without_an_interval_is_judged_by_itself(value: float, at_most: Outcome) -> None:
    result = judged(bounded("max", 0.6), finding({"auc": value}))
    assert (result.outcome, result.low, result.high) == (at_most, None, None)
    assert "interval" not in result.reason


@pytest.mark.parametrize("gate", [bounded("max", 0.6), error_bounded(0.6)])
@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([], "the attack did not run"),
        ([finding({}, reason="it saw no upload")], "it saw no upload"),
        ([finding({})], "not measurable"),
        ([finding({"auc": None, "auc_low": None, "auc_high": None})], "not measurable"),
    ],
)
def test_what_was_not_measured_never_looks_like_a_pass(
    gate: GateConfig, found: list[Finding], reason: str
) -> None:
    result = judged(gate, *found)
    assert result.outcome is UNDECIDED
    assert reason in result.reason
    assert result.value is None


def test_a_gate_looks_at_its_own_attack_and_adversary() -> None:
    other = replace(finding({"auc": 0.99}), adversary="denoiser")
    assert judged(bounded("max", 0.6), other, finding({"auc": 0.5})).outcome is PASS
    assert judged(bounded("max", 0.6), other).outcome is UNDECIDED


@pytest.mark.parametrize(
    ("lossless", "wanted", "outcome"),
    [
        (True, True, PASS),
        (False, True, FAIL),
        (True, False, FAIL),
        (False, False, PASS),
        (None, True, UNDECIDED),
        (None, False, UNDECIDED),
    ],
)
def test_losslessness_is_compared(lossless: bool | None, wanted: bool, outcome: Outcome) -> None:
    gate = GateConfig(metric="lossless", equals=wanted)
    assert judge(gate, findings=(), utility={}, lossless=lossless).outcome is outcome


def test_utility_is_judged_without_an_interval() -> None:
    for metric, bound, outcome in (("mae", 0.7, PASS), ("rmse", 0.89, FAIL)):
        assert judged(GateConfig(metric=metric, max=bound)).outcome is outcome


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"metric": "lossless", "equals": True}, "lossless == true"),
        ({"metric": "mae", "max": 0.75}, "mae <= 0.75"),
        (
            {"metric": "auc", "attack": "lattice", "adversary": "server", "max": 0.9},
            "server/lattice: auc <= 0.9",
        ),
    ],
)
def test_a_gate_has_a_name(settings: dict[str, Any], name: str) -> None:
    assert GateConfig(**settings).name == name


@pytest.mark.claim("idle-gates-refused")
@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"metric": "mae"}, "exactly one bound"),
        ({"metric": "mae", "max": 1.0, "min": 0.0}, "exactly one bound"),
        ({"metric": "mae", "equals": True}, "only 'lossless'"),
        ({"metric": "lossless", "max": 1.0}, "only 'lossless'"),
        ({"metric": "mae", "max": 1.0, "attack": "lattice"}, "belongs to no attack"),
        ({"metric": "auc", "max": 1.0, "attack": "lattice"}, "needs an attack and an adversary"),
        ({"metric": "auc", "max": 1.0, "adversary": "server"}, "needs an attack and an adversary"),
        ({"metric": "f1", "max": 1.0}, "unknown metric"),
        *(
            ({"metric": metric, "attack": "lattice", "adversary": "server", **bound}, problem)
            for metric, bound, problem in (
                ("rating_accuracy", {"max": 1.0}, r"max = 1.0: can never fall: .* set it below 1"),
                ("headroom_lift", {"max": 1.5}, r"max = 1.5: can never fall: .* set it below 1"),
                ("rating_accuracy", {"min": 0.5}, r"min = 0.5: would require a leak, .* 'max', or"),
                ("histogram_error", {"max": 0.5}, r"max = 0.5: would require a leak, .* by 'min'"),
                ("histogram_error", {"min": 0.0}, r"min = 0.0: can never fall: .* set it above 0"),
            )
        ),
    ],
)
def test_a_gate_that_makes_no_sense_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        GateConfig(**settings)


def result(outcome: Outcome, metric: str = "clients_exposed") -> GateResult:
    """On what the server learns, by an attack that found nothing; or on utility."""
    whose: dict[str, Any] = {}
    if metric not in ("rmse", "mae"):
        whose = {"attack": "direct", "adversary": "server"}
    gate = GateConfig(metric=metric, max=1.0, **whose)
    return GateResult(gate=gate, value=0.5, low=0.5, high=0.5, outcome=outcome, reason="a reason")


@pytest.mark.parametrize(
    ("outcomes", "verdict", "code"),
    [
        ([PASS, PASS], PASS, 0),
        ([PASS, UNDECIDED], UNDECIDED, 3),
        ([PASS, FAIL], FAIL, 1),
        ([UNDECIDED, FAIL, PASS], FAIL, 1),
        ([], UNDECIDED, 3),
    ],
)
@pytest.mark.parametrize("null", [None, SOUND, BROKEN])
@pytest.mark.parametrize("control", [None, 0.95, 0.5])
def test_the_verdict_is_the_worst_of_gates_and_controls(
    outcomes: list[Outcome],
    verdict: Outcome,
    code: int,
    null: Mapping[str, Any] | None,
    control: float | None,
) -> None:
    controls = {}
    if control is not None:
        controls["lattice"] = ControlResult(metric="auc", value=control, floor=0.9)
    broken = null is BROKEN or control == 0.5
    decided = decide([result(o) for o in outcomes], [finding({"auc": 0.9}, null=null)], controls)
    if broken and verdict is PASS:
        verdict, code = UNDECIDED, 3
    assert (decided.outcome, decided.exit_code) == (verdict, code)
    assert bool(decided.reasons) == (verdict is not PASS)
    assert any("null control" in reason for reason in decided.reasons) == (null is BROKEN)
    assert any("positive control" in reason for reason in decided.reasons) == (control == 0.5)


def test_a_control_that_did_not_run_has_not_passed() -> None:
    control = ControlResult(metric="auc", value=None, floor=0.9)
    decided = decide([result(PASS)], [finding({"auc": 0.5})], {"lattice": control})
    assert decided.exit_code == 3


def test_fallen_gates_are_named_before_undecided_ones() -> None:
    ran = [finding({"auc": 0.5})]
    decided = decide([result(UNDECIDED, "mae"), result(FAIL, "rmse"), result(PASS)], ran, {})
    assert decided.reasons == ("rmse <= 1: a reason", "mae <= 1: a reason")


def test_an_audit_without_gates_says_so() -> None:
    ran = [finding({"auc": 0.5})]
    assert decide([], ran, {}).reasons == ("the configuration has no gates",)


def test_an_audit_in_which_no_attack_ran_is_inconclusive() -> None:
    decided = decide([result(PASS)], [], {})
    assert (decided.outcome, decided.exit_code) == (UNDECIDED, 3)
    assert "no attack ran" in decided.reasons[0]


def test_an_adversary_nothing_was_measured_for_is_inconclusive() -> None:
    idle = replace(finding({}, reason="the view holds no uploads"), adversary="client")
    decided = decide([result(PASS)], [finding({"auc": 0.5}), idle], {})
    assert decided.outcome is UNDECIDED
    assert decided.reasons == ("client: no attack applies to this adversary, nothing was measured",)


LEARNED = {"precision_gain": 0.1, "precision_gain_certain": 0.08}
SEVERE = {"precision_gain": 0.3, "precision_gain_certain": 0.25}


def judging(attack: str, metric: str = "precision_gain", most: float = 0.5) -> GateResult:
    gate = GateConfig(metric=metric, attack=attack, adversary="server", max=most)
    return GateResult(gate=gate, value=0.1, low=0.05, high=0.4, outcome=PASS, reason="a reason")


def test_nothing_passes_beside_what_was_learned_and_no_gate_judges() -> None:
    learned = finding(LEARNED)
    decided = decide([result(PASS)], [learned], {})
    reason = "server/lattice: severity medium (precision_gain), no gate judges it"
    assert (decided.outcome, decided.reasons) == (UNDECIDED, (reason,))
    assert decide([judging("direct")], [learned], {}).reasons == (reason,)
    assert decide([judging("lattice")], [learned], {}).outcome is PASS
    assert decide([result(FAIL)], [learned], {}).outcome is FAIL
    # What is neither certain nor large is not a finding.
    little = finding(LEARNED | {"precision_gain_certain": -0.1})
    assert decide([result(PASS)], [little], {}).outcome is PASS


@pytest.mark.claim("verdicts-judge-everything")
def test_a_gate_silences_its_own_figure_and_no_other() -> None:
    both = finding({**LEARNED, "rating_lift": 0.1, "rating_lift_certain": 0.06})
    reason = "server/lattice: severity medium (rating_lift), no gate judges it"
    assert decide([judging("lattice")], [both], {}).reasons == (reason,)
    gates = [judging("lattice"), judging("lattice", "rating_lift")]
    assert decide(gates, [both], {}).outcome is PASS
    # A figure that is judged by its gains is not what they are: its gate says nothing of them.
    behind = judging("lattice", "rating_accuracy")
    assert decide([judging("lattice"), behind], [both], {}).reasons == (reason,)


def test_no_gate_excuses_what_is_high_or_critical() -> None:
    decided = decide([judging("lattice")], [finding(SEVERE)], {})
    assert decided.outcome is UNDECIDED
    assert decided.reasons == (
        "server/lattice: severity high (precision_gain), no gate excuses it, a waiver or a "
        "documented leak would",
    )
    critical = finding({**SEVERE, "precision_at_k": 0.95})
    decided = decide([judging("lattice")], [critical], {})
    assert decided.reasons[0].startswith("server/lattice: severity critical (precision_at_k, ")
    fallen = replace(judging("lattice"), outcome=FAIL)
    assert decide([fallen], [finding(SEVERE)], {}).reasons == (
        "server/lattice: precision_gain <= 0.5: a reason",
    )


def test_a_report_is_as_bad_as_it_says_where_its_figures_say_less() -> None:
    report = told([judging("lattice")], [finding({"auc": 0.5})], {})
    report["findings"][0]["severity"] = "high"
    [reason] = verdict_of(objections_to(report), report).reasons
    assert reason == "server/lattice: severity high, no gate judges it"


def test_a_gate_of_a_report_that_cannot_fall_judges_nothing() -> None:
    report = told([judging("lattice")], [finding(LEARNED)], {})
    assert objections_to(report) == []
    report["gates"][0]["threshold"] = 1.0
    assert len(objections_to(report)) == 1


def test_an_attack_that_was_switched_off_leaves_an_audit_undecided() -> None:
    report = told([result(PASS)], [finding({"auc": 0.5})], {})
    report["switched_off"] = ["direct"]
    decided = verdict_of(objections_to(report), report)
    assert (decided.outcome, len(decided.reasons)) == (UNDECIDED, 1)
    assert decided.reasons[0].startswith("server/direct: it reads messages of this algorithm")


@pytest.mark.parametrize("reason", [None, "no round has payloads"])
def test_an_attack_without_its_evidence_leaves_an_audit_undecided(reason: str | None) -> None:
    lacking = replace(finding({"auc": 0.5}, reason=reason), lacks=("aggregate",))
    sound = replace(finding({"auc": 0.5}), attack="direct")
    decided = decide([result(PASS)], [lacking, sound], {})
    assert decided.outcome is UNDECIDED
    [why] = decided.reasons
    assert "server/lattice: payloads that it reads were not all recorded (aggregate)" in why


@pytest.mark.claim("verdicts-judge-everything")
def test_messages_that_no_attack_has_read_leave_an_audit_undecided() -> None:
    got = ("upload", "denoise", "traffic")
    one = replace(finding({"auc": 0.5}), received=got, read=("upload", "aggregate"))
    silent = replace(finding({"auc": 0.5}, reason="none"), received=one.received)
    decided = decide([result(PASS)], [one, silent], {})
    assert decided.outcome is UNDECIDED
    assert decided.reasons == ("server: it receives what no attack has read: denoise, traffic",)
    other = replace(one, attack="direct", read=("denoise", "traffic"))
    assert decide([result(PASS)], [one, other], {}).outcome is PASS


@pytest.mark.claim("verdicts-judge-everything")
@pytest.mark.parametrize("name", ["upload", "upload of table", "aggregate", "peer", "table", "new"])
def test_what_tells_of_clients_without_a_price_allows_no_pass(name: str) -> None:
    """Whatever a search found: they are equations, and bounded noise alone bounds them."""
    holding = replace(finding({"auc": 0.5}), held=(name,))
    decided = decide([result(PASS)], [holding], {})
    assert decided.outcome is UNDECIDED
    assert decided.reasons == (f"server: it holds {name}: {UNSOLVED}",)
    assert decide([result(PASS)], [replace(holding, held=())], {}).outcome is PASS


@pytest.mark.claim("verdicts-judge-everything")
@pytest.mark.parametrize(
    ("name", "change", "outcome"),
    [
        ("aggregate counts", {}, PASS),
        ("aggregate", {"epsilon": 10.1}, UNDECIDED),
        ("aggregate", {"delta": 0.02}, UNDECIDED),
        ("aggregate", {"part": "reports"}, UNDECIDED),
        ("aggregate", {"of": ["others"]}, UNDECIDED),
        ("bag.drafts", {}, UNDECIDED),
        ("bag.drafts", {"part": "bags"}, PASS),
        ("table", {}, UNDECIDED),
        ("table", {"whole": True}, PASS),
        ("part table", {"whole": True}, PASS),
        ("upload", {"whole": True}, UNDECIDED),
    ],
)
def test_what_tells_of_clients_passes_at_a_price_of_its_reader(
    name: str, change: dict[str, Any], outcome: Outcome
) -> None:
    """A gate asks, and a budget plans; what bounds is the price against this very adversary.

    Public arrays are made of all that is sent, and single uploads are what noise is not in.
    """
    price = {"epsilon": 10.0, "delta": 0.01, "part": "sums", "whole": False, "of": ["server"]}
    report = told([result(PASS)], [replace(finding({"auc": 0.5}), held=(name,))], {})
    report["data"] = {"clients": 100}
    report["protection"] = {"privacy": [price | change]}
    assert verdict_of(objections_to(report), report).outcome is outcome
    report["findings"][0]["held"] = ["upload", name]
    assert verdict_of(objections_to(report), report).outcome is UNDECIDED


@pytest.mark.claim("verdicts-judge-everything")
@pytest.mark.parametrize(("kind", "outcome"), [("algorithm", UNDECIDED), ("attack", PASS)])
def test_no_price_vouches_for_what_is_not_shipped(kind: str, outcome: Outcome) -> None:
    """An algorithm of somebody's own says itself what it sends."""
    price = {"epsilon": 1.0, "delta": 0.01, "part": "sums", "whole": True, "of": ["server"]}
    report = told([result(PASS)], [replace(finding({"auc": 0.5}), held=("aggregate",))], {})
    report["data"], report["protection"] = {"clients": 100}, {"privacy": [price]}
    assert verdict_of(objections_to(report), report).outcome is PASS
    report["manifest"] = {"plugins": [{"kind": kind, "name": "bpr"}]}
    decided = verdict_of(objections_to(report), report)
    assert decided.outcome is outcome
    assert all("what bpr makes" in each for each in decided.reasons)


@pytest.mark.claim("verdicts-judge-everything")
def test_an_adversary_without_a_gate_leaves_an_audit_undecided() -> None:
    """Nor does one on utility alone say what is learned, or on an epsilon, or one that holds."""
    held, quiet = judged(GateConfig(metric="rmse", max=1e9)), [finding({"auc": 0.5})]
    assert held.outcome is PASS
    decided = decide([held], quiet, {})
    assert decided.reasons == ("server: no gate is on what it learns",)
    priced = GateConfig(metric="epsilon", adversary="server", max=1e9)
    spent = GateResult(gate=priced, value=0.5, outcome=PASS, reason="a reason")
    assert decide([held, spent], quiet, {}).reasons == decided.reasons
    assert decide([held, result(PASS)], quiet, {}).outcome is PASS
    whole = told([held, result(PASS)], quiet, {})
    whole["gates"][1] |= {"metric": "precision_gain", "threshold": 1.0}
    assert [each.text for each in objections_to(whole)] == [*decided.reasons]


def test_an_attack_without_an_extra_leaves_an_audit_undecided() -> None:
    short = replace(finding({"auc": 0.5}), not_installed="needs flint; pip install 'a[lattice]'")
    decided = decide([result(PASS)], [short], {})
    assert decided.outcome is UNDECIDED
    assert decided.reasons == ("server/lattice: needs flint; pip install 'a[lattice]'",)


def test_nothing_passes_where_too_few_are_left_to_judge_by() -> None:
    few = replace(finding({"auc": 0.5}), units={"clients": 19})
    decided = decide([result(PASS)], [few], {})
    reason = "server: 19 clients are left to judge by, a statement about a federation needs 20"
    assert (decided.outcome, decided.reasons) == (UNDECIDED, (reason,))
    enough = replace(few, units={"clients": 20})
    assert decide([result(PASS)], [few, replace(enough, attack="drafts")], {}).outcome is PASS


LEAK = Outcome.LEAK
DOCUMENTED: dict[str, Any] = {
    "metric": "auc",
    "attack": "lattice",
    "adversary": "server",
    "expect": "leak",
    "least": 0.9,
    "reason": "Nothing is protected.",
}


FOUND = {"lift_over_prior": 0.3, "lift_over_prior_certain": 0.25}


@pytest.mark.claim("documented-leak-is-narrow")
@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.90, 0.95, LEAK),
        (0.89, 0.95, UNDECIDED),
        (0.40, 0.50, UNDECIDED),  # the documentation is wrong, or the audit: no fall, and no pass
        (0.95, 0.97, UNDECIDED),
        (0.97, 0.99, FAIL),  # more than is documented
    ],
)
def test_a_documented_leak_reaches_what_is_documented_or_decides_nothing(
    low: float, high: float, outcome: Outcome
) -> None:
    gate = GateConfig(**DOCUMENTED, most=0.96)
    found = finding({"auc": (low + high) / 2, "auc_low": low, "auc_high": high, **FOUND})
    judgement = judged(gate, found)
    assert (judgement.outcome, judgement.low) == (outcome, low)
    assert gate.name == "server/lattice: auc >= 0.9, <= 0.96"
    assert judged(gate, finding({"auc": None, **FOUND})).outcome is UNDECIDED
    assert judged(gate).outcome is UNDECIDED


@pytest.mark.claim("documented-leak-is-narrow")
def test_what_is_within_noise_or_chance_is_not_a_leak() -> None:
    """However it is documented: nobody has learned anything."""
    gate, reached = GateConfig(**DOCUMENTED), {"auc": 0.95, "auc_low": 0.93, "auc_high": 0.97}
    assert judged(gate, finding({**reached, **FOUND})).outcome is LEAK
    noise = judged(gate, finding(reached))
    assert noise.outcome is UNDECIDED
    assert "no figure of this secret, rated set, is above noise" in noise.reason
    popular = judged(gate, finding({**reached, **FOUND, "prior_auc": 0.91}))
    assert popular.outcome is UNDECIDED
    assert "'least' is no more than" in popular.reason


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"max": 1.0}, "gates.max = 1.0: cannot be used with expect = 'leak'"),
        ({"min": 0.9}, "gates.min = 0.9: cannot be used with expect = 'leak'"),
        ({"equals": True}, "gates.equals = True: cannot be used with expect = 'leak'"),
        ({"expect": "pass"}, r"gates.expect = 'pass': is not expected \(choices: leak\)"),
        ({"least": None}, "gates.least: a documented leak must state what"),
        ({"least": float("nan")}, "gates.least = nan"),
        ({"least": 0.0}, "gates.least = 0.0: does not document a leak: .* above chance and 0.5"),
        ({"least": 0.51}, "gates.least = 0.51: does not document a leak"),
        ({"metric": "rating_accuracy", "least": 1e-6}, "gates.least = 1e-06: does not document"),
        ({"metric": "coverage"}, "gates.least = 0.9: does not document .* severity is none"),
        ({"least": 1.01}, "gates.least = 1.01: .* at most 1"),
        ({"least": 0.8}, "gates.most: .* does not exceed, from 0.8 to 1"),
        ({"most": 1.01}, "gates.most = 1.01: lies between 'least' and the end: 0.9, 1"),
        ({"most": 0.85}, "gates.most = 0.85: lies between 'least' and the end: 0.9, 1"),
        ({"expect": None, "least": None, "most": 0.9}, "gates.most = 0.9: belongs to a documented"),
        ({"reason": None}, "gates.reason: a documented leak needs a reason"),
        ({"reason": " "}, "gates.reason = ' ': a documented leak needs a reason"),
        ({"attack": None}, "needs a figure of an attack"),
        ({"adversary": None}, "needs a figure of an attack"),
        ({"metric": "rmse", "attack": None, "adversary": None}, "needs a figure of an attack"),
        ({"metric": "lossless", "attack": None, "adversary": None}, "needs a figure of an attack"),
        ({"metric": "epsilon", "attack": None}, "needs a figure of an attack"),
        ({"metric": "histogram_error"}, "worse the higher it is"),
        ({"expect": None, "max": 1.0}, "gates.least = 0.9: belongs to a documented leak"),
        ({"expect": None, "least": None, "max": 1.0}, "gates.reason = .*: belongs to a documented"),
    ],
)
def test_a_documented_leak_that_does_not_say_all_is_refused(
    change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        GateConfig(**{**DOCUMENTED, **change})


@pytest.mark.claim("reach-is-a-leak")
@pytest.mark.parametrize(
    ("outcomes", "verdict", "code"),
    [
        ([LEAK], LEAK, 0),
        ([PASS, LEAK], LEAK, 0),
        ([LEAK, UNDECIDED], UNDECIDED, 3),
        ([LEAK, FAIL], FAIL, 1),
    ],
)
def test_a_documented_leak_is_no_pass(outcomes: list[Outcome], verdict: Outcome, code: int) -> None:
    gates = [
        replace(result(o), gate=GateConfig(**DOCUMENTED)) if o is LEAK else result(o)
        for o in outcomes
    ]
    decided = decide(gates, [finding({"auc": 0.95})], {})
    assert (decided.outcome, decided.exit_code) == (verdict, code)
    if verdict is LEAK:
        assert decided.reasons == ("server/lattice: auc >= 0.9: Nothing is protected.",)


def test_a_broken_control_leaves_a_documented_leak_undecided() -> None:
    leak = replace(result(LEAK), gate=GateConfig(**DOCUMENTED))
    assert decide([leak], [finding({"auc": 0.9}, null=BROKEN)], {}).outcome is UNDECIDED


def test_few_clients_decide_no_gate() -> None:
    few = replace(finding({"auc": 0.1}), units={"clients": 19})
    assert judged(bounded("max", 0.6), few).outcome is UNDECIDED
    assert judged(bounded("max", 0.6), replace(few, units={"clients": 20})).outcome is PASS


REACHED = {"auc": 0.95, "auc_low": 0.93, "auc_high": 0.97}


@pytest.mark.claim("documented-leak-is-narrow")
def test_a_documented_leak_is_of_one_secret() -> None:
    reached = finding({**REACHED, **SEVERE, "precision_at_k": 0.99})
    gates = [judged(GateConfig(**DOCUMENTED), reached)]
    assert decide(gates, [reached], {}).outcome is LEAK
    more = {"reidentified_share": 1.0, "reidentified_lift": 0.9, "reidentified_lift_certain": 0.9}
    decided = decide(gates, [replace(reached, figures={**reached.figures, **more})], {})
    assert decided.outcome is UNDECIDED
    assert decided.reasons == (
        "server/lattice: severity critical (reidentified_share, reidentified_lift), no gate "
        "judges it",
    )


@pytest.mark.claim("documented-leak-is-narrow")
def test_a_documented_leak_is_of_one_adversary_and_covers_what_is_no_worse() -> None:
    reached = finding({**REACHED, **SEVERE})
    gates = [judged(GateConfig(**DOCUMENTED, most=0.98), reached)]

    def beside(figures: Mapping[str, float], **changes: Any) -> Outcome:
        other = replace(finding(figures), attack="direct", **changes)
        return decide(gates, [reached, other], {}).outcome

    assert beside({"auc": 0.9, **SEVERE}) is LEAK
    assert beside({"auc": 0.9, **SEVERE}, adversary="denoisers") is UNDECIDED
    assert beside(SEVERE) is UNDECIDED  # nothing says that it is no worse
    assert beside({"auc": 0.99, **SEVERE}) is UNDECIDED  # beyond the range
    assert beside({"auc": 0.9, **SEVERE, "precision_at_k": 0.99}) is UNDECIDED  # more severe


def test_a_gate_on_a_count_is_below_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    exposed = replace(MEASURES["exact_clients"], severity=Observed(1.0, floor=1.0), key="exposed")
    monkeypatch.setattr(module, "MEASURES", {**MEASURES, "exposed": exposed})
    found = finding({"exposed": 100.0})
    gate = bounded("max", 0.6)
    for most, outcome in ((0.0, FAIL), (99.0, FAIL), (100.0, UNDECIDED), (1e9, UNDECIDED)):
        object.__setattr__(gate, "metric", "exposed")
        object.__setattr__(gate, "max", most)
        assert judged(gate, found).outcome is outcome, most
