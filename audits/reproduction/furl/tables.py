"""FURL's table 3 and ours, the gains of personalisation, and the learning curves.

Everything is measured twice: at the epoch that validation chose ("best") and at the last one. A
gain is taken seed by seed, between studies of the same split, and then averaged. Also writes all of
it as text, with remarks about the studies used.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from audits.report.text import measure as titled
from audits.report.text import signed
from audits.reproduction.furl.paper import (
    TABLE,
    FURLPaper,
    Needed,
    PaperTask,
    Stored,
    Studies,
    differences,
    studies_of,
)
from audits.reproduction.numbers import deviation, t_interval, with_interval

POINTS: Final = ("best", "last")
"""The epochs at which a study is measured: the one with the best validation result, and the
last."""

MAJORITY: Final = "majority"
"""The rule that gives every text of a user the user's most frequent class in training."""

MIXED: Final = "_mixed"
"""Ends the name of a measure on users with texts of several classes: users about whom a guess by
user alone cannot always be right."""

_NAME, _PAPER, _CELL = 42, 8, 26
_HEADS = {"best": "ours, chosen epoch", "last": "ours, last epoch"}
_STARTS = {
    "independent": "independent starts",
    "same encoder": "NOT INDEPENDENT: one seed, so both encoders start alike",
}
_TEXTS = {"same": "same texts", "another split": "another split of the same users' texts"}

_Values = Mapping[str, Mapping[int, float]]
"""Value by seed, by configuration."""


def compare_task(
    paper: FURLPaper, task: PaperTask, studies: Studies, seeds: Sequence[int]
) -> dict[str, Any]:
    """Table and gains of one task.

    Args:
        paper: names in its table, and what is compared.
        task: one of its tasks.
        studies: those that there are; seeds that lack some are left out of means and differences.
        seeds: of the repetitions.

    Returns:
        ``rows``: per configuration and measure the paper's share and ours; ``gains``: per pair of
        ``compared`` and measure the paper's difference and ours, in points (hundredths).
    """
    names = {**paper.rows, MAJORITY: "each user's majority class"}
    measured = {
        measure: {point: _values(task, names, studies, seeds, measure, point) for point in POINTS}
        for measure in [*task.measures, *(f"{each}{MIXED}" for each in task.measures)]
    }
    known = {name: found for name, found in measured.items() if any(found[POINTS[0]].values())}
    printed = {task.measures[0]: task.paper}
    return {
        "table": TABLE,
        "measures": list(known),
        "rows": [
            {
                "configuration": configuration,
                "name": name,
                "measures": {
                    measure: {
                        "paper": printed.get(measure, {}).get(configuration),
                        **{p: _summary(values[configuration]) for p, values in found.items()},
                    }
                    for measure, found in known.items()
                },
            }
            for configuration, name in names.items()
        ],
        "gains": [
            {
                "one": one,
                "other": other,
                "says": says,
                "measures": _gains(known, printed, one, other),
            }
            for one, other, says in paper.compared
            if {one, other} <= set(names)
        ],
    }


