"""The report's four charts, as inline SVG.

Every chart repeats its numbers in words for screen readers, tells series apart by dash and marker
as well as by hue, and returns an empty string where there is nothing to draw: the page then says
so in text instead of showing an empty frame.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from audits.report.curves import FPR_FLOOR, resolution, tpr_at
from audits.report.points import leakage_label, leakage_point
from audits.report.svg import INK, MUTED, RULE, SERIES, canvas, finish
from audits.report.text import byte_size, count, decimal, interval, measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: the full width, and the leakage chart's margins for names and for numbers.
_WIDTH, _LABELS, _VALUES = 7.6, 2.25, 1.55
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)))
_MARKERS = ("o", "s", "^", "D")
_PRIOR: dict[str, Any] = {
    "marker": "D",
    "markersize": 6.2,
    "markerfacecolor": "none",
    "markeredgecolor": SERIES[1],
    "markeredgewidth": 1.2,
}
_DOT: dict[str, Any] = {"marker": "o", "markersize": 5.5, "color": SERIES[0]}
_ABOVE: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": 2}
_ABOVE |= {"frameon": False, "borderaxespad": 0.1}


def _axes(figure: "Figure", left: float, bottom: float, right: float, top: float) -> "Axes":
    """Adds axes by margins in inches, so text keeps its room whatever the figure's height."""
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
    height = max(3.6, 0.75 + 0.4 * (len(drawn) + 1))
    with canvas(_WIDTH, height) as figure:
        axes = _axes(figure, 0.66, 0.52 + height - 3.6, _WIDTH - 4.06, 0.1)
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
            bbox_to_anchor=(1.04, 1.02),
            frameon=False,
            handlelength=2.8,
            labelspacing=0.9,
        )
        who = ", ".join(dict.fromkeys(str(finding["adversary"]) for finding in drawn))
        told = "; ".join(label.replace("\n", ": ") for label in legend)
        return finish(figure, "roc", f"Log-log ROC curves, adversary: {who}", f"{told}.")


def _roc_label(finding: Mapping[str, Any], *, name_adversary: bool) -> str:
    """Names a curve and its AUC, on two lines."""
    name = f"{finding['attack']}, {finding['adversary']}" if name_adversary else finding["attack"]
    span = interval(finding.get("auc_low"), finding.get("auc_high"))
    return f"{_shorten(name, 34)}\nAUC {decimal(finding.get('auc'))} {span}".rstrip()


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


def leakage_chart(findings: Sequence[Mapping[str, Any]]) -> str:
    """Draws one row per attack and adversary: AUC, its interval, and what the prior alone gives.

    A game that has no AUC of a rated set is drawn by its own measure, which its label names. Rows
    without either stay in the chart and say why, so a missing dot is never read as safety.

    Args:
        findings: the report's ``findings``.

    Returns:
        SVG, or an empty string where there are no findings.
    """
    if not findings:
        return ""
    adversaries = list(dict.fromkeys(str(finding["adversary"]) for finding in findings))
    rows: list[tuple[str, Mapping[str, Any] | None]] = []
    for adversary in adversaries:
        rows.append((adversary, None))
        rows.extend((leakage_label(f), f) for f in findings if f["adversary"] == adversary)
    values = [
        float(value)
        for finding in findings
        if (point := leakage_point(finding)) is not None
        for value in (point.value, point.low, point.prior)
        if value is not None
    ]
    left = min(0.5, math.floor(min(values, default=0.5) * 20) / 20)
    with canvas(_WIDTH, 0.85 + 0.25 * len(rows)) as figure:
        axes = _axes(figure, _LABELS, 0.5, _VALUES, 0.3)
        axes.set_xlim(left, 1.0)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.vlines(0.5, -0.6, len(rows) - 0.4, color=MUTED, linewidth=0.8)
        for place, (name, finding) in enumerate(rows):
            _leakage_row(axes, place, name, finding)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=RULE, linewidth=0.5)
        axes.set_axisbelow(True)
        other = any(":" in name for name, finding in rows if finding is not None)
        more = "; other measures beside their chance" if other else ""
        axes.set_xlabel(f"AUC: 0.5 is guessing, 1 is certainty{more}")
        _leakage_key(axes)
        told = "; ".join(_leakage_words(finding) for finding in findings)
        return finish(figure, "leakage", "Leakage by attack and adversary", f"{told}.")


