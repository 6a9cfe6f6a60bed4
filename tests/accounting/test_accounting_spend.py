"""Prices at known points, against two other accountants, and with the noise's own error inside."""

import math
import warnings
from collections.abc import Callable

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from hypothesis import given
from hypothesis import strategies as st
from opacus.accountants import RDPAccountant
from opacus.accountants.analysis.rdp import get_privacy_spent

from secure_fedrec.accounting import gaussian_events, spend
from secure_fedrec.accounting.accountants import Accountant, approximate
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.base.events import Adversary
from secure_fedrec.protection.dp import (
    Event,
    GaussianNoise,
    LaplaceNoise,
    RandomAnswer,
    Sampling,
    SkellamNoise,
)

Make = Callable[..., Event]
SECRET = Sampling(rate=0.01, secret_from=("release",))


def sampled(event: Make) -> list[Event]:
    """A thousand rounds of a trusted server's noise on a secret Poisson sample."""
    noise = GaussianNoise(multiplier=1.0, form="rounded")
    return [event(noise, rounds=1000, sampling=SECRET, participation="hidden")]


@pytest.mark.parametrize(("accountant", "expected"), [("rdp", 2.101), ("prv", 1.838)])
def test_price_at_the_known_point(accountant: Accountant, expected: float, event: Make) -> None:
    spent = spend(sampled(event), adversary="release", delta=1e-5, accountant=accountant)
    assert spent.epsilon == pytest.approx(expected, abs=5e-4)


def test_price_equals_opacus_and_dp_accounting(event: Make) -> None:
    ours = spend(sampled(event), adversary="release", delta=1e-5).epsilon
    engine = RDPAccountant()
    engine.history = [(1.0, 0.01, 1000)]
    assert ours == pytest.approx(engine.get_epsilon(1e-5), rel=1e-12)
    theirs = rdp.RdpAccountant(RDPAccountant.DEFAULT_ALPHAS)
    theirs.compose(
        dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0)), 1000
    )
    assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-6)


@given(
    st.lists(st.floats(0, 50), min_size=3, max_size=12),
    st.floats(1e-12, 0.5),
    st.integers(0, 3),
)
def test_conversion_is_that_of_opacus_and_near_dp_accounting(
    curve: list[float], delta: float, unbounded: int
) -> None:
    orders = np.geomspace(1.1, 512, len(curve))
    divergences = np.array(curve)
    divergences[len(curve) - unbounded :] = np.inf  # as where a sampled mechanism has no bound
    ours, best = approximate(orders, divergences, delta)
    if unbounded == len(curve):
        assert ours == math.inf
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        theirs, order = get_privacy_spent(orders=orders, rdp=divergences, delta=delta)
    assert ours == pytest.approx(theirs, rel=1e-12, abs=1e-12)
    assert best == order
    # Where delta covers the total variation, dp_accounting has a second bound, of 0.
    covered = bool(np.any(delta**2 + np.expm1(-divergences) > 0))
    least, _ = rdp.compute_epsilon(orders.tolist(), divergences.tolist(), delta)
    assert least == (0 if covered else pytest.approx(max(0.0, ours), rel=1e-9, abs=1e-9))


def test_prv_brackets_the_privacy_loss_distribution(event: Make) -> None:
    ours = spend(sampled(event), adversary="release", delta=1e-5, accountant="prv").epsilon
    second = pld.PLDAccountant()
    second.compose(
        dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0)), 1000
    )
    exact = second.get_epsilon(1e-5)
    assert exact <= ours < 1.02 * exact


