"""From a client's arrays to integers of certain norm: join, clip, rotate, scale, round."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.dp.clipping import Contribution, clip_to_norm
from secure_fedrec.protection.dp.rotation import Rotation
from secure_fedrec.protection.dp.rounding import MOST_NORM, NormBound, norm_bound, round_within

__all__ = ["BoundedEncoding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedEncoding:
    """How a contribution becomes integers.

    Args:
        contribution: layout of what one client adds to a round.
        clip: largest norm of the joined, scaled vector.
        fraction_bits: binary digits kept after the point; a ring unit is 2^-fraction_bits.
        rejection: probability with which one rounding may miss the norm bound, see ``rounding``.
        order: 2 clips the L2 norm (Gaussian and Skellam noise), 1 the L1 norm (Laplace noise).

    Raises:
        ConfigError: a field is out of range, or the clip has more than 2^30 ring units.
    """

    contribution: Contribution
    clip: float
    fraction_bits: int
    rejection: float = 2.0**-40
    order: Literal[1, 2] = 2

    def __post_init__(self) -> None:
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise ConfigError("dp.clip", self.clip, "must be positive and finite")
        if not 0 <= self.fraction_bits <= 40:
            raise ConfigError("dp.fraction_bits", self.fraction_bits, "must be from 0 to 40")
        if not 0 < self.rejection < 1:
            raise ConfigError("dp.rejection", self.rejection, "must be between 0 and 1")
        if self.order not in (1, 2):
            raise ConfigError("dp.order", self.order, "is not a norm", [1, 2])
        longest = self.clip * self.scale + math.sqrt(self.contribution.size)
        if longest > MOST_NORM:
            raise ConfigError(
                "dp.fraction_bits",
                self.fraction_bits,
                f"a vector of norm dp.clip = {self.clip:g} could have {longest:g} ring units, "
                "above 2^30; lower it (noise makes digits far below its own size worthless)",
            )

    @property
    def scale(self) -> float:
        """Ring units per 1.0, a power of two."""
        return float(2.0**self.fraction_bits)

    @property
    def bound(self) -> NormBound:
        """What every encoded vector is held to."""
        return norm_bound(
            self.clip * self.scale,
            self.contribution.size,
            rejection=self.rejection,
            order=self.order,
        )

    def encode(
        self, values: Mapping[str, FloatArray], rotation: Rotation | None = None
    ) -> IntArray:
        """Encode one client's contribution.

        Args:
            values: one array per noised part, see ``Contribution.join``.
            rotation: the round's, or none.

        Returns:
            int64[contribution.size], within ``bound``; zeros encode to zeros.

        Raises:
            EncodingError: a part is missing, has another size, or holds NaN or infinity.
        """
        vector = clip_to_norm(self.contribution.join(values), self.clip, order=self.order)
        if rotation is not None:
            vector = rotation.apply(vector)
        return round_within(vector * self.scale, self.bound)

    def decode(self, integers: IntArray, rotation: Rotation | None = None) -> dict[str, FloatArray]:
        """The parts of a sum of encoded vectors: float64[part.size] each."""
        vector = integers / self.scale
        if rotation is not None:
            vector = rotation.invert(vector)
        return self.contribution.split(vector)
