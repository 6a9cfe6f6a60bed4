"""Figures of claimed labels and histograms: one secret per client."""

import numpy as np

from attacks.base import NotApplicable
from attacks.claims import HistogramClaim, LabelClaim
from attacks.scoring.gains import Gain, Gains
from attacks.scoring.intervals import mean_interval
from attacks.scoring.scored import (
    Figures,
    Scored,
    hit_interval,
    hit_null,
    interval_figures,
    is_honest,
    normal_null,
    require_finite,
)
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.evaluation.ranking import midranks

__all__ = ["score_histograms", "score_labels"]

_NOBODY = "nobody but the adversary's own clients has a secret to tell"


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
        return NotApplicable(reason=_NOBODY)
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


def score_histograms(
    claim: HistogramClaim, truth: FloatArray, corrupted: frozenset[int], seed: int
) -> Scored | NotApplicable:
    """Judge how each client's records are distributed.

    - ``histogram_error``: half the L1 distance of the shares, the part of the records in a wrong
      bin; low is a leak;
    - ``histogram_correlation``: rank correlation of the shares over bins;
    - ``..._chance``: the same claim against the other clients' truths, as clients resemble each
      other; ``..._lift``: how much better it is on the client's own;
    - ``activity_correlation``: rank correlation over clients of the claimed and true activity.

    Args:
        claim: the claim.
        truth: float64[n, K], every client's records per bin.
        corrupted: the adversary's own clients; they are left out.
        seed: of the bootstrap and of the null control.

    Raises:
        ValueError: a claimed share is not finite.
    """
    known = is_honest(claim.clients, corrupted) & (truth[claim.clients].sum(axis=1) > 0)
    if not known.any():
        return NotApplicable(reason=_NOBODY)
    claimed, actual = claim.shares[known], truth[claim.clients[known]]
    require_finite("claimed histograms", claimed)
    totals = actual.sum(axis=1)
    shares = actual / totals[:, None]
    # [claim, truth]: the diagonal is the claim about the client itself.
    errors = np.abs(claimed[:, None] - shares[None]).sum(axis=2) / 2
    correlations = _ranked(claimed) @ _ranked(shares).T
    figures, gains = _beside_others("histogram_error", errors, seed, lower_is_better=True)
    ranked, more = _beside_others(
        "histogram_correlation", correlations, seed, lower_is_better=False
    )
    figures |= ranked
    figures["activity_correlation"] = None
    if len(np.unique(totals)) > 2:
        activity = _ranked(claim.activity[known][None]) @ _ranked(totals[None]).T
        figures["activity_correlation"] = float(activity[0, 0])
    bins = shares.shape[1]
    dealt = np.random.default_rng(seed).permuted(_ranked(shares), axis=1)
    null = float((_ranked(claimed) * dealt).sum(axis=1).mean())
    # A rank correlation of unrelated orders has mean 0 and variance 1 / (bins - 1), ties or not.
    deviation = 1.0 / np.sqrt(max(1, bins - 1) * len(totals))
    return Scored(
        figures=figures,
        gains={**gains, **more},
        units={"clients": len(totals), "pairs": shares.size, "positives": int((shares > 0).sum())},
        details={"histogram": claim.name},
        null_control=normal_null("histogram_correlation", null, 0.0, float(deviation)),
    )


def _beside_others(
    name: str, values: FloatArray, seed: int, *, lower_is_better: bool
) -> tuple[Figures, Gains]:
    """Mean of the diagonal, of the rest, and how much better the diagonal is.

    Args:
        name: of the figure.
        values: float64[B, B] in [-1, 1], row b is client b's claim against every truth.
        seed: of the bootstrap.
        lower_is_better: whether a low value is the better claim.
    """
    own = np.diagonal(values)
    span = 1.0 if lower_is_better else 2.0
    figures = interval_figures(name, mean_interval(own, seed=seed, span=span))
    if len(own) < 2:
        return figures | {f"{name}_chance": None}, {f"{name}_lift": None}
    others = (values.sum(axis=1) - own) / (len(own) - 1)
    better = others - own if lower_is_better else own - others
    figures[f"{name}_chance"] = float(others.mean())
    return figures, {f"{name}_lift": Gain(better, span=2 * span)}


def _ranked(values: FloatArray) -> FloatArray:
    """Centred ranks of length 1 along the last axis; 0 where all values are equal."""
    ranks = midranks(values)
    centred = ranks - ranks.mean(axis=-1, keepdims=True)
    length = np.linalg.norm(centred, axis=-1, keepdims=True)
    return np.asarray(centred / np.where(length > 0, length, 1.0))
