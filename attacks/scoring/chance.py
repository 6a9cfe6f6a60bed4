"""Chance levels: claims scored against other clients' truths, shares of hits, null controls."""

from typing import Any

import numpy as np

from attacks.scoring.gains import Figures, Gain, Gains, interval_figures
from attacks.scoring.statistics import per_client_auc
from attacks.scoring.tables import Table
from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray
from secure_fedrec.core.special import bdtr
from secure_fedrec.evaluation.intervals import Interval, mean_interval, share_interval
from secure_fedrec.evaluation.ranking import midranks

_NULL_DEVIATIONS = 4.0
"""Standard deviations that a null control may differ from its mean: 1 in 15,000 fails by chance."""

_NULL_TAIL = 1.0 / 30_000
"""Probability of each tail beyond that limit."""


def beside_sums(
    name: str,
    to_own: FloatArray,
    sums: FloatArray,
    size: int,
    *,
    seed: int,
    span: float,
    sign: float = 1.0,
) -> tuple[Figures, Gains]:
    """Mean value of claims for their own truth; ``_chance``: for all others; ``_lift``: the gain.

    Args:
        name: name of the figure.
        to_own: float64[B], each claim against its own truth.
        sums: float64[B], over all truths.
        size: number of truths.
        seed: seed of the bootstrap.
        span: length of the interval that values lie in.
        sign: -1 where a low value is the better claim.
    """
    figures = interval_figures(name, mean_interval(to_own, seed=seed, span=span))
    if size < 2:
        return figures | {f"{name}_chance": None}, {f"{name}_lift": None}
    to_others = (sums - to_own) / (size - 1)
    figures[f"{name}_chance"] = float(to_others.mean())
    return figures, {f"{name}_lift": Gain(sign * (to_own - to_others), span=2 * span)}


def by_client(values: FloatArray, clients: IntArray | IndexArray) -> FloatArray:
    """Sums per client (of members, ratings), scaled so that their mean is the overall mean.

    Members of one client resemble each other: they are placed rightly or wrongly together.

    Args:
        values: float64[N].
        clients: int[N], the client of each value.
    """
    sizes = np.bincount(clients)
    sums = np.bincount(clients, weights=values)[sizes > 0]
    return np.asarray(sums * (len(sums) / len(values)))


def unit(vectors: FloatArray) -> FloatArray:
    """Vectors of length 1 along the last axis; zero stays zero."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(length > 0, length, 1.0))


def ranked_unit(values: FloatArray) -> FloatArray:
    """Centred ranks of length 1 along the last axis; 0 where all values are equal."""
    ranks = midranks(values)
    return unit(ranks - ranks.mean(axis=-1, keepdims=True))


def hit_interval(odds: FloatArray, *, seed: int) -> Interval:
    """Share of hits with its interval: exact for whole hits, a bootstrap if guesses are shared.

    Args:
        odds: float64[B] in [0, 1], the probability that each client's guess is right.
        seed: seed of the bootstrap.
    """
    if np.isin(odds, (0.0, 1.0)).all():
        return share_interval(int(odds.sum()), len(odds))
    return mean_interval(odds, seed=seed, span=1.0)


def hit_null(metric: str, odds: FloatArray, chance: float) -> dict[str, Any]:
    """Null control of a share of hits that should be at ``chance``: the range of a binomial.

    Guesses that are shared vary less than the binomial's.
    """
    size, share = len(odds), min(1.0, chance)
    below = bdtr(np.arange(size), size, share)
    low, high = (int(np.searchsorted(below, tail)) for tail in (_NULL_TAIL, 1.0 - _NULL_TAIL))
    return _null(metric, float(odds.mean()), low / size, high / size)


def normal_null(metric: str, value: float, chance: float, deviation: float) -> dict[str, Any]:
    """Null control of a mean that should be at ``chance``, with its standard deviation."""
    spread = _NULL_DEVIATIONS * deviation
    return _null(metric, value, chance - spread, chance + spread)


def _null(metric: str, value: float, low: float, high: float) -> dict[str, Any]:
    slack = 1e-12  # tolerance for rounding at the ends
    passed = bool(low - slack <= value <= high + slack)
    return {"metric": metric, "value": value, "low": low, "high": high, "passed": passed}


def mean_auc(values: FloatArray, seed: int) -> Interval | None:
    """Mean of per-client shares with its interval; None where no client has one."""
    return mean_interval(values, seed=seed, span=1.0) if np.isfinite(values).any() else None


def null_auc(dealt: Table) -> tuple[float, float, float]:
    """``null_of`` for a table against permuted labels."""
    return null_of(per_client_auc(dealt), dealt.sizes, dealt.positives())


def null_of(aucs: FloatArray, sizes: IntArray, positives: IntArray) -> tuple[float, float, float]:
    """Mean AUC against permuted labels, its expectation, and its standard deviation.

    Under permuted labels the AUC of a client with P positives and N negatives has mean 1/2 and,
    ties only lowering it, variance (P + N + 1) / (12 P N) (Mann and Whitney 1947), so the range
    holds for a single client as well as for many.

    Args:
        aucs: float64[B], against permuted labels; NaN where a client has no two classes.
        sizes: int64[B], pairs.
        positives: int64[B].
    """
    known = np.isfinite(aucs)
    sizes, positives = sizes[known], positives[known]
    variance = (sizes + 1) / (12 * positives * (sizes - positives))
    return float(aucs[known].mean()), 0.5, float(np.sqrt(variance.sum())) / int(known.sum())


def nan_mean(values: FloatArray) -> float | None:
    """Mean of the values that are numbers; None without any."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None
