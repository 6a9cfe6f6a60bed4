"""Tails of the hypergeometric distribution, exact.

X counts the marked ones among ``drawn`` members of a population of which ``marked`` are marked,
drawn without replacement:

    P[X = x] = C(marked, x) C(population - marked, drawn - x) / C(population, drawn)

Numerators are integers that follow one another by a multiplication and an exact division, and
nothing is rounded, so comparisons with a bound are exact. ``log2_upper_tails`` is the
floating-point companion. It may exclude candidates of a search, but accepts none.
"""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.special import gammaln


def upper_tail(population: int, marked: int, drawn: int, least: int) -> Fraction:
    """P[X >= least].

    Raises:
        ValueError: not 0 <= marked <= population, or not 0 <= drawn <= population.
    """
    denominator = _all_ways(population, marked, drawn)
    total = 0
    for x, ways in _ways_downwards(population, marked, drawn):
        if x < least:
            break
        total += ways
    return Fraction(total, denominator)


def least_within(population: int, marked: int, drawn: int, bound: Fraction) -> int:
    """The smallest integer x of at least 0 with P[X >= x] <= bound.

    Args:
        population: size of the population.
        marked: marked members.
        drawn: members drawn.
        bound: largest probability allowed, 0 or more.

    Returns:
        x between 0 and ``min(marked, drawn) + 1``; the latter has probability 0.

    Raises:
        ValueError: as ``upper_tail``, or the bound is negative.
    """
    if bound < 0:
        raise ValueError(f"a probability cannot be bounded by {bound}")
    allowed = math.floor(bound * _all_ways(population, marked, drawn))  # numerators are integers
    total = 0
    for x, ways in _ways_downwards(population, marked, drawn):
        total += ways
        if total > allowed:
            return x + 1
    return 0


def _all_ways(population: int, marked: int, drawn: int) -> int:
    if not 0 <= marked <= population or not 0 <= drawn <= population:
        raise ValueError(f"no {marked} marked or {drawn} drawn of {population}")
    return math.comb(population, drawn)


def _ways_downwards(population: int, marked: int, drawn: int) -> Iterator[tuple[int, int]]:
    """(x, C(marked, x) C(population - marked, drawn - x)) from the largest possible x down."""
    plain = population - marked
    highest, lowest = min(marked, drawn), max(0, drawn - plain)
    ways = math.comb(marked, highest) * math.comb(plain, drawn - highest)
    for x in range(highest, lowest - 1, -1):
        yield x, ways
        # Exact: the quotient is the next numerator.
        ways = ways * (x * (plain - drawn + x)) // ((marked - x + 1) * (drawn - x + 1))


def log2_upper_tails(population: int, marked: int, drawn: int) -> FloatArray:
    """log2 P[X >= x] for every x from 0 to ``drawn``, in floating point.

    The error stays below 2^-20 for populations up to 2^24 (tested): good enough to skip hopeless
    candidates with a margin, never to accept one.

    Returns:
        float64[drawn + 1]; -inf where the probability is 0.
    """
    x: FloatArray = np.arange(drawn + 1, dtype=np.float64)
    plain = population - marked
    possible = (x <= marked) & (drawn - x <= plain)
    logs = np.full(drawn + 1, -np.inf)
    inside = x[possible]
    logs[possible] = (
        _log_comb(marked, inside)
        + _log_comb(plain, drawn - inside)
        - _log_comb(population, np.array([drawn], dtype=np.float64))
    )
    tails: FloatArray = np.logaddexp.accumulate(logs[::-1])[::-1] / math.log(2)
    return tails


def _log_comb(n: int, x: FloatArray) -> FloatArray:
    chosen: FloatArray = gammaln(n + 1.0) - gammaln(x + 1.0) - gammaln(n - x + 1.0)
    return chosen


def log2_above(probability: Fraction) -> float:
    """An upper bound of log2 of a probability, within 0.01 of it, for printing.

    Returns:
        The logarithm rounded up to two decimals; -inf for 0.
    """
    if probability == 0:
        return -math.inf
    numerator, denominator = probability.numerator, probability.denominator
    # math.log2 of an int of any size is good to a few units of the last place, far below 1e-6 here
    exact = math.log2(numerator) - math.log2(denominator)
    return math.ceil(exact * 100 + 1e-4) / 100
