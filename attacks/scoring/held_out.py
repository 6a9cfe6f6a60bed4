"""Held-out interests: items that a client will choose and has not trained on, against all others.

Judged over the items outside the client's training set only, since finding its training items is
another game. An adversary knows popularity, and what is held out is popular. So items are also
ranked by claim and popularity, the claim first and popularity for ties; what counts is the gain
over popularity alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.base import need
from attacks.scoring.chance import mean_auc, nan_mean, normal_null, null_of
from attacks.scoring.gains import Figures, Gain, interval_figures
from attacks.scoring.rows import Rows
from attacks.scoring.sets import score_table
from attacks.scoring.statistics import dealt_labels, per_client_auc
from attacks.scoring.truth import (
    ALL_CORRUPTED,
    NO_CONTRAST,
    Scored,
    SecretClaim,
    is_honest,
    require_finite,
)
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.evaluation.protocols import RankingCase

_PAIRS_AT_ONCE = 2**21
"""Number of pairs of a client and an item that are judged at once."""


def held_out_grid(case: RankingCase) -> npt.NDArray[np.int8]:
    """The secret of a case, see ``HeldOutClaim``; validation and test items are held out."""
    grid = np.zeros((case.n_clients, case.n_items), dtype=np.int8)
    grid[case.train.clients, case.train.items] = -1
    for held in (case.validation, case.test):
        there = np.flatnonzero(held >= 0)
        grid[there, held[there]] = 1
    return grid


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldOutClaim(SecretClaim):
    """Scores of items that a client has not trained on but may choose.

    Args:
        name: name of the interests.
        clients: int64[B].
        scores: [B, m], a grid or rows, higher means more likely.
        history: round count -> [B, m], scores had the adversary stopped after so many.
    """

    kind = "held_out"
    """An array int8[n, m]: 1 where an item is held out of what a client trains on, -1 where it
    trains on it, 0 elsewhere."""

    scores: FloatArray | Rows
    history: Mapping[int, FloatArray | Rows] = field(default_factory=dict)

    def judged(self, truth: npt.NDArray[Any], corrupted: frozenset[int], seed: int) -> Scored:
        """Judge held-out interests; popularity is the number of clients that train on an item."""
        honest = is_honest(self.clients, corrupted)
        need(honest.any(), ALL_CORRUPTED)
        popularity = np.zeros(truth.shape[1])
        for block in _blocks(*truth.shape):
            popularity += np.count_nonzero(truth[block] < 0, axis=0)
        places, rng = np.flatnonzero(honest), np.random.default_rng(seed)
        blocks = _blocks(len(places), truth.shape[1])
        judged = [_judged(self, truth, places[block], popularity, rng) for block in blocks]
        columns = map(np.concatenate, zip(*judged, strict=True))
        aucs, prior, combined, dealt, sizes, positives, *earlier = columns
        need(np.isfinite(aucs).any(), NO_CONTRAST)
        pairs, found = int(sizes.sum()), int(positives.sum())
        figures: Figures = {"held_out_prior_auc": nan_mean(prior)}
        for name, each in (("held_out_auc", aucs), ("held_out_combined_auc", combined)):
            figures |= interval_figures(name, mean_auc(each, seed))
        by_rounds = zip(self.history, earlier, strict=True)
        history = {str(rounds): nan_mean(each) for rounds, each in by_rounds}
        return Scored(
            figures=figures,
            gains={"held_out_gain": Gain(combined - prior)},
            units={"clients": len(aucs), "pairs": pairs, "positives": found},
            details={"held_out": self.name, "held_out_auc_by_rounds": history},
            null_control=normal_null("held_out_auc", *null_of(dealt, sizes, positives)),
        )


def _judged(
    claim: HeldOutClaim,
    truth: npt.NDArray[Any],
    places: IntArray,
    popularity: FloatArray,
    rng: np.random.Generator,
) -> list[npt.NDArray[Any]]:
    """The results for each client of a block.

    Returns:
        AUC of the claim, of popularity, of both, and of the claim against permuted labels; pairs;
        positives; and AUC of the claim after each number of rounds of its history.
    """
    own = truth[claim.clients[places]]
    scores, labels, keep = _grid(claim.scores, places), own == 1, own >= 0
    require_finite("scores of items", scores)
    table = score_table(scores, labels, keep)
    prior = score_table(np.broadcast_to(popularity, scores.shape), labels, keep)
    # Distinct scores are at least 1 apart, popularity moves by less: it breaks ties only.
    ranks = np.unique(scores, return_inverse=True)[1].reshape(scores.shape)
    together = score_table(ranks + popularity / (len(truth) + 1.0), labels, keep)
    dealt = dealt_labels(table, rng)
    aucs = [per_client_auc(each) for each in (table, prior, together, dealt)]
    grids = (_grid(earlier, places) for earlier in claim.history.values())
    history = [per_client_auc(score_table(grid, labels, keep)) for grid in grids]
    return [*aucs, table.sizes, table.positives(), *history]


def _grid(scores: FloatArray | Rows, places: IntArray) -> npt.NDArray[Any]:
    return scores.take(places).grid() if isinstance(scores, Rows) else scores[places]


def _blocks(clients: int, items: int) -> list[slice]:
    """Blocks of clients whose items all fit in memory; at least one client each."""
    size = max(1, _PAIRS_AT_ONCE // max(1, items))
    return [slice(start, start + size) for start in range(0, max(1, clients), size)]
