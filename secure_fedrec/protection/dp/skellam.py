"""Distributed Skellam noise inside the ring: clients add shares, and the sum has the whole noise.

Each client adds Skellam noise of variance target / (min_survivors - corrupt) to its encoded vector.
The Skellam family is closed under addition, so the honest survivors' noise is exactly Skellam with
at least the target variance, whichever clients drop out, as long as the survivor floor holds; what
colluding clients know of their own shares is not counted. Who takes part changes the variance, and
with it the energy of the sum: no sampling of the cohort amplifies this noise. The server sees the
vector only inside a sum if a masking layer (or additive sharing, or packed ciphertexts) hides the
uploads: this module only converts to and from ring words.

Sources: Agarwal, Kairouz and Liu, "The Skellam mechanism for differentially private federated
learning" (2021); Valovich and Alda, "Computational differential privacy from lattice-based
cryptography" (2017). The Renyi curve is in ``secure_fedrec.accounting``.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Annotated

from secure_fedrec.core.arrays import FloatArray, RingArray
from secure_fedrec.errors import ConfigError, ProtocolError, SumBudgetError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.events import (
    Event,
    SkellamNoise,
    exact_events,
    whole_contribution,
)
from secure_fedrec.protection.dp.encoding import BoundedEncoding, require_ring_bits
from secure_fedrec.protection.dp.ring_words import require_ring_words
from secure_fedrec.protection.dp.rotation import Rotation, window_of
from secure_fedrec.protection.dp.sampler import draw_noise
from secure_fedrec.protection.dp.tables import NoiseTable, noise_table
from secure_fedrec.protection.dp.weights import log_skellam_tail
from secure_fedrec.settings import Natural, Settings, Within

MOST_WRAP = 2.0**-40
"""Largest accepted bound on the probability that one round's sum leaves the ring."""

MOST_NOISE = 2.0**40
"""Largest accepted noise multiplier, and the inverse of the smallest."""

_ROTATION_DOUBT = MOST_WRAP / 2  # probability allowed for an unlucky rotation


class SkellamConfig(Settings, section="dp"):
    """Settings of a round with distributed noise; public, and equal for all parties.

    Args:
        encoding: layout, clip and resolution of a contribution; clips the L2 norm.
        noise_multiplier: standard deviation of the noise that counts, over the L2 sensitivity.
        ring_bits: width of the ring in which contributions are summed.
        cohort: most clients that can be in one sum.
        min_survivors: fewest clients in a sum that may be opened.
        corrupt: clients that may collude with the adversary: the noise they added is known to it.

    Raises:
        ConfigError: a field is out of range, or the noise needs too long a table.
        SumBudgetError: a coordinate could leave the ring with probability above 2^-40.
    """

    encoding: BoundedEncoding
    noise_multiplier: Annotated[float, Within(1 / MOST_NOISE, MOST_NOISE)]
    ring_bits: int
    cohort: int
    min_survivors: int
    corrupt: Natural

    def _agree(self) -> None:
        if self.encoding.order != 2:
            raise ConfigError("dp.order", self.encoding.order, "Skellam noise clips L2", [2])
        require_ring_bits(self.ring_bits)
        if not self.corrupt < self.min_survivors <= self.cohort:
            raise ConfigError(
                "dp.min_survivors",
                self.min_survivors,
                f"must exceed {{corrupt}} = {self.corrupt} (their noise does not count) and be at "
                f"most {{cohort}} = {self.cohort}",
                related={"corrupt": "dp.corrupt", "cohort": "dp.cohort"},
            )
        if self.wrap_probability > MOST_WRAP:
            self._refuse()
        self.codec  # noqa: B018 - refuses a ring that one client's largest word would leave

    @property
    def variance(self) -> float:
        """Target variance of the noise that counts, per coordinate, in ring units squared."""
        return self.noise_multiplier**2 * self.encoding.bound.l2_square

    @property
    def local_variance(self) -> float:
        """Variance that each client adds: the least whose sum over honest clients is enough."""
        return local_share(self.variance, self.min_survivors - self.corrupt)

    @property
    def table(self) -> NoiseTable:
        """A client's noise."""
        return noise_table("skellam", self.local_variance)

    @property
    def codec(self) -> FixedPoint:
        """The ring, with the largest magnitude of one client's word as its clip."""
        largest = self.encoding.bound.peak + self.table.largest
        return FixedPoint(bits=self.ring_bits, fraction_bits=0, clip=float(largest))

    @property
    def wrap_probability(self) -> float:
        """Bound on the probability that any coordinate of a round's sum leaves the ring.

        The contributions take either their guaranteed bound (clients times the largest coordinate)
        or, outside a set of rotations of probability 2^-41, the share by Hoeffding's inequality
        over the random signs plus one unit per client for rounding; Chernoff's bound gives what the
        noise does with the rest. Contributions are within their norm: a client that breaks the
        protocol can spoil a sum anyway.
        """
        room = 2 ** (self.ring_bits - 1) - 1
        certain = self._noise_tail(room - self.cohort * self.encoding.bound.peak)
        spread = self._noise_tail(room - self._likely_signal()) + _ROTATION_DOUBT
        return min(1.0, certain, spread)

    def deviation(self, survivors: int) -> float:
        """Standard deviation of the noise in a decoded sum, before a part's scale is taken off."""
        return math.sqrt(survivors * self.local_variance) / self.encoding.scale

    def events(self, *, rounds: int) -> tuple[Event, ...]:
        """What that many rounds release: the noised sum, and every part released without noise."""
        contribution = self.encoding.contribution
        names = ", ".join(part.name for part in contribution.noised)
        (planned,) = skellam_events(self.noise_multiplier, self.encoding, rounds=rounds)
        noised = replace(
            planned,
            covers=f"{planned.covers} ({names})",
            distance=min(1.0, self.cohort * contribution.size * self.table.distance),
            wrap=self.wrap_probability,
            assumes=(
                "each upload is hidden inside the sum (masks, shares or packed ciphertexts)",
                f"only sums over at least {self.min_survivors} clients are opened",
                f"at most {self.corrupt} of them collude with the adversary",
            ),
        )
        return (noised, *exact_events(contribution.exact, rounds))

    def _likely_signal(self) -> float:
        size = self.encoding.contribution.size
        norm = self.cohort * self.encoding.clip * self.encoding.scale
        doubt = 2 * math.log(2 * size / _ROTATION_DOUBT)
        return norm * math.sqrt(doubt / window_of(size)) + self.cohort

    def _noise_tail(self, gap: float) -> float:
        if gap <= 0:
            return 1.0
        size = self.encoding.contribution.size
        tail = math.exp(log_skellam_tail(self.cohort * self.local_variance, gap))
        # Both tails of every coordinate, and the distance of the drawn from the named distribution.
        return 2 * size * tail + self.cohort * size * self.table.distance

    def _refuse(self) -> None:
        peak = self.cohort * self.encoding.bound.peak
        signal = min(float(peak), self._likely_signal())
        noise = math.sqrt(self.cohort * self.local_variance)
        raise SumBudgetError(
            "ring.bits",
            self.ring_bits,
            f"a sum of {self.cohort} clients can leave the ring: contributions reach {signal:.3g} "
            f"and the noise has a standard deviation of {noise:.3g} ring units; raise ring.bits, "
            "lower {digits}, or lower {clip}",
            related={"digits": "dp.fraction_bits", "clip": "dp.clip"},
        )


