"""What a report says to change is changed here, and what it said would go away is gone."""

import copy
import dataclasses
import json
import tomllib
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from attacks import SUITE, Finding
from audits.cli import main
from audits.config.audit import load_config, parse_config
from audits.report import WRITERS, render_html
from audits.report.endings import (
    BROKEN,
    DOCUMENTED,
    FELL,
    HELD,
    NOTHING,
    OPEN,
    UNDECIDED,
    attack_rows,
    beyond_exact_sums,
    changes,
    ending,
    leaks,
    price,
)
from audits.report.front import front
from audits.report.remedies import remedies
from audits.run import audit as runner
from audits.run.tried_remedies import tried_remedies
from secure_fedrec.errors import EncodingError
from secure_fedrec.protection import BAG_RECORDS, RECORDS, STOPS, Sizes
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from tests.audits.conftest import SMALL
from tests.audits.saved_reports import CONFIGS, SAVED, saved

ATTACKS = ["direct", "lattice", "sum-decoding", "collusion-linkage"]


def preset(name: str, **changes: Any) -> dict[str, Any]:
    return load_config(CONFIGS / f"{name}.toml", changes).as_json()


CASES = {
    "ratings": lambda: copy.deepcopy(SMALL) | {"attacks": ATTACKS},
    "split": lambda: preset("furl-quickstart", **{"algorithm.rounds": 3}),
    "hierarchical": lambda: preset("hpfl-quickstart"),
}


