"""FURL's table 3 and ours, the gains of personalisation, and the learning curves, as JSON values.

Everything is measured twice: at the epoch that validation chose ("best") and at the last one. A
gain is taken seed by seed, between studies of the same split, and then averaged.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from audits.reproduction.furl.paper import TABLE, FURLPaper, PaperTask
from audits.reproduction.furl.studies import Needed, Studies, studies_of
from audits.reproduction.seeds import deviation, t_interval

POINTS: Final = ("best", "last")
"""Where a study is measured: at the epoch with the best validation result, and at the last."""

MAJORITY: Final = "majority"
"""The rule that gives every text of a user the user's most frequent class in training."""

MIXED: Final = "_mixed"
"""Ends the name of a measure on users with texts of several classes: those whom a guess by user
alone cannot always get right."""

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
            # A rule of the texts alone: every study of the seed measured the same.
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
