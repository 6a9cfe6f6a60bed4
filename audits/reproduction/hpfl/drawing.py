"""The users' characteristics in the plane (figures 5 and 6 of HPFL).

One panel per method, one point per user of the five clients with the most users, drawn by t-SNE of
h_u (eq. 8); crosses are centres of each client's users, a tenth as many, put through the same
t-SNE. Each panel is a separate embedding: distances within it are meaningful, its axes are not.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from audits.report.svg import SERIES
from audits.reproduction.projection import MARKERS, distinct, embed, panels_chart
from secure_fedrec.core.arrays import FloatArray, IntArray

CLIENTS = 5
_CENTRES = 0.1
_PANEL = 2.0


def characteristics_chart(panels: Mapping[str, tuple[FloatArray, IntArray]], *, data: str) -> str:
    """Draw one panel per method.

    Args:
        panels: by method, float64[U, K] characteristics and int64[U] clients.
        data: name of the data set, for the caption.

    Returns:
        One ``<svg>`` element.
    """
    points = {method: _points(*panel) for method, panel in panels.items()}

    def draw(axes: Any, method: str) -> None:
        own = points[method]
        plane = embed(np.concatenate(own), seed=0)
        parts = np.split(plane, np.cumsum([len(part) for part in own])[:-1])
        for place in range(len(own) // 2):
            colour, marker = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
            axes.scatter(*parts[place].T, s=4, color=colour, marker=marker, linewidths=0)
            crosses = parts[len(own) // 2 + place].T
            axes.scatter(*crosses, s=14, color=colour, marker="x", linewidths=0.8)

    told = f"Users of {CLIENTS} clients on {data}, one point each, by method: " + ", ".join(panels)
    return panels_chart(
        {method: distinct(np.concatenate(own)) for method, own in points.items()},
        draw,
        side=_PANEL,
        caption=f"{data}: t-SNE of users, colour is client",
        named=("characteristics", "User characteristics by t-SNE", told),
    )


def _points(hidden: FloatArray, clients: IntArray) -> list[FloatArray]:
    """Users of the largest clients, client by client, then centres likewise."""
    from secure_fedrec.algorithms.hpfl.drafts import cluster_centres  # noqa: PLC0415  likewise

    numbers, counts = np.unique(clients, return_counts=True)
    largest = numbers[np.argsort(-counts, kind="stable")][:CLIENTS]
    users = [hidden[clients == client] for client in largest]
    return [*users, *(cluster_centres(own, _CENTRES, seed=0) for own in users)]
