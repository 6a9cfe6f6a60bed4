"""Settings of the layer "local-dp"."""

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Annotated, Final, Literal

from secure_fedrec.errors import renamed_keys
from secure_fedrec.protection.dp import BoundedEncoding, Contribution, DirectNoiseConfig, Part
from secure_fedrec.settings import Bits, Positive, Settings, Within

BAG_NOISE_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dp": "bag_protection",
        # Delta itself is not a setting of this class.
        "dp.delta": "bag_protection.noise_multiplier",
        "dp.scale": "bag_protection.noise_multiplier",
    }
)
"""Keys of a configuration by keys of the package ``dp``, for noise in bags."""


VECTOR = "vector"


class LocalDPConfig(Settings, section="bag_protection"):
    """Settings of the layer.

    Args:
        clip: largest norm of a vector: L2 for Gaussian noise, L1 for Laplace noise.
        noise: its distribution; a rounded Gaussian is priced as the continuous one.
        noise_multiplier: standard deviation (Laplace: scale) over the sensitivity.
        fraction_bits: binary digits kept of a vector; digits far below the noise are useless, and
            long tables of noise take seconds to build.
        adjacency: "replace", any vector may stand in for any other, or "zero-out", which halves
            the sensitivity.

    Raises:
        ConfigError: a field is out of range.
    """

    clip: Positive = 1.0
    noise: Literal["rounded-gaussian", "discrete-gaussian", "discrete-laplace"] = "rounded-gaussian"
    noise_multiplier: Positive = 1.0
    fraction_bits: Annotated[Bits, Within(0, 40)] = 8
    adjacency: Literal["replace", "zero-out"] = "replace"

    def mechanism(self, *, width: int, ring_bits: int) -> DirectNoiseConfig:
        """The mechanism for vectors of one width.

        Raises:
            ConfigError: a setting is out of range, or the noise needs too long a table.
            SumBudgetError: a noisy value could leave the ring.
        """
        written = {f"bag_protection.{name}": value for name, value in asdict(self).items()}
        with renamed_keys(BAG_NOISE_KEYS, written):
            encoding = BoundedEncoding(
                contribution=Contribution(parts=(Part(name=VECTOR, size=width),)),
                clip=self.clip,
                fraction_bits=self.fraction_bits,
                order=1 if self.noise == "discrete-laplace" else 2,
            )
            return DirectNoiseConfig(
                encoding=encoding,
                noise=self.noise,
                noise_multiplier=self.noise_multiplier,
                place="local",
                ring_bits=ring_bits,
                cohort=1,
                adjacency=self.adjacency,
            )
