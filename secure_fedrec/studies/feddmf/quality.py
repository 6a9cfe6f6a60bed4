"""How well organisations predict within their own items and across, into the items of others.

Common items are left out on both sides, as in the paper. "within" are an organisation's own items,
on which it trained; "across" are items of others, which were unknown in training. A threshold is
tuned by each organisation on its "within" pairs; the paper's is 0.5 (it prints "greater than 1",
which no sigmoid is). Pairs are all there are, or every positive with four sampled negatives of its
user. "best" is the F1 of the best threshold, and shows what tuning lost. It was tuned on pairs that
were trained on, so a method that fits these more closely loses more, even if it fits noise; the AUC
is reported as well, since it needs no threshold.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data.organisations.common_items import CommonItems
from secure_fedrec.evaluation.f1 import best_threshold, f1_quality, f1_score
from secure_fedrec.evaluation.scores import area_under_curve
from secure_fedrec.streams import Streams, uniform_ranks
from secure_fedrec.studies.feddmf.methods import Scores

KINDS: Final = ("sampled", "all")
"""The measured pairs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Cells:
    """Scores and truth of all pairs of some users and items: float64[U, k], bool[U, k]."""

    scores: FloatArray
    truth: BoolArray

    def pairs(self, chosen: IntArray | None) -> tuple[FloatArray, BoolArray]:
        """Figures over some cells, or over all."""
        scores, truth = self.scores.reshape(-1), self.truth.reshape(-1)
        return (scores, truth) if chosen is None else (scores[chosen], truth[chosen])


def measure(data: CommonItems, scores: Scores, *, seed: int, negatives: int = 4) -> dict[str, Any]:
    """All figures, as JSON values: by kind of pairs, by side, means over the organisations.

    Args:
        data: the organisations.
        scores: what a method predicts.
        seed: of the sampled negatives, the same for all methods.
        negatives: per positive.
    """
    streams = Streams.from_seed(seed)
    by_kind: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for client in range(data.n_organisations):
        cells = {
            side: _Cells(scores=scores(client, items), truth=data.truth(client, items))
            for side, items in sides(data, client).items()
        }
        for kind, figures in by_kind.items():
            chosen = {
                side: None
                if kind == "all"
                else _sampled(own.truth, streams, side, client, negatives)
                for side, own in cells.items()
            }
            figures.append(_figures({side: own.pairs(chosen[side]) for side, own in cells.items()}))
    return {kind: _together(figures) for kind, figures in by_kind.items()}


def sides(data: CommonItems, client: int) -> dict[str, IntArray]:
    """The measured items of an organisation, by side."""
    across = np.flatnonzero(data.asked[client] & ~data.common)
    return {"within": data.own(client), "across": across}


def _figures(pairs: Mapping[str, tuple[FloatArray, BoolArray]]) -> dict[str, Any]:
    """Figures of one organisation on one kind of pairs."""
    train_scores, train_truth = pairs["within"]
    found: dict[str, Any] = {}
    for side, (scores, truth) in pairs.items():
        quality = f1_quality(scores, truth, train_scores=train_scores, train_positive=train_truth)
        found[side] = {
            **asdict(quality),
            "best": f1_score(scores, truth, best_threshold(scores, truth)),
            "auc": area_under_curve(scores, truth),
        }
    return found


def _together(figures: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the organisations, and the figures of each."""
    means = {
        side: {name: float(np.mean([each[side][name] for each in figures])) for name in values}
        for side, values in figures[0].items()
    }
    return {**means, "organisations": figures}


def _sampled(
    truth: BoolArray, streams: Streams, side: str, client: int, negatives: int
) -> IntArray:
    """Places of all positives and of sampled negatives of the same users, with replacement."""
    users, _ = np.nonzero(truth)
    free = np.flatnonzero(~truth)
    rooms = (~truth).sum(axis=1)
    owners = np.repeat(users, negatives)
    owners = owners[rooms[owners] > 0]
    words = streams.stream(f"judged-{side}").words_at(
        0, np.full(len(owners), client), np.arange(len(owners)), width=1
    )
    ranks = uniform_ranks(words[:, 0], rooms[owners])
    firsts = np.cumsum(rooms) - rooms
    return np.concatenate([np.flatnonzero(truth), free[firsts[owners] + ranks]])
