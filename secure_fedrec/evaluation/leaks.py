"""Measures whether a protocol reveals held-out items to clients through items that are never drawn.

Warnings do not depend on a protocol's name. The training draws of a run are made, the held-out
items are ranked by "never drawn", and that rule's gain over chance is a result with an interval.

The verdict is an exact test and not that interval: if few items are drawn, most clients gain a
little and rare ones whose test item was drawn lose much; a bootstrap of clients without such a one
would be certain of a leak. Under a sound protocol a client's test item is as likely as each of its
negatives to be among those that were drawn, so how many test items were drawn is a sum of
independent trials of known odds. A few clients cannot reach such a probability: then a missing
warning is not evidence, but the rule's result is printed as well.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.evaluation.intervals import Interval, mean_interval, paired_interval
from secure_fedrec.evaluation.oracles import ORACLES, drawn_items, rule_figures
from secure_fedrec.evaluation.protocols import RankingCase
from secure_fedrec.streams import Stream

_CONFIDENCE: Final = 0.999
_FALSE_WARNINGS: Final = (1.0 - _CONFIDENCE) / 2
"""Error probability of a warning about a sound protocol: one in two thousand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """The information about held-out items in the draws of a protocol.

    Args:
        protocol: its name.
        rounds: rounds of training.
        means: means of every oracle, HR@K and NDCG@K over clients.
        over_chance: HR@K of the never-drawn oracle minus that of the random one, clients paired,
            with a 99.9 % interval, which does not decide the verdict.
        probability: that a sound protocol draws as few test items, exactly.
        figures: figures of every oracle, per client.
    """

    protocol: str
    rounds: int
    means: Mapping[str, Mapping[str, Interval]]
    over_chance: Interval
    probability: float
    figures: Mapping[str, Mapping[str, FloatArray]] = field(repr=False)

    @property
    def leaks(self) -> bool:
        """Whether test items are drawn less than chance, as far as these clients can tell."""
        return self.probability <= _FALSE_WARNINGS

    @property
    def warning(self) -> str | None:
        """Warning to print beside results under this protocol; None if no leak was found."""
        if not self.leaks:
            return None
        told = {name: next(iter(each.values())).value for name, each in self.means.items()}
        return (
            f"protocol {self.protocol!r} leaks: after {self.rounds} rounds the rule 'was never a "
            f"training negative' finds {told['never drawn']:.1%} of the test items "
            f"(popularity {told['popularity']:.1%}, chance {told['random']:.1%}); results under "
            "it do not show that a model has learnt a taste"
        )


def measured_leak(
    case: RankingCase,
    *,
    rounds: int,
    stream: Stream,
    seed: int,
    per_positive: int,
    present: Callable[[int], IntArray] | None = None,
    cutoff: int = 10,
) -> Leak:
    """Measure it.

    Args:
        case: what clients train on, and what is held out.
        rounds: rounds of training, at least 1.
        stream: stream of the training draws.
        seed: seed of the bootstrap.
        per_positive: negatives of a positive.
        present: clients that take part in a round, as for ``drawn_items``.
        cutoff: K.

    Raises:
        ValueError: the number of rounds is 0.
    """
    if rounds < 1:
        raise ValueError("items that are never drawn are not known before the first round")
    drawn = drawn_items(
        case, rounds=rounds, stream=stream, per_positive=per_positive, present=present
    )
    figures = rule_figures(case, drawn, cutoff=cutoff)
    hits = {name: figures[name][f"hit_rate_at_{cutoff}"] for name in ORACLES}
    return Leak(
        protocol=case.protocol,
        rounds=rounds,
        means={
            name: {key: mean_interval(each, seed=seed, span=1.0) for key, each in rule.items()}
            for name, rule in figures.items()
        },
        over_chance=paired_interval(
            hits["never drawn"], hits["random"], seed=seed, confidence=_CONFIDENCE
        ),
        probability=_as_few(case, drawn),
        figures=figures,
    )


def _as_few(case: RankingCase, drawn: BoolArray) -> float:
    """Probability that at most as many test items are drawn, if all candidates are equally likely.

    Args:
        case: the case.
        drawn: bool[n, m], of ``drawn_items``.
    """
    clients = np.flatnonzero(case.test >= 0)
    negatives, own = case.test_negatives[clients], drawn[clients, case.test[clients]]
    there = negatives >= 0
    among = (drawn[clients[:, None], negatives] & there).sum(axis=1) + own
    odds = among / (there.sum(axis=1) + 1.0)
    # Distribution of the number drawn, up to the number found: Poisson binomial.
    shares = np.zeros(int(own.sum()) + 1)
    shares[0] = 1.0
    for share in odds[odds > 0].tolist():
        shares[1:] = shares[1:] * (1.0 - share) + shares[:-1] * share
        shares[0] *= 1.0 - share
    return min(float(shares.sum()), 1.0)
