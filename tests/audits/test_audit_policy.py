"""Waivers, baselines and what else is asked to fail; the command ``report``."""

import copy
import json
import math
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from attacks.suite import FAMILIES
from audits.comparison import compare
from audits.gates.figures import grades
from audits.gates.policy import Policy, applied
from audits.report import WRITERS
from audits.report.html import render_summary
from audits.report.reading import read_report
from secure_fedrec.errors import ConfigError, DataError
from tests.audits.folders import snapshot
from tests.audits.silenced import silence

TODAY = date(2027, 1, 15)
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def red(recorded: Path) -> dict[str, Any]:
    """A report with one fallen gate, of server/lattice."""
    found = read_report(recorded)
    assert [gate["attack"] for gate in found["gates"] if gate["outcome"] == "fail"] == ["lattice"]
    return found


def waived(report: dict[str, Any], *attacks: str, **others: str) -> dict[str, Any]:
    """A report whose configuration waives findings of the server."""
    found = copy.deepcopy(report)
    told = {"adversary": "server", "reason": "until masking", "owner": "ann"}
    told |= {"expires": "2027-01-15"} | others
    found["configuration"]["waivers"] = [{**told, "attack": attack} for attack in attacks]
    return found


def outcome(report: dict[str, Any], **asked: Any) -> tuple[str, int, str]:
    """Outcome, exit code and reasons under a policy."""
    verdict = applied(report, Policy(**{"today": TODAY, **asked}))["verdict"]
    return verdict["outcome"], verdict["exit_code"], "\n".join(verdict["reasons"])


def of(report: dict[str, Any], adversary: str = "server", attack: str = "lattice") -> Any:
    """A finding of a report."""
    pair = adversary, attack
    return next(e for e in report["findings"] if (e["adversary"], e["attack"]) == pair)


def quiet(report: dict[str, Any]) -> dict[str, Any]:
    """The report without findings that no gate judges."""
    found = copy.deepcopy(report)
    for finding in found["findings"]:
        if finding is not of(found):
            silence(finding)
    return found


def test_without_a_policy_a_report_stays_as_measured(red: dict[str, Any]) -> None:
    assert applied(red, Policy(today=TODAY)) == red


@pytest.mark.claim("waivers-expire")
def test_a_waiver_excuses_until_its_day_and_fails_after_it(red: dict[str, Any]) -> None:
    found = waived(quiet(red), "lattice")
    assert outcome(found)[:2] == ("leaks as documented", 0)
    assert "waiver of ann until 2027-01-15: until masking" in outcome(found)[2]
    told = applied(found, Policy(today=TODAY))
    [gate] = [each["name"] for each in told["gates"] if each["outcome"] == "fail"]
    assert f"  gate waived       {gate} (" in render_summary(told)
    page = WRITERS["md"](told)
    assert f"| waived | {gate}".replace("<", "\\<") in page
    assert re.search(r"^\| \w+, waived \| server/lattice \|", page, re.M)
    assert "## Attacks that were withstood" in page
    kind, code, reasons = outcome(found, today=date(2027, 1, 16))
    assert (kind, code) == ("fail", 1)
    assert "server/lattice" in reasons
    assert "the waiver of ann expired on 2027-01-15" in reasons


def test_an_expired_waiver_fails_what_would_else_be_undecided(red: dict[str, Any]) -> None:
    found = quiet(red)
    [gate] = [each for each in found["gates"] if each["attack"] == "lattice"]
    gate["outcome"] = "inconclusive"
    assert outcome(found, fail_on=("inconclusive",))[0] == "fail"
    silence(of(found))
    assert outcome(found, baseline=None, fail_on=("low",))[1] == 3
    assert outcome(waived(found, "lattice"))[1] == 0
    assert outcome(waived(found, "lattice", expires="2027-01-14"))[1] == 1


