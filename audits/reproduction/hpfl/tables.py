"""A paper's table and ours, side by side; means over seeds, with 95 % intervals of differences."""

from collections.abc import Mapping, Sequence
from typing import Any

from audits.reproduction.columns import number, with_interval
from audits.reproduction.hpfl.paper import PaperTable
from audits.reproduction.hpfl.studies import Found, Needed, Studies, needed_study
from audits.reproduction.seeds import summary, t_interval
from secure_fedrec.evaluation import Rule
from secure_fedrec.studies.hpfl.settings import starts_of

_SCORES = ("accuracy", "auc", "mae", "rmse")
_NAMES = 32


def needed_studies(
    tables: Sequence[PaperTable], seeds: Sequence[int], starts: Sequence[str]
) -> list[Needed]:
    """Every study that the tables need, once; all of a seed before those of the next."""
    needed = [
        needed_study(table.data, method, seed, start)
        for seed in seeds
        for start in starts
        for table in tables
        for method in table.rows
    ]
    return list(dict.fromkeys(needed))


def compare_table(
    table: PaperTable,
    studies: Studies,
    seeds: Sequence[int],
    start: str,
    rules: Sequence[Mapping[str, Rule]] = (),
) -> dict[str, Any]:
    """One table under one start as JSON values: per method and measure the paper's number and ours.

    A study that there is not leaves a gap: its seed does not count for its method.

    Args:
        table: the paper's.
        studies: those that there are.
        seeds: of the repetitions.
        start: of training.
        rules: what trivial rules reach on the same splits, per seed.
    """
    found = _found(table, studies, seeds, start)
    values = _values(table, found)
    rows = [
        {
            "method": method,
            "seeds": sum(each is not None for each in found[method]),
            "paper": {
                **dict(zip(table.measures, printed, strict=True)),
                **dict.fromkeys(table.ours),
            },
            "ours": {measure: summary(values[method][measure]) for measure in table.every_measure},
        }
        for method, printed in table.rows.items()
    ]
    return {
        "number": table.number,
        "title": table.title,
        "data": table.data,
        "paper_data": table.paper_name,
        "start": start,
        "seeds": list(seeds),
        "rows": rows + _trivial_rows(table, rules),
        "differences": _differences(values, table),
    }


def as_lines(table: Mapping[str, Any]) -> list[str]:
    """A compared table as text: ``paper | ours``, then the paired differences."""
    measures = list(table["rows"][0]["paper"])
    seeds = len(table["seeds"])
    fewer = any(row["seeds"] < seeds for row in table["rows"])
    lines = [
        f"Table {table['number']}. {table['title']}",
        f"{table['data']} ({table['paper_data']})",
        f"start: {table['start']}; paper | ours, mean of {seeds} seed(s)"
        + (", of fewer where a number says so" if fewer else ""),
        f"{'':{_NAMES}}" + "".join(f"{measure:>18}" for measure in measures),
    ]
    for row in table["rows"]:
        cells = [
            f"{number(row['paper'][measure], 3)} | {number(row['ours'][measure]['mean'], 3)}"
            for measure in measures
        ]
        name = row["method"] if row["seeds"] == seeds else f"{row['method']} ({row['seeds']})"
        lines.append(f"{name:{_NAMES}}" + "".join(f"{cell:>18}" for cell in cells))
    lines += [
        f"{each['method']} - {each['other']}{_of(each, seeds)}: {_spans(each['measures'])}"
        for each in table["differences"]
    ]
    return lines


def compare_starts(
    table: PaperTable, studies: Studies, seeds: Sequence[int], starts: Sequence[str]
) -> dict[str, Any]:
    """What the first start does to every method, against each other one: as JSON values.

    Args:
        table: says which methods and measures.
        studies: those that there are.
        seeds: of the repetitions.
        starts: compared.
    """
    first, *others = starts
    own = _values(table, _found(table, studies, seeds, first))
    found = []
    for other in others:
        values = _values(table, _found(table, studies, seeds, other))
        found += [
            {"method": method, "start": first, "other": other, **known}
            for method in table.rows
            if first in starts_of(method)
            and (known := _known(own[method], values[method], table.measures))
        ]
    return {
        "data": table.data,
        "number": table.number,
        "seeds": list(seeds),
        "differences": found,
    }


def starts_as_lines(compared: Mapping[str, Any]) -> list[str]:
    """Compared starts as text."""
    return [
        f"{compared['data']}, {each['method']}, {each['start']} - {each['other']}"
        f"{_of(each, len(compared['seeds']))}: {_spans(each['measures'])}"
        for each in compared["differences"]
    ]


def _found(
    table: PaperTable, studies: Studies, seeds: Sequence[int], start: str
) -> dict[str, list[Found | None]]:
    return {
        method: [studies.get(needed_study(table.data, method, seed, start)) for seed in seeds]
        for method in table.rows
    }


def _values(
    table: PaperTable, found: Mapping[str, Sequence[Found | None]]
) -> dict[str, dict[str, list[float | None]]]:
    """By method and measure, one number per seed."""
    return {
        method: {
            measure: [None if each is None else _measured(each, measure) for each in own]
            for measure in table.every_measure
        }
        for method, own in found.items()
    }


def _trivial_rows(table: PaperTable, rules: Sequence[Mapping[str, Rule]]) -> list[dict[str, Any]]:
    """Rows of rules that need no model, where a measure speaks of them; the paper has none."""
    spoken_of = bool(rules) and any(measure in _SCORES for measure in table.measures)
    names = rules[0] if spoken_of else ()
    return [
        {
            "method": name,
            "seeds": len(rules),
            "paper": dict.fromkeys(table.every_measure),
            "ours": {
                measure: summary([of[name].figures.get(measure) for of in rules])
                for measure in table.every_measure
            },
        }
        for name in names
    ]


def _measured(found: Found, measure: str) -> float | None:
    """One number of a report; None where the method has no such measure."""
    report, (part, _, name) = found.report, ("test." + measure).rpartition(".")
    part = part.rpartition(".")[2]
    value = (report[part] if name in _SCORES else report["ranking"][part]).get(name)
    return None if value is None else float(value)


def _differences(
    values: Mapping[str, Mapping[str, list[float | None]]], table: PaperTable
) -> list[dict[str, Any]]:
    """One method less another, seed by seed: every seed is the same split."""
    return [
        {"method": method, "other": other, **known}
        for method, other in table.compared
        if method in values
        and other in values
        and (known := _known(values[method], values[other], table.measures))
    ]


def _known(
    one: Mapping[str, Sequence[float | None]],
    other: Mapping[str, Sequence[float | None]],
    measures: Sequence[str],
) -> dict[str, Any]:
    """Paired differences by measure, and of how many seeds; empty where no seed has both."""
    pairs = {measure: _pairs(one[measure], other[measure]) for measure in measures}
    known = {measure: t_interval(found) for measure, found in pairs.items() if found}
    return {"seeds": max(map(len, pairs.values())), "measures": known} if known else {}


def _pairs(one: Sequence[float | None], other: Sequence[float | None]) -> list[float]:
    """One less the other, of every seed under which both have a number."""
    both = zip(one, other, strict=True)
    return [a - b for a, b in both if a is not None and b is not None]


def _of(difference: Mapping[str, Any], seeds: int) -> str:
    """How many seeds a difference is of, where that is fewer than all."""
    return "" if difference["seeds"] == seeds else f" ({difference['seeds']})"


def _spans(measures: Mapping[str, Mapping[str, Any]]) -> str:
    return "; ".join(f"{measure} {with_interval(found, 4)}" for measure, found in measures.items())
