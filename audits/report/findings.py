"""A finding in the words and numbers of a report: severity, one plain sentence, JSON.

The figures, their severities and the sentences about them are defined in their records
(``attacks.scoring.measures``).
"""

import re
from collections.abc import Mapping
from dataclasses import asdict
from string import Formatter
from typing import Any

from attacks import Finding
from attacks.planted.controls import ControlResult
from attacks.scoring.measures import Figures, Measure, listed_keys, measures_of, severity_of


def severity(finding: Finding) -> str | None:
    """The severity of a finding, that of its worst figure; None if nothing was measured.

    A gain over public knowledge or guessing counts by its lower limit, which holds for all gains of
    an audit at once with 99 %: high from 0.20, medium from 0.05, low if any is certain and it is
    0.02 or more. A share of 0.9 behind a high gain is critical. Each record has its own rule; a
    figure without a rule is info.
    """
    return severity_of(finding.figures) if finding.measured else None


def sentence(finding: Finding) -> str:
    """The finding in one sentence for a privacy officer."""
    if not finding.measured:
        return f"{finding.attack} does not apply to {finding.adversary}: {finding.reason}."
    figures = finding.figures
    rounds = len(finding.rounds)
    span = "one message" if rounds == 1 else f"messages of {rounds} rounds"
    found = (_clause(each, figures, finding.details) for each in measures_of(figures))
    if clauses := [clause for clause in found if clause]:
        return f"From {span} of each client, {finding.adversary} {', '.join(clauses)}."
    return f"{finding.adversary} learned nothing measurable from {span}."


def _clause(measure: Measure, figures: Figures, details: Mapping[str, Any]) -> str | None:
    """The record's clause about its figure; None without one, or if a figure in it is missing."""
    low, high = measure.said
    if not low < (figures[measure.key] or 0.0) < high:
        return None
    attribute = next(iter(details.get("attributes", ())), "attribute").replace("_", " ")
    told = {**figures, "attribute": attribute}  # the first attribute
    # Every second part was in brackets.
    parts = [_filled(part, told) for part in re.split(r"[\[\]]", measure.words)]
    if None in parts[::2]:
        return None
    return "".join(part or "" for part in parts)


class _Written(Formatter):
    """Formats shares: "%" is a percentage that is never rounded up to the whole."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Write one figure."""
        if format_spec != "%":
            return str(super().format_field(value, format_spec))
        return "over 99.9 %" if 0.9995 <= value < 1 else f"{100 * value:.1f} %"


def _filled(words: str, figures: Mapping[str, Any]) -> str | None:
    """Words with figures; None where one is missing."""
    names = [name for _, name, _, _ in Formatter().parse(words) if name]
    if any(figures.get(name) is None for name in names):
        return None
    return _Written().vformat(words, (), figures)


def finding_json(finding: Finding, control: ControlResult | None) -> dict[str, Any]:
    """A finding as stored in ``report.json``; figures without a key in the schema go to details."""
    figures = dict(finding.figures)
    named = {key: figures.pop(key) for key in listed_keys() if key in figures}
    positive = None
    if control is not None:
        told = asdict(control) | {"passed": control.passed}
        positive = told | {"value": 0.0 if control.value is None else control.value}
    return {
        "attack": finding.attack,
        "adversary": finding.adversary,
        "game": finding.game,
        "status": "measured" if finding.measured else "not-applicable",
        "reason": finding.reason,
        "raised": None if finding.raised is None else asdict(finding.raised),
        "lacks": list(finding.lacks),
        "received": list(finding.received),
        "read": list(finding.read),
        "held": list(finding.held),
        "not_installed": finding.not_installed,
        "rounds": list(finding.rounds),
        "units": {"clients": 0, "pairs": 0, "positives": 0, **finding.units},
        **dict.fromkeys(("auc", "auc_low", "auc_high", "tpr_at_1pct_fpr", "advantage")),
        **named,
        "details": {**figures, **finding.details},
        "severity": severity(finding),
        "sentence": sentence(finding),
        "null_control": None if finding.null_control is None else dict(finding.null_control),
        "positive_control": positive,
        "roc": None if finding.roc is None else dict(finding.roc),
    }
