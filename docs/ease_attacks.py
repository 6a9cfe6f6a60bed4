"""Measures what sums of co-occurrences tell, by stack: docs/ease-attacks.csv.

The table of docs/federated-ease.md is written from it (``--page`` measures nothing).
Run from the repository: ``python -m docs.ease_attacks`` with SECURE_FEDREC_DATA set. Federated EASE
on ml-100k, seed 1, two items of every client held out. Sums are formed in one place, as masked ones
equal them to the bit, and Skellam noise of the size that the layers state is drawn once for all.
They are attacked as their server holds them, and as what is published reaches one of the clients.
``--quick`` measures a small generated federation, and changes no file.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final, NamedTuple, TextIO

import numpy as np
from tqdm import tqdm

from attacks.base import Claim
from attacks.families.co_occurrences.attacks import disclosed
from attacks.families.co_occurrences.persons import persons_in
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from attacks.scoring.gains import Level
from attacks.scoring.pair_games import ChoiceClaim, MembershipClaim
from attacks.scoring.truth import Case
from attacks.view.pairs import PairSums, sums_of_weights
from audits.config import parse_config
from audits.run.build import build_federation, load_dataset
from audits.run.truth import truth_of
from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.ease import EASEConfig
from secure_fedrec.algorithms.ease.solutions import inverse_weights
from secure_fedrec.algorithms.ease.system import NOISE, SUMS, WEIGHTS
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.wire import BlockStore, Truth

OUTPUT = Path(__file__).with_name("ease-attacks.csv")
PAGE = Path(__file__).with_name("federated-ease.md")
BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"
HEADS = (
    *("stack", "who", "clients exposed", "interactions proven", "wrong", "rows whole"),
    *("membership AUC", "knowing all others", "next choice gained", "HR@10"),
)

_ML_100K: Mapping[str, Any] = {"name": "ml-100k", "protocol": "clean"}
_SMALL: Mapping[str, Any] = {"name": "synthetic", "clients": 80, "items": 60, "mean_ratings": 8.0}
_EPSILONS = (8.0, 4.0, 2.0, 1.0)


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
    exact: dict[str, Any] = {"ring": ring, "protection": [masks], "algorithm": {}}
    found: dict[str, dict[str, Any]] = {
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
        named = {"name": "ease", **stack["algorithm"]}
        config = parse_config({"seed": 1, "data": data, **stack, "algorithm": named})
        federation: Any = build_federation(config, load_dataset(config, None).task(0))
        settings, (algorithm, problem, _) = config.algorithm, federation.fresh()
        rated = federation.task.case.rated
        skellam = getattr(federation.stack.collector, "skellam", None)
        noise = 0.0 if skellam is None else float(skellam.deviation(clients))
        summed = algorithm.sums.total(rated.indptr, rated.items)
        if noise:
            summed = summed + _skellam(noise / _UNIT, len(summed)) * _UNIT
        published = np.where(summed >= settings.pair_floor, summed, 0.0) if not noise else summed
        extras = {SUMS: published, NOISE: np.array([noise])}
        seen = algorithm.sums.square(published)
        if settings.solved_at == "server":
            shrinkage = settings.shrinkage * clients
            extras[WEIGHTS] = inverse_weights(seen, settings.shrinkage, clients)
            seen = sums_of_weights(extras[WEIGHTS], shrinkage, clients)
        public = PublicState(round=1, table=np.array([settings.shrinkage]), extras=extras)
        quality = (problem.evaluate and problem.evaluate(public, problem.vault)) or {}
        truth, first = truth_of(federation, Truth(BlockStore(None))), int(rated.indptr[1])
        own = algorithm.sums.square(algorithm.sums.total(np.array([0, first]), rated.items[:first]))
        of_others = np.where(seen != 0.0, seen - own, 0.0)
        for who, matrix, floor, corrupted in (
            ("server", algorithm.sums.square(summed), 0, frozenset[int]()),
            ("client", of_others, settings.pair_floor, frozenset({0})),
        ):
            case = Case(truth=truth, corrupted=corrupted, seed=1)
            readable = name == "plain" and who == "server"
            sums = PairSums(1, matrix, floor, -1)
            figures = {**quality, **_learned(sums, noise, settings, case, readable=readable)}
            yield Row(name, settings.shrinkage, who, *(_shown(figures.get(key)) for key in _KEYS))


def _skellam(deviation: float, size: int) -> FloatArray:
    """Whole numbers, the difference of two Poisson ones: float64[size]."""
    rng, half = np.random.default_rng(1), deviation**2 / 2
    return (rng.poisson(half, size) - rng.poisson(half, size)).astype(np.float64)


def _learned(
    sums: PairSums, noise: float, settings: EASEConfig, case: Case, *, readable: bool
) -> dict[str, float | None]:
    """Figures of all attacks on the sums, and of whoever can read uploads."""
    train = case.truth.ratings
    norm, figures = settings.largest_norm, dict[str, float | None]()
    told: dict[str, Any] = {
        "matrix": sums.matrix,
        "noise": noise,
        "floor": sums.floor,
        "largest_norm": norm,
    }
    shrinkage = settings.shrinkage * train.n_clients
    claims: list[Claim] = [MembershipClaim(**told), ChoiceClaim(**told, shrinkage=shrinkage)]
    if noise:
        figures["informed_auc"] = NormalDist().cdf(1.0 / noise / 2**0.5)
    else:
        persons = persons_in(sums.counts, sums.floor)
        figures["persons_whole"] = len(persons.whole)
        figures["persons_in_part"] = len(persons.parts)
        part = disclosed(sums, persons)
        if readable:
            part = Disclosures.named(
                1, train.clients.astype(np.int64), train.items.astype(np.int64)
            )
        claims.append(DisclosureClaim(parts=(part,)))
    for claim in claims:
        for scored in claim.scored(case):
            figures |= scored.at(Level(seed=1))
    return figures


_UNIT: Final = 2.0**-16
"""Of the ring under noise."""
_TOLD = ("persons_whole", "persons_in_part")
_KEYS = (
    *("clients_exposed", "interactions_exposed", "disclosures_wrong", *_TOLD),
    *("membership_auc", "membership_auc_low", "membership_auc_high", "absence_proven"),
    *("informed_auc", "choice_auc", "choice_prior_auc"),
    *("choice_gain", "choice_gain_low", "choice_gain_high", "hit_rate_at_10"),
)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{round(value, 4) + 0.0:.4f}".rstrip("0").rstrip(".")


def _written(data: Mapping[str, Any], clients: int, file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(measured(data, clients))


def table() -> str:
    """The lines of the CSV in short, as Markdown."""
    with OUTPUT.open(newline="", encoding="utf-8") as file:
        _, *told = csv.reader(file)
    found = [Row(stack, float(share), *rest) for stack, share, *rest in told]
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    for each in found:
        auc, low, high = each.membership_auc, each.membership_low, each.membership_high
        gain = f"{each.choice_gain} [{each.choice_gain_low}, {each.choice_gain_high}]"
        cells = (
            *(each.stack, each.adversary, each.exposed or "none", each.interactions or "none"),
            *(each.wrong or "none", each.persons_whole or "none"),
            *(f"{auc} [{low}, {high}]", each.informed_auc, gain, each.hit_rate_at_10),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write_page() -> None:
    """Put the table where the page has it."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Measure, and write the table of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small federation, to the screen")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the table")
    asked = parser.parse_args()
    if asked.quick:
        _written(_SMALL, int(_SMALL["clients"]), sys.stdout)
        return
    if not asked.page:
        with OUTPUT.open("w", newline="", encoding="utf-8") as file:
            _written(_ML_100K, 943, file)
    write_page()


if __name__ == "__main__":
    main()
