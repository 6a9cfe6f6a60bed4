"""Renyi curves against exact divergences and against another library."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from secure_fedrec.accounting import renyi_curve, spend
from secure_fedrec.accounting.curves import pure_rdp, sampled_rdp, skellam_rdp
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.dp import (
    Event,
    ExactSum,
    GaussianNoise,
    LaplaceNoise,
    RandomAnswer,
    Sampling,
    SkellamNoise,
    noise_table,
)

Make = Callable[..., Event]
INTEGERS = np.array([2.0, 3, 4, 6, 8, 12, 16, 32, 64])
SECRET: tuple[Literal["release"]] = ("release",)


def divergence(log_one: FloatArray, log_other: FloatArray, order: float) -> float:
    """Renyi divergence of two discrete distributions given by logarithms."""
    return float(logsumexp(order * log_one + (1 - order) * log_other) / (order - 1))


def skellam_log_pmf(variance: float, shift: int, reach: int) -> FloatArray:
    return np.asarray(
        stats.skellam.logpmf(np.arange(-reach, reach + 1) - shift, variance / 2, variance / 2)
    )


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(-6, 6), min_size=1, max_size=8).filter(any),
    st.floats(2.0, 400.0),
    st.integers(2, 16),
)
def test_skellam_curve_is_above_the_exact_divergence(
    shift: list[int], variance: float, order: int
) -> None:
    # Coordinates are independent, so the divergence of a vector is the sum over coordinates.
    reach = math.ceil(14 * math.sqrt(variance)) + 60 + 6 * order
    base = skellam_log_pmf(variance, 0, reach)
    exact = 0.0
    for size in shift:
        moved = skellam_log_pmf(variance, abs(size), reach)
        finite = np.isfinite(base) & np.isfinite(moved)
        exact += divergence(base[finite], moved[finite], order)
    mechanism = SkellamNoise(
        l2_square=sum(size * size for size in shift),
        l1=float(sum(map(abs, shift))),
        variance=variance,
    )
    (bound,) = skellam_rdp(mechanism, np.array([float(order)]))
    assert exact <= bound * (1 + 1e-9) + 1e-12


def test_skellam_curve_is_tight_where_noise_is_plenty() -> None:
    base, moved = (skellam_log_pmf(400.0, shift, 400) for shift in (0, 3))
    mechanism = SkellamNoise(l2_square=9, l1=3.0, variance=400.0)
    orders = np.array([2.0, 8.0, 16.0])
    exact = [divergence(base, moved, order) for order in orders]
    bound = skellam_rdp(mechanism, orders)
    assert np.all(bound >= exact)
    assert np.all(bound < 1.1 * np.array(exact))
    gaussian = orders * 9 / 800
    assert np.all(bound > gaussian)


def test_skellam_curve_is_the_theorem_in_both_its_cases() -> None:
    # Order 3: 3 x 5 / 20 + (5 x 5 + 6 x 3) / 400, and 3 x 5 / 1 + 3 x 3 / 1.
    for variance, expected in ((10.0, 0.75 + 43 / 400), (0.5, 15.0 + 9.0)):
        mechanism = SkellamNoise(l2_square=5, l1=3.0, variance=variance)
        assert skellam_rdp(mechanism, np.array([3.0]))[0] == pytest.approx(expected, rel=1e-12)


def test_general_sampling_bound_is_the_theorem() -> None:
    def curve(orders: FloatArray) -> FloatArray:
        return np.where(orders == 2, 0.3, 0.5)

    terms = 0.75**2 * 1.5 + 3 * 0.25**2 * 0.75 * math.exp(0.3) + 3 * 0.25**3 * math.exp(1.0)
    found = sampled_rdp(curve, 0.25, np.array([2.0, 3.0]))
    assert found[1] == pytest.approx(math.log(terms) / 2, rel=1e-12)
    two = 0.75 * 1.25 + 0.25**2 * math.exp(0.3)
    assert found[0] == pytest.approx(math.log(two), rel=1e-12)


def test_skellam_curve_speaks_of_integer_orders_only() -> None:
    mechanism = SkellamNoise(l2_square=9, l1=3.0, variance=400.0)
    for orders in ([2.5], [1.0], [0.0]):
        with pytest.raises(ConfigError, match="integer"):
            skellam_rdp(mechanism, np.array(orders))


def test_composed_skellam_price_is_near_the_exact_one_in_one_dimension(event: Make) -> None:
    variance, shift, rounds, delta = 64.0, 2, 10, 1e-6
    reach = 130
    base, moved = (
        dict(
            zip(
                range(-reach, reach + 1),
                skellam_log_pmf(variance, each, reach).tolist(),
                strict=True,
            )
        )
        for each in (0, shift)
    )
    loss = pld.privacy_loss_distribution.from_two_probability_mass_functions(
        log_probability_mass_function_lower=base,
        log_probability_mass_function_upper=moved,
        value_discretization_interval=1e-3,
        symmetric=False,
    )
    exact = loss.self_compose(rounds).get_epsilon_for_delta(delta)
    mechanism = SkellamNoise(l2_square=shift**2, l1=float(shift), variance=variance)
    ours = spend([event(mechanism, rounds=rounds)], adversary="server", delta=delta)
    assert exact <= ours.epsilon < 1.2 * exact


@pytest.mark.parametrize("sigma", [0.6, 2.0, 7.5])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_discrete_gaussian_curve_is_above_the_exact_divergence(
    sigma: float, shift: int, event: Make
) -> None:
    places = np.arange(-400, 401)
    logs = [-((places - each) ** 2) / (2 * sigma**2) for each in (0, shift)]
    base, moved = (each - logsumexp(each) for each in logs)
    curve = renyi_curve(
        event(GaussianNoise(multiplier=sigma / shift, form="discrete")), "server", INTEGERS
    )
    exact = np.array([divergence(base, moved, order) for order in INTEGERS])
    assert np.all(exact <= curve * (1 + 1e-9))


@pytest.mark.parametrize("form", ["discrete", "rounded"])
def test_tables_themselves_are_within_their_curve(
    form: Literal["discrete", "rounded"], event: Make
) -> None:
    """From the thresholds that are sampled, not from the formula."""
    table = noise_table("rounded-gaussian" if form == "rounded" else "discrete-gaussian", 6.0)
    thresholds = [0, *(table.threshold(m) for m in range(table.largest + 1))]
    steps = np.array([math.log(after - before) for before, after in pairwise(thresholds)])
    steps -= 127 * math.log(2)
    logs = np.concatenate([steps[:0:-1] - math.log(2), steps[:1], steps[1:] - math.log(2)])
    shift = 4
    base, moved = np.full((2, len(logs) + shift), -np.inf)
    base[: len(logs)], moved[shift:] = logs, logs
    both = np.isfinite(base) & np.isfinite(moved)
    assert np.exp(base[~both]).sum() < 1e-30  # the cut tail, which delta pays for
    event_ = event(GaussianNoise(multiplier=6.0 / shift, form=form))
    orders = np.array([2.0, 3.0, 4.0])
    curve = renyi_curve(event_, "server", orders)
    for order, bound in zip(orders, curve, strict=True):
        assert divergence(base[both], moved[both], order) <= bound * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("shift", [1, 2, 7])
def test_pure_curve_is_above_discrete_laplace_and_equals_randomized_response(
    epsilon: float, shift: int, event: Make
) -> None:
    scale = shift / epsilon
    places = np.arange(-2000, 2001)
    logs = [-np.abs(places - each) / scale for each in (0, shift)]
    base, moved = (each - logsumexp(each) for each in logs)
    curve = renyi_curve(event(LaplaceNoise(epsilon=epsilon)), "server", INTEGERS)
    exact = np.array([divergence(base, moved, order) for order in INTEGERS])
    assert np.all(exact <= curve * (1 + 1e-9))
    assert np.all(curve <= epsilon)
    right, wrong = -np.log1p(np.exp(-epsilon)), -np.log1p(np.exp(epsilon))
    answers = np.array([right, wrong])
    exact = np.array([divergence(answers, answers[::-1], order) for order in INTEGERS])
    np.testing.assert_allclose(pure_rdp(epsilon, INTEGERS), exact, rtol=1e-9)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_general_sampling_bound_is_above_the_exact_one_of_the_gaussian(
    rate: float, sigma: float, event: Make
) -> None:
    orders = np.array([2.0, 3, 5, 8, 16])
    general = sampled_rdp(lambda a: a / (2 * sigma**2), rate, orders)
    sampling = Sampling(rate=rate, secret_from=SECRET)
    exact = renyi_curve(
        event(
            GaussianNoise(multiplier=sigma, form="rounded"),
            sampling=sampling,
            participation="hidden",
        ),
        "release",
        orders,
    )
    whole = orders / (2 * sigma**2)
    assert np.all(exact <= general * (1 + 1e-9))
    assert np.all(general <= whole)
    assert general[0] < 3 * exact[0] + 1e-12


@settings(deadline=None, max_examples=50)
@given(st.floats(4.0, 200.0), st.integers(1, 4), st.floats(0.01, 0.9), st.integers(2, 8))
def test_sampled_skellam_curve_is_above_the_exact_mixture(
    variance: float, shift: int, rate: float, order: int
) -> None:
    reach = math.ceil(14 * math.sqrt(variance)) + 80
    base, moved = (skellam_log_pmf(variance, each, reach) for each in (0, shift))
    finite = np.isfinite(base) & np.isfinite(moved)
    base, moved = base[finite], moved[finite]
    mixed = np.logaddexp(np.log1p(-rate) + base, np.log(rate) + moved)
    mechanism = SkellamNoise(l2_square=shift**2, l1=float(shift), variance=variance)
    (bound,) = sampled_rdp(lambda a: skellam_rdp(mechanism, a), rate, np.array([float(order)]))
    for one, other in ((base, mixed), (mixed, base)):
        assert divergence(one, other, order) <= bound * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(("rate", "sigma", "steps"), [(0.01, 1.0, 1000), (0.2, 2.5, 40), (1, 4, 9)])
def test_gaussian_curve_agrees_with_dp_accounting(
    rate: float, sigma: float, steps: int, event: Make
) -> None:
    orders = [2.0, 3.0, 8.0, 20.0, 48.0]  # theirs interpolates between integers
    theirs = rdp.RdpAccountant(orders)
    inner = dp_accounting.GaussianDpEvent(sigma)
    theirs.compose(dp_accounting.PoissonSampledDpEvent(rate, inner) if rate < 1 else inner, steps)
    sampling = Sampling(rate=rate, secret_from=SECRET)
    ours = renyi_curve(
        event(
            GaussianNoise(multiplier=sigma, form="rounded"),
            rounds=steps,
            sampling=sampling,
            participation="hidden",
        ),
        "release",
        np.array(orders),
    )
    np.testing.assert_allclose(ours, theirs._rdp, rtol=1e-6)


def test_sampling_counts_only_against_who_cannot_see_it(event: Make) -> None:
    sampling = Sampling(rate=0.05, secret_from=SECRET)
    for mechanism in (
        GaussianNoise(multiplier=1.0, form="rounded"),
        GaussianNoise(multiplier=1.0, form="discrete"),
        SkellamNoise(l2_square=100, l1=80.0, variance=100.0),
        LaplaceNoise(epsilon=1.0),
        RandomAnswer(epsilon=1.0),
    ):
        whole = event(mechanism)
        sampled = replace(whole, sampling=sampling, participation="hidden")
        server = renyi_curve(sampled, "server", INTEGERS)
        assert np.array_equal(server, renyi_curve(whole, "server", INTEGERS))
        assert np.all(renyi_curve(sampled, "release", INTEGERS) < server)


def test_rounds_add_up(event: Make) -> None:
    for mechanism in (
        GaussianNoise(multiplier=1.0, form="rounded"),
        SkellamNoise(l2_square=100, l1=80.0, variance=100.0),
        LaplaceNoise(epsilon=1.0),
    ):
        once = renyi_curve(event(mechanism), "server", INTEGERS)
        many = renyi_curve(event(mechanism, rounds=17), "server", INTEGERS)
        np.testing.assert_allclose(many, 17 * once, rtol=1e-12)


def test_what_has_no_price_is_refused(event: Make) -> None:
    orders = np.array([2.0])
    with pytest.raises(ConfigError, match=r"counts.*exact"):
        renyi_curve(event(ExactSum(what="counts"), noised_against=()), "server", orders)
    central = event(GaussianNoise(multiplier=1.0, form="rounded"), noised_against=("release",))
    with pytest.raises(ConfigError, match="without the noise"):
        renyi_curve(central, "server", orders)
    replaced = event(
        GaussianNoise(multiplier=1.0, form="rounded"),
        adjacency="replace",
        sampling=Sampling(rate=0.5, secret_from=SECRET),
        participation="hidden",
    )
    with pytest.raises(ConfigError, match="adjacency"):
        renyi_curve(replaced, "release", orders)
    assert np.isfinite(renyi_curve(replaced, "server", orders)).all()


def test_sampling_amplifies_only_events_that_state_all_that_the_theorems_ask(event: Make) -> None:
    half = Sampling(rate=0.5, secret_from=SECRET)
    stated = event(
        GaussianNoise(multiplier=1.0, form="rounded"), sampling=half, participation="hidden"
    )
    orders = np.array([2.0])
    whole = renyi_curve(stated, "server", orders)
    assert renyi_curve(stated, "release", orders) < whole
    fixed = Sampling(rate=0.5, secret_from=SECRET, scheme="fixed-size")
    for change, key in (
        ({"participation": "shows"}, r"dp\.sampling\.rate = 0\.5"),
        ({"sampling": fixed}, r"dp\.sampling\.scheme = 'fixed-size'"),
        ({"adjacency": "one-bit"}, r"dp\.adjacency = 'one-bit'"),
        ({"adjacency": "replace"}, r"dp\.adjacency = 'replace'"),
    ):
        changed = replace(stated, **change)
        with pytest.raises(ConfigError, match=key):
            renyi_curve(changed, "release", orders)
        assert renyi_curve(changed, "server", orders) == whole


def test_an_event_that_states_nothing_is_not_amplified(event: Make) -> None:
    assert event(GaussianNoise(multiplier=1.0, form="rounded")).participation == "shows"
    absent = event(GaussianNoise(multiplier=1.0, form="rounded"), adjacency="add-or-remove")
    # Without sampling as well: who is absent brings no noise.
    with pytest.raises(ConfigError, match=r"dp\.adjacency = 'add-or-remove'"):
        renyi_curve(absent, "server", np.array([2.0]))
