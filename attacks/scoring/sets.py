"""Secret sets that are not rated sets: the claim, its figures, and how it is judged.

A set is scored by the AUC of its scores, averaged over clients, and compared with the AUC of the
popularity of the elements (the prior) and with that of the same scores against permuted truth (the
null control, which must be near 0.5).
"""

from dataclasses import dataclass

import numpy as np

from attacks.base import need
from attacks.scoring.chance import mean_auc, nan_mean, normal_null, null_auc
from attacks.scoring.gains import Figures, Gain, interval_figures
from attacks.scoring.item_sets import ItemSets
from attacks.scoring.ranking import CatalogueGame, public_ranking
from attacks.scoring.rows import Rows
from attacks.scoring.statistics import per_client_auc
from attacks.scoring.tables import ScoreTable, Table, count_per_client
from attacks.scoring.truth import ALL_CORRUPTED, NO_CONTRAST, Scored, SecretClaim, is_honest
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.core.kernels import bounds_of
from secure_fedrec.evaluation.intervals import share_interval


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SetClaim(SecretClaim):
    """How likely each element is to be in a client's set.

    Args:
        name: name of the elements.
        clients: int64[B].
        scores: float64[B, C], higher means more likely.
        predicted: bool[B, C], the set as guessed outright; None if the attack only ranks.
    """

    kind = "sets"
    """A set of every client, bool[n, C]."""

    scores: FloatArray
    predicted: BoolArray | None = None

    def judged(self, truth: BoolArray, corrupted: frozenset[int], seed: int) -> Scored:
        """Judge sets that are not rated sets."""
        honest = is_honest(self.clients, corrupted)
        need(honest.any(), ALL_CORRUPTED)
        sets = ItemSets.of_grid(truth)
        labels = sets.take(self.clients[honest])
        game = CatalogueGame(Rows.of_grid(self.scores[honest]), labels)
        aucs = per_client_auc(game.table)
        need(np.isfinite(aucs).any(), NO_CONTRAST)
        public = public_ranking(game, sets.popularity, seed)
        prior = per_client_auc(public.table)
        figures = interval_figures("set_auc", mean_auc(aucs, seed))
        figures["set_prior_auc"] = nan_mean(prior)
        if self.predicted is not None:
            guessed, _ = guessed_figures(Rows.of_grid(self.predicted[honest]), game, "exact_share")
            figures |= {f"set_{name}": value for name, value in guessed.items()}
        return Scored(
            figures=figures,
            gains={"set_lift": Gain(aucs - prior)},
            units=units_of(game.table),
            details={"set": self.name},
            null_control=normal_null("set_auc", *null_auc(game.dealt(seed))),
        )


def score_table(scores: FloatArray, labels: BoolArray, keep: BoolArray) -> ScoreTable:
    """Pairs of a [client, item] grid that are marked in ``keep``."""
    kept = np.asarray(scores[keep], dtype=np.float64)
    return ScoreTable(indptr=bounds_of(keep.sum(axis=1)), scores=kept, labels=labels[keep])


def units_of(table: Table) -> dict[str, int]:
    """The numbers of units behind the figures of a table."""
    return {
        "clients": table.n_clients,
        "pairs": table.n_pairs,
        "positives": int(table.positives().sum()),
    }


def guessed_figures(predicted: Rows, game: CatalogueGame, exact: str) -> tuple[Figures, BoolArray]:
    """Figures of guessed sets: mean precision and recall per client, and exact sets.

    Args:
        predicted: bool, listed like the scores (unlisted pairs are not in a set), or one row of the
            catalogue for all clients.
        game: the scores, against the sets.
        exact: name of the share of clients whose guessed set is exactly their true set; it is over
            clients that have pairs, as two empty sets would count as a success.

    Returns:
        (figures, bool[B] whose set is exact).
    """
    hits, named = [], []
    for span in game.spans:
        pairs = game.part(span).pairs
        guess = np.asarray(predicted.of(pairs), dtype=bool)
        hits.append(count_per_client(guess & pairs.labels, pairs.indptr))
        size = count_per_client(guess, pairs.indptr)
        # The same guess for all clients, over the whole catalogue.
        if isinstance(predicted.rest, np.ndarray):
            size = np.full_like(size, np.count_nonzero(predicted.rest))
        named.append(size)
    found, sizes, there = np.concatenate(hits), np.concatenate(named), game.table.sizes > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        precision, recall = found / sizes, found / game.labels.lengths
    right = there & (found == sizes) & (found == game.labels.lengths)
    whole = int(np.count_nonzero(right))
    return {
        "precision": nan_mean(precision),
        "recall": nan_mean(recall),
        **interval_figures(exact, share_interval(whole, int(there.sum()))),
    }, right
