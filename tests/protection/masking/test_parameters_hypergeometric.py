"""Exact tails: against enumeration, against scipy, and never rounded to the unsafe side."""

from fractions import Fraction
from itertools import combinations
from math import comb, inf, log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from secure_fedrec.protection.masking.config.hypergeometric import (
    least_within,
    log2_above,
    log2_upper_tails,
    upper_tail,
)


def enumerated(population: int, marked: int, drawn: int) -> list[Fraction]:
    """P[X = x] for x from 0 to ``drawn``, by drawing every subset."""
    counts = [0] * (drawn + 1)
    for sample in combinations(range(population), drawn):
        counts[sum(member < marked for member in sample)] += 1
    return [Fraction(count, comb(population, drawn)) for count in counts]


def lower_tail(population: int, marked: int, drawn: int, most: int) -> Fraction:
    """P[X <= most]: the upper tail of the unmarked ones."""
    return upper_tail(population, population - marked, drawn, drawn - most)


@pytest.mark.parametrize("population", range(1, 9))
def test_tails_equal_enumeration(population: int) -> None:
    for marked in range(population + 1):
        for drawn in range(population + 1):
            pmf = enumerated(population, marked, drawn)
            for x in range(-1, drawn + 3):
                assert upper_tail(population, marked, drawn, x) == sum(pmf[max(x, 0) :])
                assert lower_tail(population, marked, drawn, x) == sum(pmf[: max(x + 1, 0)])


@st.composite
def populations(draw: st.DrawFn, most: int = 400) -> tuple[int, int, int]:
    population = draw(st.integers(1, most))
    return population, draw(st.integers(0, population)), draw(st.integers(0, population))


@settings(deadline=None)
@given(populations(), st.fractions(0, 1))
def test_least_within_is_the_smallest_that_meets_the_bound(
    case: tuple[int, int, int], bound: Fraction
) -> None:
    x = least_within(*case, bound)
    assert upper_tail(*case, x) <= bound
    assert x == 0 or upper_tail(*case, x - 1) > bound


@settings(deadline=None)
@given(populations(60), st.integers(0, 60))
def test_a_bound_met_with_equality_is_met(case: tuple[int, int, int], x: int) -> None:
    """Mutant: a strict comparison, or a bound divided in floating point."""
    assert least_within(*case, upper_tail(*case, x)) <= x


@settings(deadline=None)
@given(populations(), st.integers(0, 400))
def test_the_two_tails_are_complements(case: tuple[int, int, int], x: int) -> None:
    assert upper_tail(*case, x) + lower_tail(*case, x - 1) == 1


@pytest.mark.parametrize(
    ("marked", "drawn", "least"),
    [(50_000, 102, 34), (330_000, 110, 83), (450_000, 2_000, 1_100), (999_000, 900, 899)],
)
def test_tails_of_a_million_agree_with_scipy(marked: int, drawn: int, least: int) -> None:
    exact = upper_tail(10**6, marked, drawn, least)
    assert float(exact) == pytest.approx(
        float(hypergeom.sf(least - 1, 10**6, marked, drawn)), rel=1e-6
    )
    assert least_within(10**6, marked, drawn, exact) == least


@pytest.mark.parametrize(
    ("population", "marked", "drawn"),
    [
        (40, 11, 17),
        (1_000, 330, 78),
        (10**6, 50_000, 300),
        (2**24, 2**22, 200),
        (9, 9, 4),
        (9, 0, 4),
    ],
)
def test_the_floating_point_companion_is_off_by_less_than_it_says(
    population: int, marked: int, drawn: int
) -> None:
    approximate = log2_upper_tails(population, marked, drawn)
    assert approximate.shape == (drawn + 1,)
    for x in range(drawn + 1):
        exact = upper_tail(population, marked, drawn, x)
        if exact == 0:
            assert approximate[x] == -inf
        else:
            true = log2(exact.numerator) - log2(exact.denominator)
            assert abs(approximate[x] - true) < 2**-20
    assert np.all(np.diff(approximate[approximate > -inf]) <= 1e-6)


@given(st.fractions(0, 1, max_denominator=10**30).filter(bool))
def test_printed_logarithms_are_rounded_up(probability: Fraction) -> None:
    hundredths = round(log2_above(probability) * 100)
    # p <= 2^(h / 100) exactly when p^100 <= 2^h: integers decide.
    assert probability**100 <= Fraction(2) ** hundredths
    assert probability**100 > Fraction(2) ** (hundredths - 2)


def test_an_impossible_event_has_no_logarithm() -> None:
    assert log2_above(Fraction(0)) == -inf


@pytest.mark.parametrize("case", [(5, 6, 1), (5, -1, 1), (5, 1, 6), (5, 1, -1)])
def test_impossible_populations_are_refused(case: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="marked or"):
        upper_tail(*case, 0)
    with pytest.raises(ValueError, match="marked or"):
        least_within(*case, Fraction(1, 2))


def test_negative_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="bounded by -1/2"):
        least_within(5, 2, 2, Fraction(-1, 2))
