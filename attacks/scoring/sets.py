"""Figures of claimed sets: how well a client's items, characters or classes were told apart.

A set is scored by the AUC of its scores, per client and then averaged, beside what the popularity
of the elements alone would give (the prior) and the same scores against permuted truth (the null
control, which must sit at 0.5). An adversary has popularity as well as its view: rated sets are
also scored by both together (``posterior``), and what counts is the gain over the prior, over the
whole catalogue.
"""

from typing import Any

import numpy as np

from attacks.base import NotApplicable, RatedSetClaim
from attacks.claims import SetClaim
from attacks.scoring.gains import Estimate, Gain, Gains, headroom
from attacks.scoring.posterior import combined_scores
from attacks.scoring.ranking import PublicRanking, precision_at_size, public_ranking
from attacks.scoring.scored import Figures, Scored, interval_figures, is_honest, normal_null
from attacks.scoring.statistics import (
    Interval,
    ScoreTable,
    advantage,
    exact_set_share,
    mean_interval,
    per_client_auc,
    permute_labels_within_clients,
    pooled_roc,
    tpr_at_fpr_interval,
)
from secure_fedrec.core.arrays import BoolArray, FloatArray

__all__ = ["history_figures", "score_rated_sets", "score_sets", "score_table", "unmasked_figures"]

_ALL_CORRUPTED = "every client the claims are about is the adversary's own"
_NO_CONTRAST = "there is nothing to tell apart in the truth"
_CHANCE = 0.5
_WIDTH_95 = 2 * 1.96
"""Deviations that a 95 % interval is wide."""


def score_table(scores: FloatArray, labels: BoolArray, keep: BoolArray | None = None) -> ScoreTable:
    """Pairs of a [client, item] grid, or of those marked in ``keep``."""
    clients, items = labels.shape
    if keep is None:
        indptr = np.arange(clients + 1) * items
        return ScoreTable(
            indptr=indptr,
            scores=np.ascontiguousarray(scores, dtype=np.float64).ravel(),
            labels=labels.ravel(),
        )
    indptr = np.concatenate([[0], np.cumsum(keep.sum(axis=1))]).astype(np.int64)
    return ScoreTable(
        indptr=indptr, scores=np.asarray(scores[keep], dtype=np.float64), labels=labels[keep]
    )


def score_rated_sets(
    rated: RatedSetClaim, truth: BoolArray, corrupted: frozenset[int], seed: int
) -> Scored | NotApplicable:
    """Judge rated sets, over the catalogue and within the visible support.

    Args:
        rated: the claim.
        truth: bool[n, m], which items every client rated.
        corrupted: the adversary's own clients; they are left out.
        seed: of the bootstrap and of the null control.
    """
    rated = _honest_only(rated, corrupted)
    if not len(rated.clients):
        return NotApplicable(reason=_ALL_CORRUPTED)
    labels = truth[rated.clients]
    catalogue = score_table(rated.scores, labels)
    if not np.isfinite(per_client_auc(catalogue)).any():
        return NotApplicable(reason=_NO_CONTRAST)
    figures, gains = _rated_figures(rated, labels, _popularity(truth, labels), seed)
    curve = pooled_roc(catalogue)
    return Scored(
        figures=figures,
        gains=gains,
        units=_units(catalogue),
        details={"auc_by_rounds": history_figures(rated, labels)} if rated.history else {},
        null_control=_rated_null(catalogue, seed),
        roc={"fpr": curve.fpr.tolist(), "tpr": curve.tpr.tolist()},
    )


def score_sets(
    claim: SetClaim, truth: BoolArray, corrupted: frozenset[int], seed: int
) -> Scored | NotApplicable:
    """Judge sets that are not rated sets.

    Args:
        claim: the claim.
        truth: bool[n, C], what every client's set holds.
        corrupted: the adversary's own clients; they are left out.
        seed: of the bootstrap and of the null control.
    """
    honest = is_honest(claim.clients, corrupted)
    if not honest.any():
        return NotApplicable(reason=_ALL_CORRUPTED)
    labels = truth[claim.clients[honest]]
    table = score_table(claim.scores[honest], labels)
    if not np.isfinite(per_client_auc(table)).any():
        return NotApplicable(reason=_NO_CONTRAST)
    aucs = per_client_auc(table)
    public = public_ranking(_popularity(truth, labels), claim.scores[honest], labels, seed)
    prior = per_client_auc(score_table(public.prior, labels))
    figures: Figures = {
        **interval_figures("set_auc", _mean_auc(aucs, seed)),
        "set_prior_auc": _nan_mean(prior),
    }
    if claim.predicted is not None:
        predicted = claim.predicted[honest]
        share = exact_set_share(predicted.ravel(), table)
        guessed = _set_figures(predicted, labels) | interval_figures("exact_share", share)
        figures |= {f"set_{name}": value for name, value in guessed.items()}
    return Scored(
        figures=figures,
        gains={"set_lift": Gain(aucs - prior)},
        units=_units(table),
        details={"set": claim.name},
        null_control=normal_null("set_auc", *_null_auc(table, seed)),
    )


