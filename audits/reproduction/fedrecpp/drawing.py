"""Figure 2 of FedRec++: rating error by rho, for every share of clients in a round."""

from collections.abc import Mapping
from typing import Any, Final

from audits.report.svg import MUTED, RULE, SERIES, canvas, finish

_STYLES: Final = {"fedrec": ("FedRec", "o", "-"), "fedrec++": ("FedRec++", "s", (0, (5, 1.6)))}
_MEASURES: Final = {"mae": "MAE", "rmse": "RMSE"}


def shares_chart(found: Mapping[str, Any]) -> str:
    """Draw one panel per measure.

    Args:
        found: as ``tables.share_points`` gives it.

    Returns:
        One ``<svg>`` element.
    """
    points = [point for point in found["points"] if point["folds"]]
    shares = sorted({point["share"] for point in points})
    told = []
    with canvas(7.2, 3.0) as figure:
        for place, (measure, name) in enumerate(_MEASURES.items()):
            axes = figure.add_axes((0.08 + place * 0.385, 0.16, 0.3, 0.76))
            for colour, share in zip(SERIES, shares, strict=False):
                for method, (label, marker, dash) in _STYLES.items():
                    # FedRec without virtual ratings is where both begin.
                    own = [
                        (point["rho"], point["ours"][measure]["mean"])
                        for point in points
                        if point["share"] == share
                        and (point["method"] == method or not point["rho"])
                    ]
                    rhos, values = zip(*sorted(own), strict=True)
                    axes.plot(
                        rhos,
                        values,
                        color=colour,
                        linestyle=dash,
                        marker=marker,
                        markersize=3.5,
                        linewidth=1.3,
                        label=f"{label}, {share:g} n",
                    )
                    told.append(
                        f"{name} of {label} at {share:g} n: {values[0]:.4f} to {values[-1]:.4f}"
                    )
            axes.set_xlabel("rho")
            axes.set_ylabel(name)
            axes.set_xticks(sorted({point["rho"] for point in points}))
            axes.grid(axis="y", color=RULE, linewidth=0.6)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.78, 0.94), frameon=False)
        figure.text(0.785, 0.16, found["data"], color=MUTED)
        title = f"Rating error with fewer clients in a round, {found['data']}"
        return finish(figure, "shares", title, "; ".join(told))