def test_a_waiver_covers_its_finding_and_nothing_else(red: dict[str, Any]) -> None:
    loud = waived(red, "lattice")  # others are severe, and no gate judges them
    assert outcome(loud)[:2] == ("inconclusive", 3)
    assert outcome(waived(quiet(red), "intersection"))[1] == 1
    assert outcome(waived(quiet(red), "lattice", adversary="server+denoisers"))[1] == 1
    assert outcome(waived(quiet(red), "lattice", metric="rating_accuracy"))[1] == 1
    assert outcome(waived(quiet(red), "lattice", metric="auc"))[1] == 3  # of one figure
    calm = waived(quiet(red), "lattice", metric="auc")
    silence(of(calm))
    assert outcome(calm)[1] == 0
    names = {each["attack"] for each in red["findings"]}
    both = waived(red, *names)
    both["configuration"]["waivers"] += waived(red, *names, adversary="server+denoisers")[
        "configuration"
    ]["waivers"]
    assert outcome(both)[:2] == ("leaks as documented", 0)


@pytest.mark.claim("waivers-expire")
def test_nothing_excuses_an_audit_that_measured_nothing(red: dict[str, Any]) -> None:
    found = waived(quiet(red), "lattice")
    of(found)["null_control"]["passed"] = False
    kind, code, reason = outcome(found, baseline=red)
    assert (kind, code) == ("inconclusive", 3)
    assert reason.startswith("server/lattice: null control is not at chance")
    found = waived(quiet(red), "lattice")
    found["gates"] = []
    assert outcome(found, baseline=red) == ("inconclusive", 3, "the configuration has no gates")
    absent = waived(quiet(red), "lattice")
    [gate] = [each for each in absent["gates"] if each["attack"] == "lattice"]
    gate |= {"outcome": "inconclusive", "value": None, "low": None, "high": None}
    assert outcome(absent, baseline=red)[1] == 3


def test_a_waiver_by_name_answers_for_an_attack_that_was_left_out(red: dict[str, Any]) -> None:
    """Switched off, or without what it reads; a baseline does not, nor a waiver of one figure."""
    off = quiet(red)
    silence(of(off))
    for gate in off["gates"]:
        gate["outcome"] = "pass"
    del off["configuration"]["adversaries"][1]
    off["findings"] = [each for each in off["findings"] if each["adversary"] == "server"]
    assert outcome(off, fail_on=("low",)) == ("pass", 0, "")
    lacking = copy.deepcopy(off)
    off["switched_off"] = ["direct"]
    off["findings"].remove(of(off, attack="direct"))
    of(lacking, attack="direct")["lacks"] = ["upload"]
    for found in (off, lacking):
        assert outcome(found, baseline=red)[:2] == ("inconclusive", 3)
        assert outcome(waived(found, "lattice"))[:2] == ("inconclusive", 3)
        assert outcome(waived(found, "direct", metric="auc"))[1] == 3
        kind, code, reasons = outcome(waived(found, "direct"))
        assert (kind, code) == ("leaks as documented", 0)
        assert "waiver of ann until 2027-01-15" in reasons
        assert outcome(waived(found, "direct", expires="2020-01-01"))[1] == 1
        for write in WRITERS.values():
            write(applied(found, Policy(today=TODAY, fail_on=("low",))))
        junit = WRITERS["junit"](applied(found, Policy(today=TODAY, fail_on=("low",))))
        assert junit.count("<error ") == 1
        sarif = json.loads(WRITERS["sarif"](found))["runs"][0]
        places = json.dumps(sarif["results"] or sarif["invocations"])
        assert ("attack-switched-off" in places) or ('"recording"' in places)


def test_a_waiver_of_a_gain_covers_what_is_judged_by_it(red: dict[str, Any]) -> None:
    found = quiet(red)
    for gate in found["gates"]:
        gate["outcome"] = "pass"
    silence(of(found))
    of(found)["details"] |= {
        **{"rating_accuracy": 0.99, "rating_lift": 0.5, "rating_lift_certain": 0.4},
        **{"rating_headroom_lift": 0.5, "rating_headroom_lift_certain": 0.4},
    }
    for key in [key for key in of(found) if key in of(found)["details"]]:
        of(found)[key] = of(found)["details"][key]
    assert outcome(found, fail_on=("inconclusive",))[1] == 1
    one = waived(found, "lattice", metric="rating_lift")
    assert outcome(one)[1] == 3
    one["configuration"]["waivers"] += waived(found, "lattice", metric="rating_headroom_lift")[
        "configuration"
    ]["waivers"]
    assert outcome(one)[:2] == ("leaks as documented", 0)


