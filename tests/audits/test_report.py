import errno
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits.report import render_html, report_schema, text, write_report
from audits.report.charts import roc_chart, utility_chart
from audits.report.curves import tpr_at
from audits.report.view import adversary_rows, by_severity, gate_rows, headline
from secure_fedrec.errors import DataError

SAMPLE = Path(__file__).with_name("report_sample.json")
HOSTILE = "<script>alert(1)</script><!--\"'>&$x^{$"


def curve(strength: float) -> dict[str, list[float]]:
    fpr = np.concatenate([[0.0], np.geomspace(1e-5, 1.0, 80)])
    tpr = fpr ** (1.0 / strength)
    return {"fpr": fpr.round(7).tolist(), "tpr": tpr.round(7).tolist()}


def sample() -> dict[str, Any]:
    """A report with everything a report can hold; curves are added to what the file states."""
    report: dict[str, Any] = json.loads(SAMPLE.read_text(encoding="utf-8"))
    rounds = range(1, 61)
    report["utility"]["rounds"] = [
        {"round": n, "mae": 0.74 + 0.3 * 0.9**n, "rmse": 0.94 + 0.35 * 0.9**n} for n in rounds
    ]
    for finding in report["findings"]:
        auc = finding["auc"]
        finding["roc"] = None if auc is None else curve(auc / (1 - auc))
    return report


def findings() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sample()["findings"]
    return found


class Page(HTMLParser):
    """What a browser would see: tags, attributes, text."""

    VOID = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.attributes.append((tag, "", ""))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render_html(sample()))


def schema_problems(report: dict[str, Any]) -> list[str]:
    jsonschema = pytest.importorskip("jsonschema")
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    return [error.message for error in validator.iter_errors(report)]


def test_the_sample_follows_the_schema() -> None:
    assert schema_problems(sample()) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict", "exit_code"), 0),
        (("verdict", "outcome"), "PASS"),
        (("surprise",), 1),
        (("findings", 0, "auc"), 1.2),
        (("findings", 0, "surprise"), 1),
        (("findings", 5, "reason"), None),
        (("gates", 0, "bound"), "below"),
        (("cost", "roles", 0, "role"), "client"),
        (("schema_version",), "2"),
    ],
)
def test_the_schema_refuses(path: tuple[str | int, ...], value: object) -> None:
    report: Any = sample()
    place = report
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert schema_problems(report)


def test_every_part_of_the_schema_is_described_and_resolves() -> None:
    schema = report_schema()
    for reference in re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)):
        assert reference in schema["$defs"]
    later = {"source", "policy", "not_tried"}
    assert set(schema["properties"]) == set(sample()) | {"switched_off"} | later
    # Version 1 may gain optional keys: a report without them stays a report.
    assert (
        set(schema["properties"]) - set(schema["required"])
        == {"protection", "remedies", "switched_off"} | later
    )


def test_the_page_loads_nothing_and_runs_nothing(page: Page) -> None:
    for tag, name, value in page.attributes:
        assert tag not in {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
        assert not name.startswith("on")
        assert name not in {"src", "srcset", "xmlns", "action"}
        if name in {"href", "xlink:href"}:
            assert value.startswith("#")
        assert "http:" not in value
        assert "https:" not in value
        assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)", value))
    policy = next(value for _, name, value in page.attributes if value.startswith("default-src"))
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    style = "".join(words for words in page.words if "@page" in words)
    assert style
    assert "url(" not in style
    assert "@import" not in style


def test_ids_are_unique_and_every_reference_resolves(page: Page) -> None:
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    for _, name, value in page.attributes:
        wanted = re.findall(r"url\(#([^)]+)\)", value)
        wanted += [value[1:]] if name == "href" else []
        assert set(wanted) <= set(ids)


def test_every_chart_has_words(page: Page) -> None:
    charts = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(charts) == 3  # two adversaries with curves, utility
    assert all(len(label) > 40 for label in charts)


def test_every_finding_shows_its_numbers(page: Page) -> None:
    said = set()
    for finding in by_severity(sample()["findings"]):
        if finding["status"] != "measured":  # the report lists why among what was not tested
            continue
        assert finding["attack"] in said or finding["sentence"] in page.text
        said.add(finding["attack"])
        assert finding["adversary"] in page.text
        for key in ("auc", "auc_low", "support_auc", "prior_auc", "advantage"):
            if finding.get(key) is not None:
                assert text.decimal(finding[key]) in page.text
        for key in ("tpr_at_1pct_fpr", "tpr_at_01pct_fpr", "linked_share", "rating_accuracy"):
            if finding.get(key) is not None:
                assert text.percent(finding[key]) in page.text
        if finding["null_control"]:
            control = finding["null_control"]
            span = text.interval(control["low"], control["high"])
            assert f"AUC {text.decimal(control['auc'])} {span}" in page.text
    assert "needs 1,000 negatives, has 600" in page.text
    assert ">99.9%" in page.text


