"""t-SNE of high-dimensional points into the plane, as papers draw their users."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from audits.report.svg import INK, MUTED, canvas, finish
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.threads import one_thread
from secure_fedrec.errors import brought_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS: Final = ("o", "s", "^", "D", "v")
"""Colours of groups."""

_PERPLEXITY = 30.0
_LEAST = 3


def embed(points: FloatArray, *, seed: int) -> FloatArray:
    """t-SNE into the plane, on one thread: float64[n, 2]."""
    with brought_by("torch", "the t-SNE of a reproduction"):
        from sklearn.manifold import TSNE  # noqa: PLC0415  slow to import

    perplexity = min(_PERPLEXITY, (len(points) - 1) / 3)
    model = TSNE(n_components=2, perplexity=perplexity, init="pca", random_state=seed, n_jobs=1)
    with one_thread():
        return np.asarray(model.fit_transform(points), dtype=np.float64)


def distinct(points: FloatArray) -> bool:
    """Whether points float64[n, d] differ, so that they can be arranged."""
    return len(points) >= _LEAST and bool(np.ptp(points, axis=0).max() != 0)


def panels_chart(
    panels: Mapping[str, bool],
    draw: Callable[["Axes", str], None],
    *,
    side: float,
    caption: str,
    named: tuple[str, str, str],
    legend: float = 0.0,
) -> str:
    """Draw square panels side by side.

    Args:
        panels: by name, whether there is anything to draw.
        draw: draws one panel.
        side: of a panel, in inches.
        caption: below the panels.
        named: kind, title and description, as ``report.svg.finish`` takes them.
        legend: width of a legend of the first panel, in inches; 0 for none.

    Returns:
        One ``<svg>`` element.
    """
    width, height = 0.2 + side * len(panels) + legend, side + 0.6
    with canvas(width, height) as figure:
        for place, (name, filled) in enumerate(panels.items()):
            left, across = (0.1 + place * side) / width, (side - 0.1) / width
            axes = figure.add_axes((left, 0.28 / height, across, side / height))
            axes.set_title(name, fontsize=8.5, color=INK)
            axes.set_xticks([])
            axes.set_yticks([])
            if filled:
                draw(axes, name)
            else:
                axes.text(0.5, 0.5, "nothing to tell apart", color=MUTED, ha="center", va="center")
        drawn = [axes for axes in figure.axes if axes.collections]
        if legend and drawn:
            figure.legend(
                *drawn[0].get_legend_handles_labels(),
                loc="upper left",
                bbox_to_anchor=((0.15 + side * len(panels)) / width, 0.92),
                frameon=False,
                markerscale=2,
            )
        figure.text(0.1 / width, 0.03, caption, color=MUTED)
        return finish(figure, *named)
