"""The report's charts, as inline SVG, small enough for a phone.

Every chart repeats its numbers in words for screen readers, tells series apart by dash and marker
as well as by hue, and returns an empty string where there is nothing to draw: the page then states
that in text instead of showing an empty frame.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from audits.report.curves import FPR_FLOOR, resolution, tpr_at
from audits.report.svg import MUTED, RULE, SERIES, canvas, finish
from audits.report.text import decimal, interval, measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 4.9
"""Width in inches: a phone shows one chart in full size, a screen two side by side."""
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)))
_MARKERS = ("o", "s", "^", "D")


def _axes(figure: "Figure", left: float, bottom: float, right: float, top: float) -> "Axes":
    """Adds axes by margins in inches, so that text has room whatever the figure's height."""
    width, height = figure.get_size_inches()
    inside = (width - left - right) / width, (height - bottom - top) / height
    return figure.add_axes((left / width, bottom / height, *inside))


def _line(place: int) -> dict[str, Any]:
    """How the line of a series looks."""
    colour, dash = SERIES[place % len(SERIES)], _DASHES[place % len(_DASHES)]
    return {"color": colour, "linestyle": dash, "linewidth": 1.7}


def _shorten(name: str, limit: int) -> str:
    return name if len(name) <= limit else f"{name[: limit - 1].rstrip()}…"


def roc_chart(findings: Sequence[Mapping[str, Any]]) -> str:
    """Draws log-log ROC curves, one line per finding.

    Log axes show the relevant corner, where an attacker is nearly always right about a few people.
    A line starts at the smallest false-positive rate its number of negatives can resolve, never
    further left.

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
    below = 0.7 + 0.19 * (len(drawn) + 1)
    with canvas(_WIDTH, 3.3 + below) as figure:
        axes = _axes(figure, 0.66, below, 0.2, 0.1)
        guessing = axes.plot([FPR_FLOOR, 1], [FPR_FLOOR, 1], color=MUTED, linewidth=0.8)
        lines = []
        for place, finding in enumerate(drawn):
            start = max(FPR_FLOOR, min(resolution(finding), 1.0))
            rates = np.geomspace(start, 1.0, 160)
            hits = tpr_at(finding["roc"], rates.tolist())
            shown = np.where(hits >= FPR_FLOOR, hits, np.nan)
            lines += axes.plot(rates, shown, **_line(place), clip_on=False)
        _log_log(axes)
        axes.legend(
            [*lines, *guessing],
            [*legend, "Guessing"],
            loc="upper left",
            bbox_to_anchor=(-0.02, -0.15),
            frameon=False,
            handlelength=2.8,
            labelspacing=0.35,
        )
        who = ", ".join(dict.fromkeys(str(finding["adversary"]) for finding in drawn))
        told = "; ".join(legend)
        return finish(figure, "roc", f"Log-log ROC curves, adversary: {who}", f"{told}.")


def _roc_label(finding: Mapping[str, Any], *, name_adversary: bool) -> str:
    """Names a curve and its AUC."""
    name = f"{finding['attack']}, {finding['adversary']}" if name_adversary else finding["attack"]
    span = interval(finding.get("auc_low"), finding.get("auc_high"))
    return f"{_shorten(name, 30)}: AUC {decimal(finding.get('auc'))} {span}".rstrip()


def _log_log(axes: "Axes") -> None:
    """Sets both axes to 0.01 % .. 100 % with plain percentages instead of powers of ten."""
    ticks = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    names = ["0.01%", "0.1%", "1%", "10%", "100%"]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(FPR_FLOOR, 1)
    axes.set_ylim(FPR_FLOOR, 1)
    axes.set_xticks(ticks, names)
    axes.set_yticks(ticks, names)
    axes.minorticks_off()
    axes.grid(color=RULE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel("False-positive rate (log)")
    axes.set_ylabel("True-positive rate (log)")


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
    with canvas(_WIDTH, 2.6) as figure:
        axes = _axes(figure, 0.62, 0.5, 1.6, 0.12)
        for place, name in enumerate(names):
            line = [float(row[name]) for row in rounds]
            marker = _MARKERS[place % len(_MARKERS)] if len(steps) <= 25 else None
            axes.plot(steps, line, **_line(place), marker=marker, markersize=3.6)
        axes.margins(x=0.02, y=0.12)
        _label_ends(
            axes, [(f"{measure(name)} {rounds[-1][name]:.4f}", rounds[-1][name]) for name in names]
        )
        axes.locator_params(axis="x", integer=True)
        axes.grid(axis="y", color=RULE, linewidth=0.5)
        axes.set_xlabel("Round")
        axes.set_ylabel("On held-out examples")
        told = "; ".join(
            f"{measure(name)} from {rounds[0][name]:.4f} in round {steps[0]} "
            f"to {rounds[-1][name]:.4f} in round {steps[-1]}"
            for name in names
        )
        return finish(figure, "utility", "Utility by round", f"{told}.")


def _label_ends(axes: "Axes", ends: Sequence[tuple[str, float]]) -> None:
    """Names lines at their ends, highest first, each clear of the one above."""
    low, high = axes.get_ylim()
    free = 1.0
    for words, value in ends:
        place = min((value - low) / (high - low), free)
        axes.text(1.02, place, words, transform=axes.transAxes, va="center", clip_on=False)
        free = place - 0.1
