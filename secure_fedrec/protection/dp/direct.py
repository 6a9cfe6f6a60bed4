"""Gaussian or Laplace noise added in one place: by each client (local) or by the server (central).

Local noise protects a client's upload from all other parties, the server included, without any
other layer; it is what Fednoise does with Laplace or Gaussian noise on the gradients of a client.
Central noise protects a client from those who get only the released sum; the server, which adds it,
is trusted.

Papers write ``gradient + noise`` in real numbers. In floating point that is unsafe: the doubles
that a sum can take depend on the secret, so single outputs exclude inputs (Mironov, "On
significance of the least significant bits for differential privacy", 2012). Here the noise is
integer, known in distribution to about 2^-126, and it is added to the encoded integers before
anything leaves.

The contribution is the whole, dense vector of the layout: noise on touched rows only would leave
the rated set in the clear.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

from secure_fedrec.core.arrays import FloatArray, RingArray
from secure_fedrec.errors import ConfigError, ProtocolError, SumBudgetError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.events import (
    Event,
    GaussianNoise,
    LaplaceNoise,
    Mechanism,
    Sampling,
    exact_events,
    require_public_to_server,
)
from secure_fedrec.protection.dp.encoding import BoundedEncoding, require_ring_bits
from secure_fedrec.protection.dp.ring_words import require_ring_words
from secure_fedrec.protection.dp.sampler import draw_noise
from secure_fedrec.protection.dp.tables import NoiseTable, noise_table
from secure_fedrec.settings import Count, Positive, Settings

_ORDERS = {"discrete-gaussian": 2, "rounded-gaussian": 2, "discrete-laplace": 1}


class DirectNoiseConfig(Settings, section="dp"):
    """Settings of local or central noise.

    Args:
        encoding: layout, clip and resolution; clips L2 for Gaussian noise, L1 for Laplace.
        noise: "rounded-gaussian" (accounted as a continuous Gaussian, also under sampling and by
            PRV), "discrete-gaussian" (Renyi curve only), or "discrete-laplace" (pure epsilon).
        noise_multiplier: standard deviation over L2 sensitivity, or Laplace scale over L1
            sensitivity (pure epsilon = 1 / noise_multiplier).
        place: who adds it.
        ring_bits: width of the ring in which uploads are summed.
        cohort: most clients in one sum.
        adjacency: "zero-out", or "replace", which doubles the sensitivity: any contribution may
            stand in for any other.

    Raises:
        ConfigError: a field is out of range, or the noise needs too long a table.
        SumBudgetError: a sum of ``cohort`` uploads at their largest would leave the ring. This
            is checked exactly: both clip and noise table have a largest value.
    """

    encoding: BoundedEncoding
    noise: Literal["discrete-gaussian", "discrete-laplace", "rounded-gaussian"]
    noise_multiplier: Positive
    place: Literal["local", "central"]
    ring_bits: int
    cohort: Count
    adjacency: Literal["zero-out", "replace"] = "zero-out"

    def _agree(self) -> None:
        if self.encoding.order != _ORDERS[self.noise]:
            problem = f"{self.noise} needs {_ORDERS[self.noise]}"
            raise ConfigError("dp.order", self.encoding.order, problem)
        require_ring_bits(self.ring_bits)
        if self._largest_sum > 2 ** (self.ring_bits - 1) - 1:
            raise SumBudgetError(
                "ring.bits",
                self.ring_bits,
                f"sums reach {self._largest_sum}; at least {self._largest_sum.bit_length() + 1} "
                "bits are needed, or fewer {digits}",
                related={"digits": "dp.fraction_bits"},
            )

    @property
    def sensitivity(self) -> float:
        """Largest change of an encoded contribution, in the norm that is clipped; ring units."""
        bound = self.encoding.bound
        once = bound.l1 if bound.order == 1 else math.nextafter(math.sqrt(bound.limit), math.inf)
        return once * (2.0 if self.adjacency == "replace" else 1.0)

    @property
    def table(self) -> NoiseTable:
        """The noise, per coordinate."""
        return noise_table(self.noise, self.noise_multiplier * self.sensitivity)

    @property
    def codec(self) -> FixedPoint:
        """The ring, with the largest magnitude of one client's word as its clip."""
        return FixedPoint(bits=self.ring_bits, fraction_bits=0, clip=float(self._largest_word))

    def events(self, *, rounds: int, sampling: Sampling | None = None) -> tuple[Event, ...]:
        """What that many rounds release.

        Args:
            rounds: number of rounds.
            sampling: how cohorts are drawn; None means that they are public. It amplifies central
                noise only, whose distribution does not depend on who took part.

        Raises:
            ConfigError: the sampling claims to be secret from the server.
        """
        drawn = require_public_to_server(sampling)
        contribution, local = self.encoding.contribution, self.place == "local"
        names = ", ".join(part.name for part in contribution.noised)
        noised = Event(
            mechanism=self._mechanism(),
            covers=f"one client's whole contribution to a round ({names})",
            adjacency=self.adjacency,
            noised_against=("server", "release") if local else ("release",),
            rounds=rounds,
            sampling=drawn,
            participation="shows" if local else "hidden",
            distance=min(1.0, contribution.size * self.table.distance),
            assumes=() if local else _trusting(drawn),
        )
        return (noised, *exact_events(contribution.exact, rounds))

    def _mechanism(self) -> Mechanism:
        if self.noise == "discrete-laplace":
            return LaplaceNoise(epsilon=1 / self.noise_multiplier)
        rounded = self.noise == "rounded-gaussian"
        form: Literal["rounded", "discrete"] = "rounded" if rounded else "discrete"
        return GaussianNoise(multiplier=self.noise_multiplier, form=form)

    @property
    def _largest_word(self) -> int:
        return self.encoding.bound.peak + (self.table.largest if self.place == "local" else 0)

    @property
    def _largest_sum(self) -> int:
        central = self.table.largest if self.place == "central" else 0
        return self.cohort * self._largest_word + central


