"""The report's charts, as inline SVG, small enough for a phone.

Every chart repeats its numbers in words for screen readers, tells series apart by dash as well as
by hue, and returns an empty string where there is nothing to draw: the page then says so in text
instead of showing an empty frame.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audits.report.curves import FPR_FLOOR, resolution, tpr_at
from audits.report.frame import Axis, Frame, fitted, stroke
from audits.report.svg import MUTED, SERIES
from audits.report.text import decimal, interval, measure

_WIDTH = 4.9
"""Inches: a phone shows it in its own size, a screen two beside each other."""
_DASHES = ((), (5, 1.6), (1.2, 1.4), (6, 1.5, 1.2, 1.5))
_DOTTED = 25
"""Points up to which each is marked."""
_ROW = 0.16
"""Inches of a row of the legend."""
_RATES = tuple(
    zip((1e-4, 1e-3, 1e-2, 1e-1, 1.0), ("0.01%", "0.1%", "1%", "10%", "100%"), strict=True)
)


def _line(place: int) -> str:
    """How the line of a series looks."""
    return stroke(SERIES[place % len(SERIES)], 1.7, _DASHES[place % len(_DASHES)])


def _shorten(name: str, limit: int) -> str:
    return name if len(name) <= limit else f"{name[: limit - 1].rstrip()}…"


def roc_chart(findings: Sequence[Mapping[str, Any]]) -> str:
    """Draws log-log ROC curves, one line per finding.

    Log axes show the corner that matters, where an attacker is nearly always right about a few
    people; a linear ROC hides it. A line starts at the smallest false-positive rate its number of
    negatives can resolve, never further left.

    Args:
        findings: entries of the report's ``findings``; those without a curve are left out.

    Returns:
        SVG, or an empty string where no finding has a curve.
    """
    drawn = [finding for finding in findings if finding.get("roc")]
    if not drawn:
        return ""
    drawn.sort(key=lambda finding: -(finding.get("auc") or 0.0))
    several = len({finding["adversary"] for finding in drawn}) > 1
    legend = [_roc_label(finding, name_adversary=several) for finding in drawn]
    below = 0.64 + _ROW * (len(drawn) + 1)
    across, up = (
        Axis(low=FPR_FLOOR, high=1.0, ticks=_RATES, name=f"{name}-positive rate (log)", log=True)
        for name in ("False", "True")
    )
    frame = Frame((_WIDTH, 3.3 + below), (0.66, below, 0.2, 0.1), across, up)
    frame.grid(across=True)
    frame.axes()
    guessing, ends = stroke(MUTED, 0.8), np.array([FPR_FLOOR, 1.0])
    frame.line(ends, ends, guessing)
    for place, finding in enumerate(drawn):
        start = max(FPR_FLOOR, min(resolution(finding), 1.0))
        rates = np.geomspace(start, 1.0, 160)
        hits = tpr_at(finding["roc"], rates.tolist())
        frame.line(rates, np.where(hits >= FPR_FLOOR, hits, np.nan), _line(place))
    looks = [*(_line(place) for place in range(len(drawn))), guessing]
    for row, (look, words) in enumerate(zip(looks, [*legend, "Guessing"], strict=True)):
        frame.sample(frame.bottom + 46 + row * _ROW * 72, look, words)
    who = ", ".join(dict.fromkeys(str(finding["adversary"]) for finding in drawn))
    told = "; ".join(legend)
    return frame.finish("roc", f"Log-log ROC curves, adversary: {who}", f"{told}.")


def _roc_label(finding: Mapping[str, Any], *, name_adversary: bool) -> str:
    """Names a curve and its AUC."""
    name = f"{finding['attack']}, {finding['adversary']}" if name_adversary else finding["attack"]
    span = interval(finding.get("auc_low"), finding.get("auc_high"))
    return f"{_shorten(name, 30)}: AUC {decimal(finding.get('auc'))} {span}".rstrip()


def utility_chart(rounds: Sequence[Mapping[str, Any]]) -> str:
    """Draws the measures of utility round by round, each line labelled at its end.

    Args:
        rounds: the report's ``utility.rounds``: ``round`` and one number per metric.

    Returns:
        SVG, or an empty string where no round was measured.
    """
    if not rounds:
        return ""
    everywhere = set(rounds[0]).intersection(*rounds) - {"round"}
    names = sorted(everywhere, key=lambda name: (-rounds[-1][name], name))
    steps = [int(row["round"]) for row in rounds]
    values = [float(row[name]) for row in rounds for name in names]
    across = fitted(steps, "Round", margin=0.02, most=5, whole=True)
    up = fitted(values or [0.0], "On held-out examples", margin=0.12, most=7)
    frame = Frame((_WIDTH, 2.6), (0.62, 0.5, 1.6, 0.12), across, up)
    frame.grid(across=False)
    frame.axes()
    for place, name in enumerate(names):
        line = np.array([float(row[name]) for row in rounds])
        dots = SERIES[place % len(SERIES)] if len(steps) <= _DOTTED else None
        frame.line(np.array(steps, dtype=np.float64), line, _line(place), dots)
    free = 1.0
    for name in names:  # highest first, each clear of the one above
        last = float(rounds[-1][name])
        at = min(float(up.share(last)), free)
        frame.beside(at, f"{measure(name)} {last:.4f}")
        free = at - 0.1
    told = "; ".join(
        f"{measure(name)} from {rounds[0][name]:.4f} in round {steps[0]} "
        f"to {rounds[-1][name]:.4f} in round {steps[-1]}"
        for name in names
    )
    return frame.finish("utility", "Utility by round", f"{told}.")