def test_utility_and_losslessness_are_not_to_be_excused(red: dict[str, Any]) -> None:
    found = waived(quiet(red), *{each["attack"] for each in red["findings"]})
    for gate in found["gates"]:
        gate["outcome"] = "fail"
    kind, code, reasons = outcome(found, baseline=found)
    assert (kind, code) == ("fail", 1)
    assert reasons.count("\n") == 1  # two of the three
    assert "lattice" not in reasons


def test_a_waiver_that_excuses_nothing_is_told(red: dict[str, Any]) -> None:
    found = applied(waived(quiet(red), "lattice", "drafts"), Policy(today=TODAY))
    assert [each["state"] for each in found["policy"]["waivers"]] == ["applied", "unused"]
    late = waived(quiet(red), "drafts", "lattice", expires="2020-01-01")
    states = [each["state"] for each in applied(late, Policy(today=TODAY))["policy"]["waivers"]]
    assert states == ["unused", "expired"]


def test_of_two_waivers_the_longer_holds(red: dict[str, Any]) -> None:
    found = waived(quiet(red), "lattice")
    found["configuration"]["waivers"] += waived(red, "lattice", expires="2027-02-01")[
        "configuration"
    ]["waivers"]
    assert outcome(found, today=date(2027, 1, 20))[1] == 0


def test_only_new_findings_fail_against_a_baseline(red: dict[str, Any]) -> None:
    assert outcome(red, baseline=red)[:2] == ("leaks as documented", 0)
    before = copy.deepcopy(red)
    silence(of(before))
    assert outcome(red, baseline=before)[1] == 3  # it has got worse, and no gate judges it
    before = copy.deepcopy(red)
    for finding in before["findings"]:
        if finding["attack"] == "lattice":
            finding |= {"auc": 0.8, "auc_low": 0.75, "auc_high": 0.85}
    assert outcome(red, baseline=before)[1] == 1  # beyond its interval
    assert outcome(before, baseline=red)[1] == 0
    milder = copy.deepcopy(red)
    certain = of(milder)["details"]
    assert certain["precision_gain_certain"] > 0.2
    certain["precision_gain_certain"] = 0.1  # the same figure, not as sure
    assert outcome(red, baseline=milder) == (
        "inconclusive",
        3,
        "server/lattice: severity high (precision_gain), no gate judges it",
    )
    before["findings"] = [each for each in red["findings"] if each["attack"] != "lattice"]
    assert outcome(red, baseline=before)[1] == 1
    lines = outcome(red, baseline=before)[2].split("\n")
    assert [line.partition(":")[0] for line in lines] == [
        "server/lattice",  # the gate
        "server/lattice",  # what no gate judges
        "server+denoisers/lattice",
    ]


@pytest.mark.claim("idle-gates-refused")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("data", "fingerprint"), "fingerprint of the data"),
        (("configuration", "data", "fold"), "data.fold"),
        (("configuration", "data", "split"), "data.split"),
        (("configuration", "algorithm", "name"), "algorithm.name"),
        (("configuration", "seed"), "seed"),
    ],
)
def test_a_baseline_of_another_federation_is_refused(
    recorded: Path,
    refusal: Callable[..., str],
    tmp_path: Path,
    change: tuple[str, ...],
    told: str,
) -> None:
    """By the report, and by an audit before it trains anything."""
    other = json.loads((recorded / "report.json").read_text())
    inner: Any = other
    for step in change[:-1]:
        inner = inner[step]
    inner[change[-1]] = "another"
    path = tmp_path / "other.json"
    path.write_text(json.dumps(other))
    for words in (
        ("report", recorded, "--out", tmp_path / "out"),
        ("audit", recorded.parent / "config.toml", "--out", tmp_path / "never"),
    ):
        problem = refusal(*words, "--baseline", path)
        assert f"--baseline: is not of this federation: {told} is 'another', here " in problem
    assert not (tmp_path / "never").exists()
    assert not (tmp_path / "out").exists()


