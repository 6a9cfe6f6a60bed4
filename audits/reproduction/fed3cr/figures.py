"""Fed3CR's figures: overlap (6), correlation maps (7), the plug-in (8), settings varied (9)."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from audits.report.svg import INK, MUTED, RULE, SERIES, canvas, finish
from audits.reproduction.engine import write_drawing
from audits.reproduction.fed3cr.choice import Chosen, Library
from audits.reproduction.fed3cr.paper import VARIED, Needed, Place
from audits.reproduction.fed3cr.search import ordered
from audits.reproduction.fed3cr.tables import stacked
from audits.reproduction.numbers import in_columns
from secure_fedrec.algorithms.item_tables.fed3cr_plugin import PLUG_IN
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.studies.fed3cr.views import SHOWN

_BINS: Final = 25
_QUIET: Final = 0.003
_MEASURES: Final = {"hit_rate_at_10": "HR@10", "ndcg_at_10": "NDCG@10"}


class Told(NamedTuple):
    """Content of a figure of one place.

    Attributes:
        values: as JSON values.
        lines: as text, below its heading.
        shown: what is drawn; empty without studies.
    """

    values: dict[str, Any]
    lines: list[str]
    shown: Any


def figure_of(
    number: str, library: Library, place: Place, out: Path
) -> tuple[dict[str, Any], list[str]]:
    """A figure of one place as JSON values and lines, drawn if there are studies."""
    tell, draw, name = FIGURES[number]
    told, lines, shown = tell(library, place)
    values = {"figure": number, **place._asdict(), **told}
    head = f"Figure {number}, {place.data}, protocol {place.protocol}:"
    if not shown:
        return values, [f"{head} no study"]
    path = out / f"fed3cr-{name}-{place.data}-{place.protocol}.svg"
    drawn = write_drawing(path, draw(shown, f"{place.data}, {place.protocol}"))
    return {**values, "drawing": drawn}, [head, *lines] if lines else []


def _overlap(library: Library, place: Place) -> Told:
    """Figure 6: how similarly a client's two item tables rank the items."""
    found = {
        library.paper.names[method]: stacked(chosen.found, "overlap").mean(axis=0)
        for method, chosen in _with_views(library, place).items()
    }
    means = {name: float(values.mean()) for name, values in found.items()}
    return Told(means, [f"{name}: mean overlap {mean:.4f}" for name, mean in means.items()], found)


def _correlation(library: Library, place: Place) -> Told:
    """Figure 7: correlations between the columns of one client's two tables."""
    maps = {
        library.paper.names[method]: next(iter(chosen.found.values())).array("correlation")
        for method, chosen in _with_views(library, place).items()
    }
    squares = {name: float(np.mean(own**2)) for name, own in maps.items()}
    lines = [f"{name}: mean square {value:.5f}" for name, value in squares.items()]
    return Told(squares, lines, maps)


def _plugged(library: Library, place: Place) -> Told:
    """Figure 8: methods without and with Fed3CR as a plug-in; its lines are in a table."""
    pairs: list[dict[str, Any]] = []
    for method in library.paper.figure8["methods"]:
        bare, more = library.best(place, method), library.best(place, f"{PLUG_IN}{method}")
        if bare is not None and more is not None:
            name = library.paper.names[method]
            pairs.append({"name": name, "bare": _figures(bare), "plugged": _figures(more)})
    return Told({"pairs": pairs}, [], pairs)


def needed_varied(library: Library, place: Place) -> list[Needed]:
    """Studies of figure 9; none before Fed3CR's own setting is known."""
    chosen = library.best(place, "fed3cr")
    if chosen is None:
        return []
    rounds = library.paper.rounds(place, VARIED)
    return [
        Needed(place, "fed3cr", ordered({**dict(chosen.setting), key: value}), seed, rounds)
        for seed in library.seeds(place, VARIED)
        for key, values in library.paper.figure9["varied"].items()
        for value in values
    ]


def _varied(library: Library, place: Place) -> Told:
    """Figure 9: Fed3CR with one setting varied at a time."""
    chosen = library.best(place, "fed3cr")
    points: dict[str, list[dict[str, Any]]] = {}
    for key, values in library.paper.figure9["varied"].items():
        for value in values if chosen is not None else ():
            setting = ordered({**dict(chosen.setting), key: value})  # type: ignore[union-attr]
            found = library.of_setting(place, "fed3cr", setting, VARIED)
            if found:
                point = {"value": value, **_figures(Chosen(setting, found))}
                points.setdefault(key, []).append(point)
    rows = [
        [key, f"{point['value']:g}", *(f"{100 * point[name]:.2f}" for name in _MEASURES)]
        for key, own in points.items()
        for point in own
    ]
    lines = in_columns(["setting", "value", "HR", "NDCG"], rows)
    return Told({"points": points}, lines, points)


def _with_views(library: Library, place: Place) -> dict[str, Chosen]:
    """Methods whose clients have a table of their own."""
    found = {name: library.best(place, name) for name in library.paper.overlap_methods}
    return {name: chosen for name, chosen in found.items() if chosen is not None}


def _figures(chosen: Chosen) -> dict[str, float]:
    return {name: float(np.nanmean(stacked(chosen.found, f"chosen.{name}"))) for name in _MEASURES}


def overlap_chart(values: Mapping[str, FloatArray], place: str) -> str:
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


def correlation_chart(maps: Mapping[str, FloatArray], place: str) -> str:
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
        figure.text(0.02, 0.02, f"{place}, client {SHOWN}; up to {most:.2f}", color=MUTED)
        told = "; ".join(f"{name}: mean square {np.mean(own**2):.5f}" for name, own in maps.items())
        return finish(figure, "correlation", f"Consensus against own table, {place}", told)


def plugged_chart(pairs: Sequence[Mapping[str, Any]], place: str) -> str:
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


def varied_chart(points: Mapping[str, Sequence[Mapping[str, Any]]], place: str) -> str:
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


FIGURES: Final[
    Mapping[str, tuple[Callable[[Library, Place], Told], Callable[[Any, str], str], str]]
] = MappingProxyType(
    {
        "6": (_overlap, overlap_chart, "overlap"),
        "7": (_correlation, correlation_chart, "correlation"),
        "8": (_plugged, plugged_chart, "plug-in"),
        "9": (_varied, varied_chart, "varied"),
    }
)
"""By number of a figure: its content, its drawing, and the name of the drawing."""
