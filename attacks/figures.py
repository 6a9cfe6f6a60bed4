"""Figures: claims beside the truth, as the numbers that reports and gates use.

Functions take claims and the truth and return figures by name; a figure is None where the data
cannot support it. ``games`` decides what is played and when the truth is opened.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attacks.base import AnonymousRowClaim, Claims, LinkClaim, RatedSetClaim, VectorClaim
from attacks.statistics import (
    Interval,
    ScoreTable,
    advantage,
    exact_set_share,
    mean_auc_interval,
    mean_interval,
    per_client_auc,
    permute_labels_within_clients,
    tpr_at_fpr_interval,
)
from secure_fedrec.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.wire import Truth

__all__ = [
    "history_figures",
    "is_honest",
    "link_figures",
    "rated_figures",
    "rated_grid",
    "rating_figures",
    "row_figures",
    "score_table",
    "unmasked_figures",
    "vector_figures",
]

_NULL_DEVIATIONS = 4.0
"""Standard deviations chance may take a null control from 0.5; 1 in 15,000 honest ones fails."""

_VECTOR_ERROR = 1e-3


def is_honest(clients: IntArray, corrupted: frozenset[int]) -> BoolArray:
    """Which of these clients are not on the adversary's side: bool[B]."""
    return ~np.isin(clients, sorted(corrupted))


def rated_grid(train: RatingTable, clients: IntArray) -> BoolArray:
    """Which items these clients rated: bool[B, m]."""
    grid = np.zeros((train.n_clients, train.n_items), dtype=bool)
    grid[train.clients, train.items] = True
    return np.asarray(grid[clients])


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


def _popularity(train: RatingTable, labels: BoolArray) -> FloatArray:
    """Prior scores: raters of each item other than the client itself (more than anyone knows)."""
    popularity = train.item_popularity()[None, :].astype(np.float64)
    return np.asarray(popularity - labels)


def _mean_auc(table: ScoreTable, seed: int) -> Interval | None:
    """Mean AUC with its interval; None where no client has both kinds of items."""
    if not np.isfinite(per_client_auc(table)).any():
        return None
    return mean_auc_interval(table, seed=seed)


def rated_figures(
    rated: RatedSetClaim, labels: BoolArray, catalogue: ScoreTable, train: RatingTable, seed: int
) -> tuple[dict[str, float | None], dict[str, Any]]:
    """Figures of the rated-set game, and its null control."""
    prior_scores = _popularity(train, labels)
    support = score_table(rated.scores, labels, rated.visible)
    whole, inside = _mean_auc(catalogue, seed), _mean_auc(support, seed)
    prior = _mean_auc(score_table(prior_scores, labels), seed)
    prior_inside = _mean_auc(score_table(prior_scores, labels, rated.visible), seed)
    one_percent = tpr_at_fpr_interval(catalogue, fpr=0.01, seed=seed)
    tenth = tpr_at_fpr_interval(catalogue, fpr=0.001, seed=seed)
    figures: dict[str, float | None] = {
        **_interval("auc", whole),
        **_interval("support_auc", inside),
        "prior_auc": None if prior is None else prior.value,
        "support_prior_auc": None if prior_inside is None else prior_inside.value,
        **_interval("lift_over_prior", _lift(catalogue, score_table(prior_scores, labels), seed)),
        **_interval(
            "support_lift_over_prior",
            _lift(support, score_table(prior_scores, labels, rated.visible), seed),
        ),
        **_interval("tpr_at_1pct_fpr", one_percent),
        "tpr_at_01pct_fpr": None if tenth is None else tenth.value,
        "advantage": advantage(catalogue),
    }
    if rated.predicted is not None:
        figures |= _set_figures(rated.predicted, labels)
        exact = exact_set_share(rated.predicted.ravel(), catalogue)
        figures |= _interval("exact_set_share", exact)
    return figures, _null_control(catalogue, seed)


def _null_control(catalogue: ScoreTable, seed: int) -> dict[str, Any]:
    """Mean AUC against permuted labels, beside the range that chance allows.

    Under permuted labels the AUC of a client with P positives and N negatives has mean 1/2 and,
    ties only lowering it, variance (P + N + 1) / (12 P N) (Mann and Whitney 1947), so the range
    holds for a single client as well as for many.
    """
    shuffled = permute_labels_within_clients(catalogue, seed=seed)
    aucs = per_client_auc(shuffled)
    known = np.isfinite(aucs)
    sizes = np.diff(shuffled.indptr)[known]
    positives = np.add.reduceat(shuffled.labels, shuffled.indptr[:-1], dtype=np.int64)[known]
    variance = (sizes + 1) / (12 * positives * (sizes - positives))
    spread = _NULL_DEVIATIONS * float(np.sqrt(variance.sum())) / int(known.sum())
    mean = float(aucs[known].mean())
    low, high = max(0.0, 0.5 - spread), min(1.0, 0.5 + spread)
    return {"auc": mean, "low": low, "high": high, "passed": bool(low <= mean <= high)}


