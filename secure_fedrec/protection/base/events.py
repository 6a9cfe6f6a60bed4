"""Descriptions of releases, from which accountants compute prices.

An event says which noise was added, relative to the largest change that the protected thing can
make; against whom the noise protects; and what is assumed. ``secure_fedrec.accounting`` reads
events; nothing here computes an epsilon.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import Count, NonNegative, Positive, Probability, Rate, Settings

Adversary: TypeAlias = Literal["server", "release"]
"""The adversary: the server, with all it sees of a round, or a party that gets only the result."""

Adjacency: TypeAlias = Literal["zero-out", "replace", "add-or-remove", "one-bit"]
"""The pairs of inputs that a claim makes hard to distinguish."""

Participation: TypeAlias = Literal["shows", "hidden"]
"""Whether a release itself tells who took part: by its noise, or by what is released with it."""

SamplingScheme: TypeAlias = Literal["poisson", "fixed-size"]
"""Independent coins, or a fixed number drawn without replacement."""


class GaussianNoise(Settings, section="dp"):
    """Gaussian noise, ``multiplier`` = standard deviation over L2 sensitivity.

    Args:
        multiplier: sigma / Delta_2, positive.
        form: "rounded" is a continuous Gaussian rounded after the addition; by post-processing all
            that holds for a continuous Gaussian holds. "discrete" is the discrete Gaussian: its
            Renyi curve is that of the Gaussian (Canonne, Kamath and Steinke 2020, proposition 5),
            other properties of the Gaussian are not claimed for it.
    """

    multiplier: Positive
    form: Literal["rounded", "discrete"]


class LaplaceNoise(Settings, section="dp"):
    """Discrete Laplace noise on integers: pure epsilon = L1 sensitivity over scale."""

    epsilon: Positive


class SkellamNoise(Settings, section="dp"):
    """Skellam noise on integers.

    Args:
        l2_square: largest squared L2 norm of the change, in ring units.
        l1: largest L1 norm of the change.
        variance: variance of the noise per coordinate, at least.
    """

    l2_square: Count
    l1: Positive
    variance: Positive


class RandomAnswer(Settings, section="dp"):
    """Randomized response: pure epsilon for one changed bit (0: the answers say nothing)."""

    epsilon: NonNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactSum:
    """A part that was released without noise, which has no finite epsilon."""

    what: str


Mechanism: TypeAlias = GaussianNoise | LaplaceNoise | SkellamNoise | RandomAnswer | ExactSum


class Sampling(Settings, section="dp.sampling"):
    """Sampling of what is protected, and from whom the outcome is secret.

    Args:
        rate: probability q with which the protected thing takes part; under "poisson" by its own
            coin.
        secret_from: adversaries who do not learn who took part. A server that runs a round knows
            the cohort, masked or not; a client's draws of its own ratings are seen by that client
            only.
        scheme: "poisson"; for "fixed-size" samples there is no bound here, so accountants refuse
            them.

    Raises:
        ConfigError: the rate is not a probability, or is below 1 but secret from no adversary.
    """

    rate: Rate = 1.0
    secret_from: tuple[Adversary, ...] = ()
    scheme: SamplingScheme = "poisson"

    def _agree(self) -> None:
        if self.rate < 1 and not self.secret_from:
            raise self.refusal("rate", "a sample that all parties see does not amplify privacy")

    def against(self, adversary: Adversary) -> float:
        """The rate that counts against an adversary: 1 for one who sees the sample."""
        return self.rate if adversary in self.secret_from else 1.0


class Event(Settings, section="dp"):
    """One kind of release, repeated over rounds.

    Args:
        mechanism: the noise.
        covers: what changes between neighbouring inputs ("one client's whole contribution: ...").
        adjacency: how it changes.
        noised_against: adversaries who see the value only with the noise.
        rounds: how often.
        sampling: see ``Sampling``.
        participation: "hidden" if the distribution of the noise, and every count and denominator
            that is released with it, do not depend on which clients take part. If participants add
            the noise they do depend on it: its energy tells how many took part. Otherwise it
            "shows", and sampling does not amplify it.
        distance: bound on the total variation between one round's drawn noise and the named
            distribution.
        wrap: bound on the probability that one round's sum leaves the ring (a wrong result, not a
            leak).
        assumes: conditions of the claim, as clauses.
        serves: rounds of the run that the releases are for, where one serves many of them (an
            answer given once and repeated); by default as many as releases.

    Raises:
        ConfigError: ``rounds`` is not a whole number above 0, ``serves`` is below ``rounds``, or a
            bound is not a probability.
    """

    mechanism: Mechanism
    covers: str
    adjacency: Adjacency
    noised_against: tuple[Adversary, ...]
    rounds: Count = 1
    sampling: Sampling = field(default_factory=Sampling)
    participation: Participation = "shows"
    distance: Probability = 0.0
    wrap: Probability = 0.0
    assumes: tuple[str, ...] = ()
    serves: int | None = None

    def _agree(self) -> None:
        if self.serves is not None and self.serves < self.rounds:
            raise ConfigError(
                "dp.serves",
                self.serves,
                f"must be at least {{rounds}} = {self.rounds}",
                related={"rounds": "dp.rounds"},
            )


def whole_contribution(mechanism: Mechanism, *, rounds: int) -> tuple[Event, ...]:
    """Noise that clients add to their whole contribution to a round."""
    return (
        Event(
            mechanism=mechanism,
            covers="one client's whole contribution to a round",
            adjacency="zero-out",
            noised_against=("server", "release"),
            rounds=rounds,
        ),
    )


def exact_events(names: Iterable[str], rounds: int) -> tuple[Event, ...]:
    """Events of parts that are released without noise; accountants refuse to price them."""
    return tuple(
        Event(
            mechanism=ExactSum(what=name),
            covers=f"the exact sums of {name}",
            adjacency="zero-out",
            noised_against=(),
            rounds=rounds,
        )
        for name in names
    )


def require_public_to_server(sampling: Sampling | None) -> Sampling:
    """The cohort's sampling, refused where it claims to be secret from the server.

    Raises:
        ConfigError: the sampling claims to be secret from the server.
    """
    if sampling is None:
        return Sampling()
    if "server" in sampling.secret_from:
        raise ConfigError(
            "dp.sampling.secret_from",
            sampling.secret_from,
            "a server that runs a round knows its cohort",
            ["release"],
        )
    return sampling


def explained(events: Sequence[Event], repeated: int) -> Sequence[Event]:
    """Events that say how many of their rounds were repeated, their noise drawn afresh."""
    if not repeated:
        return events
    clause = (
        f"{repeated} of the rounds repeat others after an interruption, with noise drawn afresh; "
        "they count like any round"
    )
    return [replace(event, assumes=(*event.assumes, clause)) for event in events]
