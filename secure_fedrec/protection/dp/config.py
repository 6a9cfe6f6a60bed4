"""Settings of the layers "clip" and "skellam", and what they make of a contribution."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from secure_fedrec.errors import ConfigError, renamed_keys
from secure_fedrec.protection.dp.clipping import Contribution, Part
from secure_fedrec.protection.dp.encoding import BoundedEncoding
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.settings import Bits, Count, Natural, Positive, Settings, Within

DP_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "dp": "protection",
        "dp.clip": "protection.norm",
        "dp.cohort": "cohort.clients_per_round",
        "dp.variance": "protection.fraction_bits",
    }
)
"""Keys of a configuration by keys of the package ``dp``."""


class ClipConfig(Settings, section="protection"):
    """Settings of the layer "clip".

    Args:
        norm: largest L2 norm of a client's contribution to a round, rows and scaled counts joined.
        count_scale: factor on the counts of rated items before clipping; the larger, the more of
            the norm they take.

    Raises:
        ConfigError: a field is not positive and finite.
    """

    norm: Positive = 1.0
    count_scale: Positive = 0.1


class SkellamLayerConfig(Settings, section="protection"):
    """Settings of the layer "skellam"; give the noise, or the budget that determines it.

    Args:
        noise_multiplier: standard deviation of the noise that counts over the clip.
        epsilon: budget against the server over all rounds of the run, from which the noise is
            computed.
        delta: probability with which the budget may be exceeded.
        fraction_bits: binary digits kept of a contribution after the point.
        corrupt: clients whose noise does not count, because they may work with the server; by
            default as many as the masks reckon with, and never fewer.
        least_count: smallest denominator of an item; a noisy count below it is raised to it.

    Raises:
        ConfigError: a field is out of range, or both or neither of noise and budget are given.
    """

    noise_multiplier: Positive | None = None
    epsilon: Positive | None = None
    delta: Annotated[float, Within(above=0, below=1)] = 1e-5
    fraction_bits: Annotated[Bits, Within(0, 40)] = 12
    corrupt: Natural | None = None
    least_count: Count = 1

    def _agree(self) -> None:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            either = "give either protection.noise_multiplier or protection.epsilon"
            raise self.refusal("noise_multiplier", either)


def contribution_of(*, n_items: int, width: int, clip: ClipConfig) -> Contribution:
    """What a client adds to a round: its rows of the table, and which rows those are."""
    return Contribution(
        parts=(
            Part(name="rows", size=n_items * width),
            Part(name="counts", size=n_items, scale=clip.count_scale),
        )
    )


def encoding_of(
    *, n_items: int, width: int, clip: ClipConfig, noise: SkellamLayerConfig
) -> BoundedEncoding:
    """How a contribution is clipped and encoded: rows of the table, and which rows those are.

    Raises:
        ConfigError: a clipped contribution has too many ring units, or there are too few digits.
    """
    with renamed_keys(DP_KEYS):
        return BoundedEncoding(
            contribution=contribution_of(n_items=n_items, width=width, clip=clip),
            clip=clip.norm,
            fraction_bits=noise.fraction_bits,
        )


def corrupt_clients(
    config: MaskingLayerConfig, noise: SkellamLayerConfig, *, cohort: int, n_clients: int
) -> int:
    """Number of clients whose noise does not count.

    Raises:
        ConfigError: fewer than the masks reckon with.
    """
    least = config.corrupt_clients(cohort=cohort, n_clients=n_clients)
    if noise.corrupt is None:
        return least
    if noise.corrupt < least:
        raise ConfigError(
            "protection.corrupt",
            noise.corrupt,
            f"the masks reckon with {least} of {cohort} clients working with the server; the noise "
            f"of as many must not count: at least {least}, or lower the masks' share",
        )
    return noise.corrupt
