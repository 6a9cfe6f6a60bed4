"""Draws docs/scale.svg: what one masked sum costs, measured and foretold, from docs/scale.json.

That file is what ``python -m benchmarks scale --json`` prints, in an hour on two busy cores. Run
from the repository: ``python docs/scale_picture.py``; it prints the tables of the page as well.
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
    ("client_seconds", "a client, CPU seconds", 1.0, "linear"),
    ("server_seconds", "the server, CPU hours", 3600.0, "log"),
    ("client_bytes_up", "a client sends, MB", 1e6, "linear"),
    ("client_bytes_down", "a client receives, MB", 1e6, "log"),
)


def main() -> None:
    """Draw it."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    print("\n".join([*planned(found), "", *measured(found)]))
    figure = Figure(figsize=(9, 6), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    for axes, (name, title, unit, scale) in zip(panels.flat, _PANELS, strict=True):
        _draw(axes, found, name, unit)
        axes.set(xscale="log", yscale=scale)
        if scale == "linear":
            axes.set_ylim(bottom=0)
        axes.set_title(title, fontsize="medium", loc="left")
    for axes in panels[1]:
        axes.set_xlabel("clients in one sum")
    panels[0][1].legend(frameon=False, fontsize="small")
    figure.savefig(OUTPUT, metadata={"Date": None})


def planned(found: dict[str, Any]) -> list[str]:
    """Rows of the page's first table: a curious, an active server."""
    rows = []
    for curious, active in zip(*(_plans(found, name) for name in _STYLES), strict=True):
        n, both = curious["clients"], (curious, active)
        cells = [
            f"10^{len(str(n)) - 1}",
            " / ".join(str(each["neighbours"]) for each in both),
            " / ".join(f"{each['client_seconds']:.3f}" for each in both),
            " / ".join(_size(each["client_bytes_up"]) for each in both),
            " / ".join(_size(each["client_bytes_down"]) for each in both),
            " / ".join(_seconds(each["server_seconds"]) for each in both),
            _size(n * active["client_bytes_up"]),
            _size(n * active["client_bytes_down"]),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def measured(found: dict[str, Any]) -> list[str]:
    """Rows of the second: measured, and in brackets planned."""
    rows = []
    for row in found["rows"]:
        told, plan = row["measured"], row["planned"]
        cells = [
            f"10^{len(str(row['clients'])) - 1}",
            f"{told['client_seconds']:.3f} ({plan['client_seconds']:.3f})",
            f"{_seconds(told['server_seconds'])} ({_seconds(plan['server_seconds'])})",
            f"{_size(told['client_bytes_up'])} ({_size(plan['client_bytes_up'])})",
            f"{_size(told['client_bytes_down'])} ({_size(plan['client_bytes_down'])})",
            _size(told["server_memory_bytes"]),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _plans(found: dict[str, Any], adversary: str) -> list[dict[str, Any]]:
    return [row for row in found["plans"] if row["adversary"] == adversary]


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _size(value: float) -> str:
    unit, name = next(
        (unit, name)
        for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
        if value >= unit
    )
    return f"{value / unit:.3g} {name}"


def _draw(axes: Axes, found: dict[str, Any], name: str, unit: float) -> None:
    for adversary, (style, label) in _STYLES.items():
        rows = _plans(found, adversary)
        counts = [row["clients"] for row in rows]
        values = [row[name] / unit for row in rows]
        axes.plot(counts, values, style, color="tab:blue", label=f"plan, {label}")
    counts = [row["clients"] for row in found["rows"]]
    values = [row["measured"][name] / unit for row in found["rows"]]
    axes.plot(counts, values, "o", color="tab:orange", label="measured, honest-but-curious")
    axes.grid(visible=True, which="major", alpha=0.3)


if __name__ == "__main__":
    main()