def test_what_is_asked_to_fail_only_adds(red: dict[str, Any]) -> None:
    calm = quiet(red)
    for gate in calm["gates"]:
        gate["outcome"] = "pass"
    silence(of(calm))
    calm["verdict"] |= {"outcome": "pass", "exit_code": 0, "reasons": []}
    assert outcome(calm) == ("pass", 0, "")
    of(calm)["lift_over_prior"], of(calm)["details"]["lift_over_prior_certain"] = 0.03, 0.01
    judge = {**next(each for each in calm["gates"] if each["attack"]), "metric": "lift_over_prior"}
    calm["gates"].append({**judge, "adversary": "server+denoisers", "outcome": "pass"})
    calm["gates"].append({**judge, "outcome": "pass"})
    assert list(grades(of(calm)).values()) == ["low"]
    assert outcome(calm, fail_on=("medium",))[1] == 0
    kind, code, reasons = outcome(calm, fail_on=("low",))
    assert (kind, code) == ("fail", 1)
    assert "severity low (lift_over_prior), and low is asked to fail" in reasons
    assert outcome(waived(calm, "lattice"), fail_on=("low",))[1] == 0
    # A documented leak is not a finding to fail on; another figure of the same adversary is.
    gate = calm["gates"][-1]
    gate |= {"bound": "least", "outcome": "leaks as documented", "documented": "so it is"}
    assert outcome(calm, fail_on=("low",)) == (
        "leaks as documented",
        0,
        f"{gate['name']}: so it is",
    )
    loud = waived(red, "lattice")
    assert outcome(loud)[1] == 3
    assert outcome(loud, fail_on=("inconclusive",))[:2] == ("fail", 1)


def test_a_policy_is_lifted_before_another_is_applied(red: dict[str, Any]) -> None:
    strict = Policy(today=TODAY, fail_on=("low", "inconclusive"), baseline=None)
    once = applied(waived(red, "lattice"), strict)
    assert applied(once, strict) == once
    mild = Policy(today=TODAY)
    assert applied(once, mild) == applied(waived(red, "lattice"), mild)
    assert applied(once, mild)["policy"]["measured"] == red["verdict"]


def test_an_audit_writes_what_it_is_asked_for_and_keeps_its_exit_code(
    small: dict[str, Any],
    write_config: Callable[[dict[str, Any]], Path],
    command: Command,
    tmp_path: Path,
) -> None:
    names = FAMILIES["ratings"]
    del small["adversaries"][1]
    told = {"adversary": "server", "reason": "r", "owner": "o", "expires": "2020-01-01"}
    small["waivers"] = [{**told, "attack": name} for name in names]
    config, out = write_config(small), tmp_path / "run"
    code, _, err = command("audit", config, "--out", out, "--quiet", "--format", "sarif,junit,md")
    assert code == 1
    assert "the waiver of o expired on 2020-01-01" in err
    written = {path.name for path in out.glob("report.*")}
    assert written == {"report.json", "report.sarif", "report.junit.xml", "report.md"}
    result = json.loads((out / "report.sarif").read_text())["runs"][0]["results"][0]
    text = config.read_text().split("\n")
    place = result["locations"][0]["physicalLocation"]
    assert text[place["region"]["startLine"] - 1] == 'expires = "2020-01-01"'

    # Waivers are no part of a run: it goes on under others, to the same bits.
    for waiver in small["waivers"]:
        waiver["expires"] = "2999-12-31"
    write_config(small)
    code, shown, _ = command("audit", config, "--out", out, "--quiet", "--resume")
    assert (code, "leaks as documented" in shown) == (0, True)
    assert json.loads((out / "report.json").read_text())["policy"]["measured"]["exit_code"] == 1
    config.write_text(config.read_text().replace('"2999-12-31"', "2999-12-31"))  # TOML's own date
    assert command("audit", config, "--out", out, "--quiet", "--resume")[0] == 0


