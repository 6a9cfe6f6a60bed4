"""Layer "local-dp" over bags: every vector is clipped and noised at its client.

Each vector is a release of its own through ``dp.direct``: clipped (L2 for Gaussian noise, L1 for
Laplace noise), rounded to integers within the clip, noised with integers of the operating system's
generator. The noisy integers are the vector's ring words, on a coarser grid than the ring's:
``fraction_bits`` digits are kept, the ring's further digits are zero. Nothing is encoded twice.

Two prices are stated: of one vector, and of everything that one client gives to all bags in a
round, up to ``most`` vectors per bag. Not protected: how many vectors there are.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from secure_fedrec.core.arrays import FloatArray, RingArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.bags.config import VECTOR, LocalDPConfig
from secure_fedrec.protection.base.layer_interfaces import BagShape
from secure_fedrec.protection.dp import Event, GaussianNoise, LaplaceNoise, LocalNoise


class NoisyVectors:
    """The layer for given bags and ring.

    Args:
        config: settings.
        bags: sizes of the bags.
        codec: the ring.

    Raises:
        ConfigError: the ring keeps fewer digits than the layer.
        SumBudgetError: a noisy value could leave the ring.
    """

    def __init__(
        self, config: LocalDPConfig, *, bags: Mapping[str, BagShape], codec: FixedPoint
    ) -> None:
        finer = codec.fraction_bits - config.fraction_bits
        if finer < 0 or codec.bits - finer < 8:
            problem = f"the ring has {codec.fraction_bits} of {codec.bits} bits after the point"
            raise ConfigError("bag_protection.fraction_bits", config.fraction_bits, problem)
        self.config = config
        self._bags = bags
        self._codec = codec
        self._mechanisms = {
            name: config.mechanism(width=shape.width, ring_bits=codec.bits - finer)
            for name, shape in bags.items()
        }
        self._halves = {name: LocalNoise(each) for name, each in self._mechanisms.items()}

    def protect(self, name: str, values: FloatArray) -> RingArray:
        """Noise the vectors of a bag; every vector of every call is a release of its own.

        Args:
            name: name of the bag.
            values: float64[N, d].

        Returns:
            [N, d] words of the stack's ring.

        Raises:
            EncodingError: a value is NaN or infinite.
        """
        own, half = self._mechanisms[name].codec, self._halves[name]
        integers = np.empty(values.shape, dtype=np.int64)
        for noised, vector in zip(integers, values, strict=True):
            noised[:] = own.to_integers(half.protect({VECTOR: vector}))
        finer = self._codec.fraction_bits - self.config.fraction_bits
        return self._codec.from_integers(integers << finer)

    def client_events(self, *, rounds: int) -> tuple[Event, ...]:
        """The release of one client with all vectors that it may give: one event per bag.

        The number of a client's vectors is not protected: neighbours differ in their values.
        """
        found = []
        for name, shape in self._bags.items():
            (event,) = self._mechanisms[name].events(rounds=rounds)
            covers = f"all vectors of one client in the bag {name!r}, up to {shape.most} a round"
            found.append(_covering(event, covers, vectors=shape.most))
        return tuple(found)


def _covering(event: Event, covers: str, *, vectors: int) -> Event:
    """The event of this many vectors of one mechanism that change together.

    Gaussian noise on k vectors is one Gaussian on their joint vector, whose sensitivity is sqrt(k)
    times that of one; pure epsilons add.
    """
    mechanism = event.mechanism
    if isinstance(mechanism, GaussianNoise):
        shorter = mechanism.multiplier / math.sqrt(vectors)
        mechanism = GaussianNoise(multiplier=shorter, form=mechanism.form)
    elif isinstance(mechanism, LaplaceNoise):
        mechanism = LaplaceNoise(epsilon=mechanism.epsilon * vectors)
    return replace(
        event,
        mechanism=mechanism,
        covers=covers,
        distance=min(1.0, vectors * event.distance),
        assumes=("how many vectors a client gives is not protected",),
    )
