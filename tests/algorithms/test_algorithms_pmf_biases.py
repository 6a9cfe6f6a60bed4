"""PMF with biases: batches equal single clients bit for bit, and the formulas are those stated."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms import PMF, PMFConfig, PublicState
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.engines import LocalEngine, rating_evaluation, vault_of
from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation import Pairs, rating_quality, score_rules
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import DirectSum, Stack
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Meter, Wire

N_CLIENTS, N_ITEMS = 29, 21
STREAMS = Streams.from_seed(3)
USERS = "user_vectors"


def ratings_of() -> Vault:
    """Clients with no, one and many ratings."""
    rng = np.random.default_rng(6)
    mine = [np.sort(rng.choice(N_ITEMS, client % 13, replace=False)) for client in range(N_CLIENTS)]
    items = np.concatenate(mine)
    return Vault(
        indptr=np.concatenate([[0], np.cumsum([len(part) for part in mine])]).astype(np.int64),
        items=items.astype(np.int32),
        ratings=rng.integers(1, 6, len(items)).astype(np.float64),
    )


def trained(rank: int, **settings: Any) -> tuple[PMF, PublicState, Vault]:
    """The state after some rounds, nothing in it nearly zero."""
    algorithm = PMF(PMFConfig.printed(rank=rank, biases=True, **settings))
    vault, rng = ratings_of(), np.random.default_rng(rank)
    vault.create(USERS, rng.normal(size=(N_CLIENTS, rank)))
    extras = {"bias_sums": rng.normal(size=N_ITEMS), "bias_counts": 4 * rng.random(N_ITEMS)}
    table = rng.normal(size=(N_ITEMS, rank + 1))
    return algorithm, PublicState(round=4, table=table, extras=extras), vault


def line_of(algorithm: PMF, public: PublicState, vault: Vault, client: int) -> tuple[float, float]:
    """Mean and slope of one client by the normal equations."""
    rated = vault.rated(np.array([client]))
    if not len(rated.items):
        return 0.0, 1.0
    x, y = public.table[rated.items, -1], rated.ratings
    pull = algorithm.config.slope_shrinkage
    design = np.array([[len(x), x.sum()], [x.sum(), x @ x + pull]])
    mean, slope = np.linalg.solve(design, [y.sum(), x @ y + pull])
    return float(mean), float(slope)


def everything(
    algorithm: PMF, public: PublicState, vault: Vault, clients: IntArray
) -> dict[str, FloatArray]:
    step = algorithm.client_step(clients, public, vault, STREAMS)
    rest = [
        np.setdiff1d(np.arange(N_ITEMS), vault.rated(clients[[k]]).items)
        for k in range(len(clients))
    ]
    indptr = np.concatenate([[0], np.cumsum([len(part) for part in rest])]).astype(np.int64)
    items = np.concatenate(rest).astype(np.int32)
    draws = np.concatenate(
        [np.arange(stop - start) * 7 for start, stop in pairwise(indptr.tolist())]
    )
    virtual = np.ones(len(items), dtype=bool)
    found = {
        "average": step.impute(indptr, items, method="average", local_steps=2),
        "predicted": step.impute(indptr, items, method="predicted", local_steps=2),
        "residual": step.resample_residuals(indptr, items, draws=draws.astype(np.int64)),
        "virtual": step.rows(indptr, items, virtual, np.asarray(items % 5 + 1, dtype=np.float64)),
    }
    assert step.upload.block.values is not None
    found["rows"] = step.upload.block.values
    step.commit(vault)
    return found | {"users": vault.read(USERS, clients)}


@pytest.mark.parametrize("rank", [0, 1, 8])
@pytest.mark.parametrize("user_update", ["rated", "rated+virtual"])
@pytest.mark.parametrize("size", [1, 7])
def test_batches_equal_single_steps_in_every_bit(rank: int, user_update: str, size: int) -> None:
    whole = everything(*trained(rank, user_update=user_update), np.arange(N_CLIENTS))
    algorithm, public, vault = trained(rank, user_update=user_update)
    parts = [
        everything(algorithm, public, vault, np.arange(start, min(start + size, N_CLIENTS)))
        for start in range(0, N_CLIENTS, size)
    ]
    for name, values in whole.items():
        together = np.concatenate([part[name] for part in parts])
        assert together.tobytes() == values.tobytes(), name


@pytest.mark.parametrize("rank", [0, 3])
def test_rows_and_predictions_have_the_line_of_their_user(rank: int) -> None:
    algorithm, public, vault = trained(rank, regularization=0.25, learning_rate=0.5)
    users = vault.read(USERS, np.arange(N_CLIENTS))
    step = algorithm.client_step(np.arange(N_CLIENTS), public, vault, STREAMS)
    block = step.upload.block
    assert block.values is not None
    assert block.values.shape[1] == algorithm.width == rank + 1
    checked = 0
    for client, (start, stop) in enumerate(pairwise(block.indptr.tolist())):
        mean, slope = line_of(algorithm, public, vault, client)
        whole = np.append(users[client], slope)
        rated = vault.rated(np.array([client]))
        for place, item, rating in zip(
            range(start, stop), rated.items.tolist(), rated.ratings.tolist(), strict=True
        ):
            error = rating - mean - whole @ public.table[item]
            expected = -error * whole + 0.25 * public.table[item]
            np.testing.assert_allclose(block.values[place], expected, rtol=1e-9, atol=1e-11)
            checked += 1
        items = np.arange(N_ITEMS, dtype=np.int32)
        predicted = algorithm.predict(public, vault, np.full(N_ITEMS, client), items)
        np.testing.assert_allclose(predicted, mean + public.table @ whole, rtol=1e-9, atol=1e-11)
    assert checked > 100
    step.commit(vault)
    assert vault.read(USERS, np.arange(N_CLIENTS)).shape == (N_CLIENTS, rank)


def test_before_the_first_round_the_line_is_the_mean() -> None:
    algorithm = PMF(PMFConfig.printed(rank=0, biases=True))
    vault, public = ratings_of(), algorithm.initial_public(N_ITEMS, STREAMS)
    algorithm.initialise(vault, STREAMS)
    for client in (1, 12, 25):
        predicted = algorithm.predict(public, vault, np.array([client]), np.array([0], np.int32))
        assert predicted[0] == pytest.approx(vault.rated(np.array([client])).ratings.mean())


@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_the_server_averages_the_rounds_and_shrinks(noise: float) -> None:
    algorithm, public, _ = trained(2, bias_shrinkage=1.5)
    codec = FixedPoint(bits=64, fraction_bits=32, clip=100.0)
    ring = codec.encode(np.random.default_rng(1).normal(size=(N_ITEMS, 3)))
    counts = np.arange(N_ITEMS) % 5
    before = public.extras["bias_counts"].copy()
    before[counts == 0] = 0.0
    sums = np.where(before > 0, public.extras["bias_sums"], 0.0)
    public = PublicState(
        round=4, table=public.table, extras={"bias_sums": sums, "bias_counts": before}
    )
    aggregate = Aggregate(ring=ring, counts=counts, codec=codec, noise=noise)
    moved = algorithm.server_step(public, aggregate)
    for item in range(N_ITEMS):
        total = sums[item] + counts[item] * public.table[item, -1] - aggregate.values[item, -1]
        evidence = (before[item] + counts[item]) / 5
        expected = 0.0
        if evidence:
            expected = total / 5 / (evidence + 1.5 * (1 + noise**2 / 5 / evidence))
        assert moved.table[item, -1] == pytest.approx(expected, rel=1e-12)
    assert set(moved.extras) == {"bias_sums", "bias_counts"}
    assert np.array_equal(moved.extras["bias_counts"], before + counts)


def test_biases_alone_beat_every_trivial_rule() -> None:
    table = generate(SyntheticConfig(clients=200, items=80, mean_ratings=20.0, seed=4))
    algorithm = PMF(PMFConfig.printed(rank=0, biases=True, rounds=6))
    codec = FixedPoint()
    collector = DirectSum(n_clients=200, n_items=80, width=1, codec=codec)
    engine = LocalEngine(
        algorithm=algorithm,
        stack=Stack(codec=codec, cloak=None, collector=collector, n_clients=200),
        vault=vault_of(table),
        n_rows=80,
        evaluate=rating_evaluation(algorithm, table),
        streams=STREAMS,
        wire=Wire(meter=Meter(200)),
    )
    errors = [(engine.run_round().metrics or {})["rmse"] for _ in range(6)]
    pairs = Pairs(table.clients, table.items, table.ratings)
    low, high = table.scale.low, table.scale.high
    rules = score_rules(
        pairs,
        pairs,
        lambda found: rating_quality(found, table.ratings, low=low, high=high),
    )
    assert errors[-1] <= errors[0]
    assert errors[-1] < min(rule.figures["rmse"] for rule in rules.values()) + 0.01


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"rank": 0}, "rank"),
        ({"rank": -1, "biases": True}, "rank"),
        ({"biases": True, "temperature": 0.1}, "temperature"),
        ({"biases": True, "bias_shrinkage": -1.0}, "bias_shrinkage"),
        ({"biases": True, "slope_shrinkage": float("nan")}, "slope_shrinkage"),
    ],
)
def test_settings_that_fit_no_bias_are_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        PMFConfig.printed(**settings)
    assert refusal.value.key == f"algorithm.{key}"