@pytest.mark.parametrize(("multiplier", "rounds"), [(20.0, 10), (8.0, 3), (40.0, 200)])
def test_prices_below_what_renyi_orders_state_are_those_of_the_loss_distribution(
    multiplier: float, rounds: int, event: Make
) -> None:
    secret = Sampling(rate=0.001, secret_from=("release",))
    noise = GaussianNoise(multiplier=multiplier, form="rounded")
    events = [event(noise, rounds=rounds, sampling=secret, participation="hidden")]
    ours = spend(events, adversary="release", delta=1e-5)
    assert ours.accountant == "prv"
    theirs = pld.PLDAccountant(value_discretization_interval=1e-6)
    theirs.compose(
        dp_accounting.PoissonSampledDpEvent(0.001, dp_accounting.GaussianDpEvent(multiplier)),
        rounds,
    )
    exact = theirs.get_epsilon(1e-5)
    assert exact <= ours.epsilon <= exact + 2e-4
    assert ours.epsilon < 0.0195  # at the largest Renyi order that is looked at


def test_prv_that_would_take_minutes_is_refused_before_it_begins() -> None:
    events = gaussian_events(1.0, rounds=1000)
    with pytest.raises(ConfigError, match=r"14299780 points.*choices: rdp"):
        spend(events, adversary="server", delta=1e-5, accountant="prv")
    assert math.isfinite(spend(events, adversary="server", delta=1e-5).epsilon)


def test_prv_without_sampling_is_the_analytic_gaussian() -> None:
    # 25 rounds at multiplier 5 are one Gaussian of multiplier 1.
    ours = spend(gaussian_events(5.0, rounds=25), adversary="server", delta=1e-5, accountant="prv")
    exact = dp_accounting.get_epsilon_gaussian(1.0, 1e-5)
    assert exact <= ours.epsilon < exact + 0.03
    assert math.isnan(ours.order)


@pytest.mark.parametrize("multiplier", [0.5, 2.0, 30.0, 400.0])
def test_renyi_orders_reach_far_enough_for_small_and_large_prices(multiplier: float) -> None:
    ours = spend(gaussian_events(multiplier, rounds=1), adversary="server", delta=1e-6).epsilon
    exact = dp_accounting.get_epsilon_gaussian(multiplier, 1e-6)
    assert exact <= ours < 1.35 * exact + 1e-3


@pytest.mark.parametrize("adversary", ["server", "release"])
def test_skellam_approaches_the_gaussian_as_the_ring_gets_finer(
    event: Make, adversary: Adversary
) -> None:
    sampling = Sampling(rate=0.1, secret_from=("release",))
    found = []
    for units in (4, 32, 1024):
        mechanism = SkellamNoise(
            l2_square=units**2, l1=min(units**2, 100.0 * units), variance=4.0 * units**2
        )
        events = [event(mechanism, rounds=10, sampling=sampling, participation="hidden")]
        found.append(spend(events, adversary=adversary, delta=1e-5).epsilon)
    gaussian = GaussianNoise(multiplier=2.0, form="discrete")
    limit = spend(
        [event(gaussian, rounds=10, sampling=sampling, participation="hidden")],
        adversary=adversary,
        delta=1e-5,
    ).epsilon
    # A Gaussian without sampling has real orders, which may be a little better than integers.
    assert found == sorted(found, reverse=True)
    assert limit <= found[-1] < 1.02 * limit


def test_noise_error_is_paid_from_delta(event: Make) -> None:
    mechanism = GaussianNoise(multiplier=4.0, form="rounded")
    clean = spend([event(mechanism, rounds=4)], adversary="server", delta=1e-5)
    off = spend([event(mechanism, rounds=4, distance=1e-10)], adversary="server", delta=1e-5)
    assert off.distance == pytest.approx(4e-10)
    assert off.epsilon > clean.epsilon
    assert off.delta == 1e-5
    # The accountant got what was left over: its own price there is the price.
    left = 1e-5 - (1 + math.exp(clean.epsilon + 1)) * 4e-10
    again = spend([event(mechanism, rounds=4)], adversary="server", delta=left)
    assert off.epsilon == pytest.approx(again.epsilon, rel=1e-9)


