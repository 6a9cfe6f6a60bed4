"""Numbers beside numbers, as lines of text."""

from collections.abc import Mapping, Sequence

from audits.report.text import signed, signed_span

MISSING = "-"


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


def number(value: float | str | None, digits: int) -> str:
    """A number, or that there is none."""
    return value if isinstance(value, str) else MISSING if value is None else f"{value:.{digits}f}"


def with_interval(found: Mapping[str, float | None], digits: int) -> str:
    """A mean difference, and its interval if there is one."""
    return f"{signed(found['mean'], digits)}{signed_span(found, digits)}"
