"""Converts a client's arrays to integers of bounded norm: join, clip, rotate, scale, round."""

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.dp.clipping import Contribution, clip_to_norm
from secure_fedrec.protection.dp.rotation import Rotation
from secure_fedrec.protection.dp.rounding import MOST_NORM, NormBound, norm_bound, round_within
from secure_fedrec.settings import Positive, Settings, Within


class BoundedEncoding(Settings, section="dp"):
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
    clip: Positive
    fraction_bits: Annotated[int, Within(0, 40)]
    rejection: Annotated[float, Within(above=0, below=1)] = 2.0**-40
    order: Literal[1, 2] = 2

    def _agree(self) -> None:
        longest = self.clip * self.scale + math.sqrt(self.contribution.size)
        if longest > MOST_NORM:
            raise ConfigError(
                "dp.fraction_bits",
                self.fraction_bits,
                f"a vector of norm {{clip}} = {self.clip:g} could have {longest:g} ring units, "
                "above 2^30; lower it (noise makes digits far below its own size worthless)",
                related={"clip": "dp.clip"},
            )

    @property
    def scale(self) -> float:
        """Ring units per 1.0, a power of two."""
        return float(2.0**self.fraction_bits)

    @property
    def bound(self) -> NormBound:
        """Bounds that every encoded vector keeps."""
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


def require_ring_bits(bits: int) -> None:
    """Check the width of the ring that noise is added in.

    Raises:
        ConfigError: it is not a number from 8 to 64.
    """
    if not 8 <= bits <= 64:
        raise ConfigError("ring.bits", bits, "must be between 8 and 64")
