"""Integer weights of four symmetric distributions on the integers, with errors below 2^-150.

Each function returns ``w[0], w[1], ..., w[M]``, plain integers proportional to the probabilities of
the magnitudes' representatives: P[X = k] = P[X = -k] = w[k] / (w[0] + 2 (w[1] + ... + w[M])). The
last place M lies so far out that the mass beyond it is below ``2^-TRUNCATION_BITS`` times a few.
The parameter is read as an exact rational, and no floats are used afterwards, so the tables do not
depend on a library's rounding.

Sources: Skellam, "The frequency distribution of the difference between two Poisson variates" (1946)
with Miller's backward recurrence for the modified Bessel functions (Olver 1964; Gautschi 1967);
discrete Gaussian and discrete Laplace, Canonne, Kamath and Steinke, "The discrete Gaussian for
differential privacy" (2020), definitions 1 and 3.
"""

import math
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

TRUNCATION_BITS = 180
"""Mass left out by a list of weights, as a power of two."""

_FRACTION_BITS = 288  # bits of the fixed-point weights: cumulative errors stay below 2^-220
_CONTEXT = Context(prec=150, Emin=-(10**9), Emax=10**9)
_LOG_CUT = -TRUNCATION_BITS * math.log(2)


def log_skellam_tail(variance: float, distance: float) -> float:
    """Chernoff bound: ln P[X >= distance] for a centred Skellam X.

    The moment generating function is exp(v (cosh s - 1)); its best exponent is s = asinh(t / v).
    """
    if distance <= 0:
        return 0.0
    reach = math.hypot(variance, distance)
    # sqrt(v^2 + t^2) - v without cancellation.
    return distance * distance / (reach + variance) - distance * math.asinh(distance / variance)


def skellam_weights(variance: float) -> list[int]:
    """Weights proportional to I_k(variance): P[X = k] = exp(-v) I_k(v).

    I_{k-1} = I_{k+1} + (2k / v) I_k is run downwards from two starting values. Every term is
    positive, so rounding errors add and never cancel; the effect of the wrong starting values
    decreases with the square of the probability. The weights normalise themselves, because
    I_0 + 2 (I_1 + I_2 + ...) = exp(v).
    """
    value = Fraction(variance)
    first = _reach(lambda place: log_skellam_tail(variance, place))
    above, here = 0, 1 << TRUNCATION_BITS
    found = [here]
    for order in range(first, 0, -1):
        above, here = here, above + 2 * order * value.denominator * here // value.numerator
        found.append(here)
    found.reverse()
    return found


def discrete_gaussian_weights(sigma: float) -> list[int]:
    """Weights exp(-k^2 / (2 sigma^2)), by the ratio of neighbours."""
    ratio = _exp_fixed(-1 / (2 * Fraction(sigma) ** 2))
    twice = ratio * ratio >> _FRACTION_BITS
    found = [1 << _FRACTION_BITS]
    for _ in range(math.ceil(sigma * math.sqrt(-2 * _LOG_CUT)) + 2):
        found.append(found[-1] * ratio >> _FRACTION_BITS)
        ratio = ratio * twice >> _FRACTION_BITS
    return found


def discrete_laplace_weights(scale: float) -> list[int]:
    """Weights exp(-k / scale), a geometric sequence."""
    value = Fraction(scale)
    last = math.ceil(-_LOG_CUT * scale) + 2
    ratio = _exp_fixed(-1 / value)
    found = [1 << _FRACTION_BITS]
    for _ in range(last):
        found.append(found[-1] * ratio >> _FRACTION_BITS)
    return found


def rounded_gaussian_weights(sigma: float) -> list[int]:
    """Weights of round(Z), Z ~ N(0, sigma^2): the density integrated over [k - 1/2, k + 1/2].

    Added to an integer, such noise is the rounding of a continuous Gaussian's output: whatever an
    accountant proves for the continuous mechanism holds by post-processing.

    Around k the density is a power series whose coefficients obey
    (m + 1) c_{m+1} = -(k c_m + c_{m-1}) / sigma^2; odd powers integrate to nothing.
    """
    numerator, denominator = (Fraction(sigma) ** 2).as_integer_ratio()
    weights = []
    for place, centre in enumerate(discrete_gaussian_weights(sigma)):
        before, term, integral = 0, centre << 64, centre << 64
        power = 0
        while True:
            power += 1
            following = -(place * term + before) * denominator
            before, term = term, following // (power * numerator)
            if power % 2:
                continue
            integral += (term >> power) // (power + 1)
            # Magnitudes first rise, while power < place / sigma^2, and then fall factorially.
            falls = power * numerator > place * denominator
            if falls and abs(term) >> power <= 1 and abs(before) >> power <= 1:
                break
        weights.append(integral >> 64)
    return weights


def _reach(log_tail: Callable[[float], float]) -> int:
    """The first place (found by doubling, then halving) whose tail is below the cut."""
    high = 1
    while log_tail(high) > _LOG_CUT:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if log_tail(middle) > _LOG_CUT else (low, middle)
    return high


def _exp_fixed(exponent: Fraction) -> int:
    power = _CONTEXT.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return int(_CONTEXT.multiply(_CONTEXT.exp(power), Decimal(1 << _FRACTION_BITS)))
