"""Numbers over several seeds, and numbers beside numbers as lines of text."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from audits.report.text import signed, signed_span
from secure_fedrec.core.special import stdtrit

MISSING: Final = "-"

Cells: TypeAlias = Mapping[str, Callable[[Mapping[str, Any]], str]]
"""By name of a column, the function that makes its cell from a row."""

_LEVEL: Final = 0.95


def t_interval(values: Sequence[float]) -> dict[str, float | None]:
    """Mean over seeds, and its 95 % interval by Student's t.

    Args:
        values: at least one.

    Returns:
        ``mean``, and ``low`` and ``high``, which are None for a single value.
    """
    mean, spread = float(np.mean(values)), deviation(values)
    if spread is None:
        return {"mean": mean, "low": None, "high": None}
    half = float(stdtrit(len(values) - 1, (1 + _LEVEL) / 2)) * spread / math.sqrt(len(values))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def deviation(values: Sequence[float]) -> float | None:
    """Standard deviation over seeds (divisor n - 1); None for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def summary(values: Sequence[float | None]) -> dict[str, Any]:
    """``mean`` and ``deviation`` of the existing values, None without any; and all ``values``."""
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "deviation": None, "values": list(values)}
    return {"mean": float(np.mean(known)), "deviation": deviation(known), "values": list(values)}


def in_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines: the first column to the left, the others to the right.

    Args:
        header: names of the columns.
        rows: cells; as many each.
    """
    widths = [max(map(len, cells)) for cells in zip(header, *rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    ]


def table_lines(title: str, cells: Cells, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table as lines, below its title.

    Args:
        title: what it shows.
        cells: of a row.
        rows: as JSON values.
    """
    found = [[cell(row) for cell in cells.values()] for row in rows]
    return [title, *in_columns([*cells], found)]


def number(value: float | str | None, digits: int) -> str:
    """A number, or a dash if there is none."""
    return value if isinstance(value, str) else MISSING if value is None else f"{value:.{digits}f}"


def with_interval(found: Mapping[str, float | None], digits: int) -> str:
    """A mean difference, and its interval if there is one."""
    return f"{signed(found['mean'], digits)}{signed_span(found, digits)}"
