"""Recorded FedRec++ runs on the real ml-100k, shared by the tests of this folder."""

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

from attacks import Finding, GroundTruth, attack_named, evaluate
from attacks.base import Attack
from audits.config.audit import parse_config
from audits.run.build import Federation, build_federation
from audits.system import Wanted
from audits.systems.pmf import Ratings, RatingTask, load_ratings
from secure_fedrec.algorithms import PMFConfig
from secure_fedrec.engines import RecordedRun
from secure_fedrec.wire import Adversary

N_CLIENTS = 943
SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
COLLUSION = Adversary(name="server+denoisers", corrupt=frozenset({"server", "denoisers"}))

# T_predict and T_local of the paper, by rho.
_FILLING = {0: (10, 10), 1: (10, 10), 2: (5, 15), 3: (5, 15)}


PRINTED = {name: getattr(PMFConfig.printed(), name) for name in PMFConfig.trains}
"""The paper's settings, on stars as given."""


class Recorded(NamedTuple):
    """A recorded run and what is needed to score attacks on it."""

    run: RecordedRun
    truth: GroundTruth
    federation: Federation[RatingTask]

    def attacked(self, attack: str | Attack, adversary: Adversary = SERVER) -> Finding:
        """Score an attack."""
        chosen = attack_named(attack) if isinstance(attack, str) else attack
        return evaluate(chosen, adversary, self.run.transcript, self.truth, seed=1)


def data_dir() -> Path | None:
    """The folder of the data sets, if the environment names one that holds ml-100k."""
    named = os.environ.get("SECURE_FEDREC_DATA")
    return Path(named) if named and (Path(named) / "ml-100k" / "u.data").is_file() else None


@lru_cache(maxsize=2)
def _ratings(seed: int) -> Ratings:
    config = parse_config({"seed": seed, "data": {"name": "ml-100k"}, "algorithm": PRINTED})
    return load_ratings(Wanted(config.data, config.algorithm, seed, data_dir(), config.cohort))


def federation(*, rho: int, denoisers: int, seed: int = 1, fold: int = 0) -> Federation[RatingTask]:
    """A FedRec++ federation on ml-100k with the paper's settings."""
    predict_after, local_steps = _FILLING[rho]
    layers: list[dict[str, object]] = []
    if rho:
        layers.append(
            {
                "layer": "virtual-ratings",
                "rho": rho,
                "predict_after": predict_after,
                "local_steps": local_steps,
            }
        )
    if denoisers:
        layers.append({"layer": "denoisers", "count": denoisers})
    config = parse_config({"seed": seed, "data": {"name": "ml-100k"}, "protection": layers})
    return build_federation(config, _ratings(seed).task(fold))


@lru_cache(maxsize=8)
def _recorded(rho: int, denoisers: int, rounds: int) -> Recorded:
    built = federation(rho=rho, denoisers=denoisers)
    algorithm, problem, _ = built.fresh()
    run = RecordedRun(
        algorithm=algorithm,
        stack=built.stack,
        problem=problem,
        streams=built.streams,
        policy=built.config.recording,
    )
    for _ in range(rounds):
        run.run_round()
    truth = GroundTruth(
        train=built.task.split.train, recorded=run.truth, denoiser_clients=built.denoiser_clients
    )
    return Recorded(run, truth, built)


@pytest.fixture(scope="session")
def recorded() -> Callable[[int, int, int], Recorded]:
    """``recorded(rho, denoisers, rounds)``: a run, made once."""
    if data_dir() is None:
        pytest.skip("SECURE_FEDREC_DATA names no folder with ml-100k")
    return _recorded
