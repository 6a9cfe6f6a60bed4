"""FURL's figures: learning curves (3) and the users' vectors in the plane (4 and 5)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from audits.report.svg import MUTED, RULE, SERIES, canvas, finish
from audits.report.text import measure as titled
from audits.reproduction.projection import MARKERS, distinct, embed, panels_chart
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.studies.furl.results import UserVectors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES: Final[tuple[Any, ...]] = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)))
_LARGEST: Final = 5  # groups that get a colour, as in figure 5
_QUARTERS: Final = ("lowest", "second", "third", "highest")
_PANEL, _LEGEND = 2.6, 2.1


class Group(NamedTuple):
    """Users that are drawn alike.

    Attributes:
        name: for the legend.
        users: bool[U], who belongs to it.
    """

    name: str
    users: BoolArray


def curves_chart(
    curves: Mapping[str, Mapping[str, Any]], names: Mapping[str, str], *, task: str, measure: str
) -> str:
    """Draw validation results by epoch: a line of means per configuration, a band of all seeds.

    Args:
        curves: as ``tables.learning_curves`` gives them.
        names: of the configurations, for the legend.
        task: for the caption.
        measure: on the vertical axis.

    Returns:
        One ``<svg>`` element.
    """
    with canvas(6.4, 3.2) as figure:
        axes = figure.add_axes((0.09, 0.14, 0.56, 0.8))
        for place, (configuration, curve) in enumerate(curves.items()):
            colour = SERIES[place % len(SERIES)]
            axes.fill_between(
                curve["epochs"], curve["low"], curve["high"], color=colour, alpha=0.18, linewidth=0
            )
            axes.plot(
                curve["epochs"],
                curve["mean"],
                color=colour,
                linestyle=_DASHES[place % len(_DASHES)],
                marker="." if len(curve["epochs"]) == 1 else None,
                linewidth=1.4,
                label=names[configuration],
            )
        axes.set_xlabel("epoch")
        axes.set_ylabel(f"{titled(measure)} in validation")
        axes.grid(axis="y", color=RULE, linewidth=0.6)
        if curves:
            figure.legend(loc="upper left", bbox_to_anchor=(0.67, 0.94), frameon=False)
        figure.text(0.67, 0.14, f"{task}; bands span the seeds", color=MUTED)
        told = "; ".join(
            f"{names[each]} ends at {curve['mean'][-1]:.3f} after {curve['epochs'][-1]} epochs"
            for each, curve in curves.items()
        )
        return finish(figure, "curves", f"{titled(measure)} in validation on {task}", told)


def groups_of(vectors: UserVectors, classes: Sequence[str]) -> list[Group]:
    """How users are told apart in the figure.

    Of two classes, as in figure 4, by quarters of their share of the second; of more, as in figure
    5, by the most frequent class, the largest groups by name. Files that hold no shares are told
    apart by the most frequent class.

    Args:
        vectors: of U users.
        classes: their names; numbers where a name is missing.
    """
    counts = vectors.label_counts
    if counts is not None and counts.shape[1] == 2:
        share = counts[:, 1] / counts.sum(1)
        quarter = np.searchsorted(np.quantile(share, [0.25, 0.5, 0.75]), share, side="left")
        return [
            Group(f"{name} quarter of {_name(classes, 1)}s", quarter == place)
            for place, name in enumerate(_QUARTERS)
        ]
    labels, sizes = np.unique(vectors.majority, return_counts=True)
    largest = labels[np.argsort(-sizes, kind="stable")][:_LARGEST]
    found = [Group(_name(classes, int(label)), vectors.majority == label) for label in largest]
    rest: BoolArray = ~np.isin(vectors.majority, largest)
    return [*found, Group("others", rest)] if rest.any() else found


def spaces_chart(spaces: Mapping[str, FloatArray], groups: Sequence[Group], *, task: str) -> str:
    """Draw the users' vectors in the plane, one panel per space.

    A panel is an embedding of its own: distances inside it mean something, its axes nothing.

    Args:
        spaces: by name, float64[U, d].
        groups: who is drawn alike; users of no group are left out.
        task: for the caption.

    Returns:
        One ``<svg>`` element.
    """

    def draw(axes: "Axes", name: str) -> None:
        plane = embed(spaces[name], seed=0)
        for place, group in enumerate(groups):
            rest = place >= _LARGEST
            across, up = plane[group.users].T
            axes.scatter(
                across,
                up,
                s=5,
                color=RULE if rest else SERIES[place],
                marker="." if rest else MARKERS[place],
                linewidths=0,
                label=group.name,
                zorder=1 if rest else 2,
            )

    told = f"Users of {task}, one point each, in {' and '.join(spaces)}: " + ", ".join(
        f"{group.name} {int(group.users.sum())}" for group in groups
    )
    return panels_chart(
        {name: distinct(vectors) for name, vectors in spaces.items()},
        draw,
        side=_PANEL,
        legend=_LEGEND,
        caption=f"{task}: t-SNE of user vectors",
        named=("spaces", "User vectors by t-SNE", told),
    )


def _name(classes: Sequence[str], label: int) -> str:
    return classes[label] if label < len(classes) else f"class {label}"
