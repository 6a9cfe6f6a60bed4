"""Rankings of a catalogue: what everybody could rank by, and precision at the size of the set."""

import numpy as np
from scipy.stats import rankdata

from secure_fedrec.arrays import BoolArray, FloatArray

__all__ = ["precision_at_size", "public_ranking"]

_CHANCE = 0.5


def precision_at_size(scores: FloatArray, labels: BoolArray) -> FloatArray:
    """Precision of each client's best |I| items, |I| the number that it rated.

    Items tied at the cut are drawn at random: hits are expected ones, whatever the order of rows.

    Args:
        scores: float64[B, m].
        labels: bool[B, m], the rated sets.

    Returns:
        float64[B]; NaN for a client that rated nothing, or everything.
    """
    sizes = labels.sum(axis=1)
    n_items = labels.shape[1]
    ordered = np.sort(scores, axis=1)
    cut = ordered[np.arange(len(sizes)), n_items - np.clip(sizes, 1, n_items)][:, None]
    above, tied = scores > cut, scores == cut
    places = sizes - above.sum(axis=1)
    share = places / tied.sum(axis=1)
    hits = (above & labels).sum(axis=1) + share * (tied & labels).sum(axis=1)
    known = (sizes > 0) & (sizes < n_items)
    return np.asarray(np.divide(hits, sizes, out=np.full(len(sizes), np.nan), where=known))


def public_ranking(popularity: FloatArray, scores: FloatArray, labels: BoolArray) -> FloatArray:
    """What ranks the items best without a look at the client: float64[B, m], counts of raters.

    The best of popularity, of what an attack says of all clients alike (nothing in it is about one
    of them; released counts are such a ranking), and of nothing. Nothing is best where counts are
    nearly equal: the client itself is left out of them, so its own items would rank last. That is
    the harness's doing, and nobody's knowledge.

    Args:
        popularity: float64[B, m], raters of the items apart from the client.
        scores: float64[B, m], the attack's.
        labels: bool[B, m], the rated sets; rankings are compared by their mean AUC.
    """
    candidates = [popularity]
    if (scores == scores[0]).all():
        candidates.append(np.broadcast_to(_in_counts(scores[0], popularity), popularity.shape))
    best, ranking = _CHANCE, np.zeros_like(popularity)
    for candidate in candidates:
        found = _mean_auc(candidate, labels)
        if found > best:
            best, ranking = found, candidate
    return ranking


def _in_counts(scores: FloatArray, popularity: FloatArray) -> FloatArray:
    """A ranking of the items in the range of counts, in the order of scores: float64[m]."""
    counts = np.sort(popularity.mean(axis=0))
    places = rankdata(scores) - 1  # midranks: what is tied stays tied
    # Counts that are equal must not tie what the scores tell apart.
    return np.asarray(counts[places.astype(np.int64)] + places / len(scores))


def _mean_auc(scores: FloatArray, labels: BoolArray) -> float:
    """Mean AUC of the clients that have both kinds of items, ties counting as half."""
    positives = labels.sum(axis=1)
    pairs = positives * (labels.shape[1] - positives)
    ranks = np.where(labels, rankdata(scores, axis=1), 0.0).sum(axis=1)
    known = pairs > 0
    wins = ranks[known] - (positives * (positives + 1) / 2)[known]
    return float((wins / pairs[known]).mean())
