"""A paper's table and ours, side by side; means over seeds, with 95 % intervals of differences."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audits.report.text import signed
from audits.reproduction.hpfl.paper import PaperTable
from audits.reproduction.hpfl.studies import Found, Needed
from audits.reproduction.seeds import deviation, mean_interval
from secure_fedrec.evaluation import Rule

__all__ = ["as_lines", "compare_table", "needed_studies"]

COMPARED = ("hpfl", ("fedsgd", "distributed", "distributed-early", "fedavg"))
"""The paper's method, and those it is compared with seed by seed."""

_SCORES = ("accuracy", "auc", "mae", "rmse")
_DIGITS = 3
_NAMES = 32


def needed_studies(tables: Sequence[PaperTable], seeds: Sequence[int]) -> list[Needed]:
    """Every study that the tables need, once."""
    needed = [
        Needed(table.data, method, seed)
        for table in tables
        for method in table.rows
        for seed in seeds
    ]
    return list(dict.fromkeys(needed))


def compare_table(
    table: PaperTable,
    studies: Mapping[Needed, Found],
    seeds: Sequence[int],
    rules: Sequence[Mapping[str, Rule]] = (),
) -> dict[str, Any]:
    """One table as JSON values: per method and measure the paper's number and ours.

    A study that there is not leaves a gap: its seed does not count for its method.

    Args:
        table: the paper's.
        studies: those that there are.
        seeds: of the repetitions.
        rules: what trivial rules reach on the same splits, per seed.
    """
    found = {
        method: [studies.get(Needed(table.data, method, seed)) for seed in seeds]
        for method in table.rows
    }
    values = {
        method: {
            measure: [None if each is None else _measured(each, measure) for each in own]
            for measure in table.measures
        }
        for method, own in found.items()
    }
    rows = [
        {
            "method": method,
            "seeds": sum(each is not None for each in found[method]),
            "paper": dict(zip(table.measures, printed, strict=True)),
            "ours": {measure: _summary(values[method][measure]) for measure in table.measures},
        }
        for method, printed in table.rows.items()
    ]
    return {
        "number": table.number,
        "title": table.title,
        "data": table.data,
        "paper_data": table.paper_name,
        "seeds": list(seeds),
        "rows": rows + _trivial_rows(table, rules),
        "differences": _differences(values),
    }


def as_lines(table: Mapping[str, Any]) -> list[str]:
    """A compared table as text: ``paper | ours``, then the paired differences."""
    measures = list(table["rows"][0]["paper"])
    seeds = len(table["seeds"])
    fewer = any(row["seeds"] < seeds for row in table["rows"])
    lines = [
        f"Table {table['number']}. {table['title']}",
        f"{table['data']} ({table['paper_data']}); paper | ours, mean of {seeds} seed(s)"
        + (", of fewer where a number says so" if fewer else ""),
        f"{'':{_NAMES}}" + "".join(f"{measure:>18}" for measure in measures),
    ]
    for row in table["rows"]:
        cells = [
            f"{_number(row['paper'][measure])} | {_number(row['ours'][measure]['mean'])}"
            for measure in measures
        ]
        name = row["method"] if row["seeds"] == seeds else f"{row['method']} ({row['seeds']})"
        lines.append(f"{name:{_NAMES}}" + "".join(f"{cell:>18}" for cell in cells))
    for each in table["differences"]:
        spans = [
            f"{measure} {signed(found['mean'], 4)}" + _span(found)
            for measure, found in each["measures"].items()
        ]
        lines.append(f"{each['method']} - {each['other']}: " + "; ".join(spans))
    return lines


def _trivial_rows(table: PaperTable, rules: Sequence[Mapping[str, Rule]]) -> list[dict[str, Any]]:
    """Rows of rules that need no model, where a measure speaks of them; the paper has none."""
    spoken_of = bool(rules) and any(measure in _SCORES for measure in table.measures)
    names = rules[0] if spoken_of else ()
    return [
        {
            "method": name,
            "seeds": len(rules),
            "paper": dict.fromkeys(table.measures),
            "ours": {
                measure: _summary([of[name].figures.get(measure) for of in rules])
                for measure in table.measures
            },
        }
        for name in names
    ]


def _measured(found: Found, measure: str) -> float | None:
    """One number of a report; None where the method has no such measure."""
    report = found.report
    part = report["test"] if measure in _SCORES else report["ranking"]["test"]
    value = part.get(measure)
    return None if value is None else float(value)


def _summary(values: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "deviation": None, "values": list(values)}
    return {"mean": float(np.mean(known)), "deviation": deviation(known), "values": list(values)}


def _differences(values: Mapping[str, Mapping[str, list[float | None]]]) -> list[dict[str, Any]]:
    """The paper's method less each other one, seed by seed: every seed is the same split."""
    method, others = COMPARED
    found = []
    for other in others:
        if method not in values or other not in values:
            continue
        measures = {
            measure: _paired(own, values[other][measure]) for measure, own in values[method].items()
        }
        known = {measure: pair for measure, pair in measures.items() if pair is not None}
        if known:
            found.append({"method": method, "other": other, "measures": known})
    return found


def _paired(one: Sequence[float | None], other: Sequence[float | None]) -> dict[str, Any] | None:
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    return mean_interval([a - b for a, b in pairs]) if pairs else None


def _span(found: Mapping[str, Any]) -> str:
    if found["low"] is None:
        return ""
    return f" [{signed(found['low'], 4)}, {signed(found['high'], 4)}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.{_DIGITS}f}"
