"""Draws docs/dp-curve.svg: error against epsilon, with the number of noised rounds best at each.

Biases alone (rank 0), otherwise the settings of ``audits/configs/skellam-ml100k.toml``. Run from
the repository: ``python docs/dp_curve.py`` with SECURE_FEDREC_DATA set; only the data sets named
behind it, if any, are measured. Every run that was measured is a line of docs/dp-curve.csv and is
not measured again; without that file all are, in an hour.
"""

import csv
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tqdm import tqdm

from audits.config import load_config
from audits.run.build import build_federation
from audits.systems.pmf import Ratings, load_ratings
from secure_fedrec.engines import LocalEngine
from secure_fedrec.wire import Meter, Wire

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
ROUNDS = {"ml-100k": (1, 2, 5, 10, 20), "ml-1m": (1, 5, 10)}
FOLDS = range(5)
SURVIVING = 0.95
"""Share of the clients in the smallest sum that may be opened."""

HERE = Path(__file__).parent
PRESET = HERE.parent / "audits" / "configs" / "skellam-ml100k.toml"
RESULTS, OUTPUT = HERE / "dp-curve.csv", HERE / "dp-curve.svg"
_STYLES = {"user mean": ":", "user mean + item bias": "--"}


class Case(NamedTuple):
    """One run."""

    data: str
    epsilon: float
    rounds: int
    fold: int


def cases() -> list[Case]:
    """All runs."""
    return [
        Case(data, epsilon, rounds, fold)
        for data, counts in ROUNDS.items()
        for rounds in counts
        for fold in FOLDS
        for epsilon in EPSILONS
    ]


def measure(case: Case) -> float:
    """RMSE on the held-out ratings after the last round."""
    ratings = _ratings(case.data)
    settings = {
        "data.name": case.data,
        "algorithm.rounds": case.rounds,
        "protection.epsilon": case.epsilon,
        "protection.min_survivors": int(SURVIVING * ratings.table.n_clients),
        "recording.payload_rounds": [1],
    }
    config = load_config(PRESET, settings)
    federation = build_federation(config, ratings.task(case.fold))
    algorithm, problem, _ = federation.fresh()
    engine = LocalEngine(
        algorithm=algorithm,
        stack=federation.stack,
        vault=problem.vault,
        n_rows=problem.n_rows,
        streams=federation.streams,
        wire=Wire(meter=Meter(problem.vault.n_clients)),
    )
    for _ in range(case.rounds):
        engine.run_round()
    if problem.evaluate is None:
        raise ValueError("nothing is held out")
    return float((problem.evaluate(engine.public, engine.vault) or {})["rmse"])


def measured(names: Collection[str]) -> dict[Case, float]:
    """Every run on the data sets named; those in the file as they are."""
    found: dict[Case, float] = {}
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            for data, epsilon, rounds, fold, error in csv.reader(file):
                found[Case(data, float(epsilon), int(rounds), int(fold))] = float(error)
    for case in tqdm([case for case in cases() if case not in found and case.data in names]):
        found[case] = measure(case)
        with RESULTS.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow([*case, f"{found[case]:.5f}"])
    return found


def mean_errors(found: dict[Case, float], data: str) -> dict[int, list[float]]:
    """Mean over the folds, by number of rounds, for each epsilon."""
    return {
        rounds: [
            float(np.mean([found[Case(data, epsilon, rounds, fold)] for fold in FOLDS]))
            for epsilon in EPSILONS
        ]
        for rounds in ROUNDS[data]
    }


def trivial(data: str) -> dict[str, float]:
    """Mean error of the trivial rules over the same folds."""
    folds = [_ratings(data).task(fold).facts.baselines for fold in FOLDS]
    return {
        name: float(np.mean([rules[name].figures["rmse"] for rules in folds])) for name in folds[0]
    }


def write_table(data: str, errors: dict[int, list[float]], rules: dict[str, float]) -> None:
    """The figures behind the drawing, as Markdown."""
    print(f"\n{data}: mean RMSE of {len(FOLDS)} folds\n")
    print("| noised rounds |" + "".join(f" epsilon {epsilon:g} |" for epsilon in EPSILONS))
    print("|---|" + "---|" * len(EPSILONS))
    best = [min(column) for column in zip(*errors.values(), strict=True)]
    for rounds, row in errors.items():
        cells = (
            f" **{value:.4f}** |" if value == least else f" {value:.4f} |"
            for value, least in zip(row, best, strict=True)
        )
        print(f"| {rounds} |" + "".join(cells))
    print("\n" + ", ".join(f"{name} {value:.4f}" for name, value in rules.items()))


def draw_panel(axes: Axes, data: str, errors: dict[int, list[float]]) -> None:
    """One data set: the best number of rounds, one round, and trivial rules as lines."""
    counts = list(errors)
    table = np.array([errors[rounds] for rounds in counts])
    best = table.argmin(axis=0)
    axes.plot(EPSILONS, errors[1], "s--", color="#d55e00", label="one noised round")
    axes.plot(EPSILONS, table.min(axis=0), "o-", color="#0072b2", label="best number of rounds")
    for epsilon, value, which in zip(EPSILONS, table.min(axis=0), best, strict=True):
        axes.annotate(
            str(counts[which]),
            (epsilon, value),
            textcoords="offset points",
            xytext=(0, -13),
            ha="center",
            color="#0072b2",
        )
    rules = trivial(data)
    write_table(data, errors, rules)
    for name, style in _STYLES.items():
        axes.axhline(rules[name], linestyle=style, color="#333333", label=f"{name}, no noise")
    axes.margins(y=0.1)
    axes.set_xscale("log", base=2)
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.set_xlabel("epsilon of the whole run (user level, delta = 1e-5)")
    axes.set_title(data, loc="left")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def draw(found: dict[Case, float]) -> None:
    """Both data sets side by side."""
    figure = Figure(figsize=(9.6, 4.4), layout="constrained")
    panels = figure.subplots(1, len(ROUNDS))
    for axes, data in zip(panels, ROUNDS, strict=True):
        draw_panel(axes, data, mean_errors(found, data))
    panels[0].set_ylabel("RMSE on held-out ratings, mean of 5 folds")
    panels[1].legend()
    figure.suptitle("Skellam noise in masked sums: numbers are noised rounds", x=0.01, ha="left")
    figure.savefig(OUTPUT, metadata={"Date": None})


@cache
def _ratings(data: str) -> Ratings:
    config = load_config(PRESET, {"data.name": data})
    return load_ratings(config.data, config.algorithm, seed=config.seed, data_dir=None)


if __name__ == "__main__":
    results = measured(sys.argv[1:] or list(ROUNDS))
    if all(case in results for case in cases()):
        draw(results)