def test_noise_that_is_not_what_it_is_named_has_no_price(event: Make) -> None:
    mechanism = GaussianNoise(multiplier=1.0, form="rounded")
    with pytest.raises(ConfigError, match="more than half"):
        spend([event(mechanism, distance=1e-6)], adversary="server", delta=1e-5)


def test_pure_prices_add_up_where_that_is_cheaper(event: Make) -> None:
    few = [event(LaplaceNoise(epsilon=0.5)), event(RandomAnswer(epsilon=0.25))]
    spent = spend(few, adversary="server", delta=1e-9)
    assert spent.epsilon == 0.75
    assert spent.order == math.inf
    many = [event(LaplaceNoise(epsilon=0.1), rounds=1000)]
    assert spend(many, adversary="server", delta=1e-6).epsilon < 25 < 100


def test_sampled_pure_price(event: Make) -> None:
    sampling = Sampling(rate=0.1, secret_from=("release",))
    spent = spend(
        [event(LaplaceNoise(epsilon=1.0), sampling=sampling, participation="hidden")],
        adversary="release",
        delta=1e-12,
    )
    assert spent.epsilon == pytest.approx(math.log1p(0.1 * math.expm1(1.0)))


def test_mixed_noises_compose_at_common_orders(event: Make) -> None:
    skellam = event(SkellamNoise(l2_square=64, l1=64.0, variance=640.0), rounds=5)
    gaussian = event(GaussianNoise(multiplier=3.0, form="rounded"), rounds=5)
    alone = [spend([each], adversary="server", delta=1e-6).epsilon for each in (skellam, gaussian)]
    both = spend([skellam, gaussian], adversary="server", delta=1e-6)
    assert max(alone) < both.epsilon < sum(alone)
    assert both.order == math.floor(both.order)


@pytest.mark.parametrize(
    "mechanism",
    [
        GaussianNoise(multiplier=1.0, form="discrete"),
        SkellamNoise(l2_square=4, l1=4.0, variance=9.0),
        LaplaceNoise(epsilon=1.0),
    ],
)
def test_prv_knows_continuous_gaussians_only(mechanism: object, event: Make) -> None:
    with pytest.raises(ConfigError, match="continuous Gaussian"):
        spend([event(mechanism)], adversary="server", delta=1e-5, accountant="prv")


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_delta_is_a_probability(delta: float) -> None:
    with pytest.raises(ConfigError, match=r"dp\.delta"):
        spend(gaussian_events(1.0, rounds=1), adversary="server", delta=delta)


def test_no_events_and_unknown_accountants_are_refused() -> None:
    with pytest.raises(ConfigError, match="nothing"):
        spend([], adversary="server", delta=1e-5)
    with pytest.raises(ConfigError, match="accountant"):
        spend(
            gaussian_events(1.0, rounds=1),
            adversary="server",
            delta=1e-5,
            accountant="gdp",  # type: ignore[arg-type]
        )


def test_price_falls_with_noise_and_rises_with_rounds(event: Make) -> None:
    prices = np.array(
        [
            [
                spend(
                    gaussian_events(multiplier, rounds=rounds), adversary="server", delta=1e-5
                ).epsilon
                for multiplier in (0.7, 1.0, 5.0)
            ]
            for rounds in (1, 10, 100)
        ]
    )
    assert np.all(np.diff(prices, axis=0) > 0)
    assert np.all(np.diff(prices, axis=1) < 0)


@pytest.mark.parametrize("rounds", [0, 0.5, 1.5, math.nan, math.inf])
def test_rounds_are_whole(rounds: float, event: Make) -> None:
    """Of one and a half rounds one accountant made a negative epsilon."""
    with pytest.raises(ConfigError, match=r"dp\.rounds"):
        event(GaussianNoise(multiplier=1.0, form="rounded"), rounds=rounds)


def test_rounds_may_be_numpys(event: Make) -> None:
    made = event(GaussianNoise(multiplier=1.0, form="rounded"), rounds=np.int64(3))
    assert spend([made], adversary="server", delta=1e-5).epsilon > 0
