"""Fed3CR's figures: overlap (6), correlation maps (7), the plug-in (8), what is varied (9)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from audits.report.svg import INK, MUTED, RULE, SERIES, canvas, finish
from secure_fedrec.core.arrays import FloatArray

_BINS: Final = 25
_QUIET: Final = 0.003
_MEASURES: Final = {"hit_rate_at_10": "HR@10", "ndcg_at_10": "NDCG@10"}


def overlap_chart(values: Mapping[str, FloatArray], *, place: str) -> str:
    """Densities of clients' overlap: float64[n] by method (figure 6)."""
    most = max(float(own.max()) for own in values.values())
    edges = np.linspace(0, max(most, 0.05), _BINS + 1)
    with canvas(5.4, 3.0) as figure:
        axes = figure.add_axes((0.11, 0.16, 0.85, 0.76))
        for colour, (name, own) in zip(SERIES, values.items(), strict=False):
            heights, _ = np.histogram(own, bins=edges, density=True)
            axes.stairs(heights, edges, color=colour, fill=True, alpha=0.35)
            axes.stairs(heights, edges, color=colour, linewidth=1.2, label=name)
        axes.set_xlabel("rank-biased overlap of both views, first 50 items")
        axes.set_ylabel("density of clients")
        axes.legend(frameon=False)
        told = "; ".join(f"{name}: mean {own.mean():.3f}" for name, own in values.items())
        return finish(figure, "overlap", f"Overlap of the two views, {place}", told)


def correlation_chart(maps: Mapping[str, FloatArray], *, place: str, client: int) -> str:
    """Correlations of the columns of both tables: float64[d, d] by method (figure 7)."""
    side, most = 2.6, max(float(np.abs(own).max()) for own in maps.values())
    width = 0.3 + side * len(maps)
    with canvas(width, side + 0.6) as figure:
        for number, (name, own) in enumerate(maps.items()):
            left = (0.2 + number * side) / width
            axes = figure.add_axes((left, 0.1, (side - 0.2) / width, (side - 0.2) / (side + 0.6)))
            shown = np.where(np.abs(own) <= _QUIET, 0.0, own)
            axes.pcolormesh(shown, cmap="RdBu_r", vmin=-most, vmax=most, rasterized=False)
            axes.set_title(f"{name}: mean square {np.mean(own**2):.4f}", fontsize=8.5, color=INK)
            axes.set_xticks([])
            axes.set_yticks([])
        figure.text(0.02, 0.02, f"{place}, client {client}; up to {most:.2f}", color=MUTED)
        told = "; ".join(f"{name}: mean square {np.mean(own**2):.5f}" for name, own in maps.items())
        return finish(figure, "correlation", f"Consensus against own table, {place}", told)


def plugged_chart(pairs: Sequence[Mapping[str, Any]], *, place: str) -> str:
    """Methods without and with the plug-in (figure 8).

    Args:
        pairs: ``name``, ``bare`` and ``plugged``, figures by measure.
        place: data set and protocol.
    """
    where = np.arange(len(pairs))
    with canvas(6.8, 3.0) as figure:
        for number, (measure, label) in enumerate(_MEASURES.items()):
            axes = figure.add_axes((0.08 + 0.47 * number, 0.16, 0.4, 0.74))
            for side, (part, name) in enumerate((("bare", "alone"), ("plugged", "with Fed3CR"))):
                heights = [pair[part][measure] for pair in pairs]
                axes.bar(where + 0.38 * side, heights, 0.36, color=SERIES[side], label=name)
            axes.set_xticks(where + 0.19, [pair["name"] for pair in pairs], fontsize=7)
            axes.set_ylabel(label)
            axes.grid(axis="y", color=RULE, linewidth=0.6)
        figure.axes[0].legend(frameon=False)
        figure.text(0.02, 0.02, place, color=MUTED)
        told = "; ".join(
            f"{pair['name']}: {pair['bare']['hit_rate_at_10']:.3f} alone, "
            f"{pair['plugged']['hit_rate_at_10']:.3f} with Fed3CR"
            for pair in pairs
        )
        return finish(figure, "plug-in", f"HR@10 and NDCG@10 of the plug-in, {place}", told)


def varied_chart(points: Mapping[str, Sequence[Mapping[str, Any]]], *, place: str) -> str:
    """Fed3CR with one setting varied at a time (figure 9).

    Args:
        points: by setting, ``value`` and figures by measure.
        place: data set and protocol.
    """
    side, told = 2.3, []
    with canvas(0.4 + side * len(points), 2.7) as figure:
        for number, (key, own) in enumerate(points.items()):
            left = (0.45 + number * side) / (0.4 + side * len(points))
            across = (side - 0.55) / (0.4 + side * len(points))
            axes = figure.add_axes((left, 0.19, across, 0.7))
            for colour, (measure, label) in zip(SERIES, _MEASURES.items(), strict=False):
                values = [point[measure] for point in own]
                axes.plot(
                    [point["value"] for point in own], values, color=colour, marker="o", label=label
                )
            name = key.rpartition(".")[2]
            axes.set_xlabel(name)
            axes.grid(axis="y", color=RULE, linewidth=0.6)
            told.append(
                f"{name}: " + ", ".join(f"{p['value']:g} {p['hit_rate_at_10']:.3f}" for p in own)
            )
        figure.axes[0].legend(frameon=False)
        figure.text(0.01, 0.02, place, color=MUTED)
        return finish(figure, "varied", f"Fed3CR by its settings, {place}", "; ".join(told))
