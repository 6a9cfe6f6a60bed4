"""Fednoise: FedAvg on changes that every client releases with Gaussian noise of its own.

The noise is that of the toolkit's local mechanism (``protection.dp``): clipped, rounded and noised
in integers, from a cryptographic generator. So a run cannot be repeated bit for bit. Its privacy is
that of ``NOISE.events``; the study does not claim any: the noise is weak enough for models to
learn, as the paper's must have been. At a multiplier of 0.002 of the clip there is no meaningful
epsilon.
"""

from functools import cache
from typing import Final

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.protection.dp import (
    BoundedEncoding,
    Contribution,
    DirectNoiseConfig,
    LocalNoise,
    Part,
)

_CLIP: Final = 5.0
_MULTIPLIER: Final = 0.002
_FRACTION_BITS: Final = 12


@cache
def _mechanism(size: int) -> LocalNoise:
    contribution = Contribution(parts=(Part(name="change", size=size),))
    encoding = BoundedEncoding(contribution=contribution, clip=_CLIP, fraction_bits=_FRACTION_BITS)
    config = DirectNoiseConfig(
        encoding=encoding,
        noise="rounded-gaussian",
        noise_multiplier=_MULTIPLIER,
        place="local",
        ring_bits=64,
        cohort=1,
    )
    return LocalNoise(config)


def local_noise(change: FloatArray) -> FloatArray:
    """Release one client's change.

    What is released is decoded at once: a multiple of 2^-12, which the ring of the study holds
    exactly, so that it can be weighted and summed like any other change.

    Args:
        change: float64[P].

    Returns:
        float64[P].
    """
    mechanism = _mechanism(len(change))
    return mechanism.decode(mechanism.protect({"change": change}), clients=1)["change"]
