"""Fed3CR's figures 6 to 9 from its studies: numbers, lines of text, and files of drawings."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from audits.reproduction.columns import in_columns
from audits.reproduction.fed3cr.choice import Chosen, Library
from audits.reproduction.fed3cr.drawing import (
    correlation_chart,
    overlap_chart,
    plugged_chart,
    varied_chart,
)
from audits.reproduction.fed3cr.paper import VARIED, Needed, Place
from audits.reproduction.fed3cr.settings import ordered
from audits.reproduction.fed3cr.tables import stacked
from audits.reproduction.files import write_drawing
from secure_fedrec.algorithms.item_tables.fed3cr_plugin import PLUG_IN
from secure_fedrec.studies.fed3cr.views import SHOWN

_MEASURES = ("hit_rate_at_10", "ndcg_at_10")


class Figure(NamedTuple):
    """One figure of one place.

    Attributes:
        values: as JSON values.
        lines: as text.
        path: of the drawing; None where no study is there.
    """

    values: dict[str, Any]
    lines: list[str]
    path: Path | None


def overlap_figure(library: Library, place: Place, out: Path) -> Figure:
    """Figure 6: how alike clients' two views rank the items."""
    found = {}
    for method, chosen in _with_views(library, place).items():
        found[library.paper.names[method]] = stacked(chosen.found, "overlap").mean(axis=0)
    means = {name: float(values.mean()) for name, values in found.items()}
    lines = [
        _head("6", place),
        *(f"{name}: mean overlap {mean:.4f}" for name, mean in means.items()),
    ]
    return _drawn("6", place, means, lines, out / "fed3cr-overlap", overlap_chart, found)


def correlation_figure(library: Library, place: Place, out: Path) -> Figure:
    """Figure 7: what the columns of one client's two tables have in common."""
    maps = {
        library.paper.names[method]: next(iter(chosen.found.values())).array("correlation")
        for method, chosen in _with_views(library, place).items()
    }
    squares = {name: float(np.mean(own**2)) for name, own in maps.items()}
    lines = [
        _head("7", place),
        *(f"{name}: mean square {value:.5f}" for name, value in squares.items()),
    ]
    stem = out / "fed3cr-correlation"
    return _drawn("7", place, squares, lines, stem, correlation_chart, maps, client=SHOWN)


def plugged_figure(library: Library, place: Place, out: Path) -> Figure:
    """Figure 8: methods without and with Fed3CR as a plug-in."""
    pairs: list[dict[str, Any]] = []
    for method in library.paper.plugged["methods"]:
        bare, more = library.best(place, method), library.best(place, f"{PLUG_IN}{method}")
        if bare is not None and more is not None:
            name = library.paper.names[method]
            pairs.append({"name": name, "bare": _figures(bare), "plugged": _figures(more)})
    return _drawn("8", place, {"pairs": pairs}, [], out / "fed3cr-plug-in", plugged_chart, pairs)


def needed_varied(library: Library, place: Place) -> list[Needed]:
    """Studies of figure 9; none before Fed3CR's own setting is known."""
    chosen = library.best(place, "fed3cr")
    if chosen is None:
        return []
    rounds = library.paper.rounds(place, VARIED)
    return [
        Needed(place, "fed3cr", ordered({**dict(chosen.setting), key: value}), seed, rounds)
        for seed in library.seeds(place, VARIED)
        for key, values in library.paper.varied["varied"].items()
        for value in values
    ]


def varied_figure(library: Library, place: Place, out: Path) -> Figure:
    """Figure 9: Fed3CR with one setting varied at a time."""
    chosen = library.best(place, "fed3cr")
    points: dict[str, list[dict[str, Any]]] = {}
    for key, values in library.paper.varied["varied"].items():
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
    lines = [_head("9", place), *in_columns(["setting", "value", "HR", "NDCG"], rows)]
    stem = out / "fed3cr-varied"
    return _drawn("9", place, {"points": points}, lines, stem, varied_chart, points)


def _with_views(library: Library, place: Place) -> dict[str, Chosen]:
    """Methods whose clients have a table of their own."""
    found = {name: library.best(place, name) for name in library.paper.overlap_methods}
    return {name: chosen for name, chosen in found.items() if chosen is not None}


def _figures(chosen: Chosen) -> dict[str, float]:
    return {name: float(np.nanmean(stacked(chosen.found, f"chosen.{name}"))) for name in _MEASURES}


def _drawn(
    number: str,
    place: Place,
    values: dict[str, Any],
    lines: list[str],
    stem: Path,
    draw: Any,
    shown: Any,
    **more: Any,
) -> Figure:
    """The figure, drawn where there is something to draw."""
    told = {"figure": number, **place._asdict(), **values}
    if not shown:
        return Figure(told, [f"{_head(number, place)} no study"], None)
    path = stem.with_name(f"{stem.name}-{place.data}-{place.protocol}.svg")
    write_drawing(path, draw(shown, place=f"{place.data}, {place.protocol}", **more))
    return Figure({**told, "drawing": str(path)}, lines, path)


def _head(number: str, place: Place) -> str:
    return f"Figure {number}, {place.data}, protocol {place.protocol}:"
