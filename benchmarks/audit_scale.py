"""``audit_scale``: what each step of an audit takes as clients, or items, become more.

The quickstart's federation on generated data (``benchmarks.audit_steps``), each size in a process
of its own. Judged: ``per_client``, CPU seconds a client of the most clients over those of the
fewest, and ``per_item``, likewise of items; a cost that is flat, or linear, is at most 1, as what
does not depend on sizes is shared.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.federations import Options
from benchmarks.measure import progress

_ROOT = Path(__file__).resolve().parents[1]
_BASE: Final = 1_000
_SIZES: Final = {True: (_BASE, 2_000), False: (_BASE, 10_000, 100_000)}
TARGETS: Final = {"per_client": "<= 1.2", "per_item": "<= 1.2"}


def run(options: Options) -> dict[str, Any]:
    """Measure every size.

    Returns:
        ``rows``: clients, items, and seconds and peak memory by step; and the judged ratios.
    """
    sizes = _SIZES[options.quick]
    asked = [*((each, _BASE) for each in sizes), *((_BASE, each) for each in sizes[1:])]
    rows = [_row(*each) for each in asked]
    most, by = sizes[-1], {(row["clients"], row["items"]): seconds_of(row) for row in rows}
    base = by[_BASE, _BASE] / _BASE
    return {
        "rows": rows,
        "per_client": by[most, _BASE] / most / base,
        "per_item": by[_BASE, most] / most / base,
        "targets": TARGETS,
    }


def seconds_of(row: Mapping[str, Any]) -> float:
    """CPU seconds of all steps."""
    return float(sum(step["seconds"] for step in row["steps"].values()))


def _row(clients: int, items: int) -> dict[str, Any]:
    progress(f"{clients} clients, {items} items")
    words = [sys.executable, "-m", "benchmarks.audit_steps", str(clients), str(items)]
    done = subprocess.run(words, cwd=_ROOT, check=True, stdout=subprocess.PIPE)  # noqa: S603
    row = {"clients": clients, "items": items, "steps": json.loads(done.stdout)}
    progress(json.dumps(row))
    return row
