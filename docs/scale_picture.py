"""Draws docs/scale.svg: what one masked sum costs, measured and foretold, from docs/scale.json.

That file is what ``python -m benchmarks scale --json`` prints, in half an hour on two cores. Run
from the repository: ``python docs/scale_picture.py``.
"""

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
RESULTS, OUTPUT = HERE / "scale.json", HERE / "scale.svg"
_STYLES = {"curious": ("-", "honest-but-curious server"), "active": ("--", "active server")}
_PANELS = (
    ("client_seconds", "a client, CPU seconds", 1.0),
    ("server_seconds", "the server, CPU hours", 3600.0),
    ("client_bytes_up", "a client sends, MB", 1e6),
    ("client_bytes_down", "a client receives, MB", 1e6),
)


def main() -> None:
    """Draw it."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    figure = Figure(figsize=(9, 6), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    for axes, (name, title, unit) in zip(panels.flat, _PANELS, strict=True):
        _draw(axes, found, name, unit)
        axes.set_title(title, fontsize="medium", loc="left")
    for axes in panels[1]:
        axes.set_xlabel("clients in one sum")
    panels[0][0].legend(frameon=False, fontsize="small")
    figure.savefig(OUTPUT, metadata={"Date": None})


def _draw(axes: Axes, found: dict[str, Any], name: str, unit: float) -> None:
    for adversary, (style, label) in _STYLES.items():
        rows = [row for row in found["plans"] if row["adversary"] == adversary]
        counts = [row["clients"] for row in rows]
        values = [row[name] / unit for row in rows]
        axes.plot(counts, values, style, color="tab:blue", label=f"plan, {label}")
    counts = [row["clients"] for row in found["rows"]]
    values = [row["measured"][name] / unit for row in found["rows"]]
    axes.plot(counts, values, "o", color="tab:orange", label="measured, honest-but-curious")
    axes.set(xscale="log", yscale="log")
    axes.grid(visible=True, which="major", alpha=0.3)


if __name__ == "__main__":
    main()