def audited(
    raw: dict[str, Any], folder: Path, gates: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    config = parse_config({**raw, "gates": list(gates)})
    result = runner.audit(
        config, out=folder, data_dir=None, resume=False, command=["audit"], progress=False
    )
    return dict(result.report)


@pytest.mark.parametrize("case", CASES)
def test_what_a_change_answers_is_gone_after_it_at_the_price_that_was_said(
    case: str, tmp_path: Path
) -> None:
    raw = CASES[case]()
    before = audited(raw, tmp_path / "before")
    found = [finding for finding in before["findings"] if leaks(finding)]
    assert found
    assert not any(finding["claimed"] for finding in found)
    answered = {
        (pair["attack"], pair["adversary"])
        for each in before["remedies"]
        for pair in each["against"]
    }
    assert {(each["attack"], each["adversary"]) for each in found} == answered
    tried = [each for each in before["remedies"] if each["lossless"] or each["key"] != "protection"]
    assert tried
    for place, remedy in enumerate(tried):
        after = audited({**raw, remedy["key"]: remedy["value"]}, tmp_path / str(place))
        left = [
            {"attack": finding["attack"], "adversary": finding["adversary"]}
            for finding in after["findings"]
            if leaks(finding)
        ]
        assert not [pair for pair in left if pair in remedy["against"]]
        said, sent = remedy["bytes_up_per_round"], after["cost"]["roles"][0]["bytes_up_per_round"]
        assert said is None or said == pytest.approx(sent, rel=0.1)
        assert said is None or after["lossless"]["holds"]


def test_what_pays_accuracy_runs_as_it_is_pasted(tmp_path: Path) -> None:
    raw = copy.deepcopy(SMALL) | {
        "attacks": ATTACKS,
        "gates": [{"metric": "lossless", "equals": True}],
    }
    raw["algorithm"] |= {"rank": 10, "rounds": 12}
    report = audited(raw, tmp_path / "before", gates=raw["gates"])
    (change,) = [each for each in changes(report) if "algorithm" in each]
    assert change["replaced"] == "[algorithm] and all [[protection]]"
    assert "the gate lossless == true falls: take it out" in change["price"]
    pasted = tomllib.loads(change["toml"])
    layers = {"protection": pasted["protection"]}
    with pytest.raises(EncodingError, match=r"noise of skellam: algorithm\.biases = true and"):
        audited({**raw, **layers}, tmp_path / "refused")
    assert [path.name for path in (tmp_path / "refused").iterdir()] == ["run.lock"]
    assert pasted["algorithm"]["rounds"] == raw["algorithm"]["rounds"]
    after = audited({**raw, **pasted}, tmp_path / "after")
    assert not any(leaks(finding) for finding in after["findings"])
    said = change["bytes_up_per_round"]
    assert said == pytest.approx(after["cost"]["roles"][0]["bytes_up_per_round"], rel=0.1)


def test_what_an_option_does_to_sums_is_said(tmp_path: Path) -> None:
    """Rows below a floor are not learned, so its sums are not those of the plain twin."""
    report = audited(copy.deepcopy(SMALL) | {"attacks": ATTACKS}, tmp_path)
    floors = [
        each
        for each in report["remedies"]
        if any(layer.get("tail_floor") for layer in each["value"])
    ]
    assert floors
    assert not any(each["lossless"] for each in floors)


def test_advice_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gate that documents what a change takes away is taken out; every other one is asked."""
    raw, run = CONFIGS / "quickstart.toml", str(tmp_path / "run")
    assert main(["audit", str(raw), "--out", run, "--quiet"]) == 0
    capsys.readouterr()
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    code = main(["report", run, "--try-remedies", "--json", "--quiet"])
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "leaks as documented"
    assert len(told["tried"]) == len(report_of(run)["remedies"]) > 0
    assert code == (0 if any(each["outcome"] == "pass" for each in told["tried"]) else 3)
    for each in told["tried"]:
        assert each["outcome"] == "pass" or each["reasons"]
        assert each["taken_out"]
        assert each["gone"]
        assert not each["left"]
    assert written == {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}


def test_a_change_that_cannot_be_run_says_why() -> None:
    report = copy.deepcopy(saved("split"))
    remedy = copy.deepcopy(report["remedies"][0])
    remedy["value"] = [{"layer": "masking", "min_survivors": 100_000}]
    (tried,) = tried_remedies(report | {"remedies": [remedy]}, data_dir=None, progress=False)
    assert tried.outcome == "refused"
    assert "min_survivors" in tried.reasons[0]


def report_of(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(run) / "report.json").read_text())
    return found


def test_a_federation_too_small_to_start_from_a_layer_still_gets_its_report(tmp_path: Path) -> None:
    raw = copy.deepcopy(SMALL) | {"attacks": ATTACKS}
    raw["data"] = raw["data"] | {"clients": 2}
    raw["protection"] = []
    assert all(
        each["layer"] != "masking"
        for remedy in audited(raw, tmp_path)["remedies"]
        for each in remedy["value"]
    )


@pytest.mark.parametrize("name", SUITE)
def test_every_attack_says_what_would_have_to_be_hidden(name: str) -> None:
    assert SUITE[name].control.breaks in STOPS


@pytest.mark.parametrize("floor", [0, 5])
def test_noise_is_advised_over_masks_that_are_there(floor: int) -> None:
    """It needs more survivors than masks alone, and refuses a floor: both are changed with it."""
    layers = [{"layer": "masking", "tail_floor": floor}]
    config = parse_config(copy.deepcopy(SMALL) | {"protection": layers})
    exposed = {"clients_exposed": 9.0, "clients_exposed_share": 0.2, "largest_profile": 0.5}
    found = Finding(attack="sum-decoding", adversary="server", game="", figures=exposed)
    sizes = Sizes(n_clients=40, n_items=30, width=4, cohort=40)
    told = [each["value"] for each in remedies(config, [found], lambda *_: sizes)]
    (noise,) = [value for value in told if value[-2:-1] and value[-2]["layer"] == "skellam"]
    assert "tail_floor" not in noise[-1]
    assert noise[-1]["min_survivors"] > MaskingLayerConfig().min_survivors


@pytest.mark.parametrize("layer", [*RECORDS.values(), *BAG_RECORDS.values()], ids=lambda x: x.name)
def test_options_are_settings_of_their_layer_and_raise_what_some_attack_reads(layer: Any) -> None:
    known = {each.name for each in dataclasses.fields(layer.settings)}
    for option in layer.options:
        assert option.setting in known
        assert layer.stands  # they raise what those learn whom the layer withstands
        assert any(option.raises == each.control.breaks for each in SUITE.values())
        assert option.raises not in STOPS[option.raises]  # whoever is raised is not hidden
    hidden = {each for stops in STOPS.values() for each in stops}
    assert {stand.hides for stand in layer.stands} <= hidden


def gate(
    bound: str, outcome: str, adversary: str = "server", metric: str = "auc"
) -> dict[str, Any]:
    told = {"attack": "lattice", "metric": metric, "bound": bound, "outcome": outcome}
    return {**told, "adversary": adversary}


@pytest.mark.parametrize(
    ("severity", "claimed", "gates", "expected"),
    [
        ("high", True, [], BROKEN),
        ("high", True, [gate("max", "fail")], BROKEN),
        ("high", False, [gate("max", "fail")], FELL),
        ("high", False, [gate("max", "inconclusive")], UNDECIDED),
        ("high", False, [gate("least", "leaks as documented")], DOCUMENTED),
        ("high", False, [gate("least", "leaks as documented", "others")], OPEN),
        ("high", False, [gate("least", "leaks as documented", metric="rating_lift")], OPEN),
        ("high", False, [gate("max", "pass", "others")], OPEN),
        ("high", False, [], OPEN),
        ("info", True, [gate("max", "pass")], HELD),
        ("info", True, [], NOTHING),
        ("info", False, [gate("max", "pass")], HELD),
    ],
)
def test_a_leak_that_is_documented_is_no_pass_and_no_broken_claim(
    severity: str, claimed: bool, gates: list[dict[str, Any]], expected: object
) -> None:
    finding = {
        **{"attack": "lattice", "adversary": "server", "status": "measured"},
        **{"severity": severity, "claimed": claimed, "details": {}},
        "precision_gain": 0.3,
        "precision_gain_certain": 0.25 if severity == "high" else 0.0,
    }
    assert ending(finding, {"gates": gates, "findings": [finding]}) is expected


@pytest.mark.parametrize("name", SAVED)
def test_every_attack_that_ran_has_one_row_and_every_leak_says_what_to_do(name: str) -> None:
    report = saved(name)
    rows = attack_rows(report)
    ran = {each["attack"] for each in report["findings"] if each["status"] == "measured"}
    assert sorted(row["attack"] for row in rows) == sorted(ran)
    for row in rows:
        assert bool(row["advice"].text) == row["leaks"]
    assert front(report)["actions"]


def test_no_reason_of_a_verdict_is_lost() -> None:
    report = saved("inconclusive")
    report["verdict"]["reasons"] = [f"reason {place}" for place in range(9)]
    told = front(report)
    assert [*told["beside"], *told["more_beside"]] == report["verdict"]["reasons"]
    assert all(f"reason {place}" in render_html(report) for place in range(9))


def test_where_nothing_helps_it_is_said() -> None:
    report = saved("split") | {"remedies": []}
    rows = [row for row in attack_rows(report) if row["leaks"]]
    assert rows
    assert all(row["advice"].change == "" for row in rows)
    assert all(row["advice"].text.startswith("Nothing in this toolkit stops it") for row in rows)
    assert "Nothing in this toolkit stops" in front(report)["actions"][0].what
    del report["remedies"]  # of a version that had none
    assert all(row["advice"].text == "" for row in attack_rows(report))


def test_a_change_that_answers_one_adversary_of_two_says_whom_it_leaves() -> None:
    report = saved("documented")
    for remedy in report["remedies"]:
        remedy["against"] = [each for each in remedy["against"] if each["adversary"] == "server"]
    (lattice,) = [row for row in attack_rows(report) if row["attack"] == "lattice"]
    assert lattice["advice"].change.startswith("protection = masking")
    assert lattice["advice"].text.endswith("It does not hide this from server+denoisers.")


def test_advice_says_what_it_leaves_open_and_which_gates_are_at_risk() -> None:
    report = saved("red")
    exact = next(each for each in report["remedies"] if each["lossless"])
    costly = next(each for each in report["remedies"] if not each["lossless"])
    left = [{"attack": "sum-decoding", "adversary": "server"}]
    for each in report["remedies"]:
        each["open"] = left if each["lossless"] else []
    gate = copy.deepcopy(report["gates"][0])
    gate |= {"name": "rmse <= 9", "metric": "rmse", "attack": None, "adversary": None}
    report["gates"].append(gate)
    assert "nothing is claimed against sum-decoding" in price(report, exact)
    assert "rmse <= 9" not in price(report, exact)
    assert "nothing is claimed" not in price(report, costly)
    assert "the gate rmse <= 9 may fall" in price(report, costly)
    assert "sum-decoding" in beyond_exact_sums(report)
    actions = front(report)["actions"]
    assert "No stack of exact sums withstands" in actions[0].what
    assert not any("No stack" in each.what for each in actions[1:])
    for each in report["remedies"]:
        each["open"] = []
    assert "sum-decoding" not in beyond_exact_sums(report)


def test_a_claim_that_is_broken_is_not_answered_by_itself() -> None:
    report = saved("split")
    for finding in report["findings"]:
        finding["claimed"] = True
    (first, *_) = [row for row in attack_rows(report) if row["leaks"]]
    assert first["ending"] is BROKEN
    assert first["advice"].text == "The protection claims to withstand this. Do not rely on it."


def test_the_markdown_says_what_to_change_as_the_page_does() -> None:
    report = saved("red")
    text, page = WRITERS["md"](report), unescape(WRITERS["html"](report))
    unmarked = text.replace("\\", "")
    assert len(changes(report)) >= 2
    assert text.count("\n### ") == len(changes(report))
    for change in changes(report):
        for line in change["toml"].splitlines():
            assert f"\n    {line}\n" in text or not line
        answers = f"Answers {', '.join(change['attacks'])}."
        for said in (answers, change["price"], change["assumes"], change["remains"]):
            assert said in unmarked
            assert said in page
    assert "What to change" not in WRITERS["md"](report | {"remedies": []})
