"""A complete privacy claim: how much, of what, against whom, over how many rounds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from secure_fedrec.accounting.accountants import Accountant, Spent, spend
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.base.events import (
    Adjacency,
    Adversary,
    Event,
    GaussianNoise,
    LaplaceNoise,
    Mechanism,
    RandomAnswer,
    SkellamNoise,
)

_WHO: dict[Adversary, str] = {
    "server": "the server, which sees the cohort and all it is sent",
    "release": "anyone who sees only what is released",
}
_ADJACENCY: dict[Adjacency, str] = {
    "zero-out": "present, or replaced by zeros (zero-out)",
    "replace": "present, or replaced by any other (replace-one)",
    "add-or-remove": "present, or absent (add or remove one)",
    "one-bit": "rated, or not (one bit)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyStatement:
    """An epsilon with everything that it depends on; ``str()`` prints all of it.

    Args:
        spent: the price.
        adversary: the adversary.
        covers: the change that is protected.
        adjacency: which change of it is hard to tell.
        rounds: over how many rounds.
        releases: one clause per kind of release: noise, rounds, and the sampling rate that counts.
        wrap: bound on the probability that any round's result is wrong because a sum left the ring.
        assumes: conditions.
    """

    spent: Spent
    adversary: Adversary
    covers: tuple[str, ...]
    adjacency: Adjacency
    rounds: int
    releases: tuple[str, ...]
    wrap: float
    assumes: tuple[str, ...]

    @property
    def epsilon(self) -> float:
        """The price at ``delta``."""
        return self.spent.epsilon

    @property
    def delta(self) -> float:
        """The probability that is left out."""
        return self.spent.delta

    def __str__(self) -> str:
        lines = [
            f"epsilon_{self.adversary} = {self.epsilon:.4g} at delta = {self.delta:.3g} "
            f"over {self.rounds} round{'s' * (self.rounds != 1)}",
            f"  against: {_WHO[self.adversary]}",
            f"  covers: {'; '.join(self.covers)}: {_ADJACENCY[self.adjacency]}",
            *(f"  release: {release}" for release in self.releases),
            f"  accountant: {self._accountant()}",
            f"  noise as drawn: within {_power(self.spent.distance)} of the named distributions "
            "in total variation over all rounds (inside delta)",
        ]
        if self.wrap > 0:
            lines.append(
                f"  ring: some result is wrong with probability at most {_power(self.wrap)}; "
                "this costs accuracy, not privacy"
            )
        lines.extend(f"  assuming: {clause}" for clause in self.assumes)
        return "\n".join(lines)

    def _accountant(self) -> str:
        if self.spent.accountant == "prv":
            return "PRV (Opacus)"
        if math.isinf(self.spent.order):
            return "sum of the pure epsilons"
        return f"Renyi, order {self.spent.order:g}"


def claim(
    events: Sequence[Event],
    *,
    adversary: Adversary,
    delta: float,
    accountant: Accountant = "rdp",
) -> PrivacyStatement:
    """Price events and state the meaning of the price.

    Args:
        events: everything that was released about the same protected thing.
        adversary: the adversary. The server sees the cohort, so no sampling of clients counts for
            it.
        delta: in (0, 1).
        accountant: see ``spend``.

    Raises:
        ConfigError: see ``spend``; or the events protect against different changes, whose prices
            cannot be added.
    """
    spent = spend(events, adversary=adversary, delta=delta, accountant=accountant)
    adjacencies = {event.adjacency for event in events}
    if len(adjacencies) > 1:
        raise ConfigError(
            "dp.adjacency", sorted(adjacencies), "prices of different changes cannot be added"
        )
    return PrivacyStatement(
        spent=spent,
        adversary=adversary,
        covers=tuple(dict.fromkeys(event.covers for event in events)),
        adjacency=events[0].adjacency,
        rounds=max(event.serves or event.rounds for event in events),
        releases=tuple(_release(event, adversary) for event in events),
        wrap=min(1.0, math.fsum(event.rounds * event.wrap for event in events)),
        assumes=tuple(dict.fromkeys(clause for event in events for clause in event.assumes)),
    )


def _release(event: Event, adversary: Adversary) -> str:
    times = "once" if event.rounds == 1 else f"{event.rounds} times"
    rate = event.sampling.against(adversary)
    return f"{_noise(event.mechanism)}, {times}, q = {rate:g}"


def _noise(mechanism: Mechanism) -> str:
    if isinstance(mechanism, GaussianNoise):
        spread = f"standard deviation {mechanism.multiplier:.4g} x L2 sensitivity"
        return f"{mechanism.form} Gaussian noise, {spread}"
    if isinstance(mechanism, SkellamNoise):
        multiplier = math.sqrt(mechanism.variance / mechanism.l2_square)
        return f"Skellam noise, standard deviation {multiplier:.4g} x L2 sensitivity"
    if isinstance(mechanism, LaplaceNoise):
        return f"discrete Laplace noise, pure epsilon {mechanism.epsilon:.4g}"
    if isinstance(mechanism, RandomAnswer):
        return f"randomized response, pure epsilon {mechanism.epsilon:.4g}"
    return f"exact {mechanism.what}"


def _power(probability: float) -> str:
    return "0" if probability == 0 else f"2^{math.log2(probability):.1f}"
