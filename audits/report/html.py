"""Rendering a report as one self-contained page.

The page needs no script, font, image or network: charts are inline SVG, the style sheet is inline,
and a content security policy forbids the rest. Everything that it leaves out is in ``report.json``.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from audits.gates.policy import gate_states
from audits.report import charts, text, view
from audits.report.endings import SMALLEST_CHANGES, attack_rows, changes
from audits.report.front import front
from audits.report.not_tried import not_tried_line
from secure_fedrec.errors import DataError

SCHEMA_VERSION = "1"

_NOUNS = {"clients": "clients", "items": "items", "examples": "ratings"}


class _KeysFirst(Environment):
    """Jinja, but ``data.items`` in a template is the key of a report, never the dict's method."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Looks a name up as a key before it looks for an attribute."""
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


@cache
def _environment() -> Environment:
    """Builds the template environment once; undefined names are errors, not blanks."""
    environment = _KeysFirst(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": text.byte_size,
        "capital": text.capital,
        "count": text.count,
        "decimal": text.decimal,
        "duration": text.duration,
        "measure": text.measure,
    }
    return environment


def _trusted(svg: str) -> Markup:
    """Marks a chart as HTML; :func:`audits.report.svg.finish` and matplotlib escape its text."""
    return Markup(svg)  # noqa: S704


def _roc_sections(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Builds one ROC chart and its data table per adversary with at least one curve."""
    findings = report["findings"]
    sections = []
    for adversary in dict.fromkeys(finding["adversary"] for finding in findings):
        mine = [finding for finding in findings if finding["adversary"] == adversary]
        if chart := charts.roc_chart(mine):
            rows = view.roc_rows(mine)
            sections.append({"adversary": adversary, "chart": _trusted(chart), "rows": rows})
    return sections


def _context(report: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """Gathers everything the template shows beside the report itself."""
    return {
        "whole": whole,
        "report": report,
        "front": front(report),
        "attacks": attack_rows(report),
        "changes": changes(report),
        "smallest_changes": SMALLEST_CHANGES,
        "adversaries": view.adversary_rows(report),
        "gates": view.gate_rows(report["gates"]),
        "protection": report.get("protection"),
        "algorithm": (report.get("protection") or {}).get("algorithm"),
        "nouns": {**_NOUNS, **report["data"].get("nouns", {})},
        "better": text.which_is_better(report["utility"]["metric_names"]),
        "baselines": report["utility"].get("baselines", {}),
        "rocs": _roc_sections(report),
        "utility_chart": _trusted(charts.utility_chart(report["utility"]["rounds"])),
        "configuration": _rows(report["configuration"]),
        "seeds": _rows(report["manifest"]["seeds"]),
    }


def render_html(report: Mapping[str, object]) -> str:
    """Renders a report as one HTML page.

    Args:
        report: a report as described by ``report_schema``.

    Returns:
        The page; the same report always gives the same text.

    Raises:
        DataError: the report follows another schema version.
    """
    return _page(report, whole=True)


def render_frame(report: Mapping[str, object]) -> str:
    """Renders verdict and attacks of a report for a notebook: its page in a frame of its own.

    Args:
        report: a report as described by ``report_schema``.

    Returns:
        An ``iframe`` that holds the page: no style of it leaves the frame, and none enters.

    Raises:
        DataError: the report follows another schema version.
    """
    page = escape(_page(report, whole=False))
    style = "width:100%;height:36rem;border:0;resize:vertical"
    return f'<iframe title="Privacy audit" sandbox style="{style}" srcdoc="{page}"></iframe>'


def _page(report: Mapping[str, object], *, whole: bool) -> str:
    version = report.get("schema_version")
    if version != SCHEMA_VERSION:
        problem = f"schema_version is {version!r}; this version reads {SCHEMA_VERSION!r}"
        raise DataError("report.json", problem)
    page = _environment().get_template("template.html.j2").render(_context(report, whole=whole))
    return text.spoken(page)


def render_summary(report: Mapping[str, Any]) -> str:
    """Writes the command line's summary of a report, line by line."""
    return (
        _environment()
        .get_template("summary.txt.j2")
        .render(report=report, states=gate_states(report), not_tried=not_tried_line(report))
    )


def _rows(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings by dotted key, in words."""
    return [(key, text.plain(value)) for key, value in text.flatten(settings)]
