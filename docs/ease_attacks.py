"""Measures what sums of co-occurrences tell, by stack: docs/ease-attacks.csv.

Run from the repository: ``python -m docs.ease_attacks`` with SECURE_FEDREC_DATA set. Federated EASE
on ml-100k, seed 1, two items of every client held out; every stack is run once, in the ring, and
attacked by its server and by one of its clients, who is sent what is published.
``--quick`` measures a small generated federation, and changes no file.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple, TextIO

from tqdm import tqdm

from attacks import SUITE, evaluate
from audits.config import parse_config
from audits.run.build import build_federation, load_dataset
from audits.run.truth import truth_of
from secure_fedrec.wire import Adversary, RecordingPolicy

OUTPUT = Path(__file__).with_name("ease-attacks.csv")

_ML_100K: Mapping[str, Any] = {"name": "ml-100k", "protocol": "clean"}
_SMALL: Mapping[str, Any] = {"name": "synthetic", "clients": 80, "items": 60, "mean_ratings": 8.0}
_EPSILONS = (8.0, 4.0, 2.0, 1.0)
_WHO = (
    Adversary(name="server", corrupt=frozenset({"server"})),
    Adversary(name="client", corrupt=frozenset({"client:0"})),
)


class Row(NamedTuple):
    """What one adversary learns under one stack.

    Attributes:
        stack: what protects the sums, and what is published.
        shrinkage: of the regression, as a share of the clients; floors need more.
        adversary: the server, or a client.
        exposed: clients of whom it knows an item for certain.
        interactions: certain interactions.
        wrong: certain claims that are false.
        persons_whole: persons whose whole row is taken out of the sums.
        persons_in_part: further persons of whom a part is told.
        membership_auc, membership_low, membership_high: of a client whose row is known, with its
            95 % interval.
        absence_proven: share of clients whose absence would be certain.
        informed_auc: the same of an adversary that knows all other rows, by the stated noise, for
            the client whose row counts most.
        choice_auc: of held-out items, by the client's row and the sums.
        popularity_auc: by popularity alone.
        choice_gain, choice_gain_low, choice_gain_high: choice_auc less that of sums without the
            client.
        hit_rate_at_10: how good the model is.
    """

    stack: str
    shrinkage: float
    adversary: str
    exposed: str
    interactions: str
    wrong: str
    persons_whole: str
    persons_in_part: str
    membership_auc: str
    membership_low: str
    membership_high: str
    absence_proven: str
    informed_auc: str
    choice_auc: str
    popularity_auc: str
    choice_gain: str
    choice_gain_low: str
    choice_gain_high: str
    hit_rate_at_10: str


def stacks(clients: int) -> dict[str, dict[str, Any]]:
    """Algorithm, ring and layers, by name."""
    least = clients - clients // 20
    masks = {"layer": "masking", "execution": "simulated", "min_survivors": least}
    ring = {"bits": 11, "fraction_bits": 0, "clip": 1.0}
    exact = {"ring": ring, "protection": [masks], "algorithm": {}}
    found = {
        "plain": {"ring": ring, "algorithm": {}},
        "masking": exact,
        **{
            f"masking, pair_floor {floor}": exact
            | {"algorithm": {"pair_floor": floor, "shrinkage": 1.0}}
            for floor in (2, 5)
        },
        "masking, solved at the server": exact | {"algorithm": {"solved_at": "server"}},
        "masking, pair_floor 5, solved at the server": exact
        | {"algorithm": {"solved_at": "server", "pair_floor": 5, "shrinkage": 1.0}},
    }
    for epsilon in _EPSILONS:
        noise = {"layer": "skellam", "epsilon": epsilon, "delta": 1e-5, "fraction_bits": 14}
        clip = {"layer": "clip", "norm": 1.0, "count_scale": 1e-4}
        found[f"masking, Skellam noise, epsilon {epsilon:g}"] = {
            "ring": {"bits": 32, "fraction_bits": 16, "clip": 1.0},
            "protection": [clip, noise, masks],
            "algorithm": {"solution": "eigenvectors", "largest_norm": 1.0},
        }
    return found


def measured(data: Mapping[str, Any], clients: int) -> Iterator[Row]:
    """Every stack, by both adversaries."""
    for name, stack in tqdm(stacks(clients).items()):
        algorithm = {"name": "ease", **stack["algorithm"]}
        senders = list(range(8))
        config = parse_config(
            {
                **stack,
                "seed": 1,
                "data": data,
                "algorithm": algorithm,
                "recording": {"payload_rounds": [1], "payload_senders": senders},
                "adversaries": [{"name": who.name, "corrupt": [*who.corrupt]} for who in _WHO],
            }
        )
        federation = build_federation(config, load_dataset(config, None).task(0))
        sent = None if name == "plain" else tuple(senders)
        policy = RecordingPolicy(payload_rounds=(1,), payload_senders=sent, max_transcript_gb=20)
        run = federation.recorded(policy, None)
        run.run_round()
        truth, evaluate_ = truth_of(federation, run.truth), federation.fresh().problem.evaluate
        quality = (evaluate_ and evaluate_(run.engine.public, run.engine.vault)) or {}
        noise = float(run.engine.public.extras["noise"][0])
        for who in _WHO:
            figures: dict[str, Any] = {}
            for attack in SUITE:
                if attack.startswith("co-occurrence"):
                    found = evaluate(SUITE[attack], who, run.transcript, truth, seed=1)
                    more = found.figures.get("clients_exposed") or 0.0
                    told = {**found.figures} if more >= figures.get("clients_exposed", 0.0) else {}
                    figures |= {**found.figures, **figures, **told}
                    figures |= {key: found.details[key] for key in found.details if key in _TOLD}
            figures["hit_rate_at_10"] = quality["hit_rate_at_10"]
            if noise:
                figures["informed_auc"] = NormalDist().cdf(1.0 / noise / 2**0.5)
            shown = (_shown(figures.get(key)) for key in _KEYS)
            yield Row(name, config.algorithm.shrinkage, who.name, *shown)


_TOLD = ("persons_whole", "persons_in_part")
_KEYS = (
    *("clients_exposed", "interactions_exposed", "disclosures_wrong", *_TOLD),
    *("membership_auc", "membership_auc_low", "membership_auc_high", "absence_proven"),
    *("informed_auc", "choice_auc", "choice_prior_auc"),
    *("choice_gain", "choice_gain_low", "choice_gain_high", "hit_rate_at_10"),
)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}".rstrip("0").rstrip(".")


def _written(data: Mapping[str, Any], clients: int, file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(measured(data, clients))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small federation, to the screen")
    if parser.parse_args().quick:
        _written(_SMALL, int(_SMALL["clients"]), sys.stdout)
        return
    with OUTPUT.open("w", newline="", encoding="utf-8") as file:
        _written(_ML_100K, 943, file)


if __name__ == "__main__":
    main()
