"""Rounds reals to integers without bias, with a guaranteed bound on the norm.

Each coordinate is rounded up with the probability of its fractional part, so the result is right on
average; the norm can grow, so the draw is repeated until it is within a bound that a single draw
exceeds with probability at most ``rejection`` (conditional rounding: Kairouz, Liu and Steinke 2021,
"The distributed discrete Gaussian mechanism for federated learning with secure aggregation",
section 4). The bound is checked on the integers: the sensitivity that an accountant uses holds
whatever the floating-point steps before it did.

Conditioning moves the mean by at most ``2 rejection (r + sqrt(d))`` in norm, r being the norm
before rounding. At the default, 2^-40, draws are hardly ever repeated: the mean is right to 2^-39
of the norm, and the time taken does not tell whether a vector was near the bound.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray, WordArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.errors import EncodingError
from secure_fedrec.protection.dp.sampler import secret_words

MOST_NORM = 2.0**30
"""Largest norm before rounding, in ring units: integer sums of squares stay below 2^63."""

_MOST_ATTEMPTS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NormBound:
    """The bound on a rounded vector, and the sensitivities that follow from it (zero-out).

    Args:
        order: the norm that is checked: 2, or 1.
        limit: the squared L2 norm, or the L1 norm, that is never exceeded; an integer.
        size: d, number of coordinates.
    """

    order: Literal[1, 2]
    limit: int
    size: int

    @property
    def l2_square(self) -> int:
        """Largest squared L2 norm; an L1 norm of D allows one coordinate of D."""
        return self.limit if self.order == 2 else self.limit**2

    @property
    def l1(self) -> float:
        """Largest L1 norm: min(sqrt(d) D, D^2) for an L2 norm of D.

        The first by Cauchy and Schwarz, the second because |x| <= x^2 for integers.
        """
        if self.order == 1:
            return float(self.limit)
        root = math.nextafter(math.sqrt(self.size * self.limit), math.inf)
        return min(root, float(self.limit))

    @property
    def peak(self) -> int:
        """Largest magnitude of a coordinate."""
        return math.isqrt(self.limit) if self.order == 2 else self.limit

    def holds(self, integers: IntArray) -> bool:
        """Whether an integer vector is within the bound; magnitudes are below 2^31."""
        if self.order == 1:
            return int(np.abs(integers).sum()) <= self.limit
        return int(np.dot(integers, integers)) <= self.limit


def norm_bound(norm: float, size: int, *, rejection: float, order: Literal[1, 2] = 2) -> NormBound:
    """The bound that one rounding of a vector misses with probability at most ``rejection``.

    For L2 the smaller of (r + sqrt(d))^2, which rounding cannot exceed, and
    r^2 + d / 4 + sqrt(2 ln(1 / beta)) (r + sqrt(d) / 2). For L1, whose expectation rounding keeps,
    the smaller of r + d and (Hoeffding) r + sqrt(d ln(1 / beta) / 2).

    Args:
        norm: r, the norm before rounding, in ring units, at most ``MOST_NORM``.
        size: d.
        rejection: beta, in (0, 1).
        order: order of the norm.
    """
    doubt = -math.log(rejection)
    if order == 1:
        limit = norm + min(float(size), math.sqrt(size * doubt / 2))
    else:
        spread = math.sqrt(2 * doubt) * (norm + math.sqrt(size) / 2)
        limit = min((norm + math.sqrt(size)) ** 2, norm * norm + size / 4 + spread)
    return NormBound(order=order, limit=math.floor(limit), size=size)


def round_within(values: FloatArray, bound: NormBound) -> IntArray:
    """Round to integers, repeatedly until the bound holds.

    Args:
        values: float64[bound.size], of norm at most ``MOST_NORM``.
        bound: see ``norm_bound``.

    Returns:
        int64[bound.size].

    Raises:
        EncodingError: NaN, infinite or too long, or the bound was missed so often that the vector
            cannot be within the norm that the bound was made for.
    """
    if values.shape != (bound.size,):
        raise EncodingError(f"a vector of shape ({bound.size},) was due, got {values.shape}")
    if not float(np.square(values).sum()) <= (2 * MOST_NORM) ** 2:  # NaN compares false
        raise EncodingError(f"a vector to round must have a norm of at most {MOST_NORM:g}")
    integers = np.empty(values.shape, dtype=np.int64)
    for _ in range(_MOST_ATTEMPTS):
        round_up_or_down(values, secret_words(len(values)), integers)
        if bound.holds(integers):
            return integers
    raise EncodingError(
        f"{_MOST_ATTEMPTS} roundings in a row missed the bound {bound}; the vector is longer than "
        "the bound was made for"
    )


@compiled_loop
def round_up_or_down(values: FloatArray, words: WordArray, integers: IntArray) -> None:
    """Round each value up with the probability of its fractional part.

    Magnitudes are below 2^31 (the caller's check). The probability is the fraction cut to 53 bits.
    """
    for place in range(len(values)):
        floor = np.floor(values[place])
        above = (values[place] - floor) * 9007199254740992.0
        up = np.float64(words[place] >> np.uint64(11)) < above
        integers[place] = np.int64(floor) + (1 if up else 0)
