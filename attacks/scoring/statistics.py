"""Statistics of a score-based game, with intervals that resample clients.

An attack scores (client, guess) pairs, "client c rated item i" say, and the truth labels them.

* Pairs of one client depend on its model, its activity and its decoys, so they are correlated. The
  independent unit is the client: every interval resamples whole clients, never pairs [1].
* Ties occur (a yes-or-no attack has two scores). The AUC counts a tie as half, and an operating
  point includes a tie completely or not at all, without interpolation.
* A NaN or infinite score means that an attack is broken. It is refused, since an attack ranked as
  chance would make the system look private.

Arguments mean the same everywhere: ``table`` is the game; ``predicted``, bool[N], a set of its
pairs guessed positive; ``fpr`` a target and ``confidence`` a two-sided level, both in (0, 1);
``seed`` the seed of the draws and ``draws`` their number, at least 100. A wrong dtype raises
``TypeError``; a wrong length, a value out of range or a rate of an empty class ``ValueError``.

References:
    [1] Field and Welsh, "Bootstrapping clustered data", JRSS B 69(3), 2007.
    [2] Hanley and McNeil, "The meaning and use of the area under a ROC curve", Radiology, 1982.
    [3] Carlini et al., "Membership inference attacks from first principles", IEEE S&P, 2022.
    [4] Yeom et al., "Privacy risk in machine learning", IEEE CSF, 2018.
    [5] Clopper and Pearson, "The use of confidence or fiducial limits", Biometrika 26(4), 1934.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attacks.scoring.loops import count_below
from attacks.scoring.tables import Pooled, ScoreTable, Table, count_per_client, kept, pooled_classes
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.evaluation.intervals import Interval, check_share, percentile_interval, resampled

_MAX_POINTS = 512
_DRAWN_ELEMENTS = 1 << 22
"""Number of weights of clients that are processed at once."""


class RocCurve(NamedTuple):
    """Operating points of "positive if score >= threshold", from (0, 0) to (1, 1).

    All float64[P]: the rates never decrease, the thresholds decrease strictly from +inf.
    """

    fpr: FloatArray
    tpr: FloatArray
    thresholds: FloatArray


@kept
def per_client_auc(table: Table) -> FloatArray:
    """Area under each client's own ROC curve, as the Mann-Whitney statistic [2].

    Returns:
        float64[n_clients]; NaN for a client without positives or without negatives.
    """
    return np.concatenate([_part_auc(part) for part in table.parts()])


def _part_auc(table: ScoreTable) -> FloatArray:
    positives = table.positives()
    twice_won = np.cumsum(np.append(0, np.add(*table.among_negatives)))  # ties count once
    wins = np.diff(twice_won[table.by_class.hit_ends])
    pairs = 2 * positives * (table.sizes - positives)
    aucs = np.full(table.n_clients, np.nan)
    np.divide(wins, pairs, out=aucs, where=pairs > 0)
    return aucs


@kept
def precision_at_size(table: Table) -> FloatArray:
    """Precision of each client's best k pairs, k the number of its positives.

    Pairs tied at the cut are drawn at random: hits are expected ones, whatever the order of rows.

    Returns:
        float64[n_clients]; NaN for a client without positives or without negatives.
    """
    return np.concatenate([_part_precision(part) for part in table.parts()])


def _part_precision(table: ScoreTable) -> FloatArray:
    (hits, ends, *_), (below, up_to) = table.by_class, table.among_negatives
    own_below, own_up_to = (np.zeros(len(hits), dtype=np.int64) for _ in range(2))
    count_below(hits, ends, hits, ends, own_below, own_up_to)
    sizes = table.positives()
    owners = np.repeat(np.arange(len(sizes)), sizes)
    # Per positive: the pairs tied with it, and how many of these fit among the best.
    tied = (up_to + own_up_to) - (below + own_below)
    room = sizes[owners] - (table.sizes[owners] - (up_to + own_up_to))
    cut = (room > 0) & (room < tied)
    share = np.zeros(len(sizes))
    share[owners[cut]] = room[cut] / tied[cut]
    found = count_per_client(room >= tied, ends) + share * count_per_client(cut, ends)
    known = (sizes > 0) & (sizes < table.sizes)
    return np.asarray(np.divide(found, sizes, out=np.full(len(sizes), np.nan), where=known))


def pooled_roc(table: Table) -> RocCurve:
    """ROC curve over all pairs, thinned to at most 512 points for drawing.

    Every point lies on the exact curve. Up to 255 distinct scores per class are all kept; of more,
    half of the kept ranks are spaced evenly and half logarithmically, for a linear and a log-log
    plot [3]. Take operating points from ``tpr_at_fpr_interval``, not from here.
    """
    positives, negatives = _both_classes(table)
    thin = [_thinned(pooled, _MAX_POINTS // 2 - 1) for pooled in (positives, negatives)]
    thresholds = np.append(np.inf, np.unique(np.concatenate(thin))[::-1])
    both = (negatives, positives)
    fpr, tpr = ((each.size - each.below(thresholds)) / each.size for each in both)
    return RocCurve(fpr, tpr, thresholds)


@kept
def tpr_at_fpr_interval(
    table: Table, *, fpr: float = 0.01, seed: int, confidence: float = 0.95, draws: int = 2000
) -> Interval | None:
    """Largest pooled TPR of a deterministic threshold whose FPR is at most a target [3].

    A tie that would cross the target is left out whole, so a constant score has TPR 0. The interval
    is a percentile bootstrap over clients.
    Every draw picks its own threshold, so the interval covers that choice too. The value is exact.
    Draws choose among at most 512 cuts: all relevant ones if the negatives have no more distinct
    scores, otherwise ranks of the negatives, densest at the target, so that a draw is conservative
    by less than one step (0.2 % of the target near it, 2.5 % a factor of 4 away). If all draws
    agree the interval is widened as in ``percentile_interval``; for a pooled rate that is an
    approximation, which takes a client's TPR as unrelated to its number of positives.

    Returns:
        The interval, ``n_clients`` counting those with positives. None ("not measurable") without
        positives or below 10 / fpr negative pairs, as the threshold would rest on fewer than ten
        false positives. Pairs are correlated, so this floor is necessary, not sufficient.
    """
    check_share("fpr", fpr)
    check_share("confidence", confidence)
    n_positives = table.positives()
    if not n_positives.any() or table.n_pairs - n_positives.sum() < 10 / fpr:
        return None
    above = _pairs_above(table, _tail_cuts(_both_classes(table)[1], fpr))
    blocks = resampled(table.n_clients, draws, seed, elements=_DRAWN_ELEMENTS, width=_MAX_POINTS)
    drawn = np.concatenate([_resampled_tpr(block, above, fpr) for block in blocks])
    once = np.ones((1, table.n_clients), dtype=np.uint8)
    value = float(_resampled_tpr(once, above, fpr)[0])
    return percentile_interval(value, drawn, int(np.count_nonzero(n_positives)), confidence)


def advantage(table: Table) -> float:
    """Largest TPR - FPR over all thresholds, pooled over pairs [4]; in [0, 1].

    The threshold is chosen on the pairs it is measured on, so that even noise is above 0: compare
    with ``dealt_labels``.
    """
    positives, negatives = _both_classes(table)
    # It rises only where the threshold reaches a positive, and at the lowest the TPR is 1: no
    # fallback to 0 is needed.
    tpr = (positives.size - np.append(0, positives.ends[:-1])) / positives.size
    fpr = (negatives.size - negatives.below(positives.values)) / negatives.size
    return float((tpr - fpr).max())


def dealt_labels(table: ScoreTable, rng: np.random.Generator) -> ScoreTable:
    """The same scores, each client's labels permuted over its own pairs, client after client."""
    labels = table.labels.copy()
    for start, stop in zip(table.indptr[:-1], table.indptr[1:], strict=True):
        rng.shuffle(labels[start:stop])
    return ScoreTable(indptr=table.indptr, scores=table.scores, labels=labels)


