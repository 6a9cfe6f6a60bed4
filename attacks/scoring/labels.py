"""A secret class of each client: the claim, its figure, and how it is judged."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attacks.scoring.chance import hit_interval, hit_null
from attacks.scoring.gains import Figures, Gain, interval_figures
from attacks.scoring.scored import NOBODY, NotApplicable, Scored, is_honest, require_finite
from attacks.scoring.truth import Case, SecretClaim
from secure_fedrec.core.arrays import FloatArray, IntArray

KIND = "labels"
"""Kind of secret: a class of every client, int64[n], -1 where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelClaim(SecretClaim):
    """How likely each class is to be a client's own.

    Args:
        name: what the classes are.
        clients: int64[B].
        scores: float64[B, C], the highest is the guess.
    """

    scores: FloatArray

    def scored(self, case: Case) -> Iterator[Scored | NotApplicable]:
        """Judge it by the classes of that name."""
        return self.judged(case, KIND, score_labels)


def score_labels(
    claim: LabelClaim, truth: IntArray, corrupted: frozenset[int], seed: int
) -> Scored | NotApplicable:
    """Judge a class per client.

    - ``label_accuracy``: share of clients whose class has the highest score, ties shared;
    - ``label_chance``: the same had every guess been dealt to a client at random;
    - ``label_base_rate``: share of the most frequent class, the best guess that reads nothing;
    - ``label_lift``: accuracy above the base rate.

    Args:
        claim: the claim.
        truth: int64[n], every client's class; -1 where it has none.
        corrupted: the adversary's own clients; they are left out.
        seed: of the bootstrap and of the null control.

    Raises:
        ValueError: a score is not finite.
    """
    known = is_honest(claim.clients, corrupted) & (truth[claim.clients] >= 0)
    if not known.any():
        return NotApplicable(reason=NOBODY)
    scores, classes = claim.scores[known], truth[claim.clients[known]]
    require_finite("scores of classes", scores)
    if len(np.unique(classes)) < 2:
        return NotApplicable(reason="there is nothing to tell apart in the truth")
    best = scores == scores.max(axis=1, keepdims=True)
    guesses = best / best.sum(axis=1, keepdims=True)
    odds = guesses[np.arange(len(classes)), classes]
    shares = np.bincount(classes, minlength=scores.shape[1]) / len(classes)
    chance, base = float(guesses.mean(axis=0) @ shares), float(shares.max())
    accuracy = hit_interval(odds, seed=seed)
    figures: Figures = {
        **interval_figures("label_accuracy", accuracy),
        "label_chance": chance,
        "label_base_rate": base,
    }
    dealt = np.random.default_rng(seed).permutation(classes)
    null = guesses[np.arange(len(classes)), dealt]
    return Scored(
        figures=figures,
        gains={"label_lift": Gain(odds - base, guesses=True)},
        units={"clients": len(classes), "pairs": scores.size, "positives": len(classes)},
        details={"label": claim.name},
        null_control=hit_null("label_accuracy", null, chance),
    )
