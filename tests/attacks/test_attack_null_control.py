"""The null control of a finding: chance where there is nothing, whatever the attack finds."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from attacks import Claims, GroundTruth, evaluate
from attacks.scoring.rated_sets import RatedSetClaim
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.protection import VirtualRatingsConfig
from tests.attacks.made import rated_of
from tests.attacks.test_attack_games import SERVER, Federate, judge, ratings_of, truth_of


def honest_game(seed: int) -> tuple[Claims, GroundTruth]:
    """Forty clients, a quarter of the items rated, scores that tell a good deal about them."""
    rng = np.random.default_rng(seed)
    labels: BoolArray = rng.random((40, 22)) < rng.uniform(0.1, 0.4, (40, 1))
    labels[:, 0], labels[:, 1] = True, False
    rows = {u: {int(i): 3.0 for i in np.flatnonzero(labels[u])} for u in range(40)}
    scores: FloatArray = labels + rng.standard_normal((40, 22))
    rated = RatedSetClaim(
        clients=np.arange(40), scores=scores, visible=np.ones_like(labels), predicted=None
    )
    return Claims(rounds=(1,), made=(rated,)), truth_of(ratings_of(rows, 40, 22))


@pytest.mark.claim("nothing-false-is-proven")
def test_the_null_control_sits_at_chance_and_rarely_cries_wolf() -> None:
    """60 seeds: the mean is 0.5 within four standard errors, false alarms stay near 0.1 %."""
    claims, truth = honest_game(0)
    games = 60
    nulls = []
    for seed in range(games):
        null = judge(claims, truth, seed=seed).null_control
        assert null is not None
        assert null["low"] <= null["auc"] <= null["high"]
        assert null["passed"] == (null["low"] <= 0.5 <= null["high"])
        nulls.append((null["auc"], null["passed"]))
    aucs = np.array([auc for auc, _ in nulls])
    assert abs(aucs.mean() - 0.5) < 4 * aucs.std(ddof=1) / np.sqrt(games)
    alarms = sum(not passed for _, passed in nulls)
    # A percentile bootstrap over 40 clients runs a little short of its 99.9 %: allow 0.5 %.
    assert alarms <= binom.ppf(0.9999, games, 0.005)


def test_the_null_control_passes_where_the_attack_wins() -> None:
    claims, truth = honest_game(1)
    finding = judge(claims, truth)
    low = finding.figures["auc_low"]
    assert low is not None
    assert low > 0.6
    assert finding.null_control is not None
    assert finding.null_control["passed"]


def test_chance_is_found_to_be_chance() -> None:
    """Scores drawn without the labels: the interval covers 0.5 about as often as it says."""
    claims, truth = honest_game(2)
    rng = np.random.default_rng(3)
    covered = 0
    games = 30
    for _ in range(games):
        blind = replace(rated_of(claims), scores=rng.standard_normal((40, 22)))
        figures = judge(replace(claims, made=(blind,)), truth).figures
        low, high = figures["auc_low"], figures["auc_high"]
        assert low is not None
        assert high is not None
        covered += low <= 0.5 <= high
    assert covered >= binom.ppf(1e-4, games, 0.92)


def test_a_finding_is_a_function_of_the_seed(federate: Federate) -> None:
    from attacks.families.rated_set import Intersection

    run, truth = federate(cloak=VirtualRatingsConfig(rho=1.0), rounds=3)
    first, again, other = (
        evaluate(Intersection(), SERVER, run.transcript, truth, seed=seed) for seed in (4, 4, 5)
    )
    assert first == again
    assert first.figures["auc"] == other.figures["auc"]
    assert first.null_control != other.null_control
