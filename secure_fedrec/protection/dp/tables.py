"""Noise tables: the distribution function of a symmetric integer noise, to the last bit.

A table holds thresholds T[0] < ... < T[K] = 2^127 for the magnitude: with U uniform below 2^127 the
magnitude is the first m with U < T[m], and one more bit gives the sign, so the noise is symmetric
exactly. The thresholds are floors of the true distribution function times 2^127. So the distance of
the drawn distribution from the named one is known (``NoiseTable.distance``): the tail that was cut
plus one unit of 2^-127 per entry.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Literal, TypeAlias

import numpy as np

from secure_fedrec.core.arrays import IntArray, WordArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.dp.weights import (
    TRUNCATION_BITS,
    discrete_gaussian_weights,
    discrete_laplace_weights,
    rounded_gaussian_weights,
    skellam_weights,
)

Noise: TypeAlias = Literal["discrete-gaussian", "discrete-laplace", "rounded-gaussian", "skellam"]
"""The distributions; their parameter is sigma, the scale t, sigma, and the variance."""

THRESHOLD_BITS = 127
"""Bits of a threshold: 63 of a first word (one is the sign) and 64 of a second."""

TAIL_BITS = 126
"""Mass cut from the two tails together, at most 2^-126."""

MOST_ENTRIES = 2**20
"""Longest table: about 16 MB, and seconds to build."""

_GUIDE_BITS = 14
# Entries per unit of the parameter (of its root, for a variance) until the mass left is 2^-180;
# the list of weights is what takes time and memory.
_WEIGHTS_PER_SIGMA = 15.8
_WEIGHTS_PER_SCALE = 125.0

_WEIGHTS: dict[str, Callable[[float], list[int]]] = {
    "discrete-gaussian": discrete_gaussian_weights,
    "discrete-laplace": discrete_laplace_weights,
    "rounded-gaussian": rounded_gaussian_weights,
    "skellam": skellam_weights,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoiseTable:
    """What the sampler searches.

    Args:
        noise: name of the distribution.
        parameter: its parameter, in ring units (squared, for the variance of a Skellam).
        high: uint64[K + 1], the upper 63 bits of each threshold.
        low: uint64[K + 1], the lower 64 bits.
        guide: int64[2^14 + 1], for each value of the top bits of a draw the first magnitude that
            it can give.
        variance: variance of the distribution, for planning (a float, not part of any proof).
    """

    noise: Noise
    parameter: float
    high: WordArray = field(repr=False)
    low: WordArray = field(repr=False)
    guide: IntArray = field(repr=False)
    variance: float

    @property
    def largest(self) -> int:
        """Largest magnitude that is ever drawn."""
        return len(self.high) - 1

    @property
    def distance(self) -> float:
        """Bound on the total variation between one draw and the named distribution.

        The cut tail, one rounding of each threshold, and the weights' own error (below 2^-150).
        """
        return 2.0**-TAIL_BITS + len(self.high) * 2.0**-THRESHOLD_BITS

    def threshold(self, magnitude: int) -> int:
        """T[magnitude], out of 2^127."""
        return (int(self.high[magnitude]) << 64) + int(self.low[magnitude])


@lru_cache(maxsize=8)
def noise_table(noise: Noise, parameter: float) -> NoiseTable:
    """Build a table, or return the cached one.

    Args:
        noise: which distribution.
        parameter: its parameter, in ring units; the float is taken as the exact rational it is.

    Raises:
        ConfigError: an unknown distribution, a parameter that is not positive and finite, or one
            so large that the table would be longer than ``MOST_ENTRIES``.
    """
    if noise not in _WEIGHTS:
        raise ConfigError("dp.noise", noise, "is not a noise distribution", sorted(_WEIGHTS))
    _check(noise, parameter)
    thresholds, variance = _thresholds(_WEIGHTS[noise](parameter))
    # The last threshold is 2^127 and so is out of reach of 63 bits: its high word is 2^63.
    high = np.array([threshold >> 64 for threshold in thresholds], dtype=np.uint64)
    low = np.array([threshold & (2**64 - 1) for threshold in thresholds], dtype=np.uint64)
    starts = np.arange(2**_GUIDE_BITS + 1, dtype=np.uint64) << np.uint64(63 - _GUIDE_BITS)
    guide = np.searchsorted(high, starts, side="left").astype(np.int64)
    for array in (high, low, guide):
        array.setflags(write=False)
    return NoiseTable(
        noise=noise, parameter=parameter, high=high, low=low, guide=guide, variance=variance
    )


def _check(noise: Noise, parameter: float) -> None:
    key = f"dp.{'variance' if noise == 'skellam' else 'scale'}"
    if not (math.isfinite(parameter) and parameter > 0):
        raise ConfigError(key, parameter, "must be positive and finite")
    spread = math.sqrt(parameter) if noise == "skellam" else parameter
    each = _WEIGHTS_PER_SCALE if noise == "discrete-laplace" else _WEIGHTS_PER_SIGMA
    if spread * each > MOST_ENTRIES:
        raise ConfigError(
            key,
            parameter,
            f"a {noise} table would have more than {MOST_ENTRIES} entries; lower the ring's "
            "fraction_bits, so that the noise spans fewer ring units",
        )
    if spread < 2.0**-5:
        raise ConfigError(
            key, parameter, "the noise is almost surely 0; raise the ring's fraction_bits"
        )


def _thresholds(weights: Sequence[int]) -> tuple[list[int], float]:
    total = weights[0] + 2 * sum(weights[1:])
    masses = accumulate(weights[1:], lambda mass, weight: mass + 2 * weight, initial=weights[0])
    floors = []
    for mass in masses:
        # The tail beyond this magnitude is below 2^-126 and is added to this magnitude.
        if (total - mass) << TAIL_BITS < total:
            floors.append(1 << THRESHOLD_BITS)
            break
        floors.append((mass << THRESHOLD_BITS) // total)
    # Moments from the top bits of the weights: floats suffice for planning.
    shift = max(0, total.bit_length() - TRUNCATION_BITS)
    squares = sum(2 * place * place * (weight >> shift) for place, weight in enumerate(weights))
    return floors, squares / (total >> shift)
