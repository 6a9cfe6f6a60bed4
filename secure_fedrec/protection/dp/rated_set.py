"""Randomized response on the rated set: converts between its settings and epsilon.

The mechanism itself is the two-stage cloak of ``cloaks.randomized_response``: a permanent answer
per item, and from it an instantaneous report per round. This module says what a configuration costs
and finds the configuration of a given cost.

The unit is one bit: whether one client rated one item. What a whole rated set costs is the sum over
the items in which two sets differ. Over rounds the permanent answer caps the cost: reports are made
from it alone, so no number of rounds costs more than learning it (Erlingsson, Pihur and Korolova,
"RAPPOR", 2014, section 3). The claim is on *which* items are reported; the rows sent for them are
another release.
"""

import math

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.base.events import Event, RandomAnswer
from secure_fedrec.settings import Probability, Settings

_COIN_STEP = 2.0**-52
"""Grid of the coins (``streams.uniform_reals``): how far a frequency can be from its setting."""


class RandomizedResponseConfig(Settings, section="protection"):
    """Settings of the cloak.

    Args:
        permanent: f, probability that a bit is replaced by a permanent fair coin.
        report_one: q, probability of reporting an item whose permanent bit is 1.
        report_zero: p, probability of reporting an item whose permanent bit is 0.

    Raises:
        ConfigError: not probabilities, or q does not exceed p.
    """

    permanent: Probability = 0.1
    report_one: Probability = 0.95
    report_zero: Probability = 0.05

    def _agree(self) -> None:
        if self.report_one <= self.report_zero:
            raise self.refusal("report_one", "must exceed protection.report_zero")

    @property
    def report_rated(self) -> float:
        """Probability that a rated item is reported in a round."""
        keep = 1 - self.permanent / 2
        return keep * self.report_one + (1 - keep) * self.report_zero

    @property
    def report_unrated(self) -> float:
        """Probability that an unrated item is reported in a round."""
        keep = 1 - self.permanent / 2
        return keep * self.report_zero + (1 - keep) * self.report_one


def permanent_epsilon(config: RandomizedResponseConfig) -> float:
    """Cost of one bit's permanent answer, and so of any number of rounds: ln((1 - f/2) / (f/2)).

    Infinite without a permanent stage.
    """
    lie = config.permanent / 2
    return math.inf if lie == 0 else math.log((1 - lie) / lie)


def report_epsilon(config: RandomizedResponseConfig) -> float:
    """Cost of one bit's report in one round; infinite if a report can be certain."""
    return _epsilon(config.report_rated, config.report_unrated)


def response_for_epsilon(epsilon: float) -> RandomizedResponseConfig:
    """The memoised response of Warner (1965): one permanent answer, right with odds e^epsilon.

    Args:
        epsilon: cost of one bit over all rounds, positive.

    Returns:
        A configuration whose reports repeat the permanent answer.

    Raises:
        ConfigError: not positive, not finite, or so large that the coins' grid would show (40).
    """
    if not 0 < epsilon <= 40:
        raise ConfigError("dp.epsilon", epsilon, "must be above 0 and at most 40")
    return RandomizedResponseConfig(
        permanent=2 / (1 + math.exp(epsilon)), report_one=1.0, report_zero=0.0
    )


def rated_set_events(config: RandomizedResponseConfig, *, rounds: int) -> tuple[Event, ...]:
    """What the reports of that many rounds release about one bit: the smaller of the two bounds.

    Args:
        config: the cloak's settings.
        rounds: rounds in which a client reports.

    Raises:
        ConfigError: neither stage gives a bound.
    """
    lasting, each = permanent_epsilon(config), report_epsilon(config)
    once = lasting <= rounds * each
    epsilon = lasting if once else each
    if math.isinf(epsilon):
        raise ConfigError("protection.permanent", config.permanent, "no report is ever in doubt")
    return (
        Event(
            mechanism=RandomAnswer(epsilon=epsilon),
            covers="whether one client rated one item, as far as the reported item set tells "
            + (f"(permanent answer, over any {rounds} rounds)" if once else "(per report)"),
            adjacency="one-bit",
            noised_against=("server", "release"),
            rounds=1 if once else rounds,
            serves=rounds,
            distance=min(1.0, 3 * _COIN_STEP * (1 if once else rounds)),
            assumes=("coins come from a stream keyed by the operating system",),
        ),
    )


def _epsilon(one: float, other: float) -> float:
    """Logarithm of the largest ratio of the two answers' probabilities."""
    ratios = []
    for above, below in ((one, other), (1 - other, 1 - one)):
        if below <= 0:
            return math.inf
        ratios.append(math.log(above / below))
    return max(ratios)
