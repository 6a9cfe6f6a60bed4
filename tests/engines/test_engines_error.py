"""What the engine says of the error on test ratings."""

import numpy as np
import pytest

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.engines import (
    LocalEngine,
    rating_evaluation,
    vault_of,
)
from secure_fedrec.evaluation import rating_quality
from secure_fedrec.streams import Streams
from secure_fedrec.wire import (
    Meter,
    Wire,
)
from tests.engines.test_engines_local import N_CLIENTS, RANK, engine_of, rating_table, run, stack_of


def test_training_lowers_the_error() -> None:
    engine = engine_of("plain")
    first = engine.evaluate()
    errors = [engine.run_round().metrics for _ in range(30)]
    assert first is not None and errors[-1] is not None
    assert errors[-1]["rmse"] < 0.75 * first["rmse"]


def test_the_error_is_that_of_clipped_predictions() -> None:
    engine = run(engine_of("plain", learning_rate=0.9), 12)
    test = rating_table().subset(np.arange(len(rating_table())) % 5 == 0)
    users = engine.vault.read("user_vectors", np.arange(N_CLIENTS))
    predicted = (users[test.clients] * engine.public.table[test.items]).sum(axis=1)
    clipped = np.clip(predicted, 1, 5)
    error = engine.evaluate()
    assert error is not None
    assert error["mae"] == pytest.approx(np.abs(clipped - test.ratings).mean(), rel=1e-12)
    assert error["rmse"] == pytest.approx(
        np.sqrt(((clipped - test.ratings) ** 2).mean()), rel=1e-12
    )
    exact = rating_quality(np.array([9.0, -3.0]), np.array([4.0, 3.0]), low=1.0, high=5.0)
    assert exact["mae"] == 1.5
    assert exact["rmse"] == pytest.approx(np.sqrt(2.5))


def test_without_test_ratings_there_is_no_error() -> None:
    ratings = rating_table()
    nothing = ratings.subset(np.zeros(len(ratings), dtype=bool))
    streams, algorithm = Streams.from_seed(1), PMF(PMFConfig.printed(rank=RANK))
    for evaluate in (None, rating_evaluation(algorithm, nothing)):
        engine = LocalEngine(
            algorithm=algorithm,
            stack=stack_of("plain", streams),
            vault=vault_of(ratings),
            n_rows=ratings.n_items,
            evaluate=evaluate,
            streams=streams,
            wire=Wire(meter=Meter(N_CLIENTS)),
        )
        assert engine.evaluate() is None
        assert engine.run_round().metrics is None