def test_report_writes_beside_its_run(recorded: Path, command: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    before = snapshot(run)
    code, out, err = command("report", run, "--format", "html,json,sarif,junit,md")
    assert (code, err) == (0, "")
    written = {"report.html", "report.sarif", "report.junit.xml", "report.md"}
    assert {Path(line).name for line in out.split()} == written
    after = snapshot(run)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == written - {"report.html"}
    alone = tmp_path / "kept.json"
    shutil.copy(run / "report.json", alone)
    assert command("report", alone, "--format", "md", "--out", tmp_path / "x")[0] == 0
    assert (tmp_path / "x" / "report.md").read_bytes() == after["report.md"]
    assert command("report", alone, "--baseline", run, "--out", tmp_path / "y")[0] == 0
    assert command("report", alone, "--fail-on", "high", "--out", tmp_path / "y")[0] == 1
    assert read_report(tmp_path / "y")["policy"]["fail_on"] == ["high"]


def test_broken_results_are_refused(
    recorded: Path, refusal: Callable[..., str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    path, whole = run / "report.json", json.loads((run / "report.json").read_text())
    assert "the run folder or report.json does not exist" in refusal("report", tmp_path / "absent")
    assert "is not a run folder" in refusal("report", tmp_path)
    text = path.read_text()
    for broken, problem in (
        (text[:3000], "is not valid JSON"),
        ("", "is not valid JSON"),
        ("\udcff", "is not valid JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ("[]", "is not a report"),
        ("{}", "is not a report"),
        (json.dumps({**whole, "schema_version": "2"}), "has schema version '2'"),
        (json.dumps({**whole, "findings": [1]}), "report.findings[0] should be object"),
        (json.dumps({**whole, "surprise": 1}), "holds 'surprise'"),
        (text.replace('"outcome": "fail"', '"outcome": "red"'), "should be one of pass, fail"),
        (text.replace('"severity": "critical"', '"severity": 3'), "report.findings["),
        (text.replace('"seconds"', '"minutes"'), "lacks 'seconds'"),
    ):
        path.write_text(broken, errors="surrogateescape")
        files = snapshot(run)
        assert problem in refusal("report", run, "--format", "sarif,junit,md")
        assert problem in refusal("audit", "--baseline", run, "--out", tmp_path / "never")
        assert snapshot(run) == files
    assert not (tmp_path / "never").exists()
    path.unlink()
    assert "has no report yet" in refusal("report", run)  # a run that was cut off
    path.write_text(text)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "sha256": "0"}))
    assert "of an earlier configuration" in refusal("report", run)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [("details", "precision_gain_certain", {}), ("units", "clients", 10**400)],
    ids=["details", "units"],
)
def test_what_no_page_can_show_is_refused(
    part: str, name: str, value: object, recorded: Path, tmp_path: Path
) -> None:
    report = json.loads((recorded / "report.json").read_text())
    report["findings"][0][part][name] = value
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    with pytest.raises(DataError, match=f"{part}.{name} should be"):
        read_report(path)


def test_parties_of_any_kind_have_a_fingerprint(recorded: Path, tmp_path: Path) -> None:
    report = json.loads((recorded / "report.json").read_text())
    report["configuration"]["adversaries"][0]["corrupt"] = ["server", 1]
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    assert WRITERS["sarif"](read_report(path))


def test_no_report_crashes_whoever_reads_it(recorded: Path, tmp_path: Path) -> None:
    """Random values in random places: refused by the schema, or written and judged."""
    whole = json.loads((recorded / "report.json").read_text())
    for finding in whole["findings"]:
        finding["roc"] = None
    whole = waived(whole, "lattice")
    parts = ("configuration", "verdict", "gates", "findings", "source", "manifest", "not_tested")
    places = [place for part in parts for place in _places(whole[part], (part,))]
    rng, ends, path = random.Random(7), Counter[str](), tmp_path / "report.json"
    values: tuple[Any, ...] = (
        None,
        0,
        -1,
        10**400,
        1.5,
        "",
        "x\x00",
        [],
        {},
        [1],
        {"a": 1},
        True,
        math.nan,
        "server",
    )
    for _ in range(120):
        report: Any = copy.deepcopy(whole)
        place, inner = rng.choice(places), report
        for step in place[:-1]:
            inner = inner[step]
        inner[place[-1]] = rng.choice(values)
        path.write_text(json.dumps(report))
        try:
            found = read_report(path)
            judged = applied(found, Policy(today=TODAY, fail_on=("high",), baseline=whole))
            applied(whole, Policy(today=TODAY, fail_on=("high",), baseline=found))
            compare({1: whole}, {1: found})
        except (ConfigError, DataError):
            ends["refused"] += 1
            continue
        for each in (found, judged):
            assert all(WRITERS[name](each) for name in WRITERS)
        ends["written"] += 1
    assert min(ends["refused"], ends["written"]) >= 25


def _places(value: Any, place: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Where there is a value in a JSON value."""
    yield place
    inner: Any = ()
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in inner:
        yield from _places(each, (*place, key))
