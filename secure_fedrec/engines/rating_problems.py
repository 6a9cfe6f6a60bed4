"""A federation on ratings, as a problem for an engine."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from secure_fedrec.algorithms.base import (
    Algorithm,
    NormalisesRatings,
    PublicState,
    RatingAlgorithm,
)
from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray
from secure_fedrec.data import RatingScale, RatingTable, Split
from secure_fedrec.engines.federated_problem import Evaluate, Problem
from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation import rating_quality
from secure_fedrec.evaluation.ranking import held_out_quality
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault

_EVALUATION_ROWS = 2**16


def rating_problem(
    algorithm: RatingAlgorithm, train: RatingTable, test: RatingTable | None = None
) -> Problem:
    """Training ratings in the vaults, held-out ratings for the error of every round.

    The vaults hold the ratings on the scale that the algorithm trains on (``trained_scale``), which
    is public, and so are its levels; errors are in units of the tables' own scale.

    Args:
        algorithm: predicts the held-out ratings.
        train: training ratings; one vault per client.
        test: held-out ratings; None or an empty table for none.

    Raises:
        ConfigError: the test set has other clients.
    """
    if test is not None and test.n_clients != train.n_clients:
        raise ConfigError(
            "test", test.n_clients, f"clients in the test set, {train.n_clients} vaults"
        )
    scale = trained_scale(algorithm, train.scale)
    return Problem(
        vault=vault_of(train if scale == train.scale else train.on(scale.levels)),
        n_rows=train.n_items,
        evaluate=None if test is None else rating_evaluation(algorithm, test),
        knowledge={"n_items": train.n_items, "rating_levels": scale.levels.tolist()},
        popularity=train.item_popularity(),
    )


def ranking_problem(
    algorithm: RatingAlgorithm,
    split: Split,
    *,
    negatives: int | None = None,
    cutoff: int = 10,
    seed: int = 0,
) -> Problem:
    """Training ratings in the vaults; the rank of every client's held-out item.

    Args:
        algorithm: its predictions are the scores.
        split: with at most one held-out rating per client (``data.leave_one_out``).
        negatives: items that each held-out one is ranked against, drawn once among those that the
            client has not rated; None takes them all.
        cutoff: K of HR@K and NDCG@K.
        seed: seed of the negatives.

    Raises:
        ConfigError: a client has several held-out ratings, or fewer than one negative is asked for.
    """
    if (split.test.counts() > 1).any():
        raise ConfigError("test", int(split.test.counts().max()), "one held-out rating per client")
    if negatives is not None and negatives < 1:
        raise ConfigError("negatives", negatives, "must be at least 1, or None for all")
    measure = ranking_evaluation(algorithm, split, negatives=negatives, cutoff=cutoff, seed=seed)
    return replace(rating_problem(algorithm, split.train), evaluate=measure)


def ranking_evaluation(
    algorithm: RatingAlgorithm, split: Split, *, negatives: int | None, cutoff: int, seed: int
) -> Evaluate:
    """HR@K and NDCG@K of a state, ties before the item; arguments as of ``ranking_problem``."""

    def evaluate(public: PublicState, vault: Vault) -> Mapping[str, float] | None:
        def scores(client: int, items: IndexArray) -> FloatArray:
            return algorithm.predict(public, vault, np.full(len(items), client), items)

        return held_out_ranks(split, scores, negatives=negatives, cutoff=cutoff, seed=seed) or None

    return evaluate


def held_out_ranks(
    split: Split,
    scores: Callable[[int, IndexArray], FloatArray],
    *,
    negatives: int | None = None,
    cutoff: int = 10,
    seed: int = 0,
) -> dict[str, float]:
    """HR@K and NDCG@K of scores, ties before the item; empty if nothing is held out.

    Args:
        split: with at most one held-out rating per client.
        scores: scores of a client for items, int32[k]: float64[k].
        negatives: as of ``ranking_problem``.
        cutoff: likewise.
        seed: likewise.
    """
    train, n_items = split.train, split.train.n_items
    indptr, stream = train.indptr(), Streams.from_seed(seed).stream("ranking-negatives")
    held = np.full(train.n_clients, -1, dtype=np.int64)
    held[split.test.clients] = split.test.items

    def candidates(client: int) -> BoolArray:
        chosen = np.ones(n_items, dtype=np.bool_)
        chosen[train.items[indptr[client] : indptr[client + 1]]] = False
        others = np.flatnonzero(chosen)
        others = others[others != held[client]]
        if negatives is not None and negatives < len(others):
            draws = stream.generator(lane=client)
            chosen[:] = False
            chosen[draws.choice(others, negatives, replace=False)] = True
            chosen[held[client]] = True
        return chosen

    def of_all(client: int) -> FloatArray:
        asked = np.flatnonzero(candidates(client)).astype(np.int32)
        found = np.full(n_items, -np.inf)
        found[asked] = scores(client, asked)
        return found

    return held_out_quality(of_all, held, candidates, cutoff=cutoff)


def trained_scale(algorithm: Algorithm, scale: RatingScale) -> RatingScale:
    """The scale on which an algorithm trains, from that of the ratings."""
    normalises = isinstance(algorithm, NormalisesRatings) and algorithm.normalises_ratings
    return scale.normalised if normalises else scale


def vault_of(table: RatingTable) -> Vault:
    """The clients' vaults, holding their training ratings."""
    return Vault(indptr=table.indptr(), items=table.items, ratings=table.ratings)


def rating_evaluation(algorithm: RatingAlgorithm, test: RatingTable) -> Evaluate:
    """MAE and RMSE on held-out ratings, in rating points; empty without held-out ratings."""

    def evaluate(public: PublicState, vault: Vault) -> Mapping[str, float] | None:
        if not len(test.ratings):
            return None
        parts = [
            algorithm.predict(
                public,
                vault,
                test.clients[start : start + _EVALUATION_ROWS].astype(np.int64),
                test.items[start : start + _EVALUATION_ROWS],
            )
            for start in range(0, len(test.ratings), _EVALUATION_ROWS)
        ]
        low, high, trained = test.scale.low, test.scale.high, trained_scale(algorithm, test.scale)
        predicted = trained.moved(np.concatenate(parts), test.scale)
        return rating_quality(predicted, test.ratings, low=low, high=high)

    return evaluate
