"""FedDMF's figures: bars of methods (5), lines along what is varied (6 to 8)."""

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from audits.report.svg import RULE, SERIES, canvas, finish
from audits.reproduction.feddmf.tables import SIDES
from secure_fedrec.studies.feddmf.quality import KINDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLES = {"within": "own items (training)", "across": "items of others (testing)"}


def figure_chart(values: Mapping[str, Any], *, apart: bool) -> str:
    """Draw F1 at the tuned threshold, own items to the left and items of others to the right.

    Args:
        values: as ``tables.figure_values`` gives them.
        apart: whether organisations are drawn apart.

    Returns:
        One ``<svg>`` element.
    """
    told: list[str] = []
    with canvas(7.6, 3.2) as figure:
        for place, side in enumerate(SIDES):
            axes = figure.add_axes((0.07 + place * 0.34, 0.24, 0.29, 0.66))
            axes.set_title(_TITLES[side], fontsize=8.5)
            if values["varied"] is None:
                _bars(axes, values, side, told)
            else:
                _lines(axes, values, side, told, apart=apart)
                axes.set_xlabel(values["varied"])
            axes.grid(axis="y", color=RULE, linewidth=0.6)
        figure.axes[0].set_ylabel("F1")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.72, 0.92), frameon=False)
        title = f"F1 of FedDMF, figure {values['figure']}: {values['title']}"
        return finish(figure, "f1", title, "; ".join(told))


def _bars(axes: "Axes", values: Mapping[str, Any], side: str, told: list[str]) -> None:
    for place, point in enumerate(values["points"]):
        found = point["figures"][KINDS[0]][side]["tuned"]
        colour = SERIES[place % len(SERIES)]
        hatch = "//" if place >= len(SERIES) else None
        label = point["method"]
        axes.bar(place, found["mean"], 0.75, color=colour, hatch=hatch, label=label)
        told.append(f"{label}, {_TITLES[side]}: {found['mean']:.3f}")
    axes.set_xticks([])


def _lines(
    axes: "Axes", values: Mapping[str, Any], side: str, told: list[str], *, apart: bool
) -> None:
    curves: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for point in values["points"]:
        if apart:
            for place, own in enumerate(point["organisations"]):
                name = f"{point['method']}, organisation {place + 1}"
                curves[name].append((point["at"], own[side]["mean"]))
        else:
            found = point["figures"][KINDS[0]][side]["tuned"]
            curves[point["method"]].append((point["at"], found["mean"]))
    for place, (name, own) in enumerate(curves.items()):
        along, heights = zip(*sorted(own), strict=True)
        axes.plot(along, heights, marker="o", color=SERIES[place % len(SERIES)], label=name)
        told.append(f"{name}, {_TITLES[side]}: " + ", ".join(f"{h:.3f}" for h in heights))
