"""Noise tables against a high-precision reference: every threshold, every bound."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache

import mpmath
import pytest

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.dp.tables import (
    TAIL_BITS,
    THRESHOLD_BITS,
    Noise,
    NoiseTable,
    noise_table,
)
from secure_fedrec.protection.dp.weights import log_skellam_tail

CASES: list[tuple[Noise, float]] = [
    ("skellam", 0.01),
    ("skellam", 1.0),
    ("skellam", 7.3),
    ("skellam", 100.0),
    ("skellam", 900.5),
    ("discrete-gaussian", 0.3),
    ("discrete-gaussian", 1.0),
    ("discrete-gaussian", 10.0),
    ("discrete-gaussian", 33.7),
    ("rounded-gaussian", 0.3),
    ("rounded-gaussian", 1.0),
    ("rounded-gaussian", 10.0),
    ("rounded-gaussian", 33.7),
    ("discrete-laplace", 0.3),
    ("discrete-laplace", 1.0),
    ("discrete-laplace", 12.9),
]

Mass = Callable[[int], mpmath.mpf]


@pytest.fixture(autouse=True)
def many_digits() -> Iterator[None]:
    with mpmath.workprec(512):
        yield


def reference(noise: Noise, parameter: float) -> Mass:
    """P[X = k] by library functions that share no code and no formula with the tables."""
    value = mpmath.mpf(parameter)
    if noise == "skellam":
        return lambda k: mpmath.besseli(k, value) * mpmath.exp(-value)
    if noise == "discrete-laplace":
        return lambda k: mpmath.tanh(1 / (2 * value)) * mpmath.exp(-k / value)
    if noise == "discrete-gaussian":
        # The normaliser is a Jacobi theta function at its nome.
        total = mpmath.jtheta(3, 0, mpmath.exp(-1 / (2 * value**2)))
        return lambda k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * value**2)) / total
    root = value * mpmath.sqrt(2)
    half = mpmath.mpf(1) / 2
    return lambda k: (mpmath.erfc((k - half) / root) - mpmath.erfc((k + half) / root)) / 2


@lru_cache(maxsize=64)
def masses(noise: Noise, parameter: float, count: int) -> list[mpmath.mpf]:
    """P[|X| = m] for m = 0 .. count - 1."""
    mass = reference(noise, parameter)
    return [mass(0), *(2 * mass(m) for m in range(1, count))]


def drawn(table: NoiseTable) -> list[Fraction]:
    """P[|X| = m] as the sampler draws it."""
    thresholds = [table.threshold(m) for m in range(table.largest + 1)]
    steps = [after - before for before, after in zip([0, *thresholds], thresholds, strict=False)]
    return [Fraction(step, 2**THRESHOLD_BITS) for step in steps]


@pytest.mark.claim("dp-samplers-exact")
@pytest.mark.parametrize(("noise", "parameter"), CASES)
def test_every_threshold_is_the_floor_of_the_true_distribution(
    noise: Noise, parameter: float
) -> None:
    table = noise_table(noise, parameter)
    total = mpmath.mpf(0)
    for magnitude, mass in enumerate(masses(noise, parameter, table.largest + 1)[:-1]):
        total += mass
        expected = int(mpmath.floor(mpmath.ldexp(total, THRESHOLD_BITS)))
        assert table.threshold(magnitude) == expected, magnitude
    assert table.threshold(table.largest) == 2**THRESHOLD_BITS


@pytest.mark.parametrize(("noise", "parameter"), CASES)
def test_stated_distance_bounds_the_total_variation(noise: Noise, parameter: float) -> None:
    table = noise_table(noise, parameter)
    inside = masses(noise, parameter, table.largest + 1)
    probabilities = [mpmath.mpf(p.numerator) / p.denominator for p in drawn(table)]
    differences = sum(abs(here - there) for here, there in zip(probabilities, inside, strict=True))
    outside = 1 - sum(inside)
    assert 0 <= outside <= mpmath.ldexp(1, -TAIL_BITS)
    variation = (differences + outside) / 2
    assert 0 < variation <= table.distance
    # The bound is a bound and no guess: it is within a small factor of what it bounds.
    assert table.distance < 64 * variation


@pytest.mark.parametrize(("noise", "parameter"), CASES)
def test_tail_is_cut_as_early_as_the_bound_allows(noise: Noise, parameter: float) -> None:
    table = noise_table(noise, parameter)
    before = sum(masses(noise, parameter, table.largest + 1)[:-1])
    assert 1 - before > mpmath.ldexp(1, -TAIL_BITS)


@pytest.mark.parametrize(("noise", "parameter"), CASES)
def test_stated_variance_is_that_of_the_distribution(noise: Noise, parameter: float) -> None:
    table = noise_table(noise, parameter)
    second = sum(m * m * mass for m, mass in enumerate(masses(noise, parameter, table.largest + 1)))
    assert table.variance == pytest.approx(float(second), rel=1e-12)
    if noise == "skellam":
        assert table.variance == pytest.approx(parameter, rel=1e-12)


def test_thresholds_rise_and_guides_point_at_them() -> None:
    table = noise_table("skellam", 400.0)
    thresholds = [table.threshold(m) for m in range(table.largest + 1)]
    assert thresholds == sorted(thresholds)
    cells = len(table.guide) - 1
    for cell in range(0, cells, 37):
        start = cell << (63 - cells.bit_length() + 1)
        expected = next(m for m, threshold in enumerate(thresholds) if threshold >> 64 >= start)
        assert table.guide[cell] == expected


def test_tables_are_built_once_and_cannot_be_changed() -> None:
    table = noise_table("discrete-gaussian", 3.25)
    assert noise_table("discrete-gaussian", 3.25) is table
    for array in (table.high, table.low, table.guide):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize("parameter", [0.0, -1.0, math.nan, math.inf, 1e-3, 1e6])
def test_parameters_without_a_table_are_refused(parameter: float) -> None:
    with pytest.raises(ConfigError, match=r"dp\.scale"):
        noise_table("discrete-gaussian", parameter)


def test_unknown_noise_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="discrete-laplace"):
        noise_table("gaussian", 1.0)


@pytest.mark.parametrize("variance", [0.5, 3.0, 40.0])
def test_tail_bound_is_above_the_tail(variance: float) -> None:
    mass = reference("skellam", variance)
    root = math.sqrt(variance)
    for sigmas in (0.5, 1.0, 3.0, 6.0):
        start = math.ceil(sigmas * root)
        tail = sum(mass(k) for k in range(start, start + math.ceil(15 * root) + 15))
        bound = mpmath.exp(log_skellam_tail(variance, start))
        assert tail <= bound
        assert bound < 30 * tail  # Chernoff is this loose and no looser
    assert log_skellam_tail(variance, 0.0) == 0.0
