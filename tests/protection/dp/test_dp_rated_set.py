"""The epsilon of randomized response is the one its frequencies have."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.dp import (
    RandomAnswer,
    permanent_epsilon,
    rated_set_events,
    report_epsilon,
    response_for_epsilon,
)
from secure_fedrec.protection.dp.rated_set import RandomizedResponseConfig

CONFIGS = st.builds(
    RandomizedResponseConfig,
    permanent=st.floats(0.01, 0.99),
    report_one=st.floats(0.55, 0.99),
    report_zero=st.floats(0.01, 0.45),
)


def report_chances(config: RandomizedResponseConfig, rounds: int) -> dict[bool, np.ndarray]:
    """P[pattern of ``rounds`` reports] for a rated and an unrated item, by enumeration."""
    found = {}
    for rated in (True, False):
        one = 1 - config.permanent / 2 if rated else config.permanent / 2
        patterns = []
        for pattern in range(2**rounds):
            ups = bin(pattern).count("1")
            given_one = config.report_one**ups * (1 - config.report_one) ** (rounds - ups)
            given_zero = config.report_zero**ups * (1 - config.report_zero) ** (rounds - ups)
            patterns.append(one * given_one + (1 - one) * given_zero)
        found[rated] = np.array(patterns)
    return found


@settings(deadline=None, max_examples=200)
@given(CONFIGS, st.integers(1, 6))
def test_no_pattern_of_reports_tells_more_than_the_event_says(
    config: RandomizedResponseConfig, rounds: int
) -> None:
    chances = report_chances(config, rounds)
    worst = float(np.abs(np.log(chances[True] / chances[False])).max())
    (event,) = rated_set_events(config, rounds=rounds)
    assert isinstance(event.mechanism, RandomAnswer)
    assert worst <= event.rounds * event.mechanism.epsilon * (1 + 1e-12) + 1e-12
    if rounds == 1:
        assert worst == pytest.approx(report_epsilon(config), rel=1e-9)


@settings(deadline=None)
@given(CONFIGS)
def test_many_rounds_cost_no_more_than_the_permanent_answer(
    config: RandomizedResponseConfig,
) -> None:
    (event,) = rated_set_events(config, rounds=10**6)
    assert event.rounds == 1
    assert event.serves is not None
    assert event.serves > 1
    assert event.mechanism == RandomAnswer(epsilon=permanent_epsilon(config))


@settings(deadline=None)
@given(st.floats(0.01, 40))
def test_response_for_a_budget_costs_the_budget(epsilon: float) -> None:
    config = response_for_epsilon(epsilon)
    assert permanent_epsilon(config) == pytest.approx(epsilon, rel=1e-6)
    assert config.report_rated == pytest.approx(1 / (1 + math.exp(-epsilon)), rel=1e-12)
    assert config.report_unrated == pytest.approx(1 / (1 + math.exp(epsilon)), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan, 41.0])
def test_budgets_without_a_response_are_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        response_for_epsilon(epsilon)


def test_a_response_that_never_lies_has_no_event() -> None:
    config = RandomizedResponseConfig(permanent=0.0, report_one=1.0, report_zero=0.0)
    assert permanent_epsilon(config) == math.inf == report_epsilon(config)
    with pytest.raises(ConfigError, match="in doubt"):
        rated_set_events(config, rounds=1)


def test_without_a_permanent_stage_every_report_costs() -> None:
    config = RandomizedResponseConfig(permanent=0.0, report_one=0.75, report_zero=0.25)
    (event,) = rated_set_events(config, rounds=50)
    assert event.rounds == 50
    assert event.mechanism == RandomAnswer(epsilon=report_epsilon(config))
    assert report_epsilon(config) == pytest.approx(math.log(3))


def test_an_answer_that_is_all_coin_says_nothing() -> None:
    config = RandomizedResponseConfig(permanent=1.0, report_one=0.9, report_zero=0.1)
    (event,) = rated_set_events(config, rounds=9)
    assert event.mechanism == RandomAnswer(epsilon=0.0)
