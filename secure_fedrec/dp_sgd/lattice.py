"""Noise on multiples of a step, for summed gradients."""

import math

import numpy as np

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import ConfigError, EncodingError
from secure_fedrec.protection.dp.sampler import draw_noise
from secure_fedrec.protection.dp.tables import NoiseTable, noise_table

_ROUNDING_SHARE = 16  # noise at least 16 times what rounding can add: at most 6.7 % more noise
_MOST_SIGMA = 2**15


class LatticeNoise:
    """Gaussian noise on multiples of a step, added to vectors of bounded sensitivity.

    With step g, sensitivity C and d coordinates, rounded vectors of neighbours differ by at most
    C / g + sqrt(d) steps; the noise has ``multiplier`` times that as its standard deviation.

    Args:
        size: d.
        sensitivity: C, L2.
        multiplier: standard deviation over sensitivity.

    Raises:
        ConfigError: d is so large that the noise table would be too long.
    """

    __slots__ = ("size", "step", "table")

    size: int
    step: float
    table: NoiseTable

    def __init__(self, *, size: int, sensitivity: float, multiplier: float) -> None:
        root = math.sqrt(size)
        sigma = 2.0 ** max(6, math.ceil(math.log2(_ROUNDING_SHARE * multiplier * root)))
        if sigma > _MOST_SIGMA:
            raise ConfigError(
                "dp_sgd.noise_multiplier",
                multiplier,
                f"on {size} parameters the noise would span {sigma:g} lattice steps, above "
                f"{_MOST_SIGMA}; train fewer parameters or lower the multiplier",
            )
        self.size = size
        self.table = noise_table("rounded-gaussian", sigma)
        self.step = math.nextafter(sensitivity / (sigma / multiplier - root), math.inf)

    def add(self, values: FloatArray) -> FloatArray:
        """``values`` rounded to the lattice, plus noise: float64[size].

        Raises:
            EncodingError: a value is NaN, infinite, or beyond 2^52 steps.
        """
        scaled = values / self.step
        if not float(np.abs(scaled).max(initial=0.0)) < 2.0**52:  # NaN compares false
            raise EncodingError(
                "a summed gradient is NaN, infinite or too large: training diverged"
            )
        steps = np.rint(scaled).astype(np.int64) + draw_noise(self.table, self.size)
        return np.asarray(steps * self.step)
