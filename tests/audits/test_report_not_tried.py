"""Page one says what was not tried, in every format, and praises only attacks that ran."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from attacks.suite import UNATTACKED
from audits.report.front import front
from audits.report.html import render_html, render_summary
from audits.report.markdown import render_markdown
from audits.report.not_tried import KINDS, not_tried, not_tried_line
from audits.report.schema import report_schema

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]
UNTOLD = [words for words, told in UNATTACKED.items() if told != "attribute"]


@pytest.fixture
def report(
    small: dict[str, Any], write_config: Write, command: Command, tmp_path: Path
) -> dict[str, Any]:
    """An audit of the server alone, without one attack, with payloads of two of six rounds."""
    small["adversaries"] = small["adversaries"][:1]
    small["attacks"] = ["direct", "lattice", "collusion-linkage"]
    small["gates"] = [{"metric": "rmse", "max": 5.0}]
    command("audit", write_config(small), "--out", tmp_path / "out", "--quiet")
    found: dict[str, Any] = json.loads((tmp_path / "out" / "report.json").read_text())
    return found


def told(report: Mapping[str, Any], kind: str) -> list[str]:
    return [each["text"] for each in report["not_tried"] if each["kind"] == kind]


@pytest.mark.claim("page-one-not-tried")
def test_what_was_not_tried_follows_from_the_run(report: dict[str, Any]) -> None:
    assert told(report, "no attack") == [*UNTOLD, "attribute inference"]
    assert told(report, "no adversary") == ["views of clients", "views of denoisers"]
    assert told(report, "no payloads") == ["payloads of 4 of 6 rounds"]
    assert told(report, "nothing to read") == ["with nothing to read: collusion-linkage"]
    (off,) = (each for each in report["not_tried"] if each["kind"] == "switched off")
    assert "intersection" in off["attacks"]
    assert report["switched_off"] == off["attacks"]


@pytest.mark.claim("page-one-not-tried")
def test_every_format_says_it_in_one_line(report: dict[str, Any]) -> None:
    line = not_tried_line(report)
    assert line.startswith("parties that deviate from the protocol; membership in the released")
    assert "; views of clients; views of denoisers; payloads of 4 of 6 rounds; " in line
    assert "; 1 attack with nothing to read; attacks switched off: intersection, " in line
    assert f"<b>Not tried:</b> {line}." in render_html(report).partition("<dl")[0]
    assert f"\nnot tried: {line}\n" in render_summary(report)
    page = render_markdown(report).replace("\\", "")
    assert f"**Not tried:** {line}." in page.partition("\n## ")[0]


def test_the_schema_knows_every_kind() -> None:
    shape = report_schema()["properties"]["not_tried"]["items"]
    assert shape["properties"]["kind"]["enum"] == list(KINDS)
    assert all(words in shape["properties"]["kind"]["description"] for words in KINDS.values())


def test_attacks_that_lack_something_are_told_apart(report: dict[str, Any]) -> None:
    silent = report["findings"][0] | {"status": "not-applicable", "attack": "signed-rows"}
    silent["reason"] = "the public knowledge does not state 'negatives'"
    lacking = report["findings"][1] | {"lacks": ["upload"]}
    short = report["findings"][1] | {"not_installed": "pip install it", "attack": "sum-decoding"}
    short["details"] = {"vectors_known_beforehand": 0}
    found = [report["findings"][0], silent, lacking, short]
    changed = report | {"findings": found, "switched_off": []}
    changed["configuration"] = report["configuration"] | {
        "adversaries": [{"name": "all", "corrupt": ["server", "denoiser:0", "client:3"]}],
        "recording": {"payload_rounds": [1, 2, 3, 4, 5, 6, 9], "payload_senders": [2, 3]},
    }
    changed["not_tried"] = not_tried(changed, rounds=6, denoisers=True)
    assert {each["kind"]: (each["text"], each["attacks"]) for each in changed["not_tried"][4:]} == {
        "no payloads": ("payloads of all senders but 2", []),
        "evidence": (f"on all that was sent: {lacking['attack']}", [lacking["attack"]]),
        "knowledge": ("without a fact that they need: signed-rows", ["signed-rows"]),
        "unread": ("messages to server: denoise", []),
        "extra": ("without an extra that is not installed: sum-decoding", ["sum-decoding"]),
        "no adversary": ("private vectors that are known beforehand", []),
    }
    short["details"] = {"vectors_known_beforehand": 9}
    known = not_tried(changed, rounds=6, denoisers=True)
    assert not any(each["kind"] == "no adversary" for each in known)
    quiet = changed | {"remedies": [], "findings": [each | {"severity": "info"} for each in found]}
    actions = [action.what for action in front(quiet)["actions"]]
    assert "Install the extra that an attack would use: pip install it." in actions


def test_an_attribute_that_was_told_was_tried(report: dict[str, Any]) -> None:
    finding = report["findings"][0] | {"attribute_auc": 0.7}
    found = not_tried(report | {"findings": [finding]}, rounds=6, denoisers=False)
    assert [each["text"] for each in found if each["kind"] == "no attack"] == UNTOLD


@pytest.mark.claim("page-one-not-tried")
def test_nothing_is_said_of_attacks_that_did_not_run(report: dict[str, Any]) -> None:
    quiet = [each | {"severity": "info"} for each in report["findings"]]
    passed = report | {"findings": quiet, "remedies": []}
    passed["verdict"] = report["verdict"] | {"outcome": "pass", "reasons": []}
    ran = front(passed)["ran"]
    assert ran == 2
    assert "Of the 2 attacks that ran, none learned anything beyond what is" in render_html(passed)
    what = [action.what for action in front(passed)["actions"]]
    assert any(each.startswith("Nothing, by the 2 attacks that ran.") for each in what)
    assert "No attack ran." in render_html(passed | {"findings": []})


def test_a_report_without_it_is_read(report: dict[str, Any]) -> None:
    older = {name: value for name, value in report.items() if name != "not_tried"}
    assert not_tried_line(older) == ""
    assert "Not tried" not in render_html(older)
