"""The lattice decode where a user's mean and slope, which never leave it, stand between."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from attacks import GroundTruth, evaluate
from attacks.families.ratings.lattice import fit_offset, hides_residuals
from secure_fedrec.algorithms import PMFConfig
from secure_fedrec.data import SyntheticConfig
from secure_fedrec.engines import RecordedRun
from secure_fedrec.protection import VirtualRatingsConfig
from secure_fedrec.wire import Adversary
from tests.attacks.made import LatticeAt

Federate = Callable[..., tuple[RecordedRun, GroundTruth]]
LEVELS = np.arange(1.0, 6.0)
DATA = SyntheticConfig(clients=60, items=150, mean_ratings=30.0, seed=5)


@pytest.mark.parametrize("slope", [1.0, 0.6, 1.7])
@pytest.mark.parametrize("signed", [1.0, -1.0])
def test_scale_and_offset_are_found(slope: float, signed: float) -> None:
    rng = np.random.default_rng(2)
    ratings = rng.choice(LEVELS, 40)
    biases = rng.normal(size=40)
    residuals = ratings - 3.37 - slope * biases
    values, scale = fit_offset(
        signed * -residuals * slope,
        signed * biases,
        LEVELS,
        slope_share=signed,
        tolerance=1e-6,
    )
    assert scale == pytest.approx(signed * slope)
    assert values == pytest.approx(ratings, abs=1e-6)


def test_masked_rows_are_told_from_residuals() -> None:
    rng = np.random.default_rng(3)
    assert hides_residuals(rng.uniform(-(2**15), 2**15, size=(50, 1)), LEVELS)
    assert not hides_residuals(rng.uniform(-4, 4, size=(50, 3)), LEVELS)


@pytest.mark.parametrize(("rank", "rho"), [(0, 0.0), (0, 1.0), (4, 0.0), (4, 1.0)])
@pytest.mark.parametrize("round_", [1, 5])
def test_biases_kept_at_home_hide_no_ratings(
    federate: Federate, server: Adversary, rank: int, rho: float, round_: int
) -> None:
    run, truth = federate(
        data=DATA,
        algorithm=PMFConfig.printed(rank=rank, rounds=5, biases=True),
        cloak=VirtualRatingsConfig(rho=rho) if rho else None,
        rounds=5,
        payload_rounds=(1, 5),
    )
    figures: dict[str, Any] = dict(
        evaluate(LatticeAt(round_), server, run.transcript, truth, seed=0).figures
    )
    assert figures["rating_accuracy"] > 0.9
    if rho:
        assert figures["support_auc"] > 0.85  # a mean on the scale hides rows filled with it
    if rank:
        assert figures["user_vector_share"] > 0.9
