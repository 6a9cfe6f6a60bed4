"""Quality of a ranking: whether the held-out item is among the first, and its rank."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.evaluation.figure import SHARE, RankingFigure

CUTOFF: Final = 10
"""The cutoff in audits."""

RANKING_FIGURES: Mapping[str, RankingFigure] = MappingProxyType(
    {
        "hit_rate": RankingFigure(
            about="clients whose held-out item is among the first ten",
            unit=SHARE,
            gain=lambda places: np.ones(places.shape),
        ),
        "ndcg": RankingFigure(
            about="mean of 1 / log2(place + 1) of the held-out item, 0 beyond the tenth place",
            unit=SHARE,
            initials=True,
            gain=lambda places: 1.0 / np.log2(places + 1.0),
        ),
    }
)
"""Figures of a ranking (He et al. 2017) by name, without the cutoff, in the order of reports."""


def midranks(values: FloatArray) -> FloatArray:
    """Ranks along the last axis, from 1; ties share the mean of their places.

    As ``scipy.stats.rankdata``, whose module takes longer to import than a small audit to score.

    Args:
        values: [..., n], real.

    Returns:
        float64[..., n]; all NaN where one of the n values is.
    """
    ranks = tied_means(values, np.arange(1.0, values.shape[-1] + 1))
    ranks[np.isnan(values).any(axis=-1)] = np.nan
    return ranks


def tied_means(values: FloatArray, by_place: FloatArray) -> FloatArray:
    """For each value, ``by_place`` at its place in its row, smallest first; ties get the mean.

    Args:
        values: [..., n], real.
        by_place: float64[n].

    Returns:
        float64[..., n].
    """
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    begins = np.ones(values.shape, dtype=bool)
    begins[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    group = np.cumsum(begins) - 1  # ties do not span rows
    totals = np.bincount(group, weights=np.broadcast_to(by_place, values.shape).ravel())
    means = np.empty(values.shape)
    np.put_along_axis(means, order, (totals / np.bincount(group))[group].reshape(values.shape), -1)
    return means


def held_out_rank(scores: FloatArray, item: int, candidates: BoolArray) -> int:
    """Place of an item among all candidates, from 1.

    Candidates with the same score stand before it: a model that does not distinguish items has not
    found the item.

    Args:
        scores: float64[m].
        item: the held-out item, itself a candidate.
        candidates: bool[m].

    Raises:
        ValueError: the item is not a candidate, or a candidate's score is not a number.
    """
    if not candidates[item]:
        raise ValueError(f"item {item} is not a candidate")
    if not np.all(np.isfinite(scores[candidates])):
        raise ValueError("a score is not finite")
    return int(np.count_nonzero(scores[candidates] >= scores[item]))


def ranking_quality(ranks: IntArray, *, cutoff: int = CUTOFF) -> dict[str, float]:
    """HR@K, NDCG@K and all other figures of rankings, with one relevant item per client.

    Args:
        ranks: int64[N], N > 0, places from 1.
        cutoff: K.

    Returns:
        The means by name: ``hit_rate_at_K``, ``ndcg_at_K``; see ``RANKING_FIGURES``.

    Raises:
        ValueError: ranks are missing.
    """
    if not len(ranks):
        raise ValueError("there is nothing to rank")
    return {name: float(each.mean()) for name, each in client_quality(ranks, cutoff=cutoff).items()}


def client_quality(ranks: IntArray, *, cutoff: int = CUTOFF) -> dict[str, FloatArray]:
    """The terms that ``ranking_quality`` is the mean of.

    Args:
        ranks: int64[...], places from 1; 0 where there is nothing to find.
        cutoff: K.

    Returns:
        By the same names float64[...]; NaN where there is nothing to find.
    """
    none, places = ranks < 1, np.maximum(ranks, 1)
    return {
        f"{name}_at_{cutoff}": np.where(
            none, np.nan, np.where(places <= cutoff, figure.gain(places), 0.0)
        )
        for name, figure in RANKING_FIGURES.items()
    }


def held_out_quality(
    scores: Callable[[int], FloatArray],
    held_out: IntArray,
    candidates: Callable[[int], BoolArray],
    *,
    cutoff: int = CUTOFF,
) -> dict[str, float]:
    """Quality of every client's ranking of its candidates.

    Args:
        scores: float64[m] of a client; read at its candidates only.
        held_out: int64[n], the item to be found; -1 where a client has none.
        candidates: bool[m] of a client, its held-out item among them.
        cutoff: K.

    Returns:
        As ``ranking_quality``; empty if nothing is held out.

    Raises:
        ValueError: as ``held_out_rank``.
    """
    ranks = [
        held_out_rank(scores(client), int(held_out[client]), candidates(client))
        for client in np.flatnonzero(held_out >= 0).tolist()
    ]
    return ranking_quality(np.array(ranks), cutoff=cutoff) if ranks else {}
