"""A planted federation on ratings: FedRec++ with denoisers, where every attack on it applies."""

from typing import Any

from attacks.scoring.truth import GroundTruth
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import SyntheticConfig, generate, k_fold
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import LAYERS, Sizes, build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.wire import RecordingPolicy

__all__ = ["CLIENTS", "ROUNDS", "plant_ratings"]

CLIENTS, ROUNDS = 60, 6
"""Of a run."""


def plant_ratings(
    *, denoisers: int, sticky: bool, payload_rounds: tuple[int, ...]
) -> tuple[RecordedRun, GroundTruth]:
    """Train and record a planted federation.

    Args:
        denoisers: how many clients are denoisers.
        sticky: whether virtual items stay the same from round to round.
        payload_rounds: rounds whose payloads are kept.
    """
    data = SyntheticConfig(clients=CLIENTS, items=150, mean_ratings=15.0, seed=20210202)
    train, test = k_fold(generate(data), folds=5, fold=0, seed=1)
    streams = Streams.from_seed(7)
    algorithm = PMF(PMFConfig(rank=6, rounds=ROUNDS))
    sizes = Sizes(
        n_clients=train.n_clients,
        n_items=train.n_items,
        width=algorithm.width,
        cohort=train.n_clients,
    )
    settings: dict[str, dict[str, Any]] = {
        "virtual-ratings": {"rho": 1.0, "sticky": sticky},
        "denoisers": {"count": denoisers},
    }
    layers = {name: LAYERS[name](**each) for name, each in settings.items()}
    stack = build_stack(layers, sizes=sizes, codec=FixedPoint(), streams=streams)
    run = RecordedRun(
        algorithm=algorithm,
        stack=stack,
        problem=rating_problem(algorithm, train, test),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=payload_rounds),
    )
    for _ in range(ROUNDS):
        run.run_round()
    return run, GroundTruth(train=train, recorded=run.truth, denoiser_clients=stack.denoisers)
