"""Rated sets: the claim, its figures, and how it is judged.

Scored like any set (``sets``), over the whole catalogue and within the visible support. An
adversary has popularity as well as its view: rated sets are also scored by both together
(``posterior``), and what counts is the gain over the prior, over the whole catalogue.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from attacks.base import need
from attacks.scoring.chance import mean_auc, nan_mean, normal_null, null_auc
from attacks.scoring.gains import (
    Estimate,
    Figures,
    Gain,
    Gains,
    Persons,
    exact_sets,
    headroom,
    interval_figures,
)
from attacks.scoring.item_sets import ItemSets
from attacks.scoring.posterior import combined_scores
from attacks.scoring.ranking import CatalogueGame, PublicRanking, public_ranking
from attacks.scoring.rows import Rows, kept_rows, require_alike, require_marks
from attacks.scoring.sets import guessed_figures, units_of
from attacks.scoring.statistics import (
    advantage,
    per_client_auc,
    pooled_roc,
    precision_at_size,
    tpr_at_fpr_interval,
)
from attacks.scoring.tables import Table, count_per_client, highest_each
from attacks.scoring.truth import ALL_CORRUPTED, NO_CONTRAST, Case, Scored, is_honest
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray


def history_figures(history: Mapping[int, Rows], labels: ItemSets) -> dict[str, Figures]:
    """AUC and precision of the always-seen set had the adversary stopped earlier."""
    found: dict[str, Figures] = {}
    for rounds, scores_then in history.items():
        aucs, inside, sizes, hits, whole = ([] for _ in range(5))
        game = CatalogueGame(scores_then.telling(), labels)
        for span in game.spans:
            part = game.part(span)
            scores, indptr = part.table.scores, part.pairs.indptr
            seen = scores > 0
            support = part.table.where(seen)
            always = scores == np.repeat(highest_each(scores, indptr), np.diff(indptr))
            aucs.append(per_client_auc(part.table))
            inside.append(per_client_auc(support))
            sizes.append(np.count_nonzero(always))
            hits.append(np.count_nonzero(always & part.pairs.labels))
            whole.append(count_per_client(always != part.pairs.labels, indptr) == 0)
        found[str(rounds)] = {
            "auc": nan_mean(np.concatenate(aucs)),
            "support_auc": nan_mean(np.concatenate(inside)),
            "always_seen_precision": sum(hits) / sum(sizes) if sum(sizes) else None,
            "exact_set_share": float(np.mean(np.concatenate(whole))),
        }
    return found


_CHANCE = 0.5
_WIDTH_95 = 2 * 1.96
"""Half width of a 95 % interval, in standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatedSetClaim:
    """How likely each item is to be in a client's rated set.

    The fields but the first are grids, or rows (``Rows``) that list the same pairs.

    Args:
        clients: int64[B], the clients that the claim is about.
        scores: float64[B, m], higher means more likely rated.
        visible: bool[B, m], items the adversary saw in any message of that client.
        predicted: bool[B, m], the rated set as guessed outright; None if the attack only ranks.
        history: round count -> float[B, m], scores had the adversary stopped after so many rounds;
            0 where nothing was seen.
        sure: bool[B], clients whose guessed set is certain: fewer than 2^-20 of all such sets are
            expected to be wrong. None for nobody's.

    Raises:
        ValueError: fields list different pairs, or mark pairs that they do not list.
    """

    decides: ClassVar = True
    """If this claim cannot be judged, the rest of the finding is not judged either."""

    clients: IntArray
    scores: FloatArray | Rows
    visible: BoolArray | Rows
    predicted: BoolArray | Rows | None = None
    history: Mapping[int, FloatArray | Rows] = field(default_factory=dict)
    sure: BoolArray | None = None

    @classmethod
    def of_listed(
        cls,
        clients: IntArray,
        listed: ItemSets,
        scores: npt.NDArray[Any],
        predicted: BoolArray,
        rest: float = 0.0,
    ) -> "RatedSetClaim":
        """Of the pairs that were seen, [K] of each; ``rest`` is the score of all others."""
        return cls(
            clients=clients,
            scores=Rows(listed=listed, values=scores, rest=rest),
            visible=Rows.marked(listed),
            predicted=Rows.marked(listed, predicted),
        )

    def __post_init__(self) -> None:
        require_alike(self.scores, self.visible, *self.others)
        marks = (self.visible, self.predicted)
        require_marks(*(each for each in marks if each is not None), shared=True)

    @property
    def others(self) -> "tuple[FloatArray | BoolArray | Rows, ...]":
        """The history, then the predicted set, if any."""
        return (*self.history.values(), *(() if self.predicted is None else (self.predicted,)))

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by the training ratings, over the catalogue and within the visible support.

        Dependent figures are not judged without them.
        """
        if not len(self.clients):
            return
        truth = ItemSets.rated(need(case.truth.train, "the truth holds no ratings"))
        honest = is_honest(self.clients, case.corrupted)
        need(honest.any(), ALL_CORRUPTED)
        labels = truth.take(self.clients[honest])
        scores, visible, *others = kept_rows(honest, self.scores, self.visible, *self.others)
        predicted = others.pop() if self.predicted is not None else None
        game = CatalogueGame(scores, labels, visible)
        need(np.isfinite(per_client_auc(game.table)).any(), NO_CONTRAST)
        sure = np.zeros(len(labels), dtype=bool) if self.sure is None else self.sure[honest]
        figures, gains, wrong = _rated_figures(game, predicted, sure, truth, case.seed)
        curve = pooled_roc(game.table)
        by_rounds = history_figures(dict(zip(self.history, others, strict=True)), labels)
        yield Scored(
            figures=figures,
            gains=gains,
            units=units_of(game.table),
            details={
                **({"auc_by_rounds": by_rounds} if self.history else {}),
                **({"sure_sets": int(sure.sum()), "sure_sets_wrong": wrong} if sure.any() else {}),
            },
            null_control=_rated_null(game.dealt(case.seed)),
            roc={"fpr": curve.fpr.tolist(), "tpr": curve.tpr.tolist()},
        )


def _rated_figures(
    game: CatalogueGame, predicted: Rows | None, sure: BoolArray, truth: ItemSets, seed: int
) -> tuple[Figures, Gains, int]:
    """Figures of the game, gains over an adversary without a view, sure sets that are wrong."""
    aucs, inside = per_client_auc(game.table), per_client_auc(game.support)
    public = public_ranking(game, truth.popularity, seed)
    prior = per_client_auc(public.table)
    inside_prior = _informed(per_client_auc(public.within(game)))
    figures: Figures = {
        **interval_figures("auc", mean_auc(aucs, seed)),
        **interval_figures("support_auc", mean_auc(inside, seed)),
        "prior_auc": nan_mean(prior),
        "support_prior_auc": nan_mean(inside_prior),
        "advantage": advantage(game.table),
    }
    gains: Gains = {
        "lift_over_prior": Gain(aucs - prior),
        "support_lift_over_prior": Gain(inside - inside_prior),
        "support_headroom_lift": headroom(inside - inside_prior, 1.0 - inside_prior),
    }
    together, combined, first = _combined_figures(game, public, prior, seed)
    likely, surely = _tail_figures(game, public, seed)
    figures |= together | likely
    gains |= combined | surely
    outright = np.zeros(len(first), dtype=bool)
    if predicted is not None:
        guessed, outright = guessed_figures(predicted, game, "exact_set_share")
        figures |= guessed
    first = (first | outright) & (precision_at_size(public.table) < 1.0)
    by_luck = exact_sets(first, game.labels, truth.popularity, len(truth))
    known = sure & outright
    gains["exact_clients"] = Persons(first | known, np.where(known, -np.inf, by_luck.odds))
    return figures, gains, int(np.count_nonzero(sure & ~outright))


def _combined_figures(
    game: CatalogueGame, public: PublicRanking, prior: FloatArray, seed: int
) -> tuple[Figures, Gains, BoolArray]:
    """View and popularity together, over the catalogue.

    - ``combined_auc``, and ``headroom_lift``: the share of 1 - ``prior_auc`` that it gains;
    - ``precision_at_k`` of the k items ranked first, k the size of the client's set;
      ``prior_precision_at_k`` without the view, ``alone_precision_at_k`` without popularity;
      ``precision_gain``: over the prior;
    - ``exact_set_gain``: clients whose whole set is ranked first, beyond those of the prior.

    Returns:
        (figures, gains, bool[B] whose whole set is ranked first).
    """
    ranked = combined_scores(game, public)
    found = [(per_client_auc(part), precision_at_size(part)) for part in ranked.parts()]
    aucs, at_k = (np.concatenate(each) for each in zip(*found, strict=True))
    alone = precision_at_size(game.table)
    without = precision_at_size(public.table)
    whole, whole_without = (np.where(np.isnan(each), each, each == 1.0) for each in (at_k, without))
    figures: Figures = {
        **interval_figures("combined_auc", mean_auc(aucs, seed)),
        **interval_figures("precision_at_k", mean_auc(at_k, seed)),
        "alone_precision_at_k": nan_mean(alone),
        "prior_precision_at_k": nan_mean(without),
    }
    return (
        figures,
        {
            "precision_gain": Gain(at_k - without),
            "headroom_lift": headroom(aucs - prior, 1.0 - prior),
            "exact_set_gain": Gain(whole - whole_without),
        },
        at_k == 1.0,
    )


def _tail_figures(game: CatalogueGame, public: PublicRanking, seed: int) -> tuple[Figures, Gains]:
    """TPR at low FPR, compared with that of popularity.

    Pairs are pooled over clients, so scores that only tell how active clients are also have a TPR:
    the gain is also over that, the TPR of the same scores dealt to each client's items at random.
    """
    catalogue, prior, dealt = game.table, public.table, game.dealt(seed)
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


def _informed(prior: FloatArray) -> FloatArray:
    """Every client's AUC of popularity, or chance for all if it ranks in reverse.

    The client itself is left out of the counts, so where they are nearly equal its own items rank
    last. The harness does this; no party knows the ranking.
    """
    known = prior[np.isfinite(prior)]
    forward = len(known) and known.mean() >= _CHANCE
    return prior if forward else np.where(np.isnan(prior), prior, _CHANCE)


def _rated_null(dealt: Table) -> dict[str, Any]:
    """Mean AUC against permuted labels, beside the range that chance allows."""
    null = normal_null("auc", *null_auc(dealt))
    low, high = max(0.0, null["low"]), min(1.0, null["high"])
    return {"auc": null["value"], "low": low, "high": high, "passed": null["passed"]}