def learning_curves(
    task: PaperTask, configurations: Sequence[str], studies: Studies, seeds: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """Validation results by epoch, of the paper's measure.

    Returns:
        By configuration that has studies: how many (``seeds``), the ``epochs`` that all of them
        have measured, and the ``mean``, the lowest (``low``) and the highest (``high``) share over
        seeds at each.
    """
    name = f"validation_{task.measures[0]}"
    found = {}
    for configuration in configurations:
        own = studies_of(task, configuration, studies, seeds)
        curves = [
            {point["epoch"]: point[name] for point in study.summary["curve"] if name in point}
            for study in own
        ]
        epochs = sorted(set.intersection(*map(set, curves))) if curves else []
        if not epochs:
            continue
        values = np.array([[curve[epoch] for epoch in epochs] for curve in curves])
        found[configuration] = {
            "seeds": len(own),
            "epochs": epochs,
            "mean": values.mean(0).tolist(),
            "low": values.min(0).tolist(),
            "high": values.max(0).tolist(),
        }
    return found


def _values(
    task: PaperTask,
    configurations: Iterable[str],
    studies: Studies,
    seeds: Sequence[int],
    measure: str,
    point: str,
) -> _Values:
    """Test results of all configurations; seeds without the study or the measure are left out."""
    name = f"test_{measure}"
    found: dict[str, dict[int, float]] = {each: {} for each in configurations}
    for configuration, seed in product(found, seeds):
        stored = studies.get(Needed(task.name, configuration, seed))
        if stored is None:
            continue
        if name in stored.summary[point]:
            found[configuration][seed] = float(stored.summary[point][name])
        if name in stored.summary[MAJORITY]:
            # This rule depends only on the texts, so all studies of a seed have the same value.
            found[MAJORITY].setdefault(seed, float(stored.summary[MAJORITY][name]))
    return found


def _summary(values: Mapping[int, float]) -> dict[str, Any] | None:
    """Mean, 95 % interval and deviation over seeds, and the value of every seed."""
    if not values:
        return None
    given = list(values.values())
    by_seed = {str(seed): value for seed, value in values.items()}
    return {**t_interval(given), "deviation": deviation(given), "values": by_seed}


def _gains(
    known: Mapping[str, Mapping[str, _Values]],
    printed: Mapping[str, Mapping[str, float]],
    one: str,
    other: str,
) -> dict[str, Any]:
    """By measure, the paper's difference of two configurations and ours, in points."""
    return {
        measure: {
            "paper": _printed_gain(printed.get(measure, {}), one, other),
            **{point: _gain(values, one, other) for point, values in found.items()},
        }
        for measure, found in known.items()
    }


def _gain(values: _Values, one: str, other: str) -> dict[str, Any] | None:
    """One configuration less another in points, over the seeds that both have."""
    both = [seed for seed in values[one] if seed in values[other]]
    return _summary({seed: 100 * (values[one][seed] - values[other][seed]) for seed in both})


def _printed_gain(printed: Mapping[str, float], one: str, other: str) -> float | None:
    if one not in printed or other not in printed:
        return None
    return round(100 * (printed[one] - printed[other]), 2)


def as_lines(task: Mapping[str, Any]) -> list[str]:
    """A reproduced task as text: table, gains, similarity, notes.

    Args:
        task: as ``furl.command`` puts it together.
    """
    seeds = ", ".join(map(str, task["seeds"]))
    return [
        f"Table {task['table']} on {task['task']}; means over seed {seeds} [95 % interval]",
        f"  paper: {task['paper_data']}",
        f"  ours:  {task['our_data']}",
        f"  seeds differ in {task['between_seeds']}; the chosen epoch is the best in validation",
        *(line for measure in task["measures"] for line in ["", *_measure_lines(task, measure)]),
        "",
        *_similarity_lines(task["similarity"]),
        *(f"note: {note}" for note in task["notes"]),
    ]


def notes_on(task: PaperTask, needed: Sequence[Needed], studies: Studies) -> list[str]:
    """Deviations from the paper's file: other settings, copies, missing studies.

    Args:
        task: the task.
        needed: studies of the task that the table wants.
        studies: those that there are.
    """
    notes = []
    for configuration in dict.fromkeys(each.configuration for each in needed):
        places = [each for each in needed if each.configuration == configuration]
        own = [studies[each] for each in places if each in studies]
        notes += _settings_notes(task, own)
        missing = [str(each.seed) for each in places if each not in studies]
        if missing:
            notes.append(f"{configuration}: not run for seed {', '.join(missing)}")
        notes += [
            f"{copy.name} repeats {stored.path.name} and is not used"
            for stored in own
            for copy in stored.copies
        ]
    return notes


def _settings_notes(task: PaperTask, studies: Sequence[Stored]) -> list[str]:
    """One note per way in which studies of a configuration differ from their pinned settings."""
    ways: dict[str, list[Stored]] = defaultdict(list)
    for study in studies:
        found = differences(study, task)
        told = [f"{name} = {own!r} (pinned: {pinned!r})" for name, (own, pinned) in found.items()]
        ways["; ".join(told)].append(study)
    notes = [
        f"{', '.join(study.path.name for study in alike)}: other settings than pinned: {way}"
        for way, alike in ways.items()
        if way
    ]
    shared = [{**study.settings(), "texts.seed": None} for study in studies]
    if any(settings != shared[0] for settings in shared):
        configuration = studies[0].place.configuration
        notes.append(f"{configuration}: THE MEAN JOINS STUDIES OF DIFFERENT SETTINGS")
    return notes


def _measure_lines(task: Mapping[str, Any], measure: str) -> list[str]:
    """Rows of one measure in per cent, then the gains in points."""
    heads = "".join(f"{_HEADS[point]:>{_CELL}}" for point in POINTS)
    lines = [f"{_named(measure) + ', %':{_NAME}}{'paper':>{_PAPER}}{heads}"]
    for row in task["rows"]:
        found = row["measures"][measure]
        paper = "-" if found["paper"] is None else f"{100 * found['paper']:.2f}"
        cells = "".join(f"{_share(found[point]):>{_CELL}}" for point in POINTS)
        lines.append(f"{row['name']:{_NAME}}{paper:>{_PAPER}}{cells}")
    if _named(measure).startswith("AUC"):
        lines.append(
            "  (a majority class is not a score, so it does not have an AUC; see the user-only row)"
        )
    lines.append("  differences in points")
    for gain in task["gains"]:
        found = gain["measures"][measure]
        paper = "-" if found["paper"] is None else signed(found["paper"], 2)
        cells = "".join(f"{_points(found[point]):>{_CELL}}" for point in POINTS)
        pair = f"  {gain['one']} - {gain['other']}"
        lines.append(f"{pair:{_NAME}}{paper:>{_PAPER}}{cells}  {gain['says']}")
    return lines


def _similarity_lines(similarity: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["user spaces of Personalized Server and Personalized FL, correlation [95 % interval]"]
    if not similarity:
        return [*lines, "  no two studies of the same users to compare"]
    for each in similarity:
        who = f"  FL seed {each['federation_seed']}, server seed {each['server_seed']}"
        if "problem" in each:
            lines.append(f"{who}: not measured ({each['problem']})")
            continue
        lines.append(
            f"{who}: {each['correlation']:.3f} [{each['low']:.3f}, {each['high']:.3f}]; largest of "
            f"controls: users permuted {each['permuted']:.3f}, untrained {each['untrained']:.3f}"
        )
        left_out = f", {each['left_out']} never trained" if each["left_out"] else ""
        origin = f"{_STARTS[each['start']]}, {_TEXTS[each['texts']]}"
        lines.append(f"    ({origin}, {each['users']} users{left_out})")
    return lines


def _named(measure: str) -> str:
    name, mixed, _ = measure.partition(MIXED)
    return f"{titled(name)} on users of several classes" if mixed else titled(name)


def _share(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    span = "" if found["low"] is None else f" [{100 * found['low']:.2f}, {100 * found['high']:.2f}]"
    return f"{100 * found['mean']:.2f}{span}"


def _points(found: Mapping[str, Any] | None) -> str:
    return "-" if found is None else with_interval(found, 2)
