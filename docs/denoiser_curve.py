"""Draws docs/denoisers.svg: more denoisers are cheaper and leak more (ml-100k, rho = 1, one round).

Run from the repository: ``python docs/denoiser_curve.py`` with SECURE_FEDREC_DATA set.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from tqdm import tqdm

from attacks import GroundTruth, attack_named, evaluate
from audits.config import parse_config
from audits.run.build import build_federation
from audits.systems.pmf import load_ratings
from secure_fedrec.engines import RecordedRun
from secure_fedrec.wire import Adversary

COUNTS = (1, 2, 5, 10, 25, 50, 100, 157, 235, 320, 400, 471)
OUTPUT = Path(__file__).with_name("denoisers.svg")


class Point(NamedTuple):
    """What one number of denoisers costs and leaks."""

    unmasked: float
    exposed: float
    vectors: float


def measure(count: int) -> Point:
    """One round of FedRec++ with that many denoisers, attacked by the server alone."""
    config = parse_config(
        {
            "data": {"name": "ml-100k"},
            "protection": [
                {"layer": "virtual-ratings", "rho": 1},
                {"layer": "denoisers", "count": count},
            ],
        }
    )
    ratings = load_ratings(config.data, config.algorithm, seed=config.seed, data_dir=None)
    federation = build_federation(config, ratings.task(0))
    split = federation.task.split
    algorithm, problem, _ = federation.fresh()
    run = RecordedRun(
        algorithm=algorithm,
        stack=federation.stack,
        problem=problem,
        streams=federation.streams,
        policy=config.recording,
    )
    run.run_round()
    denoisers = federation.denoiser_clients
    truth = GroundTruth(train=split.train, recorded=run.truth, denoiser_clients=denoisers)
    server = Adversary(name="server", corrupt=frozenset({"server"}))

    def share(attack: str, figure: str) -> float:
        finding = evaluate(attack_named(attack), server, run.transcript, truth, seed=1)
        return float(finding.figures[figure] or 0.0)

    meter = run.engine.wire.meter
    vectors = meter.clients("vectors_sent") + meter.clients("vectors_received")
    return Point(
        unmasked=share("denoiser-sums", "unmasked_share"),
        exposed=share("denoiser-exposure", "recall"),
        vectors=float(np.mean(vectors[list(denoisers)])),
    )


def draw(points: list[Point]) -> None:
    """Both curves over the number of denoisers, cost on its own axis below."""
    figure = Figure(figsize=(7.2, 5.4), layout="constrained")
    leak, cost = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    leak.plot(COUNTS, [100 * p.unmasked for p in points], "o-", color="#0072b2")
    leak.plot(COUNTS, [100 * p.exposed for p in points], "s--", color="#d55e00")
    leak.set_ylabel("share [%]")
    leak.legend(["virtual rows unmasked by the server", "denoisers' own rated items exposed"])
    leak.set_title("FedRec++ on ml-100k: more denoisers cost less and leak more", loc="left")
    cost.plot(COUNTS, [p.vectors for p in points], "o-", color="#333333")
    cost.set_yscale("log")
    cost.set_ylabel("vectors per denoiser")
    cost.set_xscale("log")
    cost.set_xlabel("number of denoisers (of 943 clients)")
    for axes in (leak, cost):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(OUTPUT, metadata={"Date": None})


if __name__ == "__main__":
    draw([measure(count) for count in tqdm(COUNTS)])