def test_fallen_gates_come_first_and_by_name(page: Page) -> None:
    rows = gate_rows(sample()["gates"])
    assert [row["outcome"] for row in rows] == ["fail", "inconclusive", "pass", "pass"]
    assert rows[0]["requirement"] == "AUC ≤ 0.75"
    assert rows[0]["measured"] == "0.987"
    assert rows[2]["requirement"] == "Lossless = yes"
    assert rows[3]["requirement"] == "Bytes per client ≤ 2,000,000"
    assert all(row["requirement"] in page.text for row in rows)


def test_an_adversary_passes_only_by_a_gate_with_sound_controls() -> None:
    report = sample()
    outcomes = {row["adversary"]: row["outcome"] for row in adversary_rows(report)}
    assert outcomes == {
        "server": "fail",
        "server and denoisers": "no gate",
        "network observer": "inconclusive",
        "other client": "not tested",
    }
    report["gates"][2]["outcome"] = "pass"  # the finding's null control still failed
    rows = {row["adversary"]: row for row in adversary_rows(report)}
    assert rows["network observer"]["outcome"] == "inconclusive"
    (linked,) = (each for each in findings() if each["adversary"] == "server and denoisers")
    assert headline(linked) == "Messages linked to their sender 99.8%"


def test_findings_are_sorted_worst_first() -> None:
    ordered = by_severity(sample()["findings"])
    assert [finding["severity"] for finding in ordered[:3]] == ["critical", "critical", "high"]
    assert [finding["status"] for finding in ordered[-2:]] == ["not-applicable"] * 2


def hostile(value: Any) -> Any:
    """Replaces every free-form string by markup; keeps enumerations and the start date."""
    kept = {"status", "outcome", "bound", "severity", "schema_version", "metric_names"}
    if isinstance(value, dict):
        return {k: v if k in kept else hostile(v) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(entry) for entry in value]
    return HOSTILE if isinstance(value, str) else value


def test_hostile_text_stays_text() -> None:
    report = hostile(sample())
    source = render_html(report)
    page = Page(source)
    assert "<script>alert" not in source
    assert "<script" not in source
    assert HOSTILE in " ".join(page.words)


def test_the_same_report_gives_the_same_bytes(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in write_report(sample(), tmp_path / "a").values()]
    second = [path.read_bytes() for path in write_report(sample(), tmp_path / "b").values()]
    assert first == second


def test_user_settings_of_matplotlib_change_nothing() -> None:
    import matplotlib as mpl

    plain = roc_chart(findings())
    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert roc_chart(findings()) == plain


def test_both_files_are_written_and_the_json_keeps_its_order(tmp_path: Path) -> None:
    json_path, html_path = write_report(sample(), tmp_path / "out").values()
    written = json.loads(json_path.read_text(encoding="utf-8"))
    assert written == sample()
    assert list(written) == list(sample())
    assert html_path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(path.name for path in json_path.parent.iterdir()) == [
        "report.html",
        "report.json",
    ]


@pytest.mark.parametrize("break_it", ["nan", "version", "missing"])
def test_a_report_that_cannot_be_rendered_leaves_the_old_one(tmp_path: Path, break_it: str) -> None:
    old = [path.read_bytes() for path in write_report(sample(), tmp_path).values()]
    report = sample()
    if break_it == "nan":
        report["cost"]["seconds"] = float("nan")
    elif break_it == "version":
        report["schema_version"] = "0"
    else:
        del report["lossless"]["statement"]
    with pytest.raises(Exception, match=r"JSON|schema_version|statement"):
        write_report(report, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]
    assert [(tmp_path / name).read_bytes() for name in ("report.json", "report.html")] == old


def test_a_failing_disk_leaves_the_old_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [path.read_bytes() for path in write_report(sample(), tmp_path).values()]

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"disk full: '.*report\.json"):
        write_report({**sample(), "title": "new"}, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]
    assert [(tmp_path / name).read_bytes() for name in ("report.json", "report.html")] == old


