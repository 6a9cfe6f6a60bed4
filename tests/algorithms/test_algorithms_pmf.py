"""PMF: batches equal single clients bit for bit, and both equal the formulas of the paper."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from secure_fedrec.algorithms import PMF, PMFConfig, PublicState
from secure_fedrec.algorithms.pmf import PMFStep
from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate
from secure_fedrec.vault import Vault

N_CLIENTS, N_ITEMS = 33, 25
STREAMS = Streams.from_seed(8)
USERS = "user_vectors"


def vault_of() -> Vault:
    """Clients with no, few and many ratings."""
    rng = np.random.default_rng(5)
    mine = [np.sort(rng.choice(N_ITEMS, client % 17, replace=False)) for client in range(N_CLIENTS)]
    items = np.concatenate(mine)
    return Vault(
        indptr=np.concatenate([[0], np.cumsum([len(part) for part in mine])]).astype(np.int64),
        items=items.astype(np.int32),
        ratings=rng.integers(1, 6, len(items)).astype(np.float64),
    )


def trained(rank: int = 7, *, round_: int = 4, **settings: Any) -> tuple[PMF, PublicState, Vault]:
    """Vectors of the size they have after some training, so that nothing is nearly zero."""
    algorithm = PMF(PMFConfig.printed(rank=rank, **settings))
    vault = vault_of()
    rng = np.random.default_rng(rank)
    vault.create(USERS, rng.normal(size=(N_CLIENTS, rank)))
    return algorithm, PublicState(round=round_, table=rng.normal(size=(N_ITEMS, rank))), vault


def unrated(vault: Vault, clients: IntArray) -> tuple[IntArray, IndexArray]:
    """Two thirds of the items each client has not rated."""
    parts = []
    for client in clients.tolist():
        rated = vault.rated(np.array([client])).items
        rest = np.setdiff1d(np.arange(N_ITEMS), rated)
        parts.append(rest[: 2 * len(rest) // 3])
    indptr = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    return indptr, np.concatenate(parts).astype(np.int32)


def run_step(
    algorithm: PMF, public: PublicState, vault: Vault, clients: IntArray
) -> dict[str, FloatArray]:
    """Everything a batch computes, with the new user vectors, per client."""
    step = algorithm.client_step(clients, public, vault, STREAMS)
    indptr, items = unrated(vault, clients)
    draws = np.concatenate(
        [np.arange(stop - start) * 31 for start, stop in pairwise(indptr.tolist())]
    ).astype(np.int64)
    ratings = np.asarray(items % 5 + 1, dtype=np.float64)
    found = {
        "average": step.impute(indptr, items, method="average", local_steps=3),
        "predicted": step.impute(indptr, items, method="predicted", local_steps=3),
        "residual": step.resample_residuals(indptr, items, draws=draws),
        "virtual rows": step.rows(indptr, items, np.ones(len(items), dtype=bool), ratings),
    }
    assert step.upload.block.values is not None
    found["rows"] = step.upload.block.values
    step.commit(vault)
    found["users"] = vault.read(USERS, clients)
    return found


@pytest.mark.parametrize("rank", [1, 7, 20, 33])
@pytest.mark.parametrize("user_update", ["rated", "rated+virtual"])
@pytest.mark.parametrize("temperature", [0.0, 1e-3])
@pytest.mark.parametrize("size", [1, 7])
def test_batches_equal_single_steps_in_every_bit(
    rank: int, user_update: str, temperature: float, size: int
) -> None:
    algorithm, public, vault = trained(rank, user_update=user_update, temperature=temperature)
    whole = run_step(algorithm, public, vault, np.arange(N_CLIENTS))
    algorithm, public, vault = trained(rank, user_update=user_update, temperature=temperature)
    parts = [
        run_step(algorithm, public, vault, np.arange(start, min(start + size, N_CLIENTS)))
        for start in range(0, N_CLIENTS, size)
    ]
    for name, values in whole.items():
        together = np.concatenate([part[name] for part in parts])
        assert together.shape == values.shape
        assert together.tobytes() == values.tobytes(), name


def test_clients_may_come_in_any_order() -> None:
    algorithm, public, vault = trained()
    shuffled = np.random.default_rng(1).permutation(N_CLIENTS)
    first = run_step(algorithm, public, vault, shuffled)["users"]
    algorithm, public, vault = trained()
    second = run_step(algorithm, public, vault, np.arange(N_CLIENTS))["users"]
    assert first.tobytes() == second[shuffled].tobytes()


def step_of(
    algorithm: PMF, public: PublicState, vault: Vault, clients: IntArray | None = None
) -> PMFStep:
    chosen = np.arange(N_CLIENTS) if clients is None else clients
    return algorithm.client_step(chosen, public, vault, STREAMS)


def test_rows_and_user_vectors_follow_the_paper() -> None:
    algorithm, public, vault = trained(regularization=0.25, learning_rate=0.7, decay=0.8)
    before = vault.read(USERS, np.arange(N_CLIENTS))
    step = step_of(algorithm, public, vault)
    values = step.upload.block.values
    assert values is not None
    step.commit(vault)
    after = vault.read(USERS, np.arange(N_CLIENTS))
    gamma = 0.7 * 0.8**4
    for client, (start, stop) in enumerate(pairwise(step.upload.block.indptr.tolist())):
        rated = vault.rated(np.array([client]))
        gradient = np.zeros(7)
        for place, item, rating in zip(
            range(start, stop), rated.items.tolist(), rated.ratings.tolist(), strict=True
        ):
            error = rating - sum(before[client] * public.table[item])
            expected = -error * before[client] + 0.25 * public.table[item]
            np.testing.assert_allclose(values[place], expected, rtol=1e-12, atol=1e-12)
            gradient += (-error * public.table[item] + 0.25 * before[client]) / (stop - start)
        np.testing.assert_allclose(
            after[client], before[client] - gamma * gradient, rtol=1e-12, atol=1e-12
        )
    # Client 0 has no ratings: nothing to learn from, not even to shrink.
    assert after[0].tobytes() == before[0].tobytes()


def test_virtual_rows_are_computed_like_real_ones() -> None:
    algorithm, public, vault = trained()
    step = step_of(algorithm, public, vault)
    block = step.upload.block
    rated = vault.rated(np.arange(N_CLIENTS))
    assert block.values is not None
    for seed in range(3):  # some, all or none of them given out as virtual, at their own ratings
        virtual = np.random.default_rng(seed).random(len(rated.items)) < seed / 2
        again = step.rows(rated.indptr, rated.items, virtual, rated.ratings[virtual])
        assert again.tobytes() == block.values.tobytes()


def test_a_row_is_rated_or_virtual() -> None:
    algorithm, public, vault = trained()
    step = step_of(algorithm, public, vault)
    indptr, items = unrated(vault, np.arange(N_CLIENTS))
    virtual = np.ones(len(items), dtype=bool)
    with pytest.raises(ValueError, match="fit together"):
        step.rows(indptr, items, virtual, np.ones(len(items) - 1))
    virtual[7] = False
    with pytest.raises(ValueError, match="neither given nor"):
        step.rows(indptr, items, virtual, np.ones(len(items) - 1))


def test_training_on_virtual_ratings_averages_over_both() -> None:
    algorithm, public, vault = trained(user_update="rated+virtual", regularization=0.1)
    before = vault.read(USERS, np.arange(N_CLIENTS))
    step = step_of(algorithm, public, vault)
    indptr, items = unrated(vault, np.arange(N_CLIENTS))
    ratings = np.asarray(items % 5 + 1, dtype=np.float64)
    step.rows(indptr, items, np.ones(len(items), dtype=bool), ratings)
    step.commit(vault)
    after = vault.read(USERS, np.arange(N_CLIENTS))
    gamma = algorithm.config.step_size(4)
    for client in range(N_CLIENTS):
        rated = vault.rated(np.array([client]))
        own = slice(int(indptr[client]), int(indptr[client + 1]))
        vectors = public.table[np.concatenate([rated.items, items[own]])]
        targets = np.concatenate([rated.ratings, ratings[own]])
        errors = targets - vectors @ before[client]
        gradient = -(errors[:, None] * vectors).mean(axis=0) + 0.1 * before[client]
        np.testing.assert_allclose(
            after[client], before[client] - gamma * gradient, rtol=1e-10, atol=1e-10
        )


def test_under_the_paper_rule_virtual_ratings_teach_nothing() -> None:
    algorithm, public, vault = trained()
    step = step_of(algorithm, public, vault)
    indptr, items = unrated(vault, np.arange(N_CLIENTS))
    everything = np.ones(len(items), dtype=bool)
    step.rows(indptr, items, everything, np.asarray(items % 5 + 1, dtype=np.float64))
    step.commit(vault)
    with_virtual = vault.read(USERS, np.arange(N_CLIENTS))
    algorithm, public, vault = trained()
    step_of(algorithm, public, vault).commit(vault)
    assert vault.read(USERS, np.arange(N_CLIENTS)).tobytes() == with_virtual.tobytes()


def test_average_filling_is_the_mean_rating() -> None:
    algorithm, public, vault = trained()
    clients = np.arange(1, N_CLIENTS)
    indptr, items = unrated(vault, clients)
    filled = step_of(algorithm, public, vault, clients).impute(
        indptr, items, method="average", local_steps=1
    )
    for place, client in enumerate(clients.tolist()):
        mean = vault.rated(np.array([client])).ratings
        expected = mean.mean() if len(mean) else 0.0
        np.testing.assert_allclose(filled[indptr[place] : indptr[place + 1]], expected, rtol=1e-12)


@pytest.mark.parametrize("local_steps", [1, 2, 10, 15])
def test_predicted_filling_trains_a_copy_step_by_step(local_steps: int) -> None:
    algorithm, public, vault = trained(regularization=0.05, learning_rate=0.3)
    everybody = np.arange(N_CLIENTS)
    indptr, items = unrated(vault, everybody)
    filled = step_of(algorithm, public, vault).impute(
        indptr, items, method="predicted", local_steps=local_steps
    )
    gamma = algorithm.config.step_size(4)
    for client in range(N_CLIENTS):
        rated = vault.rated(np.array([client]))
        vectors = public.table[rated.items]
        copy = vault.read(USERS, np.array([client]))[0]
        for _ in range(local_steps):
            gradient = 0.05 * copy
            for vector, rating in zip(vectors, rated.ratings, strict=True):
                gradient = gradient - (rating - copy @ vector) * vector / len(vectors)
            copy = copy - gamma * gradient
        own = slice(int(indptr[client]), int(indptr[client + 1]))
        np.testing.assert_allclose(
            filled[own], public.table[items[own]] @ copy, rtol=1e-9, atol=1e-9
        )


def test_training_a_copy_leaves_the_user_vectors_alone() -> None:
    algorithm, public, vault = trained()
    before = vault.read(USERS, np.arange(N_CLIENTS))
    step = step_of(algorithm, public, vault)
    indptr, items = unrated(vault, np.arange(N_CLIENTS))
    step.impute(indptr, items, method="predicted", local_steps=5)
    assert vault.read(USERS, np.arange(N_CLIENTS)).tobytes() == before.tobytes()


def test_resampled_residuals_are_those_of_own_ratings() -> None:
    algorithm, public, vault = trained()
    everybody = np.arange(N_CLIENTS)
    users = vault.read(USERS, everybody)
    indptr, items = unrated(vault, everybody)
    draws = np.random.default_rng(3).integers(0, 2**42, len(items))
    filled = step_of(algorithm, public, vault).resample_residuals(indptr, items, draws=draws)
    for client in range(N_CLIENTS):
        rated = vault.rated(np.array([client]))
        residuals = rated.ratings - public.table[rated.items] @ users[client]
        for place in range(int(indptr[client]), int(indptr[client + 1])):
            # Nothing to draw from without ratings.
            own = residuals[draws[place] % len(residuals)] if len(residuals) else 0.0
            expected = public.table[items[place]] @ users[client] + own
            np.testing.assert_allclose(filled[place], expected, rtol=1e-10, atol=1e-10)


def test_a_batch_of_clients_without_ratings() -> None:
    algorithm, public, vault = trained()
    found = run_step(algorithm, public, vault, np.array([0, 17]))
    assert vault.example_counts()[[0, 17]].tolist() == [0, 0]
    assert found["rows"].shape == (0, 7)
    assert not found["average"].any()
    assert len(found["residual"]) == len(found["virtual rows"]) > 0


def server_step_case(counts: list[int]) -> tuple[PMF, PublicState, PublicState, FloatArray]:
    algorithm, public, _ = trained(learning_rate=0.9, decay=0.5)
    codec = FixedPoint(bits=64, fraction_bits=32, clip=100.0)
    sums = codec.decode(codec.encode(np.random.default_rng(4).normal(size=(N_ITEMS, 7)) * 5))
    aggregate = Aggregate(ring=codec.encode(sums), counts=np.array(counts), codec=codec)
    return algorithm, public, algorithm.server_step(public, aggregate), sums


def test_the_server_step_divides_by_the_number_of_ratings() -> None:
    counts = [(3 * item) % 7 for item in range(N_ITEMS)]
    _, public, moved, sums = server_step_case(counts)
    assert moved.round == public.round + 1
    for item, count in enumerate(counts):
        if count:
            expected = public.table[item] - 0.9 * 0.5**4 * (sums[item] / count)
            assert moved.table[item].tolist() == expected.tolist()
        else:
            assert moved.table[item].tolist() == public.table[item].tolist()


def test_items_nobody_rated_stay_and_the_old_table_is_not_touched() -> None:
    _, public, moved, _ = server_step_case([0] * N_ITEMS)
    assert moved.table.tobytes() == public.table.tobytes()
    assert moved.table is not public.table
    _, public, moved, _ = server_step_case([1] * N_ITEMS)
    _, fresh, _ = trained()
    assert public.table.tobytes() == fresh.table.tobytes()
    assert np.all(moved.table != public.table)


def test_step_sizes_decay() -> None:
    config = PMFConfig.printed(learning_rate=0.8, decay=0.9)
    assert [config.step_size(done) for done in range(3)] == pytest.approx([0.8, 0.72, 0.648])


def test_initial_vectors_are_uniform_and_separate_per_client() -> None:
    algorithm = PMF(PMFConfig.printed(rank=16, init_scale=0.02))
    table = algorithm.initial_public(200, STREAMS).table
    assert kstest(table.ravel() / 0.04 + 0.5, "uniform").pvalue > 1e-4
    assert np.abs(table).max() < 0.02
    # The first rows do not depend on how many there are.
    assert algorithm.initial_public(50, STREAMS).table.tobytes() == table[:50].tobytes()
    vault = vault_of()
    algorithm.initialise(vault, STREAMS)
    users = vault.read(USERS, np.arange(N_CLIENTS))
    assert users.shape == (N_CLIENTS, 16)
    assert not np.isin(users, table).any()
    other = algorithm.initial_public(200, Streams.from_seed(9)).table
    assert not np.isin(other, table).any()


def test_langevin_noise_has_its_temperature_and_is_a_function_of_place() -> None:
    rank, temperature = 40, 0.01
    quiet, public, vault = trained(rank)
    noisy, _, _ = trained(rank, temperature=temperature)
    base = step_of(quiet, public, vault).upload.block.values
    hot = step_of(noisy, public, vault).upload.block.values
    assert base is not None and hot is not None
    deviation = np.sqrt(temperature / noisy.config.step_size(public.round))
    drawn = (base - hot) / deviation
    assert kstest(drawn.ravel(), "norm").pvalue > 1e-4
    later = PublicState(round=public.round + 1, table=public.table)
    cold_later = step_of(quiet, later, vault).upload.block.values
    hot_later = step_of(noisy, later, vault).upload.block.values
    assert cold_later is not None and hot_later is not None
    assert np.abs((cold_later - hot_later) / deviation - drawn).max() > 1
    # Every user vector moves by noise of its own, scaled by the step size.
    everybody = np.arange(N_CLIENTS)
    cold, warm = trained(rank), trained(rank, temperature=temperature)
    for algorithm, state, box in (cold, warm):
        step_of(algorithm, state, box).commit(box)
    shift = warm[2].read(USERS, everybody) - cold[2].read(USERS, everybody)
    rated = vault.example_counts() > 0
    gamma = noisy.config.step_size(public.round)
    assert kstest((shift[rated] / (gamma * deviation)).ravel(), "norm").pvalue > 1e-4
    assert not shift[~rated].any()


def test_predictions_are_dot_products() -> None:
    algorithm, public, vault = trained()
    clients, items = np.array([4, 4, 9]), np.array([0, 24, 3], dtype=np.int32)
    users = vault.read(USERS, clients)
    predicted = algorithm.predict(public, vault, clients, items)
    np.testing.assert_allclose(predicted, (users * public.table[items]).sum(axis=1), rtol=1e-12)


def test_hyper_parameters_are_public() -> None:
    algorithm = PMF(PMFConfig.printed(rank=3, rounds=17))
    assert (algorithm.width, algorithm.rounds) == (3, 17)
    known = algorithm.public_knowledge()
    assert known.pop("name") == "pmf"
    assert known.pop("traits") == {
        "rows": "items",
        "row_sets": "rated",
        "form": "factorized",
    }
    assert PMFConfig.printed(**known) == algorithm.config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rank", 0),
        ("rounds", 0),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("decay", -1.0),
        ("init_scale", float("inf")),
        ("regularization", -1e-9),
        ("temperature", float("inf")),
        ("user_update", "virtual"),
    ],
)
def test_impossible_settings_are_refused(name: str, value: Any) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError) as refusal:
        PMFConfig.printed(**settings)
    assert refusal.value.key == f"algorithm.{name}"