@lru_cache(maxsize=64)
def local_share(variance: float, honest: int) -> float:
    """The least float of which ``honest`` add up to at least ``variance``, exactly."""
    share = variance / honest
    while Fraction(share) * honest < Fraction(variance):
        share = math.nextafter(share, math.inf)
    return share


@lru_cache(maxsize=2)
def _rotation(size: int, seed: bytes) -> Rotation:
    """A round's rotation is public and the same for all: a simulation makes it once."""
    return Rotation(size, seed)


def skellam_events(
    multiplier: float, encoding: BoundedEncoding, *, rounds: int
) -> tuple[Event, ...]:
    """Skellam noise on an encoded contribution, for planning: no table is built.

    The sampler's distance and the ring's wrap probability, as in ``SkellamConfig.events``, are not
    included.
    """
    bound = encoding.bound
    variance = multiplier**2 * bound.l2_square
    noise = SkellamNoise(l2_square=bound.l2_square, l1=bound.l1, variance=variance)
    return whole_contribution(noise, rounds=rounds)


class _Half:
    """Base of the halves of one round.

    Args:
        config: the round's settings.
        rotation_seed: 32 public bytes of this round, see ``Rotation``.
    """

    def __init__(self, config: SkellamConfig, rotation_seed: bytes) -> None:
        self._config = config
        self._rotation = _rotation(config.encoding.contribution.size, rotation_seed)


class SkellamClient(_Half):
    """The client's half of one round.

    Args:
        config: the round's settings.
        rotation_seed: 32 public bytes of this round, see ``Rotation``.
    """

    _spent = False

    def protect(self, values: Mapping[str, FloatArray]) -> RingArray:
        """Clip, rotate, round and noise a contribution.

        Args:
            values: one array per noised part.

        Returns:
            Ring words, shape (contribution.size,), ready to be masked.

        Raises:
            EncodingError: the contribution is malformed, NaN or infinite.
            ProtocolError: called a second time. May be called once: two noisy copies of one
                contribution would cost twice the round's event.
        """
        if self._spent:
            raise ProtocolError("this round's contribution was given out already")
        integers = self._config.encoding.encode(values, self._rotation)
        self._spent = True
        integers += draw_noise(self._config.table, len(integers))
        return self._config.codec.from_integers(integers)


class SkellamServer(_Half):
    """The server's half of one round: from an opened sum to estimates of the sums of the parts.

    Args:
        config: the round's settings.
        rotation_seed: as for the clients.
    """

    def decode(self, ring_sum: RingArray, *, survivors: int) -> dict[str, FloatArray]:
        """Unbiased estimates of the sums of the clipped parts.

        Args:
            ring_sum: the sum of the survivors' words modulo 2^ring_bits.
            survivors: how many words were summed.

        Returns:
            float64[part.size] per noised part.

        Raises:
            ProtocolError: fewer survivors than the floor, or more than the cohort.
            WireError: the words have another shape or type, or exceed the ring.
        """
        config = self._config
        if not config.min_survivors <= survivors <= config.cohort:
            raise ProtocolError(
                f"a sum of {survivors} clients is not opened: from {config.min_survivors} to "
                f"{config.cohort} are due"
            )
        require_ring_words(ring_sum, config.codec, config.encoding.contribution.size)
        return config.encoding.decode(config.codec.to_integers(ring_sum), self._rotation)