def _leakage_row(axes: "Axes", place: int, name: str, finding: Mapping[str, Any] | None) -> None:
    """Draws one line of the leakage chart; without a finding it is an adversary's heading."""
    beside = axes.get_yaxis_transform()  # x in axes widths, y in rows: the margins hold the text
    heading = finding is None
    axes.text(
        -_LABELS / (_WIDTH - _LABELS - _VALUES),
        place,
        _shorten(name, 40 if heading else 34),
        transform=beside,
        va="center",
        color=INK,
        fontweight="bold" if heading else "normal",
    )
    if finding is None:
        return
    point = leakage_point(finding)
    if point is None:
        measured = finding["status"] == "measured"
        words = "no AUC for this game" if measured else "not applicable"
        axes.text(1.02, place, words, transform=beside, va="center", color=MUTED)
        return
    low, high = point.low, point.high
    if low is not None and high is not None:
        axes.plot([low, high], [place, place], color=SERIES[0], linewidth=2.2, clip_on=False)
    axes.plot([point.value], [place], **_DOT, clip_on=False)
    if point.prior is not None:
        axes.plot([point.prior], [place], **_PRIOR, clip_on=False)
    words = f"{decimal(point.value)} {interval(low, high)}"
    axes.text(1.02, place, words, transform=beside, va="center", color=INK)


def _leakage_key(axes: "Axes") -> None:
    """Explains the two marks above the chart."""
    marks = axes.plot([], [], **_DOT, linewidth=2.2)
    marks += axes.plot([], [], **_PRIOR, linestyle="none")
    axes.legend(marks, ["attack, 95% interval", "prior alone"], **_ABOVE)


def _leakage_words(finding: Mapping[str, Any]) -> str:
    """Says one row of the leakage chart in words."""
    name = f"{finding['attack']} by {finding['adversary']}"
    point = leakage_point(finding)
    if point is None:
        return f"{name}: {'no AUC' if finding['status'] == 'measured' else 'not applicable'}"
    words = f"{name}: {point.name} {decimal(point.value)}"
    if point.prior is not None:
        words += f", prior {decimal(point.prior)}"
    return words


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
        axes = _axes(figure, 0.62, 0.5, 1.25, 0.12)
        for place, name in enumerate(names):
            line = [float(row[name]) for row in rounds]
            marker = _MARKERS[place % len(_MARKERS)] if len(steps) <= 25 else None
            axes.plot(steps, line, **_line(place), marker=marker, markersize=3.6)
            axes.annotate(
                f"{measure(name)} {line[-1]:.4f}",
                (steps[-1], line[-1]),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                annotation_clip=False,
            )
        axes.margins(x=0.02, y=0.12)
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


def bytes_chart(cost: Mapping[str, Any]) -> str:
    """Draws mean bytes per round for one party of each role, up and down, on a log axis.

    A server moves as many bytes as all its clients together, so a linear axis would show one bar;
    dots rather than bars, because a bar on a log axis has no honest length.

    Args:
        cost: the report's ``cost``.

    Returns:
        SVG, or an empty string where no role was counted.
    """
    roles = cost["roles"]
    if not roles:
        return ""
    sent = [float(role["bytes_up_per_round"]) for role in roles]
    received = [float(role["bytes_down_per_round"]) for role in roles]
    with canvas(_WIDTH, 0.95 + 0.36 * len(roles)) as figure:
        axes = _axes(figure, 1.75, 0.5, 2.05, 0.3)
        _byte_axis(axes, [*sent, *received])
        axes.set_ylim(len(roles) - 0.5, -0.5)
        rows = range(len(roles))
        # A role that moved nothing in one direction has no place on a log axis; the text says 0 B.
        series = (("up", sent, SERIES[0], "o"), ("down", received, SERIES[1], "s"))
        for name, line, colour, marker in series:
            kept = [row for row in rows if line[row] > 0]
            values = [line[row] for row in kept]
            axes.scatter(values, kept, color=colour, marker=marker, s=30, label=name)
        both = zip(sent, received, strict=True)
        moved = [f"{byte_size(up)} up, {byte_size(down)} down" for up, down in both]
        for row, words in enumerate(moved):
            axes.text(1.03, row, words, transform=axes.get_yaxis_transform(), va="center")
        labels = [f"{role['role']} ({count(role['parties'])})" for role in roles]
        axes.set_yticks(list(rows), labels, color=INK)
        axes.grid(axis="x", color=RULE, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.legend(**_ABOVE)
        told = "; ".join(
            f"{role['role']}: {words}" for role, words in zip(roles, moved, strict=True)
        )
        return finish(figure, "bytes", "Mean bytes per round and party", f"{told}.")


def _byte_axis(axes: "Axes", values: Sequence[float]) -> None:
    """Sets a log axis over whole powers of ten around the values, labelled 1 kB, 10 kB, ..."""
    positive = [value for value in values if value > 0] or [1.0]
    first = max(0, math.floor(math.log10(min(positive)) - 0.15))
    last = math.ceil(math.log10(max(positive)) + 0.15)
    ticks = [10.0**power for power in range(first, last + 1)]
    axes.set_xscale("log")
    axes.set_xlim(ticks[0] / 1.2, ticks[-1])
    axes.set_xticks(ticks, [byte_size(tick).replace(".00", "").replace(".0", "") for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("Mean bytes per round and party (log)")
