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

from attacks.base import Attack, NotApplicable, RatedSetClaim
from attacks.figures import (
    history_figures,
    is_honest,
    link_figures,
    rated_figures,
    rated_grid,
    rating_figures,
    row_figures,
    score_table,
    unmasked_figures,
    vector_figures,
)
from attacks.statistics import per_client_auc, pooled_roc
from secure_fedrec.arrays import IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.wire import Adversary, Step, Transcript, Truth, View

__all__ = ["Finding", "GroundTruth", "evaluate"]

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
    steps = (
        step for step in (Step.UPLOAD, Step.SHARE, Step.DENOISE, Step.NOISE) if view.sees(step)
    )
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
    labels = rated_grid(truth.train, rated.clients)
    catalogue = score_table(rated.scores, labels)
    if not np.isfinite(per_client_auc(catalogue)).any():
        return replace(blank, reason="there is nothing to tell apart in the truth")
    figures, null = rated_figures(rated, labels, catalogue, truth.train, seed)
    details: dict[str, Any] = dict(claims.details)
    if rated.history:
        details["auc_by_rounds"] = history_figures(rated, labels)
    figures |= rating_figures(claims, truth.train, corrupted)
    for vectors in claims.vectors:
        figures |= vector_figures(vectors, truth.recorded, corrupted)
    for links in claims.links:
        figures |= link_figures(links, truth.recorded, corrupted)
    if claims.rows:
        cohorts = {claim.round: _cohort(view, claim.round) for claim in claims.rows}
        figures |= row_figures(claims.rows, cohorts, truth.train, truth.recorded, corrupted)
    if claims.unmasked is not None:
        figures |= unmasked_figures(claims, labels, corrupted)
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


def _cohort(view: View, round_: int) -> IntArray:
    """Clients that sent the server an upload in a round."""
    return np.unique(view.messages(Step.UPLOAD, round_).senders.ids)


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
