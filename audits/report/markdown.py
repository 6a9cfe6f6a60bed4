"""The report as Markdown: for the summary of a pipeline's job, or a comment on a change."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from attacks.scoring.severities import SEVERITIES
from audits.gates.policy import excuses, gate_states
from audits.gates.verdict import Report
from audits.report.endings import SMALLEST_CHANGES, changes, ending
from audits.report.not_tried import not_tried_line
from audits.report.places import config_line, config_path, key_of_finding, key_of_gate
from audits.report.text import gate_value, interval, spoken

Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Heads of columns, and rows."""

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~!&@])")


def render_markdown(report: Report) -> str:
    """Writes a report as Markdown, its tables as GitHub and GitLab read them."""
    verdict = report["verdict"]
    parts = [
        f"# {_plain(report['title'])}",
        f"**{verdict['outcome'].capitalize()}** (exit code {verdict['exit_code']}). "
        f"{_plain(verdict['summary'])}",
        *_list(verdict["reasons"]),
        *_untried(report),
        *_warned(report),
        *_section("Gates", _gates(report)),
        *_section("Findings", _findings(report)),
        *_section("Attacks that were withstood", _held(report)),
        *_changes(report),
        *_section("Waivers", _waivers(report)),
        "## Not tested",
        *_list(report["not_tested"]),
        "## Reproduce",
        textwrap.indent(" ".join(report["manifest"]["rerun"].split()), "    "),
        f"Version {_plain(report['manifest']['tool_version'])}; "
        f"data `{report['data']['fingerprint'][:12]}`, "
        f"configuration `{report['manifest']['config_sha256'][:12]}`.",
    ]
    return "\n\n".join(parts) + "\n"


def _untried(report: Report) -> list[str]:
    told = not_tried_line(report)
    return [f"**Not tried:** {_plain(told)}."] if told else []


def _warned(report: Report) -> list[str]:
    warning = report["utility"].get("warning")
    return [f"**Warning.** {_plain(warning)}."] if warning else []


def _gates(report: Report) -> Table:
    rows = []
    for number, (gate, outcome) in enumerate(
        zip(report["gates"], gate_states(report), strict=True)
    ):
        span = interval(gate["low"], gate["high"])
        rows.append(
            (
                f"**{outcome}**" if outcome == "fail" else outcome,
                _plain(gate["name"]),
                f"{gate_value(gate['value'])} {span}".strip(),
                _line(report, key_of_gate(report, number)),
            )
        )
    return ("outcome", "gate", "measured, 95 % interval", "line"), rows


def _findings(report: Report) -> Table:
    found = [each for each in report["findings"] if each["severity"] not in (None, "info")]
    found.sort(key=lambda each: SEVERITIES.index(each["severity"]))
    excused = excuses(report)
    rows = [
        (
            ", ".join(filter(None, (each["severity"], excused.get(_pair(each))))),
            _plain(f"{each['adversary']}/{each['attack']}"),
            _plain(each["sentence"]),
            _line(report, key_of_finding(report, each)),
        )
        for each in found
    ]
    return ("severity", "attack", "finding", "line"), rows


def _pair(finding: Mapping[str, Any]) -> tuple[str | None, str | None]:
    return finding["adversary"], finding["attack"]


def _held(report: Report) -> Table:
    """Attacks that ran and learned nothing relevant, so that a pass shows its basis."""
    rows = [
        (
            ending(each, report).words,
            _plain(f"{each['adversary']}/{each['attack']}"),
            _plain(each["sentence"]),
        )
        for each in report["findings"]
        if each["severity"] == "info"
    ]
    return ("ended", "attack", "finding"), rows


def _changes(report: Report) -> list[str]:
    """The section on what to change, in the words of the page; empty without a change."""
    parts = []
    for change in changes(report):
        told = (
            f"In place of {change['replaced']}. Answers {', '.join(change['attacks'])}. "
            f"Costs {change['price']} "
            f"Assumes {change['assumes']}. Remains: {change['remains']}."
        )
        # Indented, not fenced: no text of a report can end it.
        parts += [
            f"### {_plain(change['system'])}",
            textwrap.indent(change["toml"], "    "),
            _plain(told),
        ]
    return ["## What to change", SMALLEST_CHANGES, *parts] if parts else []


def _waivers(report: Report) -> Table:
    rows = [
        (
            each["state"],
            _plain(f"{each['adversary']}/{each['attack']} {each.get('metric', '')}"),
            _plain(each["owner"]),
            _plain(each["expires"]),
            _plain(each["reason"]),
        )
        for each in report.get("policy", {}).get("waivers", ())
    ]
    return ("state", "for", "owner", "until", "reason"), rows


def _line(report: Report, key: str) -> str:
    return f"`{config_path(report)}:{config_line(report, key)}`"


def _section(title: str, table: Table) -> list[str]:
    head, rows = table
    if not rows:
        return []
    lines = (head, ["---"] * len(head), *rows)
    return [f"## {title}", "\n".join(f"| {' | '.join(cells)} |" for cells in lines)]


def _list(texts: Iterable[str]) -> list[str]:
    """A list, or nothing."""
    lines = [f"- {_plain(text)}" for text in texts]
    return ["\n".join(lines)] if lines else []


def _plain(text: str) -> str:
    """Text in which nothing is markup, on one line."""
    return _MARKUP.sub(r"\\\1", spoken(" ".join(text.split())))
