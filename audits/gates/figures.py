"""Figures of a finding in a report: their values, and the severity of each by its record."""

import sys
from collections.abc import Mapping
from typing import Any

from attacks.scoring.measures import MEASURES, Behind
from attacks.scoring.severities import SEVERITIES

WHOLE = ""
"""Key used if a report states a severity that does not come from its figures."""


def figures_of(finding: Mapping[str, Any]) -> dict[str, float]:
    """All figures of a finding by key, including those of its details."""
    every = {**finding["details"], **finding}
    numbers = {key: each for key, each in every.items() if isinstance(each, int | float)}
    return {key: float(each) for key, each in numbers.items() if abs(each) < sys.maxsize}


def figure_of(finding: Mapping[str, Any], key: str) -> tuple[float, float, float] | None:
    """Value and interval ends of a figure; without an interval the ends are the value."""
    figures = figures_of(finding)
    if key not in figures:
        return None
    value = figures[key]
    return value, figures.get(f"{key}_low", value), figures.get(f"{key}_high", value)


def grades(finding: Mapping[str, Any]) -> dict[str, str]:
    """Severity of every figure of a finding that is above ``info``, worst first.

    If the finding states a worse severity than its figures have, ``WHOLE`` has that severity.
    """
    if finding["status"] != "measured":
        return {}
    figures = figures_of(finding)
    every = {key: each.severity.grade(key, figures) for key, each in MEASURES.items()}
    found = {key: grade for key, grade in every.items() if grade != "info"}
    stated = finding.get("severity") or "info"
    if rank(stated) < min(map(rank, (*found.values(), "info"))):
        found[WHOLE] = stated
    return dict(sorted(found.items(), key=lambda each: rank(each[1])))


def rank(severity: str) -> int:
    """Rank of a severity, 0 for the worst."""
    return SEVERITIES.index(severity)


def gains_behind(key: str, found: Mapping[str, str]) -> list[str]:
    """The measured gains that a figure is judged by; empty for a figure judged by itself."""
    rule = MEASURES[key].severity if key in MEASURES else None
    return [name for name in rule.gains if name in found] if isinstance(rule, Behind) else []


def secret_of(key: str) -> str | None:
    """The secret that a figure tells; None if it is not a figure of an attack."""
    return MEASURES[key].secret if key in MEASURES else None
