"""A planted federation on ratings: FedRec++ with denoisers, where every attack on it applies."""

import tomllib
from pathlib import Path

from attacks.base import Planted
from attacks.planted.recording import planted_secrets, protected, recorded
from attacks.scoring.truth import GroundTruth
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import SyntheticConfig, generate, k_fold
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.protection import LAYERS
from secure_fedrec.streams import Streams

CLIENTS = 60
"""Of a run."""


def plant_ratings(name: str) -> tuple[RecordedRun, GroundTruth]:
    """Train and record a planted federation.

    Secrets of its clients are told from the columns of the training ratings: ``indptr``, ``items``
    and ``ratings``.

    Args:
        name: of its table in ``ratings.toml``, which names rounds, layers and recorded rounds.
    """
    planted = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))[name]
    data = SyntheticConfig(clients=CLIENTS, items=150, mean_ratings=15.0, seed=20210202)
    train, test = k_fold(generate(data), folds=5, fold=0, seed=1)
    streams, algorithm = (
        Streams.from_seed(7),
        PMF(PMFConfig.printed(rank=6, rounds=planted["rounds"])),
    )
    problem = rating_problem(algorithm, train, test)
    layers = {layer: LAYERS[layer](**each) for layer, each in planted["layers"].items()}
    stack = protected(algorithm, problem, streams, layers)
    cohort = CohortConfig(clients_per_round=planted.get("clients_per_round"))
    rounds = tuple(planted["payload_rounds"])
    run = recorded(algorithm, problem, stack, streams, rounds, cohort=cohort)
    columns: Planted = {"indptr": train.indptr(), "items": train.items, "ratings": train.ratings}
    secrets, denoisers = planted_secrets(columns, name), stack.denoisers
    return run, GroundTruth(
        train=train, recorded=run.truth, denoiser_clients=denoisers, secrets=secrets
    )