def test_another_schema_version_is_refused_by_name() -> None:
    with pytest.raises(DataError, match="schema_version is '2'; this version reads '1'"):
        render_html({**sample(), "schema_version": "2"})


def test_an_audit_without_attacks_gates_or_rounds_still_renders() -> None:
    report = sample()
    report |= {"gates": [], "findings": [], "not_tested": [], "attack_cards": {}}
    report["utility"] |= {"rounds": [], "folds": [], "sd": None}
    report["cost"]["roles"] = []
    report["lossless"] |= {"claimed": False, "holds": None}
    report["verdict"] = {"outcome": "pass", "exit_code": 0, "summary": "Nothing.", "reasons": []}
    page = Page(render_html(report))
    assert "No gate was set" in page.text
    assert "No attack ran" in page.text


def test_optional_measures_may_be_absent() -> None:
    report = sample()
    optional = report_schema()["$defs"]["finding"]
    for finding in report["findings"]:
        for key in set(finding) - set(optional["required"]):
            del finding[key]
    assert Page(render_html(report)).text


def test_charts_without_data_are_empty() -> None:
    assert roc_chart([each for each in findings() if each["status"] == "not-applicable"]) == ""
    assert utility_chart([]) == ""


def test_a_roc_is_read_at_the_top_of_its_steps() -> None:
    roc = {"fpr": [0.0, 0.0, 0.5, 0.5, 1.0], "tpr": [0.0, 0.4, 0.4, 0.8, 1.0]}
    assert tpr_at(roc, [0.0, 0.25, 0.5, 0.75]) == pytest.approx([0.4, 0.6, 0.8, 0.9])


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (text.decimal(0.98745), "0.987"),
        (text.decimal(0.99996), ">0.999"),
        (text.decimal(1.0), "1.000"),
        (text.decimal(0.00001), "<0.001"),
        (text.decimal(-0.25), "−0.250"),
        (text.decimal(None), "not measured"),
        (text.percent(0.99962), ">99.9%"),
        (text.percent(0.125), "12.5%"),
        (text.percent(1.0), "100.0%"),
        (text.signed(-0.0312), "−0.031"),
        (text.signed(0.2), "+0.200"),
        (text.interval(0.1, None), ""),
        (text.interval(0.1, 0.2, as_percent=True), "[10.0%, 20.0%]"),
        (text.count(1682), "1,682"),
        (text.count(None), "not measured"),
        (text.count(424.5), "424.5"),
        (text.byte_size(0), "0 B"),
        (text.byte_size(999.7), "1.00 kB"),
        (text.byte_size(71_240), "71.2 kB"),
        (text.byte_size(2.5e12), "2.50 TB"),
        (text.duration(59.97), "1 min 00 s"),
        (text.duration(7_620), "2 h 07 min"),
        (text.round_ranges([3, 1, 2, 7, 9, 10]), "1–3, 7, 9–10"),
        (text.round_ranges([]), "none"),
        (text.gate_value(False), "no"),
        (text.gate_value(71_240.0), "71,240"),
    ],
)
def test_numbers_are_written_with_care(written: str, expected: str) -> None:
    assert written == expected


@pytest.mark.parametrize("backend", ["nonsense", "svg", ""])
def test_a_report_is_drawn_whatever_backend_others_are_to_use(backend: str) -> None:
    """And they find it named as they would have: an unknown one ended the audit by its report."""
    program = """
import os, sys
from audits.report.svg import canvas, finish
with canvas(3, 2) as figure:
    drawn = finish(figure, "empty", "title", "text")
import matplotlib
named = os.environ["MPLBACKEND"]
print(len(drawn) > 100, named == sys.argv[1], matplotlib.rcParams._get("backend") == named)
"""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", program, backend],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MPLBACKEND": backend},
    )
    assert ended.stderr == ""
    assert ended.stdout.split() == ["True", "True", str(backend == "svg")]


def test_a_report_is_drawn_in_silence_where_nothing_can_be_written(tmp_path: Path) -> None:
    """Found by attacking: matplotlib told of a folder for its fonts, in lines of its own."""
    (tmp_path / "file").touch()
    nowhere = str(tmp_path / "file" / "folder")
    program = """
from audits.report.svg import canvas, finish
with canvas(3, 2) as figure:
    print(len(finish(figure, "empty", "title", "text")) > 100)
"""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MPLCONFIGDIR": nowhere, "HOME": nowhere},
    )
    assert (ended.stdout, ended.stderr) == ("True\n", "")