def _honest_only(claim: RatedSetClaim, corrupted: frozenset[int]) -> RatedSetClaim:
    keep = is_honest(claim.clients, corrupted)
    if keep.all():
        return claim
    return RatedSetClaim(
        clients=claim.clients[keep],
        scores=claim.scores[keep],
        visible=claim.visible[keep],
        predicted=None if claim.predicted is None else claim.predicted[keep],
        history={rounds: scores[keep] for rounds, scores in claim.history.items()},
    )


def _units(table: ScoreTable) -> dict[str, int]:
    return {
        "clients": table.n_clients,
        "pairs": table.n_pairs,
        "positives": int(table.labels.sum()),
    }


def _rated_figures(
    rated: RatedSetClaim, labels: BoolArray, popularity: FloatArray, seed: int
) -> tuple[Figures, Gains]:
    """Figures of the rated-set game, and the gains over an adversary without a view."""
    catalogue, support = (score_table(rated.scores, labels, keep) for keep in (None, rated.visible))
    aucs, inside = per_client_auc(catalogue), per_client_auc(support)
    public = public_ranking(popularity, rated.scores, labels, seed)
    useful = public.prior
    prior = per_client_auc(score_table(useful, labels))
    inside_prior = _informed(per_client_auc(score_table(useful, labels, rated.visible)))
    figures: Figures = {
        **interval_figures("auc", _mean_auc(aucs, seed)),
        **interval_figures("support_auc", _mean_auc(inside, seed)),
        "prior_auc": _nan_mean(prior),
        "support_prior_auc": _nan_mean(inside_prior),
        "advantage": advantage(catalogue),
    }
    gains: Gains = {
        "lift_over_prior": Gain(aucs - prior),
        "support_lift_over_prior": Gain(inside - inside_prior),
        "support_headroom_lift": headroom(inside - inside_prior, 1.0 - inside_prior),
    }
    together, combined = _combined_figures(rated, labels, public, prior, seed)
    likely, surely = _tail_figures(catalogue, score_table(useful, labels), seed)
    figures |= together | likely
    gains |= combined | surely
    if rated.predicted is not None:
        figures |= _set_figures(rated.predicted, labels)
        exact = exact_set_share(rated.predicted.ravel(), catalogue)
        figures |= interval_figures("exact_set_share", exact)
    return figures, gains


def _combined_figures(
    rated: RatedSetClaim, labels: BoolArray, public: PublicRanking, prior: FloatArray, seed: int
) -> tuple[Figures, Gains]:
    """View and popularity together, over the catalogue.

    - ``combined_auc``, and ``headroom_lift``: the share of 1 - ``prior_auc`` that it gains;
    - ``precision_at_k`` of the k items ranked first, k the size of the client's set;
      ``prior_precision_at_k`` without the view, ``alone_precision_at_k`` without popularity;
      ``precision_gain``: over the prior;
    - ``exact_set_gain``: clients whose whole set is ranked first, beyond those of the prior.
    """
    scores = combined_scores(rated, labels, public, seed)
    aucs = per_client_auc(score_table(scores, labels))
    at_k, alone = precision_at_size(scores, labels), precision_at_size(rated.scores, labels)
    without = precision_at_size(public.prior, labels)
    whole, whole_without = (np.where(np.isnan(each), each, each == 1.0) for each in (at_k, without))
    figures: Figures = {
        **interval_figures("combined_auc", _mean_auc(aucs, seed)),
        **interval_figures("precision_at_k", _mean_auc(at_k, seed)),
        "alone_precision_at_k": _nan_mean(alone),
        "prior_precision_at_k": _nan_mean(without),
    }
    return figures, {
        "precision_gain": Gain(at_k - without),
        "headroom_lift": headroom(aucs - prior, 1.0 - prior),
        "exact_set_gain": Gain(whole - whole_without),
    }


def _tail_figures(catalogue: ScoreTable, prior: ScoreTable, seed: int) -> tuple[Figures, Gains]:
    """TPR at low FPR, beside popularity's own.

    Pairs are pooled over clients, so scores that only say who is active have a TPR: the gain is
    over that as well, the TPR of the same scores dealt to each client's items at random.
    """
    dealt = permute_labels_within_clients(catalogue, seed=seed)
    one, without, active = (
        tpr_at_fpr_interval(each, fpr=0.01, seed=seed) for each in (catalogue, prior, dealt)
    )
    tenth = tpr_at_fpr_interval(catalogue, fpr=0.001, seed=seed)
    figures: Figures = {
        **interval_figures("tpr_at_1pct_fpr", one),
        "prior_tpr_at_1pct_fpr": None if without is None else without.value,
        "tpr_at_01pct_fpr": None if tenth is None else tenth.value,
    }
    if one is None or without is None or active is None:
        return figures, {"tpr_gain": None}
    base = max(without, active, key=lambda each: each.value)
    spread = float(np.hypot(one.high - one.low, base.high - base.low)) / _WIDTH_95
    return figures, {"tpr_gain": Estimate(one.value - base.value, spread, one.n_clients)}


