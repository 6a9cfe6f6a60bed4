"""Prints what the server learns of rated sets for every form of virtual ratings and both draws.

Run from the repository: ``python docs/virtual_draws.py [DATA] [--rounds N]`` with
SECURE_FEDREC_DATA set. Ten rounds of ml-100k unless told otherwise; attacks on the first and on all
rounds. A figure is the worst over the attacks on rated sets, with item popularity at hand.
"""

import argparse
from typing import Any

import numpy as np
from tqdm import tqdm

from attacks import Finding, GroundTruth, attack_named, evaluate
from audits.config import parse_config
from audits.report.text import decimal
from audits.run.build import build_federation, load_dataset
from audits.systems.pmf import RatingTask
from secure_fedrec.engines import RecordedRun
from secure_fedrec.wire import Adversary

FORMS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "FedRec, fresh": ([], False),
    "FedRec, sticky": ([], True),
    "FedRec++, fresh": ([{"layer": "denoisers", "count": 10}], False),
    "FedRec++, sticky": ([{"layer": "denoisers", "count": 10}], True),
    "shared-upload": ([{"layer": "shared-upload", "count": 2}], True),
}
DRAWS = ("uniform", "popularity")
ATTACKS = ("direct", "intersection", "lattice", "subset-regression")
FIGURES = (
    "precision_at_k",
    "prior_precision_at_k",
    "combined_auc",
    "prior_auc",
    "support_auc",
    "support_prior_auc",
    "rating_accuracy",
)


def measure(data: str, form: str, rho: float, draw: str, rounds: int) -> dict[str, float]:
    """Worst figures of the server, and the error that the run ends with."""
    layers, sticky = FORMS[form]
    cloak = {"layer": "virtual-ratings", "rho": rho, "sticky": sticky, "draw": draw}
    config = parse_config(
        {
            "data": {"name": data},
            "algorithm": {"name": "pmf", "rounds": rounds},
            "protection": [cloak, *layers],
            "recording": {"payload_rounds": [1]},
        }
    )
    task = load_dataset(config, None).task(0)
    if not isinstance(task, RatingTask):
        raise TypeError("virtual ratings are for rating tables")
    federation = build_federation(config, task)
    algorithm, problem, _ = federation.fresh()
    run = RecordedRun(
        algorithm=algorithm,
        stack=federation.stack,
        problem=problem,
        streams=federation.streams,
        policy=config.recording,
    )
    for _ in range(rounds):
        report = run.run_round()
    truth = GroundTruth(
        train=task.split.train, recorded=run.truth, denoiser_clients=federation.denoiser_clients
    )
    server = Adversary(name="server", corrupt=frozenset({"server"}))
    findings = [
        evaluate(attack_named(name), server, run.transcript, truth, seed=1) for name in ATTACKS
    ]
    worst = max((each for each in findings if each.measured), key=_named)
    figures = {name: float(worst.figures.get(name) or np.nan) for name in FIGURES}
    ratings = [each.figures.get("rating_accuracy") or 0.0 for each in findings if each.measured]
    return figures | {"rating_accuracy": max(ratings), "rmse": (report.metrics or {})["rmse"]}


def _named(finding: Finding) -> float:
    return finding.figures.get("precision_at_k") or 0.0


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description="What virtual ratings hide, by form and draw.")
    parser.add_argument("data", nargs="?", default="ml-100k")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rho", type=float, nargs="*", default=[1.0, 3.0])
    parser.add_argument("--forms", nargs="*", choices=FORMS, default=list(FORMS))
    options = parser.parse_args()
    cells = [(form, rho, draw) for form in options.forms for rho in options.rho for draw in DRAWS]
    print("| form | rho | draw | " + " | ".join(FIGURES) + " | rmse |")
    print("|---" * (4 + len(FIGURES)) + "|")
    for form, rho, draw in tqdm(cells, unit="run"):
        found = measure(options.data, form, rho, draw, options.rounds)
        figures = [
            "" if np.isnan(found[name]) else decimal(found[name]) for name in (*FIGURES, "rmse")
        ]
        print(f"| {form} | {rho:g} | {draw} | " + " | ".join(figures) + " |", flush=True)


if __name__ == "__main__":
    main()
