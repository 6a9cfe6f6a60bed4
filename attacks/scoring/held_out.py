"""Held-out interests: items a client will choose and has not trained on, told from all others.

Judged over the items outside the client's training set only: those it trained on are the other half
of its secrets, and telling them apart is no part of this game. An adversary knows popularity, and
what is held out is popular. So the claim is also taken together with it, the claim first and
popularity where it ties; what counts is the gain of both over popularity alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from attacks.scoring.gains import Figures, Gain, interval_figures
from attacks.scoring.measures import (
    AREA,
    LEADS,
    Behind,
    Measure,
    Prior,
    Scale,
    gain,
    records,
)
from attacks.scoring.scored import NotApplicable, Scored, is_honest, normal_null, require_finite
from attacks.scoring.sets import (
    ALL_CORRUPTED,
    NO_CONTRAST,
    mean_auc,
    nan_mean,
    null_auc,
    score_table,
    units_of,
)
from attacks.scoring.statistics import per_client_auc, permute_labels_within_clients
from attacks.scoring.truth import Case
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.evaluation.protocols import RankingCase

KIND = "held_out"
"""Kind of secret: an array int8[n, m], 1 where an item is held out of what a client trains on, -1
where it trains on it, 0 elsewhere."""

_HALF = "ties count by half"
_PRIOR = Prior("held_out_prior_auc", "popularity alone", "held_out_auc of popularity alone.")

MEASURES = records(
    held_out_combined_auc=Measure(
        "AUC of held-out interests, with popularity",
        "Mean AUC of items a client will choose above others it did not train on, by the attack "
        "first and by popularity where it ties.",
        Scale(AREA, _PRIOR, _HALF),
        Behind(("held_out_gain",), 0.95),
        LEADS,
        words="tells what a client will choose from what it never will with AUC "
        "{held_out_combined_auc:.3f}[ (popularity alone: {held_out_prior_auc:.3f})]",
    ),
    held_out_auc=Measure(
        "AUC of held-out interests",
        "The same of the attack alone.",
        Scale(AREA, "one half", _HALF),
        Behind(("held_out_gain",), 0.9),
    ),
    held_out_gain=gain(
        0.1,
        "held_out_combined_auc minus held_out_prior_auc.",
        name="Gain over popularity for held-out interests",
        chooses="other secrets",
    ),
)


def held_out_grid(case: RankingCase) -> npt.NDArray[np.int8]:
    """The secret of a case: int8[n, m], as of ``KIND``; validation and test items are held out."""
    grid = np.zeros((case.n_clients, case.n_items), dtype=np.int8)
    grid[case.train.clients, case.train.items] = -1
    for held in (case.validation, case.test):
        there = np.flatnonzero(held >= 0)
        grid[there, held[there]] = 1
    return grid


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldOutClaim:
    """How likely each item is one that a client has not trained on but will choose.

    Args:
        name: what the interests are.
        clients: int64[B].
        scores: float64[B, m], higher means more likely.
        history: round count -> float64[B, m], scores had the adversary stopped after so many.
    """

    name: str
    clients: IntArray
    scores: FloatArray
    history: Mapping[int, FloatArray] = field(default_factory=dict)

    def scored(self, case: Case) -> Iterator[Scored | NotApplicable]:
        """Judge it by the held-out items of that name."""
        truth = case.truth.of_kind(KIND).get(self.name)
        if truth is not None:
            yield score_held_out(self, truth, case.corrupted, case.seed)


def score_held_out(
    claim: HeldOutClaim, truth: npt.NDArray[np.integer], corrupted: frozenset[int], seed: int
) -> Scored | NotApplicable:
    """Judge held-out interests.

    Args:
        claim: the claim.
        truth: int[n, m], as of ``KIND``; popularity is who trains on an item.
        corrupted: the adversary's own clients; they are left out.
        seed: of the bootstrap and of the null control.

    Raises:
        ValueError: a score is not finite.
    """
    honest = is_honest(claim.clients, corrupted)
    if not honest.any():
        return NotApplicable(reason=ALL_CORRUPTED)
    scores, own = claim.scores[honest], truth[claim.clients[honest]]
    require_finite("scores of items", scores)
    labels, keep = own == 1, own >= 0
    table = score_table(scores, labels, keep)
    aucs = per_client_auc(table)
    if not np.isfinite(aucs).any():
        return NotApplicable(reason=NO_CONTRAST)
    popularity = np.broadcast_to((truth < 0).sum(axis=0).astype(np.float64), scores.shape)
    prior = per_client_auc(score_table(popularity, labels, keep))
    # Distinct scores are at least 1 apart, popularity moves by less: it breaks ties only.
    places = np.unique(scores, return_inverse=True)[1].reshape(scores.shape)
    together = places + popularity / (len(truth) + 1.0)
    combined = per_client_auc(score_table(together, labels, keep))
    figures: Figures = {
        **interval_figures("held_out_auc", mean_auc(aucs, seed)),
        **interval_figures("held_out_combined_auc", mean_auc(combined, seed)),
        "held_out_prior_auc": nan_mean(prior),
    }
    history = {
        str(rounds): nan_mean(per_client_auc(score_table(earlier[honest], labels, keep)))
        for rounds, earlier in claim.history.items()
    }
    dealt = permute_labels_within_clients(table, seed=seed)
    return Scored(
        figures=figures,
        gains={"held_out_gain": Gain(combined - prior)},
        units=units_of(table),
        details={"held_out": claim.name, "held_out_auc_by_rounds": history},
        null_control=normal_null("held_out_auc", *null_auc(dealt)),
    )
