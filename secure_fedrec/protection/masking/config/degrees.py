"""The graph and the range of thresholds that meet given probabilities.

The events are those of ``parameters``. Each degree is judged with exact fractions; floating point
only skips degrees that miss their bounds by a margin.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.masking.config.committee import Committee, smallest_committee
from secure_fedrec.protection.masking.config.graph import disconnection_bound
from secure_fedrec.protection.masking.config.hypergeometric import (
    least_within,
    log2_above,
    log2_upper_tails,
    upper_tail,
)

Adversary = Literal["curious", "active"]
"""The server: it follows the protocol and reads, or deviates in any way."""

_LEAST_THRESHOLD = 2  # one share would be the secret itself
_MARGIN_BITS = 0.01  # the floating-point filter's error is below 2^-20


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The requirements: counts, and the probabilities of failure that are allowed.

    Args:
        n: clients of the cohort.
        corrupt: corrupt clients among them, c.
        dropped: dropouts that a round survives, d.
        adversary: the server.
        agreed: whether clients agree on the survivors.
        privacy: probability that the privacy events together may have.
        correctness: the same for the correctness events.
    """

    n: int
    corrupt: int
    dropped: int
    adversary: Adversary
    agreed: bool
    privacy: Fraction
    correctness: Fraction

    @property
    def honest(self) -> int:
        """Clients that are not corrupt."""
        return self.n - self.corrupt


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A graph and the thresholds that go with it.

    Args:
        degree: neighbours of each client, k.
        least: smallest threshold that meets the privacy bound.
        most: largest threshold that meets the correctness bound.
        never_both: smallest threshold of which honest neighbours with one share each and corrupt
            ones with both cannot gather two, 2t > k + corrupt neighbours. Required where survivors
            are not agreed on; else a reserve.
        window_least: survivors that each window must hold (active server, Harary graph).
        committee: clients that sign the survivors (the same); None for all clients.
    """

    degree: int
    least: int
    most: int
    never_both: int
    window_least: int | None = None
    committee: Committee | None = None


def complete_graph(question: Question, dropout: float) -> Answer:
    """Every client masks with every other: the counts alone decide, without probabilities.

    Args:
        question: the counts.
        dropout: the rate behind ``question.dropped``, for the message.

    Raises:
        ConfigError: no threshold keeps the secrets and survives the dropouts.
    """
    degree = question.n - 1
    never_both = (degree + question.corrupt) // 2 + 1
    least = max(_LEAST_THRESHOLD, question.corrupt + 1 if question.agreed else never_both)
    most = degree - question.dropped
    if least > most:
        raise ConfigError(
            "masking.dropout",
            dropout,
            f"secrets need {least} shares against {question.corrupt} corrupt clients and only "
            f"{most} of {question.n} clients are sure to answer; lower dropout or corrupt, or "
            "enlarge the cohort",
        )
    return Answer(degree=degree, least=least, most=most, never_both=never_both)


def smallest_harary(question: Question) -> Answer | None:
    """The first even degree below the complete graph's that meets every bound."""
    meets: Callable[[Question, int], Answer | None] = (
        _harary_curious if question.adversary == "curious" else _harary_active
    )
    for degree in range(2, question.n - 1, 2):
        if not _hopeless(question, degree):
            answer = meets(question, degree)
            if answer is not None:
                return answer
    return None


def _hopeless(question: Question, degree: int) -> bool:
    """Whether floating point excludes a degree, with a margin; False does not mean that it fits."""
    active = question.adversary == "active"
    places = degree // 2 if active else degree
    population = question.n if active else question.n - 1
    terms = question.n if active else question.honest
    corrupt = log2_upper_tails(population, question.corrupt, places)
    dropped = log2_upper_tails(question.n, question.dropped, places)
    corrupt_allowed = log2_above(question.privacy / terms) + _MARGIN_BITS
    dropped_allowed = log2_above(question.correctness / question.n) + _MARGIN_BITS
    least = int(np.count_nonzero(corrupt > corrupt_allowed))
    if not (active or question.agreed):
        least = (degree + least - 1) // 2 + 1
    return least + int(np.count_nonzero(dropped > dropped_allowed)) > places + 1


def _harary_curious(question: Question, degree: int) -> Answer | None:
    falls_apart = disconnection_bound(question.n, question.corrupt + question.dropped, degree)
    return _thresholds(question, degree, question.privacy - falls_apart, question.correctness)


def _harary_active(question: Question, degree: int) -> Answer | None:
    n, window = question.n, degree // 2
    least = least_within(n, question.corrupt, window, question.privacy / n)
    privacy = question.privacy - n * upper_tail(n, question.corrupt, window, least)
    lost = n * upper_tail(n, question.dropped, window, window - least + 1)
    correctness = question.correctness - lost
    if correctness < 0:
        return None
    # The committee gets half of the probability left by the windows, the thresholds what then
    # remains.
    committee = smallest_committee(
        n,
        question.corrupt,
        question.dropped,
        privacy=privacy / 2,
        correctness=correctness / 2,
    )
    if committee is not None:
        privacy -= committee.corrupted
        correctness -= committee.lost
    found = _thresholds(question, degree, privacy, correctness)
    return found and replace(found, window_least=least, committee=committee)


def _thresholds(
    question: Question,
    degree: int,
    privacy: Fraction,
    correctness: Fraction,
) -> Answer | None:
    """The range of t that fits in the rest of the budgets, after the graph's own events."""
    if privacy < 0 or correctness < 0:
        return None
    n = question.n
    corrupt = least_within(n - 1, question.corrupt, degree, privacy / question.honest)
    never_both = (degree + corrupt - 1) // 2 + 1
    least = max(_LEAST_THRESHOLD, corrupt if question.agreed else never_both)
    most = degree + 1 - least_within(n, question.dropped, degree, correctness / n)
    if least > most:
        return None
    return Answer(degree=degree, least=least, most=most, never_both=never_both)