def _set_figures(predicted: BoolArray, labels: BoolArray) -> dict[str, float | None]:
    """Precision and recall of the guessed sets, per client and then averaged."""
    hits = (predicted & labels).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision, recall = hits / predicted.sum(axis=1), hits / labels.sum(axis=1)
    return {"precision": _nan_mean(precision), "recall": _nan_mean(recall)}


def _interval(name: str, interval: Interval | None) -> dict[str, float | None]:
    if interval is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _lift(attack: ScoreTable, prior: ScoreTable, seed: int) -> Interval | None:
    """Mean over clients of AUC less prior AUC: the same clients, so their difference resampled."""
    difference = per_client_auc(attack) - per_client_auc(prior)
    if not np.isfinite(difference).any():
        return None
    return mean_interval(difference, seed=seed, span=2.0)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def history_figures(rated: RatedSetClaim, labels: BoolArray) -> dict[str, dict[str, float | None]]:
    """AUC and precision of the always-seen set had the adversary stopped earlier."""
    found: dict[str, dict[str, float | None]] = {}
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


def _nan_mean(values: FloatArray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def rating_figures(
    claims: Claims, train: RatingTable, corrupted: frozenset[int]
) -> dict[str, float | None]:
    """Share of the clients' true, visible ratings that were named exactly."""
    claim = claims.ratings
    if claim is None:
        return {}
    truth = np.full((train.n_clients, train.n_items), np.nan)
    truth[train.clients, train.items] = train.ratings
    actual = truth[claim.clients, claim.items]
    scored = np.isfinite(actual) & is_honest(claim.clients, corrupted)
    if not scored.any():
        return {"rating_accuracy": None}
    return {"rating_accuracy": float(np.mean(claim.ratings[scored] == actual[scored]))}


def vector_figures(
    claim: VectorClaim, recorded: Truth, corrupted: frozenset[int]
) -> dict[str, float | None]:
    """Share of private vectors recovered to a relative error below 1e-3, and median cosine."""
    columns = recorded.columns(claim.round, "private-user_vectors")
    if columns is None:
        return {"user_vector_share": None, "user_vector_cosine": None}
    honest = is_honest(claim.clients, corrupted)
    actual = columns["values"][claim.clients[honest]]
    claimed = claim.vectors[honest]
    size = np.linalg.norm(actual, axis=1)
    error = np.linalg.norm(claimed - actual, axis=1) / size
    cosine = (claimed * actual).sum(axis=1) / (size * np.linalg.norm(claimed, axis=1) + 1e-300)
    return {
        "user_vector_share": float(np.mean(error < _VECTOR_ERROR)),
        "user_vector_cosine": float(np.median(cosine)),
    }


def link_figures(
    claim: LinkClaim, recorded: Truth, corrupted: frozenset[int]
) -> dict[str, float | None]:
    """Share of messages linked to their sender, by each kind of evidence.

    Where several clients fit a message, the adversary guesses among them: the message counts by the
    odds of naming its sender, the expected top-1 accuracy with ties broken at random.
    """
    columns = recorded.columns(claim.round, "noise-origins")
    if columns is None:
        return {"linked_share": None}
    order = np.argsort(columns["tags"])
    found = order[np.searchsorted(columns["tags"][order], claim.tags)]
    sender = columns["clients"][found]
    honest = is_honest(sender, corrupted)
    if not honest.any():
        return {"linked_share": None}
    figures: dict[str, float | None] = {}
    place = np.searchsorted(claim.senders, sender).clip(max=len(claim.senders) - 1)
    known = claim.senders[place] == sender
    for kind, candidates in claim.candidates.items():
        fits = known & claim.fits[kind][np.arange(len(sender)), place]
        odds = np.where(fits, 1.0 / np.maximum(candidates, 1), 0.0)
        figures[f"linked_by_{kind}_share"] = float(np.mean(odds[honest]))
        figures[f"candidates_by_{kind}_median"] = float(np.median(candidates[honest]))
    figures["linked_share"] = max(
        value for name, value in figures.items() if name.startswith("linked_") and value is not None
    )
    return figures


def unmasked_figures(
    claims: Claims, labels: BoolArray, corrupted: frozenset[int]
) -> dict[str, float | None]:
    """Share of the virtual rows that were proven virtual, and of clients with over 90 % of them."""
    honest = is_honest(claims.rated.clients, corrupted)
    unmasked = claims.unmasked
    if unmasked is None:
        return {}
    virtual = claims.rated.visible[honest] & ~labels
    if not virtual.any():
        return {"unmasked_share": None, "clients_mostly_unmasked_share": None}
    right = virtual & unmasked[honest]
    per_client = right.sum(axis=1) / np.maximum(virtual.sum(axis=1), 1)
    wrong = labels & unmasked[honest]
    return {
        "unmasked_share": float(right.sum() / virtual.sum()),
        "wrongly_unmasked_share": float(wrong.sum() / max(1, labels.sum())),
        "clients_mostly_unmasked_share": float(np.mean(per_client > 0.9)),
    }


def row_figures(
    claims: Sequence[AnonymousRowClaim],
    cohorts: Mapping[int, IntArray],
    train: RatingTable,
    recorded: Truth,
    corrupted: frozenset[int],
) -> dict[str, float | None]:
    """Rows read off sums without a name, beside the one client that they can be of.

    A claim about an item is right only if exactly one client of the round rated it; rows of the
    adversary's own clients are left out. All figures are shares, None where nothing was claimed:

    - ``tail_row_precision`` of the claimed rows: of one client indeed;
    - ``tail_rating_accuracy`` of the named ratings: that client's rating;
    - ``tail_rating_share`` of all items with one rater in a round: rating named, and right;
    - ``tail_group_accuracy`` of the pairs of rows in one group: of one client;
    - ``tail_owner_accuracy`` of the rows with a name: of the client named;
    - ``tail_vector_share`` of the claimed vectors: right to a relative error of 1e-3.

    Args:
        claims: one per round.
        cohorts: round -> int64[P], the clients that took part.
        train: the ratings.
        recorded: private vectors by round.
        corrupted: the adversary's own clients.
    """
    parts = [
        _row_truths(claim, cohorts[claim.round], train, recorded, corrupted) for claim in claims
    ]

    def share(name: str) -> float | None:
        hits = np.concatenate([np.empty(0, dtype=bool), *(part[name] for part in parts)])
        return float(hits.mean()) if len(hits) else None

    named = sum(int(part["ratings"].sum()) for part in parts)
    tail = sum(int(part["tail"].sum()) for part in parts)
    return {
        "tail_row_precision": share("rows"),
        "tail_rating_accuracy": share("ratings"),
        "tail_rating_share": named / tail if tail else None,
        "tail_group_accuracy": share("pairs"),
        "tail_owner_accuracy": share("owners"),
        "tail_vector_share": share("vectors"),
    }


def _row_truths(
    claim: AnonymousRowClaim,
    cohort: IntArray,
    train: RatingTable,
    recorded: Truth,
    corrupted: frozenset[int],
) -> dict[str, BoolArray]:
    """What of a round's claim is right, and which items have one (honest) rater."""
    there = np.isin(train.clients, cohort)
    raters = np.bincount(train.items[there], minlength=train.n_items)
    rater = np.full(train.n_items, -1, dtype=np.int64)
    rater[train.items[there]] = train.clients[there]
    rater[raters != 1] = -1
    rating = np.full(train.n_items, np.nan)
    rating[train.items[there]] = train.ratings[there]
    own = np.isin(rater, sorted(corrupted)) & (rater >= 0)
    keep = ~own[claim.items]
    items, groups = claim.items[keep], claim.groups[keep]
    whose, owner = rater[items], claim.owners[groups]
    one, other = np.nonzero(np.triu(groups[:, None] == groups[None, :], k=1))
    return {
        "rows": whose >= 0,
        "ratings": ((whose >= 0) & (claim.ratings[keep] == rating[items]))[claim.named[keep]],
        "pairs": (whose[one] >= 0) & (whose[one] == whose[other]),
        "owners": (owner == whose)[owner >= 0],
        "vectors": _vector_truths(claim, groups, whose, recorded),
        "tail": (rater >= 0) & ~own,
    }


def _vector_truths(
    claim: AnonymousRowClaim, groups: IntArray, whose: IntArray, recorded: Truth
) -> BoolArray:
    """Whether each claimed vector is that of the client of the group's first row."""
    columns = recorded.columns(claim.round, "private-user_vectors")
    present, first = np.unique(groups, return_index=True)
    solved = claim.solved[present]
    if columns is None or not solved.any():
        return np.empty(0, dtype=bool)
    clients = whose[first[solved]]
    actual = columns["values"][clients]
    error = np.linalg.norm(claim.vectors[present[solved]] - actual, axis=1)
    right = error < _VECTOR_ERROR * np.linalg.norm(actual, axis=1)
    return np.asarray(right & (clients >= 0))
