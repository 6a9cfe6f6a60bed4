"""HPFL's tables and ours, side by side: means over seeds, and 95 % intervals of differences.

Also what was chosen in validation, and variants of HPFL that the tables do not have: one setting
each, under every start, whose validation records chose the round.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from audits.reproduction.hpfl.paper import (
    Needed,
    PaperTable,
    Studies,
    Variants,
    needed_study,
)
from audits.reproduction.numbers import number, summary, t_interval, with_interval
from audits.reproduction.progress import Found
from secure_fedrec.evaluation import Rule
from secure_fedrec.studies.hpfl.settings import starts_of

_SCORES: Final = ("accuracy", "auc", "mae", "rmse")
_NAMES: Final = 32
_WIDE: Final = 62
_EDGES: Final = ("smallest", "largest")


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

    If a study is missing, its seed does not count for its method.

    Args:
        table: the paper's.
        studies: those that there are.
        seeds: of the repetitions.
        start: of training.
        rules: what trivial rules reach on the same splits, per seed.
    """
    values = _values(table, studies, seeds, start)
    rows = [
        {
            "method": method,
            "seeds": sum(needed_study(table.data, method, s, start) in studies for s in seeds),
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
    """Every method under the first start, compared with each other start, as JSON values.

    Args:
        table: says which methods and measures.
        studies: those that there are.
        seeds: of the repetitions.
        starts: compared.
    """
    first, *others = starts
    own = _values(table, studies, seeds, first)
    found = []
    for other in others:
        values = _values(table, studies, seeds, other)
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


def _values(
    table: PaperTable, studies: Studies, seeds: Sequence[int], start: str
) -> dict[str, dict[str, list[float | None]]]:
    """By method and measure, one number per existing study."""
    found = {
        method: [studies.get(needed_study(table.data, method, seed, start)) for seed in seeds]
        for method in table.rows
    }
    return {
        method: {
            measure: [None if each is None else _measured(each, measure) for each in own]
            for measure in table.every_measure
        }
        for method, own in found.items()
    }


def _trivial_rows(table: PaperTable, rules: Sequence[Mapping[str, Rule]]) -> list[dict[str, Any]]:
    """Rows of rules without a model, for the measures that they have; the paper lacks them."""
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
    """One number of a report; None if the method does not have such a measure."""
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
    """Difference of two methods, for every seed under which both have a number."""
    both = zip(one, other, strict=True)
    return [a - b for a, b in both if a is not None and b is not None]


def _of(difference: Mapping[str, Any], seeds: int) -> str:
    """The number of seeds behind a difference, if fewer than all."""
    return "" if difference["seeds"] == seeds else f" ({difference['seeds']})"


def _spans(measures: Mapping[str, Mapping[str, Any]]) -> str:
    return "; ".join(f"{measure} {with_interval(found, 4)}" for measure, found in measures.items())


def chosen_settings(
    tables: Sequence[PaperTable], studies: Studies, seeds: Sequence[int], start: str
) -> list[dict[str, Any]]:
    """The settings that were chosen under a start, as JSON values: one entry per data and method.

    ``edges`` counts the studies whose learning rate is the smallest or the largest that was tried:
    a wider grid might contain better values.

    Args:
        tables: say which data and methods.
        studies: those that there are.
        seeds: of the repetitions.
        start: of training.
    """
    methods = dict.fromkeys((table.data, method) for table in tables for method in table.rows)
    found = []
    for data, method in methods:
        places = {seed: needed_study(data, method, seed, start) for seed in seeds}
        chosen = [
            _chosen(studies[place].report, seed)
            for seed, place in places.items()
            if place in studies
        ]
        if chosen:
            edges = {edge: sum(each["edge"] == edge for each in chosen) for edge in _EDGES}
            found.append(
                {"data": data, "method": method, "start": start, "edges": edges, "chosen": chosen}
            )
    return found


def tuning_as_lines(tuning: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same as text."""
    lines = []
    for each in tuning:
        chosen = each["chosen"]
        rounds = ", ".join(dict.fromkeys(str(one["rounds"]) for one in chosen))
        told = "; ".join(
            f"{one['learning_rate']:g} x {one['epochs']} ({one['round']})" for one in chosen
        )
        edges = ", ".join(
            f"{edge} rate {count} of {len(chosen)}"
            for edge, count in each["edges"].items()
            if count
        )
        lines.append(
            f"{each['data']}, {each['start']}, {each['method']}, {rounds} rounds: {told}"
            + (f"; {edges}" if edges else "")
        )
    return lines and ["Chosen in validation, by seed: learning rate x epochs (round)", *lines]


def _chosen(report: Mapping[str, Any], seed: int) -> dict[str, Any]:
    settings = {trial["place"]: trial["setting"] for trial in report["trials"]}
    own = settings[report["chosen"]]
    rates = sorted({setting["learning_rate"] for setting in settings.values()})
    edge = None
    if len(rates) > 1 and own["learning_rate"] in (rates[0], rates[-1]):
        edge = _EDGES[own["learning_rate"] == rates[-1]]
    names = ("learning_rate", "epochs", "rounds", "proximal")
    return {
        "seed": seed,
        **{name: own[name] for name in names},
        "round": report["round"],
        "edge": edge,
    }


def needed_variants(
    variants: Variants, seeds: Sequence[int], starts: Sequence[str]
) -> list[Needed]:
    """Every study that the variants need."""
    needed = [
        place
        for start in starts
        for name in variants.rows
        for place in _places(variants, name, seeds, start)
    ]
    return list(dict.fromkeys(needed))


def compare_variants(
    variants: Variants, studies: Studies, seeds: Sequence[int], starts: Sequence[str]
) -> list[dict[str, Any]]:
    """The variants as JSON values: by start, the measure per seed; None where there is no study."""
    return [
        {
            "variant": name,
            "method": method,
            "grid": grid,
            variants.measure: {
                start: [
                    _reached(studies.get(place), variants.measure)
                    for place in _places(variants, name, seeds, start)
                ]
                for start in starts
            },
        }
        for name, (method, grid) in variants.rows.items()
    ]


def variants_as_lines(
    variants: Variants, compared: Sequence[Mapping[str, Any]], seeds: Sequence[int]
) -> list[str]:
    """The same as text."""
    starts = list(compared[0][variants.measure])
    shown = ", ".join(map(str, seeds))
    lines = [
        f"Variants on {variants.data}, {variants.measure} in test (validation), seed {shown}",
        f"{'':{_WIDE}}" + "".join(f"{start:>18}" for start in starts),
    ]
    for each in compared:
        cells = [", ".join(_shown(one) for one in each[variants.measure][s]) for s in starts]
        lines.append(f"{each['variant']:{_WIDE}}" + "".join(f"{cell:>18}" for cell in cells))
    return lines


def _places(variants: Variants, name: str, seeds: Sequence[int], start: str) -> list[Needed]:
    method, grid = variants.rows[name]
    return [Needed(variants.data, method, seed, start, grid) for seed in seeds]


def _reached(found: Found | None, measure: str) -> dict[str, float] | None:
    if found is None:
        return None
    return {part: float(found.report[part][measure]) for part in ("test", "validation")}


def _shown(reached: Mapping[str, float] | None) -> str:
    return "-" if reached is None else f"{reached['test']:.4f} ({reached['validation']:.4f})"
