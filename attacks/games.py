"""Games: the harness gives an attack its view, keeps the truth, and scores the claims afterwards.

The secret of the rated-set game is, for every client an attack makes claims about, which items of
the catalogue it rated in the training data. The figure is the mean over clients of each client's
AUC, once over the whole catalogue and once within the *visible support* (items the adversary saw in
that client's messages, where virtual ratings are supposed to help). Every figure stands beside two
others: what the popularity of items alone would give (the prior), and what the same scores give
against permuted labels (the null control, which must sit at 0.5).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attacks.base import Attack, Claims, LinkClaim, NotApplicable, RatedSetClaim, VectorClaim
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
from secure_fedrec.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.wire import Adversary, Step, Transcript, Truth, View

__all__ = ["Finding", "GroundTruth", "evaluate"]

_NULL_DEVIATIONS = 4.0
"""Standard deviations chance may take a null control from 0.5; 1 in 15,000 honest ones fails."""

_VECTOR_ERROR = 1e-3
_BY_ROUND = ("auc", "support_auc", "precision", "rating_accuracy", "exact_set_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundTruth:
    """What the harness knows and no attack does.

    Args:
        train: the training ratings.
        recorded: what was recorded apart from the transcript.
        denoiser_clients: client number of each denoiser; empty without denoisers.
    """

    train: RatingTable
    recorded: Truth
    denoiser_clients: tuple[int, ...] = ()

    def corrupted_clients(self, adversary: Adversary) -> frozenset[int]:
        """Clients on the adversary's side; nobody attacks himself."""
        own = adversary.members("client")
        clients = frozenset(range(self.train.n_clients)) if own is None else own
        denoisers = adversary.members("denoiser")
        if denoisers is None:
            return clients | frozenset(self.denoiser_clients)
        indices = (index for index in denoisers if index < len(self.denoiser_clients))
        return clients | frozenset(self.denoiser_clients[index] for index in indices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one attack by one adversary achieved.

    Args:
        attack: name of the attack.
        adversary: name of the adversary.
        game: the attack card's game.
        reason: why the attack was not applicable; None if it was measured.
        rounds: rounds whose messages it used.
        figures: measured values by the names used in reports and gates; a value is None where the
            data cannot support it.
        units: clients, pairs and positives behind the figures.
        details: attack-specific extras.
        null_control: the same scores against permuted labels.
        roc: pooled ROC curve over the catalogue.
    """

    attack: str
    adversary: str
    game: str
    reason: str | None = None
    rounds: tuple[int, ...] = ()
    figures: Mapping[str, float | None] = field(default_factory=dict)
    units: Mapping[str, int] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    null_control: Mapping[str, Any] | None = None
    roc: Mapping[str, list[float]] | None = None

    @property
    def measured(self) -> bool:
        """Whether the attack ran."""
        return self.reason is None


def evaluate(
    attack: Attack, adversary: Adversary, transcript: Transcript, truth: GroundTruth, *, seed: int
) -> Finding:
    """Run one attack on one adversary's view and score its claims.

    An attack that decodes the payloads of one round is tried on every recorded round; the finding
    is that of the round in which it was strongest, the others stand in its details.

    Args:
        attack: the attack.
        adversary: whose view it gets.
        transcript: the recorded run.
        truth: opened only after the attack has made its claims.
        seed: of the bootstrap and of the null control.
    """
    view = transcript.view(adversary)
    one_round = bool(getattr(attack, "reads_one_round", False))
    rounds = _payload_rounds(view) if one_round else ()
    if len(rounds) < 2:
        return _score(attack, view, truth, seed)
    tried = [_score(attack, view.at(round_), truth, seed) for round_ in rounds]
    measured = [finding for finding in tried if finding.measured]
    if not measured:
        return tried[0]
    worst = max(measured, key=_strength)
    by_round = {
        str(finding.rounds[0]): {name: finding.figures.get(name) for name in _BY_ROUND}
        for finding in measured
    }
    return replace(worst, details={**worst.details, "by_round": by_round})


def _payload_rounds(view: View) -> tuple[int, ...]:
    steps = (step for step in (Step.UPLOAD, Step.DENOISE, Step.NOISE) if view.sees(step))
    return tuple(sorted({round_ for step in steps for round_ in view.payload_rounds(step)}))


def _strength(finding: Finding) -> float:
    """Of two rounds, the one in which the attack tells more apart is the one that counts."""
    inside, whole = finding.figures.get("support_auc"), finding.figures.get("auc")
    return (inside if inside is not None else 0.0) + (whole if whole is not None else 0.0)


def _score(attack: Attack, view: View, truth: GroundTruth, seed: int) -> Finding:
    adversary = view.adversary
    claims = attack.run(view)
    blank = Finding(attack=attack.name, adversary=adversary.name, game=attack.card.game)
    if isinstance(claims, NotApplicable):
        return replace(blank, reason=claims.reason)
    corrupted = truth.corrupted_clients(adversary)
    rated = _honest_only(claims.rated, corrupted)
    if not len(rated.clients):
        return replace(blank, reason="every client the claims are about is the adversary's own")
    labels = _labels(truth.train, rated.clients)
    catalogue = _table(rated.scores, labels)
    if not np.isfinite(per_client_auc(catalogue)).any():
        return replace(blank, reason="there is nothing to tell apart in the truth")
    figures, null = _rated_figures(rated, labels, catalogue, truth.train, seed)
    details: dict[str, Any] = dict(claims.details)
    if rated.history:
        details["auc_by_rounds"] = _history(rated, labels)
    figures |= _rating_figures(claims, truth.train, corrupted)
    for vectors in claims.vectors:
        figures |= _vector_figures(vectors, truth.recorded, corrupted)
    for links in claims.links:
        figures |= _link_figures(links, truth.recorded, corrupted)
    if claims.unmasked is not None:
        figures |= _unmasked_figures(claims, labels, corrupted)
    curve = pooled_roc(catalogue)
    units = {
        "clients": len(rated.clients),
        "pairs": catalogue.n_pairs,
        "positives": int(catalogue.labels.sum()),
    }
    return replace(
        blank,
        rounds=claims.rounds,
        figures=figures,
        units=units,
        details=details,
        null_control=null,
        roc={"fpr": curve.fpr.tolist(), "tpr": curve.tpr.tolist()},
    )


def _honest_only(claim: RatedSetClaim, corrupted: frozenset[int]) -> RatedSetClaim:
    keep = _honest(claim.clients, corrupted)
    if keep.all():
        return claim
    return RatedSetClaim(
        clients=claim.clients[keep],
        scores=claim.scores[keep],
        visible=claim.visible[keep],
        predicted=None if claim.predicted is None else claim.predicted[keep],
        history={rounds: scores[keep] for rounds, scores in claim.history.items()},
    )


def _honest(clients: IntArray, corrupted: frozenset[int]) -> BoolArray:
    return ~np.isin(clients, sorted(corrupted))


def _labels(train: RatingTable, clients: IntArray) -> BoolArray:
    grid = np.zeros((train.n_clients, train.n_items), dtype=bool)
    grid[train.clients, train.items] = True
    return np.asarray(grid[clients])


def _table(scores: FloatArray, labels: BoolArray, keep: BoolArray | None = None) -> ScoreTable:
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


def _rated_figures(
    rated: RatedSetClaim, labels: BoolArray, catalogue: ScoreTable, train: RatingTable, seed: int
) -> tuple[dict[str, float | None], dict[str, Any]]:
    prior_scores = _popularity(train, labels)
    support = _table(rated.scores, labels, rated.visible)
    whole, inside = _mean_auc(catalogue, seed), _mean_auc(support, seed)
    prior = _mean_auc(_table(prior_scores, labels), seed)
    prior_inside = _mean_auc(_table(prior_scores, labels, rated.visible), seed)
    one_percent = tpr_at_fpr_interval(catalogue, fpr=0.01, seed=seed)
    tenth = tpr_at_fpr_interval(catalogue, fpr=0.001, seed=seed)
    figures: dict[str, float | None] = {
        **_interval("auc", whole),
        **_interval("support_auc", inside),
        "prior_auc": None if prior is None else prior.value,
        "support_prior_auc": None if prior_inside is None else prior_inside.value,
        **_interval("lift_over_prior", _lift(catalogue, _table(prior_scores, labels), seed)),
        **_interval(
            "support_lift_over_prior",
            _lift(support, _table(prior_scores, labels, rated.visible), seed),
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


def _history(rated: RatedSetClaim, labels: BoolArray) -> dict[str, dict[str, float | None]]:
    """AUC and precision of the always-seen set had the adversary stopped earlier."""
    found: dict[str, dict[str, float | None]] = {}
    for rounds, scores in rated.history.items():
        inside = _table(scores, labels, scores > 0)
        always = scores == np.maximum(scores.max(axis=1, keepdims=True), 1)
        found[str(rounds)] = {
            "auc": _finite(float(np.nanmean(per_client_auc(_table(scores, labels))))),
            "support_auc": _nan_mean(per_client_auc(inside)),
            "always_seen_precision": _finite(float(labels[always].mean())),
            "exact_set_share": float(np.mean(np.all(always == labels, axis=1))),
        }
    return found


def _nan_mean(values: FloatArray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def _rating_figures(
    claims: Claims, train: RatingTable, corrupted: frozenset[int]
) -> dict[str, float | None]:
    """Share of the clients' true, visible ratings that were named exactly."""
    claim = claims.ratings
    if claim is None:
        return {}
    truth = np.full((train.n_clients, train.n_items), np.nan)
    truth[train.clients, train.items] = train.ratings
    actual = truth[claim.clients, claim.items]
    scored = np.isfinite(actual) & _honest(claim.clients, corrupted)
    if not scored.any():
        return {"rating_accuracy": None}
    return {"rating_accuracy": float(np.mean(claim.ratings[scored] == actual[scored]))}


def _vector_figures(
    claim: VectorClaim, recorded: Truth, corrupted: frozenset[int]
) -> dict[str, float | None]:
    """Share of private vectors recovered to a relative error below 1e-3, and median cosine."""
    columns = recorded.columns(claim.round, "private-user_vectors")
    if columns is None:
        return {"user_vector_share": None, "user_vector_cosine": None}
    honest = _honest(claim.clients, corrupted)
    actual = columns["values"][claim.clients[honest]]
    claimed = claim.vectors[honest]
    size = np.linalg.norm(actual, axis=1)
    error = np.linalg.norm(claimed - actual, axis=1) / size
    cosine = (claimed * actual).sum(axis=1) / (size * np.linalg.norm(claimed, axis=1) + 1e-300)
    return {
        "user_vector_share": float(np.mean(error < _VECTOR_ERROR)),
        "user_vector_cosine": float(np.median(cosine)),
    }


def _link_figures(
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
    honest = _honest(sender, corrupted)
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


def _unmasked_figures(
    claims: Claims, labels: BoolArray, corrupted: frozenset[int]
) -> dict[str, float | None]:
    """Share of the virtual rows that were proven virtual, and of clients with over 90 % of them."""
    honest = _honest(claims.rated.clients, corrupted)
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
