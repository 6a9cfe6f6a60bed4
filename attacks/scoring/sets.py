"""Figures of claimed sets: how well a client's items, characters or classes were told apart.

A set is scored by the AUC of its scores, per client and then averaged, beside what the popularity
of the elements alone would give (the prior) and the same scores against permuted truth (the null
control, which must sit at 0.5).
"""

from typing import Any

import numpy as np

from attacks.base import NotApplicable, RatedSetClaim
from attacks.claims import SetClaim
from attacks.scoring.scored import Figures, Scored, interval_figures, is_honest, normal_null
from attacks.statistics import (
    Interval,
    ScoreTable,
    advantage,
    exact_set_share,
    mean_auc_interval,
    mean_interval,
    per_client_auc,
    permute_labels_within_clients,
    pooled_roc,
    tpr_at_fpr_interval,
)
from secure_fedrec.arrays import BoolArray, FloatArray

__all__ = ["history_figures", "score_rated_sets", "score_sets", "score_table", "unmasked_figures"]

_ALL_CORRUPTED = "every client the claims are about is the adversary's own"
_NO_CONTRAST = "there is nothing to tell apart in the truth"


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
    figures = _rated_figures(rated, labels, catalogue, _popularity(truth, labels), seed)
    curve = pooled_roc(catalogue)
    return Scored(
        figures=figures,
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
    prior = score_table(_popularity(truth, labels), labels)
    prior_auc = _mean_auc(prior, seed)
    figures: Figures = {
        **interval_figures("set_auc", _mean_auc(table, seed)),
        "set_prior_auc": None if prior_auc is None else prior_auc.value,
        **interval_figures("set_lift", _lift(table, prior, seed)),
    }
    if claim.predicted is not None:
        predicted = claim.predicted[honest]
        share = exact_set_share(predicted.ravel(), table)
        guessed = _set_figures(predicted, labels) | interval_figures("exact_share", share)
        figures |= {f"set_{name}": value for name, value in guessed.items()}
    return Scored(
        figures=figures,
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
    rated: RatedSetClaim,
    labels: BoolArray,
    catalogue: ScoreTable,
    popularity: FloatArray,
    seed: int,
) -> Figures:
    """Figures of the rated-set game."""
    prior_support = score_table(popularity, labels, rated.visible)
    prior_table = score_table(popularity, labels)
    support = score_table(rated.scores, labels, rated.visible)
    prior, prior_inside = _mean_auc(prior_table, seed), _mean_auc(prior_support, seed)
    one_percent = tpr_at_fpr_interval(catalogue, fpr=0.01, seed=seed)
    tenth = tpr_at_fpr_interval(catalogue, fpr=0.001, seed=seed)
    figures: Figures = {
        **interval_figures("auc", _mean_auc(catalogue, seed)),
        **interval_figures("support_auc", _mean_auc(support, seed)),
        "prior_auc": None if prior is None else prior.value,
        "support_prior_auc": None if prior_inside is None else prior_inside.value,
        **interval_figures("lift_over_prior", _lift(catalogue, prior_table, seed)),
        **interval_figures("support_lift_over_prior", _lift(support, prior_support, seed)),
        **interval_figures("tpr_at_1pct_fpr", one_percent),
        "tpr_at_01pct_fpr": None if tenth is None else tenth.value,
        "advantage": advantage(catalogue),
    }
    if rated.predicted is not None:
        figures |= _set_figures(rated.predicted, labels)
        exact = exact_set_share(rated.predicted.ravel(), catalogue)
        figures |= interval_figures("exact_set_share", exact)
    return figures


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
) -> Figures:
    """Share of the virtual rows that were proven virtual, and of clients with over 90 % of them.

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
        return {"unmasked_share": None, "clients_mostly_unmasked_share": None}
    right = virtual & proven
    per_client = right.sum(axis=1) / np.maximum(virtual.sum(axis=1), 1)
    wrong = labels & proven
    return {
        "unmasked_share": float(right.sum() / virtual.sum()),
        "wrongly_unmasked_share": float(wrong.sum() / max(1, labels.sum())),
        "clients_mostly_unmasked_share": float(np.mean(per_client > 0.9)),
    }


def _popularity(truth: BoolArray, labels: BoolArray) -> FloatArray:
    """Prior scores: sets that hold an element, the client's own aside (more than anyone knows)."""
    return np.asarray(truth.sum(axis=0, dtype=np.float64)[None, :] - labels)


def _mean_auc(table: ScoreTable, seed: int) -> Interval | None:
    """Mean AUC with its interval; None where no client has both kinds of items."""
    if not np.isfinite(per_client_auc(table)).any():
        return None
    return mean_auc_interval(table, seed=seed)


def _lift(attack: ScoreTable, prior: ScoreTable, seed: int) -> Interval | None:
    """Mean over clients of AUC less prior AUC: the same clients, so their difference resampled."""
    difference = per_client_auc(attack) - per_client_auc(prior)
    if not np.isfinite(difference).any():
        return None
    return mean_interval(difference, seed=seed, span=2.0)


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