def history_figures(rated: RatedSetClaim, labels: BoolArray) -> dict[str, Figures]:
    """AUC and precision of the always-seen set had the adversary stopped earlier."""
    found: dict[str, Figures] = {}
    for rounds, scores in rated.history.items():
        inside = score_table(scores, labels, scores > 0)
        always = scores == np.maximum(scores.max(axis=1, keepdims=True), 1)
        found[str(rounds)] = {
            "auc": _finite(float(np.nanmean(per_client_auc(score_table(scores, labels))))),
            "support_auc": _nan_mean(per_client_auc(inside)),
            "always_seen_precision": _finite(float(labels[always].mean())),
            "exact_set_share": float(np.mean(np.all(always == labels, axis=1))),
        }
    return found


def unmasked_figures(
    rated: RatedSetClaim, unmasked: BoolArray, truth: BoolArray, corrupted: frozenset[int]
) -> tuple[Figures, Gains]:
    """Share of the virtual rows that were proven virtual, and of clients with over 90 % of them.

    The gain is a client's share less that of its rated rows that were "proven" virtual.

    Args:
        rated: whose clients and visible items the proofs are about.
        unmasked: bool[B, m], visible items proven to be virtual.
        truth: bool[n, m], which items every client rated.
        corrupted: the adversary's own clients; they are left out.
    """
    honest = is_honest(rated.clients, corrupted)
    labels, proven = truth[rated.clients[honest]], unmasked[honest]
    virtual = rated.visible[honest] & ~labels
    if not virtual.any():
        return {"unmasked_share": None, "clients_mostly_unmasked_share": None}, {}
    right = virtual & proven
    per_client = right.sum(axis=1) / np.maximum(virtual.sum(axis=1), 1)
    wrong = labels & proven
    rated_rows = rated.visible[honest] & labels
    false = (rated_rows & proven).sum(axis=1) / np.maximum(rated_rows.sum(axis=1), 1)
    gain = np.where(virtual.any(axis=1), per_client - false, np.nan)
    return {
        "unmasked_share": float(right.sum() / virtual.sum()),
        "wrongly_unmasked_share": float(wrong.sum() / max(1, labels.sum())),
        "clients_mostly_unmasked_share": float(np.mean(per_client > 0.9)),
    }, {"unmasked_lift": Gain(gain)}


def _popularity(truth: BoolArray, labels: BoolArray) -> FloatArray:
    """Prior scores: sets that hold an element, the client's own aside (more than anyone knows)."""
    return np.asarray(truth.sum(axis=0, dtype=np.float64)[None, :] - labels)


def _mean_auc(values: FloatArray, seed: int) -> Interval | None:
    """Mean of per-client shares with its interval; None where no client has one."""
    return mean_interval(values, seed=seed, span=1.0) if np.isfinite(values).any() else None


def _informed(prior: FloatArray) -> FloatArray:
    """Every client's AUC of popularity, or chance for all where it ranks backwards.

    The client itself is left out of the counts, so where they are nearly equal its own items rank
    last. That is the harness's doing, and nobody's knowledge.
    """
    known = prior[np.isfinite(prior)]
    forward = len(known) and known.mean() >= _CHANCE
    return prior if forward else np.where(np.isnan(prior), prior, _CHANCE)


def _set_figures(predicted: BoolArray, labels: BoolArray) -> Figures:
    """Precision and recall of the guessed sets, per client and then averaged."""
    hits = (predicted & labels).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision, recall = hits / predicted.sum(axis=1), hits / labels.sum(axis=1)
    return {"precision": _nan_mean(precision), "recall": _nan_mean(recall)}


def _rated_null(catalogue: ScoreTable, seed: int) -> dict[str, Any]:
    """Mean AUC against permuted labels, beside the range that chance allows."""
    null = normal_null("auc", *_null_auc(catalogue, seed))
    low, high = max(0.0, null["low"]), min(1.0, null["high"])
    return {"auc": null["value"], "low": low, "high": high, "passed": null["passed"]}


def _null_auc(table: ScoreTable, seed: int) -> tuple[float, float, float]:
    """Mean AUC against permuted labels, its expectation, and its standard deviation.

    Under permuted labels the AUC of a client with P positives and N negatives has mean 1/2 and,
    ties only lowering it, variance (P + N + 1) / (12 P N) (Mann and Whitney 1947), so the range
    holds for a single client as well as for many.
    """
    shuffled = permute_labels_within_clients(table, seed=seed)
    aucs = per_client_auc(shuffled)
    known = np.isfinite(aucs)
    sizes = np.diff(shuffled.indptr)[known]
    positives = np.add.reduceat(shuffled.labels, shuffled.indptr[:-1], dtype=np.int64)[known]
    variance = (sizes + 1) / (12 * positives * (sizes - positives))
    return float(aucs[known].mean()), 0.5, float(np.sqrt(variance.sum())) / int(known.sum())


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _nan_mean(values: FloatArray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None
