"""Draws docs/audit-scale.svg: what each step of an audit takes, from docs/audit-scale.json.

That file is what ``python -m benchmarks audit_scale --json`` prints. Run from the repository:
``python docs/audit_scale_picture.py``; it prints the table of the page as well.
"""

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
RESULTS, OUTPUT = HERE / "audit-scale.json", HERE / "audit-scale.svg"
_BASE = 1_000


def main() -> None:
    """Draw it."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    print("\n".join(table(found)))
    figure = Figure(figsize=(9, 6), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    for column, (name, other) in enumerate((("clients", "items"), ("items", "clients"))):
        rows = [row for row in found["rows"] if row[other] == _BASE]
        for line, figure_name in enumerate(("seconds", "peak_gb")):
            _draw(panels[line][column], rows, name, figure_name)
        panels[1][column].set_xlabel(f"{name}, {_BASE:,} {other}")
    panels[0][0].set_ylabel("CPU seconds")
    panels[1][0].set_ylabel("GB at the peak")
    panels[0][1].legend(frameon=False, fontsize="small")
    figure.savefig(OUTPUT, metadata={"Date": None})


def table(found: dict[str, Any]) -> list[str]:
    """The page's table: seconds, and in brackets GB, by step."""
    names = list(found["rows"][0]["steps"])
    lines = [f"| clients | items | {' | '.join(names)} | all |", "|---" * (len(names) + 3) + "|"]
    for row in found["rows"]:
        steps = row["steps"]
        whole = sum(step["seconds"] for step in steps.values())
        peak = max(step["peak_gb"] for step in steps.values())
        cells = [
            *(f"{step['seconds']:,.1f} ({step['peak_gb']:.2f})" for step in steps.values()),
            f"{whole:,.0f} ({peak:.2f})",
        ]
        lines.append(f"| {row['clients']:,} | {row['items']:,} | {' | '.join(cells)} |")
    return lines


def _draw(axes: Axes, rows: list[dict[str, Any]], name: str, figure: str) -> None:
    for step in rows[0]["steps"]:
        values = [row["steps"][step][figure] for row in rows]
        axes.plot([row[name] for row in rows], values, "o-", label=step)
    axes.set(xscale="log", yscale="log")
    axes.grid(visible=True, which="major", alpha=0.3)


if __name__ == "__main__":
    main()
