"""Whether a protocol tells clients, through what is never drawn, what it holds out: measured.

No protocol is warned about by its name. The training draws of a run are made, the held-out items
are ranked by "never drawn", and what that rule has over chance is a result with an interval.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.evaluation.intervals import Interval, mean_interval, paired_interval
from secure_fedrec.evaluation.oracles import ORACLES, oracle_figures
from secure_fedrec.evaluation.protocols import RankingCase
from secure_fedrec.streams import Stream

_CONFIDENCE: Final = 0.999
"""Of the decision: one sound protocol in two thousand is warned about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """What the draws of a protocol give away.

    Args:
        protocol: its name.
        rounds: of training.
        means: of every oracle, HR@K and NDCG@K over clients.
        over_chance: HR@K of the never-drawn oracle less that of the random one, clients paired;
            99.9 % interval.
        figures: of every oracle, per client.
    """

    protocol: str
    rounds: int
    means: Mapping[str, Mapping[str, Interval]]
    over_chance: Interval
    figures: Mapping[str, Mapping[str, FloatArray]] = field(repr=False)

    @property
    def leaks(self) -> bool:
        """Whether the oracle is above chance, as far as this number of clients can tell."""
        return self.over_chance.low > 0

    @property
    def warning(self) -> str | None:
        """What to print beside results under this protocol; None where nothing was found."""
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
    per_positive: int = 4,
    cutoff: int = 10,
) -> Leak:
    """Measure it.

    Args:
        case: what clients train on, and what is held out.
        rounds: of training, at least 1.
        stream: of the training draws.
        seed: of the bootstrap.
        per_positive: negatives of a positive.
        cutoff: K.

    Raises:
        ValueError: there is no round.
    """
    if rounds < 1:
        raise ValueError("what is never drawn tells nothing before the first round")
    figures = oracle_figures(
        case, rounds=rounds, stream=stream, per_positive=per_positive, cutoff=cutoff
    )
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
        figures=figures,
    )
