"""How the report writes numbers.

The number of digits of a figure is determined only here, so a number is the same in a sentence, a
table and a chart. Two rules matter for an audit: a value that is not exactly 0 or 1 is never
rounded to it, and a value that was not measured is never printed as a number.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

from secure_fedrec.evaluation import FIGURES, LOWER_IS_BETTER

_INITIALS = {name.partition("_")[0] for name, figure in FIGURES.items() if figure.initials}

NOT_MEASURED = "not measured"
MINUS = "\N{MINUS SIGN}"


def _guarded(value: float, digits: int, unit: float, suffix: str) -> str:
    """Rounds ``value``, but never to 0 or to ``unit``."""
    step = 10.0**-digits
    if 0 < value < step / 2:
        return f"<{step:.{digits}f}{suffix}"
    if unit - step / 2 <= value < unit:
        return f">{unit - step:.{digits}f}{suffix}"
    sign = MINUS if value < 0 and round(value, digits) != 0 else ""
    return f"{sign}{abs(value):.{digits}f}{suffix}"


def decimal(value: float | None, digits: int = 3) -> str:
    """Writes a score such as an AUC: ``0.987``; ``>0.999`` where rounding would say 1."""
    return NOT_MEASURED if value is None else _guarded(float(value), digits, 1.0, "")


def percent(value: float | None, digits: int = 1) -> str:
    """Writes a share between 0 and 1 as a percentage: ``98.4%``."""
    return NOT_MEASURED if value is None else _guarded(100 * float(value), digits, 100.0, "%")


def signed(value: float | None, digits: int = 3) -> str:
    """Writes a difference with its sign: ``+0.231``."""
    if value is None:
        return NOT_MEASURED
    return f"{MINUS if value < 0 else '+'}{abs(value):.{digits}f}"


def signed_span(found: Mapping[str, float | None], digits: int) -> str:
    """Writes the interval of a difference behind it: `` [-0.1, +0.2]``, or nothing."""
    if found["low"] is None:
        return ""
    return f" [{signed(found['low'], digits)}, {signed(found['high'], digits)}]"


def interval(low: float | None, high: float | None, *, as_percent: bool = False) -> str:
    """Writes an interval as ``[low, high]``; empty without an interval."""
    if low is None or high is None:
        return ""
    write = percent if as_percent else decimal
    return f"[{write(low)}, {write(high)}]"


def count(value: float | None) -> str:
    """Writes a count with thousands separators; means keep one decimal."""
    if value is None:
        return NOT_MEASURED
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def byte_size(value: float) -> str:
    """Writes a number of bytes in decimal units, three significant digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            digits = 0 if unit == "B" or value >= 99.95 else 1 if value >= 9.995 else 2
            return f"{value:,.{digits}f} {unit}"
        value /= 1000
    return f"{value:,.2f} TB"


def duration(seconds: float) -> str:
    """Writes a wall time: ``42.3 s``, ``3 min 05 s``, ``2 h 07 min``."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def measure(name: str) -> str:
    """Writes the name of a measure of utility: ``RMSE``, ``Hit rate at 10``, ``NDCG at 10``."""
    first, _, rest = name.replace("_", " ").partition(" ")
    first = first.upper() if first in _INITIALS else first.capitalize()
    return f"{first} {rest}".rstrip()


def which_is_better(names: Iterable[str]) -> str:
    """Says whether higher or lower values of utility are better: ``lower is better``."""
    given = list(names)
    errors = [measure(name) for name in given if name in LOWER_IS_BETTER]
    others = [measure(name) for name in given if name not in LOWER_IS_BETTER]
    if errors and others:
        return f"{' and '.join(errors)}: lower is better; {' and '.join(others)}: higher is better"
    return "lower is better" if errors else "higher is better"


def gate_value(value: float | bool | None) -> str:
    """Writes what a gate measured; counts and bytes keep their digits, truths read yes or no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or abs(value) < 1000:
        return decimal(value)
    return count(value)


def round_ranges(rounds: Iterable[int]) -> str:
    """Writes round numbers as ranges: ``1–3, 7``."""
    ordered = sorted(set(rounds))
    if not ordered:
        return "none"
    breaks = [after for before, after in pairwise(ordered) if after != before + 1]
    starts = [ordered[0], *breaks]
    ends = [before for before, after in pairwise(ordered) if after != before + 1] + [ordered[-1]]
    return ", ".join(
        str(start) if start == end else f"{start}–{end}"
        for start, end in zip(starts, ends, strict=True)
    )


def capital(words: str) -> str:
    """Writes words as they begin a line."""
    return words[:1].upper() + words[1:]


def flatten(tree: Mapping[str, object], prefix: str = "") -> list[tuple[str, object]]:
    """Lists a nested mapping as dotted keys, in its own order."""
    rows: list[tuple[str, object]] = []
    for key, value in tree.items():
        rows += _flat(f"{prefix}{key}", value)
    return rows


def _flat(path: str, value: object) -> list[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        return flatten(value, f"{path}.")
    if isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        return [
            row for place, each in enumerate(value, 1) for row in _flat(f"{path}[{place}]", each)
        ]
    return [(path, value)]


def plain(value: object) -> str:
    """Writes a setting in words: ``yes``, ``none``, ``0.75``, ``1, 20``."""
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(plain(each) for each in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_UNSPEAKABLE = re.compile("[^\t\n\r -~\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def spoken(text: str) -> str:
    """Text without control characters and others that XML and HTML cannot hold."""
    return _UNSPEAKABLE.sub("\ufffd", text)
