"""Games: the harness gives an attack its view, keeps the truth, and scores the claims afterwards.

Each kind of claim is a game of its own, judged by a module of ``scoring``: rated sets, which items
of the catalogue a client rated in the training data, and other sets (``sets``); ratings, senders of
anonymous messages and rows of single clients (``ratings``); private vectors (``vectors``); labels
and histograms (``clients``); vectors of members of clients (``drafts``); attributes
(``attributes``).

The figure of a rated set is the mean over clients of each client's AUC, once over the whole
catalogue and once within the *visible support* (items the adversary saw in that client's messages,
where virtual ratings are supposed to help). Every figure stands beside two others: what is known
without the view (the prior, or chance), and what the same claims give against permuted truth (the
null control, which must sit at chance).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attacks.base import Attack, Claims, NotApplicable
from attacks.claims import DraftClaim, FeatureClaim
from attacks.scoring.attributes import People, score_attributes
from attacks.scoring.clients import score_histograms, score_labels
from attacks.scoring.drafts import Matches, Members, score_disclosed, score_drafts
from attacks.scoring.gains import Level
from attacks.scoring.ratings import link_figures, rated_grid, rating_figures, row_figures
from attacks.scoring.scored import Figures, Scored, is_honest
from attacks.scoring.sets import score_rated_sets, score_sets, unmasked_figures
from attacks.scoring.truth import GroundTruth
from attacks.scoring.vectors import score_vectors
from attacks.view.blocks import item_view
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.wire import Adversary, OwnUploads, Step, Transcript, View

__all__ = ["Finding", "GroundTruth", "evaluate"]

_BY_ROUND = (
    "auc",
    "support_auc",
    "precision",
    "precision_at_k",
    "rating_accuracy",
    "exact_set_share",
    "vector_cosine",
    "reidentified_share",
    "label_accuracy",
    "set_auc",
    "histogram_correlation",
    "disclosed_share",
    "holder_accuracy",
    "attribute_auc",
)
_RATED_STRENGTHS = ("combined_auc", "precision_at_k", "support_auc", "rating_lift")
_STRENGTHS = (
    "vector_cosine_lift",
    "reidentified_lift",
    "label_lift",
    "set_lift",
    "histogram_correlation_lift",
    "disclosed_share",
    "holder_lift",
    "attribute_lift",
)


_SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
_PAYLOADS = (Step.UPLOAD, Step.SHARE, Step.DENOISE, Step.NOISE, Step.BAG)


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
        units: clients (or members of clients), pairs and positives behind the figures.
        details: attack-specific extras.
        null_control: the same claims against permuted truth.
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
    attack: Attack,
    adversary: Adversary,
    transcript: Transcript,
    truth: GroundTruth,
    *,
    seed: int,
    judged: int = 1,
) -> Finding:
    """Run one attack on one adversary's view and score its claims.

    An attack that decodes the payloads of one round is tried on every recorded round; the finding
    is that of the round in which it was strongest, the others stand in its details. Limits of
    gains allow for the choice of the round, and for the other findings of the audit.

    Args:
        attack: the attack.
        adversary: whose view it gets.
        transcript: the recorded run.
        truth: opened only after the attack has made its claims.
        seed: of the bootstrap and of the null control.
        judged: pairs of attack and adversary in the audit.
    """
    own = OwnUploads(truth.recorded, truth.corrupted_clients(adversary))
    view = transcript.view(adversary, own=own)
    server = transcript.view(_SERVER)  # who took part is a fact to judge by, whoever attacks
    one_round = bool(getattr(attack, "reads_one_round", False))
    rounds = _payload_rounds(view) if one_round else ()
    if len(rounds) < 2:
        return _score(attack, view, server, truth, Level(seed=seed, judged=judged))
    level = Level(seed=seed, tried=len(rounds), judged=judged)
    tried = [_score(attack, view.at(round_), server, truth, level) for round_ in rounds]
    measured = [finding for finding in tried if finding.measured]
    if not measured:
        return tried[0]
    worst = max(measured, key=_strength)
    by_round = {
        str(finding.rounds[0]): {
            name: finding.figures[name] for name in _BY_ROUND if name in finding.figures
        }
        for finding in measured
    }
    return replace(worst, details={**worst.details, "by_round": by_round})


def _payload_rounds(view: View) -> tuple[int, ...]:
    steps = (step for step in _PAYLOADS if view.sees(step))
    return tuple(sorted({round_ for step in steps for round_ in view.payload_rounds(step)}))


def _strength(finding: Finding) -> float:
    """Of two rounds, the one in which the attack tells more apart is the one that counts."""
    names = _RATED_STRENGTHS if finding.figures.get("auc") is not None else _STRENGTHS
    return sum(finding.figures.get(name) or 0.0 for name in names)


def _score(attack: Attack, view: View, server: View, truth: GroundTruth, level: Level) -> Finding:
    adversary = view.adversary
    blank = Finding(attack=attack.name, adversary=adversary.name, game=attack.card.game)
    seen: View | None = view
    if getattr(attack, "reads_item_rows", True):
        seen = item_view(view)
    if seen is None:
        return replace(blank, reason="the rows of the shared table are not items")
    claims = attack.run(seen)
    if isinstance(claims, NotApplicable):
        return replace(blank, reason=claims.reason)
    corrupted = truth.corrupted_clients(adversary)
    judged = list(_judge(claims, server, truth, corrupted, level.seed))
    reasons = [each.reason for each in judged if isinstance(each, NotApplicable)]
    scored = [each for each in judged if isinstance(each, Scored)]
    no_rated_sets = len(claims.rated.clients) and isinstance(judged[0], NotApplicable)
    if no_rated_sets or not any(each.units for each in scored):
        unknown = "the truth holds nothing to judge the claims by"
        return replace(blank, reason=reasons[0] if reasons else unknown)
    figures: Figures = {}
    details = dict(claims.details)
    for each in reversed(scored):  # of two claims of a kind, the first gives the figures
        figures |= each.at(level)
        details |= each.details
    nulls = [each.null_control for each in scored if each.null_control is not None]
    return replace(
        blank,
        rounds=claims.rounds,
        figures=figures,
        units=next(each.units for each in scored if each.units),
        details=details,
        null_control=nulls[0] if nulls else None,
        roc=scored[0].roc,
    )


def _judge(
    claims: Claims, server: View, truth: GroundTruth, corrupted: frozenset[int], seed: int
) -> Iterator[Scored | NotApplicable]:
    """Every claim by the truth about it; rated sets come first."""
    if len(claims.rated.clients):
        yield _judge_ratings(claims, server, truth, corrupted, seed)
    for vectors in claims.vectors:
        yield score_vectors(vectors, truth.recorded, corrupted, seed)
    labels, histograms = claims.labels, claims.histograms
    if labels is not None and labels.name in truth.labels:
        yield score_labels(labels, truth.labels[labels.name], corrupted, seed)
    for each in claims.sets:
        if each.name in truth.sets:
            yield score_sets(each, truth.sets[each.name], corrupted, seed)
    if histograms is not None and histograms.name in truth.histograms:
        secret = truth.histograms[histograms.name]
        yield score_histograms(histograms, secret, corrupted, seed)
    for drafts in claims.drafts:
        yield from _judge_drafts(drafts, truth, corrupted, seed)
    if claims.features is not None and truth.attributes:
        yield _judge_features(claims.features, truth, corrupted, seed)


def _judge_ratings(
    claims: Claims, server: View, truth: GroundTruth, corrupted: frozenset[int], seed: int
) -> Scored | NotApplicable:
    """Rated sets, and what hangs on them: ratings, senders, single rows, virtual rows."""
    train = truth.train
    if train is None:
        return NotApplicable(reason="the truth holds no ratings")
    grid = rated_grid(train)
    scored = score_rated_sets(claims.rated, grid, corrupted, seed)
    if isinstance(scored, NotApplicable):
        return scored
    figures, gains = dict(scored.figures), dict(scored.gains)
    if claims.ratings is not None:
        named = rating_figures(claims.ratings, claims.rated.clients, train, corrupted)
        figures, gains = figures | named[0], gains | named[1]
    for links in claims.links:
        figures |= link_figures(links, truth.recorded, corrupted)
    if claims.rows:
        cohorts = {claim.round: _cohort(server, claim.round) for claim in claims.rows}
        items = item_view(server)
        recorded = truth.recorded.within(None if items is None else items.block)
        rows = row_figures(claims.rows, cohorts, train, recorded, corrupted)
        figures, gains = figures | rows[0], gains | rows[1]
    if claims.unmasked is not None:
        proven = unmasked_figures(claims.rated, claims.unmasked, grid, corrupted)
        figures, gains = figures | proven[0], gains | proven[1]
    return replace(scored, figures=figures, gains=gains)


def _judge_drafts(
    claim: DraftClaim, truth: GroundTruth, corrupted: frozenset[int], seed: int
) -> Iterator[Scored | NotApplicable]:
    """Drafts of one kind, and what disclosed vectors tell of the attributes of their members."""
    members = Members.of(claim, truth.recorded)
    if members is None:
        yield NotApplicable(reason=f"the truth holds no {claim.table} of round {claim.round + 1}")
        return
    matches = Matches.of(claim, members, corrupted)
    if isinstance(matches, NotApplicable):
        yield matches
        return
    yield score_drafts(matches, prefix=claim.prefix, seed=seed)
    if claim.tells_people and truth.attributes:
        yield score_disclosed(matches, truth.attributes, known=truth.auxiliary, seed=seed)


def _judge_features(
    claim: FeatureClaim, truth: GroundTruth, corrupted: frozenset[int], seed: int
) -> Scored | NotApplicable:
    """Attributes of clients, beside what their true rated sets tell."""
    honest = is_honest(claim.clients, corrupted)
    clients = claim.clients[honest]
    ceiling = None
    if truth.train is not None:
        ceiling = rated_grid(truth.train)[clients].astype(np.float64)
    people = People(
        features=claim.features[honest],
        attributes={name: classes[clients] for name, classes in truth.attributes.items()},
        ceiling=ceiling,
    )
    return score_attributes(people, known=truth.auxiliary, seed=seed)


def _cohort(server: View, round_: int) -> IntArray:
    """Clients that sent the server an upload in a round."""
    if round_ not in server.rounds(Step.UPLOAD):  # all who came are denoisers
        return np.zeros(0, dtype=np.int64)
    return np.unique(server.messages(Step.UPLOAD, round_).senders.ids)
