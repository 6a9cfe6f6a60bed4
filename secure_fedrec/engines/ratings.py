"""A federation on ratings, as a problem for an engine."""

from collections.abc import Mapping

import numpy as np

from secure_fedrec.algorithms.base import PublicState, RatingAlgorithm
from secure_fedrec.data import RatingTable
from secure_fedrec.engines.problem import Evaluate, Problem
from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation import rating_error
from secure_fedrec.vault import Vault

__all__ = ["rating_evaluation", "rating_problem", "vault_of"]

_EVALUATION_ROWS = 2**16


def rating_problem(
    algorithm: RatingAlgorithm, train: RatingTable, test: RatingTable | None = None
) -> Problem:
    """Training ratings in the vaults, held-out ratings for the error of every round.

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
    return Problem(
        vault=vault_of(train),
        n_rows=train.n_items,
        evaluate=None if test is None else rating_evaluation(algorithm, test),
        knowledge={"n_items": train.n_items, "rating_levels": train.scale.levels.tolist()},
        popularity=train.item_popularity(),
    )


def vault_of(table: RatingTable) -> Vault:
    """The clients' vaults, holding their training ratings."""
    return Vault(indptr=table.indptr(), items=table.items, ratings=table.ratings)


def rating_evaluation(algorithm: RatingAlgorithm, test: RatingTable) -> Evaluate:
    """MAE and RMSE on held-out ratings, in rating points; nothing where there are none."""

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
        low, high = test.scale.low, test.scale.high
        error = rating_error(np.concatenate(parts), test.ratings, low=low, high=high)
        return {"mae": error.mae, "rmse": error.rmse}

    return evaluate
