"""The users' characteristics in the plane (figures 5 and 6 of HPFL).

One panel per method, one point per user of the five clients with the most users, drawn by t-SNE of
h_u (eq. 8); crosses are centres of each client's users, a tenth as many, put through the same
t-SNE. A panel is an embedding of its own: distances inside it mean something, its axes nothing.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from audits.report.svg import INK, MUTED, SERIES, canvas, finish
from audits.reproduction.projection import embed
from secure_fedrec.core.arrays import FloatArray, IntArray

__all__ = ["characteristics_chart"]

CLIENTS = 5
_CENTRES = 0.1
_PANEL = 2.0
_LEAST = 3
_MARKERS = ("o", "s", "^", "D", "v")


def characteristics_chart(
    panels: Mapping[str, tuple[FloatArray, IntArray]], *, data: str, seed: int = 0
) -> str:
    """Draw one panel per method.

    Args:
        panels: by method, float64[U, K] characteristics and int64[U] clients.
        data: name of the data set, for the caption.
        seed: of t-SNE and of the centres.

    Returns:
        One ``<svg>`` element.
    """
    width = 0.2 + _PANEL * len(panels)
    with canvas(width, _PANEL + 0.6) as figure:
        for place, (method, (hidden, clients)) in enumerate(panels.items()):
            axes = figure.add_axes(
                (
                    (0.1 + place * _PANEL) / width,
                    0.28 / (_PANEL + 0.6),
                    (_PANEL - 0.1) / width,
                    _PANEL / (_PANEL + 0.6),
                )
            )
            axes.set_title(method, fontsize=8.5, color=INK)
            axes.set_xticks([])
            axes.set_yticks([])
            _panel(axes, hidden, clients, seed)
        figure.text(
            0.5, 0.03, f"{data}: t-SNE of users, colour is client", color=MUTED, ha="center"
        )
        told = f"Users of {CLIENTS} clients on {data}, one point each, by method: " + ", ".join(
            panels
        )
        return finish(figure, "characteristics", "User characteristics by t-SNE", told)


def _panel(axes: Any, hidden: FloatArray, clients: IntArray, seed: int) -> None:
    numbers, counts = np.unique(clients, return_counts=True)
    largest = numbers[np.argsort(-counts, kind="stable")][:CLIENTS]
    centres = [_centres(hidden[clients == client], seed) for client in largest]
    users = [hidden[clients == client] for client in largest]
    points = np.concatenate([*users, *centres])
    if len(points) < _LEAST or np.ptp(points, axis=0).max() == 0:
        axes.text(0.5, 0.5, "nothing to tell apart", color=MUTED, ha="center", va="center")
        return
    plane = np.split(embed(points, seed=seed), np.cumsum([len(p) for p in (*users, *centres)])[:-1])
    for place in range(len(largest)):
        colour, marker = SERIES[place % len(SERIES)], _MARKERS[place % len(_MARKERS)]
        axes.scatter(*plane[place].T, s=4, color=colour, marker=marker, linewidths=0)
        axes.scatter(*plane[len(largest) + place].T, s=14, color=colour, marker="x", linewidths=0.8)


def _centres(users: FloatArray, seed: int) -> FloatArray:
    from secure_fedrec.algorithms.hpfl.drafts import cluster_centres  # noqa: PLC0415  likewise

    return cluster_centres(users, _CENTRES, seed=seed)