def _allowed(n_negatives: int, fpr: float) -> int:
    """Largest k with k / n_negatives <= fpr; floor(fpr * n) can be one off in floating point."""
    near = int(fpr * n_negatives)
    return max(k for k in (near - 1, near, near + 1) if k / n_negatives <= fpr)


def _thinned(pooled: Pooled, limit: int, extra: IntArray | tuple[()] = ()) -> FloatArray:
    """Distinct scores, ascending; of more than ``limit``, those at spread-out ranks.

    Ranks count from 1 at the top; the first and the last are always included, and those of
    ``extra``.
    """
    if len(pooled.values) <= limit:
        return pooled.values
    size, half = pooled.size, (limit - len(extra)) // 2
    ranks = np.concatenate([extra, np.geomspace(1, size, half), np.linspace(1, size, half)])
    return np.unique(pooled.at(size - np.rint(ranks).astype(np.int64)))


def _tail_cuts(negatives: Pooled, fpr: float) -> FloatArray:
    """Ascending cuts v of "score > v", among which a draw finds its operating point.

    Cuts between two negatives would add nothing: the loosest rule under an FPR starts right above a
    negative. The largest one (no false positive) and the cut of the original table are always
    included.
    """
    # Cubic spacing: most cuts lie where most draws end, some up to a factor of 4 away.
    size = negatives.size
    near = size * fpr * 4.0 ** np.linspace(-1.0, 1.0, _MAX_POINTS * 2 // 3) ** 3
    ranks = 1 + np.append(_allowed(size, fpr), near.astype(np.int64))
    return _thinned(negatives, _MAX_POINTS, np.minimum(ranks, size))


_Counts = npt.NDArray[np.unsignedinteger]


def _pairs_above(table: Table, cuts: FloatArray) -> _Counts:
    """Pairs above each cut, from the highest down; all at the end.

    Returns:
        uint[2, n_clients, len(cuts) + 1], negatives before positives.
    """
    kind = np.min_scalar_type(int(table.sizes.max(initial=0)))
    bins, first = len(cuts) + 1, 0
    counts = np.zeros((2, table.n_clients, bins), dtype=kind)
    for part in table.parts():
        owners = np.repeat(np.arange(first, first + part.n_clients), np.diff(part.indptr))
        place = (part.labels * table.n_clients + owners) * bins
        np.add.at(counts.reshape(-1), place + np.searchsorted(cuts, part.scores), kind.type(1))
        if part.rest is not None:
            rest, own = part.rest, counts[0, first : first + part.n_clients]
            place, exceeded = owners * bins, np.searchsorted(cuts, rest.values)
            rows = np.zeros((len(rest.runs) - 1, bins), dtype=kind)
            row_of = np.repeat(np.arange(len(rows)), np.diff(rest.runs))
            np.add.at(rows, (row_of, exceeded), np.diff(rest.below).astype(kind))
            own += rows[rest.row]
            np.subtract.at(counts.reshape(-1), place + exceeded[rest.taken], kind.type(1))
        first += part.n_clients
    downwards = counts[:, :, ::-1]
    return np.add.accumulate(downwards, axis=2, out=downwards)


def _resampled_tpr(
    weights: npt.NDArray[np.unsignedinteger], above: _Counts, fpr: float
) -> FloatArray:
    """TPR at an FPR of each draw; a draw without positives or negatives is left out."""
    # What is drawn is below n times the largest client, a whole number. Single precision takes half
    # the time and is exact up to 2^24 in any order.
    most = above.shape[1] * int(above[:, :, -1].sum(axis=0, dtype=np.int64).max(initial=0))
    exact = np.float32 if most < 2**24 else np.float64
    negatives, positives = (
        (weights.astype(exact) @ each.astype(exact)).astype(np.float64) for each in above
    )
    there = (negatives[:, -1] > 0) & (positives[:, -1] > 0)
    negatives, positives = negatives[there], positives[there]
    # The last cut that is allowed has the largest TPR; rates rise along the cuts.
    allowed = (negatives[:, :-1] / negatives[:, -1:] <= fpr).sum(axis=1)
    hits = positives[np.arange(len(positives)), np.maximum(allowed, 1) - 1]
    return np.where(allowed > 0, hits / positives[:, -1], 0.0)


def _both_classes(table: Table) -> tuple[Pooled, Pooled]:
    positives, negatives = pooled_classes(table)
    if not positives.size or not negatives.size:
        found = f"{positives.size} positives and {negatives.size} negatives"
        raise ValueError(f"{found}: need both")
    return positives, negatives