class _PlacedNoise:
    """Base of noise that is added at one place.

    Args:
        config: settings of that place.

    Raises:
        ConfigError: the place is unknown.
    """

    place: ClassVar[str]

    def __init__(self, config: DirectNoiseConfig) -> None:
        if config.place != self.place:
            raise ConfigError("dp.place", config.place, "is another mechanism's", [self.place])
        self._config = config

    def _decoded(self, ring_sum: RingArray, clients: int) -> dict[str, FloatArray]:
        """Sums of the parts, noised here where no client has noised them."""
        config, central = self._config, self.place == "central"
        fewest = 0 if central else 1
        if not fewest <= clients <= config.cohort:
            raise ProtocolError(
                f"a sum of {fewest} to {config.cohort} clients was due, not of {clients}"
            )
        require_ring_words(ring_sum, config.codec, config.encoding.contribution.size)
        integers = config.codec.to_integers(ring_sum)
        if central:
            integers = integers + draw_noise(config.table, len(integers))
        return config.encoding.decode(integers)


class LocalNoise(_PlacedNoise):
    """A client's upload with noise of its own, and the server's reading of a sum of such uploads.

    Args:
        config: settings with ``place = "local"``.

    Raises:
        ConfigError: the place is unknown.
    """

    place = "local"

    def protect(self, values: Mapping[str, FloatArray]) -> RingArray:
        """Clip, round and noise one contribution; every call is a release of its own.

        Returns:
            Ring words, shape (contribution.size,).

        Raises:
            EncodingError: the contribution is malformed, NaN or infinite.
        """
        integers = self._config.encoding.encode(values)
        integers += draw_noise(self._config.table, len(integers))
        return self._config.codec.from_integers(integers)

    def decode(self, ring_sum: RingArray, *, clients: int) -> dict[str, FloatArray]:
        """Unbiased estimates of the sums of the clipped parts over so many clients.

        Raises:
            ProtocolError: there are more clients than the cohort has, or no clients.
            WireError: not ring words of the right shape.
        """
        return self._decoded(ring_sum, clients)


class CentralNoise(_PlacedNoise):
    """Clients send encoded contributions; the trusted server adds noise to their sum.

    Args:
        config: settings with ``place = "central"``.

    Raises:
        ConfigError: the place is unknown.
    """

    place = "central"

    def encode(self, values: Mapping[str, FloatArray]) -> RingArray:
        """The client's part: clip and round; the words are not hidden from the server.

        Raises:
            EncodingError: the contribution is malformed, NaN or infinite.
        """
        return self._config.codec.from_integers(self._config.encoding.encode(values))

    def release(self, ring_sum: RingArray, *, clients: int) -> dict[str, FloatArray]:
        """The server's part: noise the sum, then decode it; every call is a release of its own.

        Raises:
            ProtocolError: more clients than the cohort. A round in which a secret sample drew no
                client is released too: its absence would reveal that.
            WireError: not ring words of the right shape.
        """
        return self._decoded(ring_sum, clients)


def _trusting(drawn: Sampling) -> tuple[str, ...]:
    """What a claim on the trusted server's noise assumes."""
    trusted = ("the server is trusted with the exact sum",)
    if drawn.rate == 1:
        return trusted
    return (*trusted, "every round is released, with no count of who took part and no mean of them")
