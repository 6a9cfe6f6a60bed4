"""Federated EASE: its sum, its closed form beside an independent one, its forms and refusals."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.algorithms.ease import EASE, EASEConfig
from secure_fedrec.algorithms.ease.choice import kept_out
from secure_fedrec.algorithms.ease.solutions import projection
from secure_fedrec.algorithms.ease.sums import Triangle
from secure_fedrec.algorithms.ease.system import NOISE, SUMS, WEIGHTS
from secure_fedrec.data.negatives import Ragged
from secure_fedrec.engines import LocalEngine, Problem, sizes_of
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.errors import ConfigError, DataError, SumBudgetError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import build_stack
from secure_fedrec.protection.dp.config import ClipConfig, SkellamLayerConfig
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.testing import AlgorithmContract
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Meter, Wire

Matrix = npt.NDArray[np.float64]
MASKS = {"masking": MaskingLayerConfig(min_survivors=3)}


def drawn(clients: int, items: int, seed: int) -> Matrix:
    """Rows of 0 and 1, each with one item at least."""
    rng = np.random.default_rng(seed)
    rows = (rng.random((clients, items)) < rng.random(items)).astype(np.float64)
    rows[np.arange(clients), rng.integers(items, size=clients)] = 1.0
    return rows


def owned(rows: Matrix) -> Ragged:
    indptr = np.concatenate([[0], np.cumsum(rows.sum(axis=1))]).astype(np.int64)
    return Ragged(indptr, np.nonzero(rows)[1].astype(np.int32))


def vault(rows: Matrix) -> Vault:
    mine = owned(rows)
    return Vault(indptr=mine.indptr, items=mine.items, ratings=np.ones(len(mine.items)))


def engine(
    rows: Matrix, config: EASEConfig, layers: Any = None, *, ring: Any = None, cohort: Any = None
) -> LocalEngine:
    algorithm, streams = EASE(config, *rows.shape), Streams.from_seed(3)
    problem = Problem(vault=vault(rows), n_rows=rows.shape[1], knowledge={"n_items": rows.shape[1]})
    sizes = sizes_of(algorithm, problem)
    if ring is None:
        ring = FixedPoint() if config.largest_norm or config.sketch else EASE.ring(len(rows))
    return LocalEngine(
        algorithm=algorithm,
        stack=build_stack(layers or {}, sizes=sizes, codec=ring, streams=streams),
        vault=problem.vault,
        n_rows=problem.n_rows,
        streams=streams,
        wire=Wire(meter=Meter(len(rows))),
        cohort=cohort,
    )


def trained(rows: Matrix, config: EASEConfig, layers: Any = None, **more: Any) -> LocalEngine:
    made = engine(rows, config, layers, **more)
    for _ in range(config.rounds):
        made.run_round()
    return made


def scores(made: LocalEngine, rows: Matrix) -> Matrix:
    algorithm: Any = made.algorithm
    found: Matrix = algorithm.scores(made.public, owned(rows))
    return found


def ridge(rows: Matrix, shrinkage: float) -> Matrix:
    """EASE item by item: the ridge regression of each on all others (Steck 2019, eq. 2 to 4)."""
    size = rows.shape[1]
    weights = np.zeros((size, size))
    for item in range(size):
        rest = np.delete(np.arange(size), item)
        left = rows[:, rest]
        stacked = np.vstack([left, np.sqrt(shrinkage) * np.eye(size - 1)])
        target = np.concatenate([rows[:, item], np.zeros(size - 1)])
        weights[rest, item] = np.linalg.lstsq(stacked, target, rcond=None)[0]
    return weights


class OfEASE(AlgorithmContract):
    def problem(self) -> Problem:
        return Problem(vault=vault(drawn(6, 9, 1)), n_rows=9, knowledge={"n_items": 9})


class TestEASE(OfEASE):
    def algorithm(self) -> Algorithm:
        return EASE(EASEConfig(), 6, 9)


class TestEASESolvedAtTheServer(OfEASE):
    def algorithm(self) -> Algorithm:
        return EASE(EASEConfig(solved_at="server"), 6, 9)


class TestEASEForNoise(OfEASE):
    def algorithm(self) -> Algorithm:
        return EASE(EASEConfig(largest_norm=1.0, solution="eigenvectors", rank=3), 6, 9)


class TestEASEBySketch(OfEASE):
    def algorithm(self) -> Algorithm:
        return EASE(EASEConfig(sketch=4), 6, 9)


class TestEASEThatChooses(OfEASE):
    def algorithm(self) -> Algorithm:
        return EASE(EASEConfig(rounds=2, candidates=(0.1, 1.0)), 6, 9)


@given(
    clients=st.integers(1, 30), items=st.integers(2, 12), seed=st.integers(0, 2**16),
    share=st.sampled_from([0.05, 0.25, 2.0]),
)  # fmt: skip
def test_scores_are_those_of_a_ridge_regression_of_every_item_on_the_others(
    clients: int, items: int, seed: int, share: float
) -> None:
    rows = drawn(clients, items, seed)
    made = trained(rows, EASEConfig(shrinkage=share))
    due = rows @ ridge(rows, share * clients)
    assert np.allclose(scores(made, rows), due, rtol=0, atol=1e-6)


@given(clients=st.integers(3, 40), items=st.integers(2, 12), seed=st.integers(0, 2**16))
def test_masked_and_plain_sums_are_the_same_integers(clients: int, items: int, seed: int) -> None:
    rows = drawn(clients, items, seed)
    plain, masked = trained(rows, EASEConfig()), trained(rows, EASEConfig(), MASKS)
    assert np.array_equal(plain.public.extras[SUMS], masked.public.extras[SUMS])
    assert np.array_equal(scores(plain, rows), scores(masked, rows))
    upper = (rows.T @ rows)[np.triu_indices(items)]
    assert np.array_equal(plain.public.extras[SUMS], upper)


@pytest.mark.claim("ease-pairs")
@given(
    clients=st.integers(1, 8), items=st.integers(1, 20), seed=st.integers(0, 2**16),
    largest=st.sampled_from([0.5, 1.0, 3.0]),
)  # fmt: skip
def test_no_row_for_noise_is_longer_than_its_norm_and_squares_are_whole(
    clients: int, items: int, seed: int, largest: float
) -> None:
    rows, form = drawn(clients, items, seed), Triangle(items, largest)
    mine = owned(rows)
    sent = form.of(mine.indptr, mine.items)
    norms = np.sqrt(np.square(sent).sum(axis=1))
    sizes = rows.sum(axis=1)
    assert np.allclose(norms, np.minimum(sizes, largest), atol=1e-12)
    whole = form.square(sent[0])
    assert np.allclose(whole, np.outer(rows[0], rows[0]) * min(1, largest / sizes[0]), atol=1e-12)


@pytest.mark.parametrize(
    "layers",
    [
        {"masking": MaskingLayerConfig(min_survivors=20, execution="real")},
        {"paillier": EncryptionLayerConfig()},
    ],
)
def test_a_sum_under_real_masks_or_encryption_is_the_plain_one(layers: dict[str, Any]) -> None:
    rows = drawn(24, 7, 3)
    plain, hidden = trained(rows, EASEConfig()), trained(rows, EASEConfig(), layers)
    assert np.array_equal(plain.public.extras[SUMS], hidden.public.extras[SUMS])


@pytest.mark.claim("ease-pairs")
def test_whoever_comes_later_is_added_once_and_all_of_them_make_the_whole_sum() -> None:
    rows = drawn(12, 8, 4)
    config = EASEConfig(rounds=12)
    late = engine(rows, config, cohort=CohortConfig(clients_per_round=5))
    seen: set[int] = set()
    for round_ in range(1, 13):
        seen |= set(late.participants(round_).tolist())
        late.run_round()
        there = rows[sorted(seen)]
        upper = (there.T @ there)[np.triu_indices(8)]
        assert np.array_equal(late.public.extras[SUMS], upper)
    assert len(seen) == 12  # all have come, or the last line shows little
    assert np.array_equal(late.public.extras[SUMS], trained(rows, EASEConfig()).public.extras[SUMS])


def test_the_server_can_solve_and_publish_weights_alone() -> None:
    rows = drawn(15, 7, 6)
    at_client = trained(rows, EASEConfig())
    at_server = trained(rows, EASEConfig(solved_at="server"))
    assert SUMS not in at_server.public.extras
    assert at_server.public.extras[WEIGHTS].shape == (7, 7)
    assert np.array_equal(scores(at_client, rows), scores(at_server, rows))


@pytest.mark.parametrize("columns", [1, 5, 40])
def test_a_sketch_of_as_many_columns_as_the_sum_has_loses_nothing(columns: int) -> None:
    rows = np.repeat(drawn(4, 12, 8), 3, axis=0)  # a sum of rank 4
    exact, sketched = trained(rows, EASEConfig()), trained(rows, EASEConfig(sketch=columns))
    assert sketched.public.extras[SUMS].shape == (12, columns)
    alike = np.allclose(scores(exact, rows), scores(sketched, rows), atol=1e-8)
    assert alike == (columns >= 4)
    again = trained(rows, EASEConfig(sketch=columns), MASKS)
    assert np.array_equal(again.public.extras[SUMS], sketched.public.extras[SUMS])


def test_clients_choose_the_shrinkage_under_which_most_find_what_they_kept_out() -> None:
    rows, candidates = drawn(60, 30, 2), (0.001, 0.05, 50.0)
    made = trained(rows, EASEConfig(rounds=2, candidates=candidates), MASKS)
    everybody, mine = np.arange(60), owned(rows)
    kept = kept_out(everybody, mine, Streams.from_seed(3))
    assert np.array_equal(kept < 0, rows.sum(axis=1) < 2)
    left = rows.copy()
    left[everybody[kept >= 0], kept[kept >= 0]] = 0.0
    assert (rows - left).sum() == (kept >= 0).sum() > 50  # each kept out one of its own
    upper = (left.T @ left)[np.triu_indices(30)]
    assert np.array_equal(made.public.extras[SUMS], upper)
    hits = []
    for share in candidates:  # all others are ranked against, as there are fewer than 99
        own = left @ ridge(left, share * 60)
        own[left > 0] = -np.inf
        places = [
            (own[n] >= own[n, item]).sum() if item >= 0 else 99 for n, item in enumerate(kept)
        ]
        hits.append(sum(place <= 10 for place in places))
    assert len(set(hits)) == 3
    assert made.public.table[0] == candidates[int(np.argmax(hits))]


def planted_sum(size: int, strength: float, noise: float, seed: int) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(seed)
    vector = np.abs(rng.standard_normal(size))
    vector /= np.linalg.norm(vector)
    spread = np.triu(rng.standard_normal((size, size)), 1) * noise / np.sqrt(2)
    spread = spread + spread.T + np.diag(rng.standard_normal(size)) * noise
    return strength * np.outer(vector, vector) + spread, vector


def test_what_stands_out_of_the_noise_is_kept_and_nothing_else() -> None:
    gram, vector = planted_sum(300, 60.0, 1.0, 5)
    factors = projection(gram, 1.0, 20)
    assert (np.abs(factors).sum(axis=0) > 0).sum() <= 2  # one, and perhaps one at the edge
    found = factors[:, 0] / np.linalg.norm(factors[:, 0])
    assert abs(found @ vector) > 0.9
    kept = factors.any(axis=1)
    popularity = gram.sum(axis=1)
    assert popularity[kept].min() > popularity[~kept].max()


def test_of_noise_alone_little_is_made() -> None:
    alone = [projection(planted_sum(200, 0.0, 1.0, seed)[0], 1.0, 20) for seed in range(20)]
    columns = [int((np.abs(each).sum(axis=0) > 0).sum()) for each in alone]
    assert all(1 <= count <= 3 for count in columns)


@pytest.mark.claim("ease-pairs")
def test_noise_is_stated_with_the_sum_and_adds_up_over_rounds() -> None:
    rows = drawn(20, 6, 9)
    layers = {
        "clip": ClipConfig(norm=1.0, count_scale=1e-4),
        "skellam": SkellamLayerConfig(noise_multiplier=0.5, fraction_bits=12, corrupt=0),
        "masking": MaskingLayerConfig(min_survivors=20, corrupt=0.0),
    }
    config = EASEConfig(rounds=2, largest_norm=1.0, solution="eigenvectors")
    made = engine(rows, config, layers, ring=FixedPoint(bits=32, fraction_bits=16, clip=1.0))
    made.run_round()
    once = made.public.extras[NOISE][0]
    assert 0.5 <= once < 0.51
    exact = sum(np.outer(row, row) / row.sum() for row in rows)
    algorithm: Any = made.algorithm
    away = algorithm.sums.square(made.public.extras[SUMS]) - exact
    assert 0.3 < np.std(np.diag(away)) / once < 2.5
    made.run_round()
    assert made.public.extras[NOISE][0] == pytest.approx(once * np.sqrt(2))


def test_counts_of_another_scale_than_the_noise_are_refused() -> None:
    layers = {
        "clip": ClipConfig(norm=1.0),
        "skellam": SkellamLayerConfig(noise_multiplier=0.5, fraction_bits=12, corrupt=0),
        "masking": MaskingLayerConfig(min_survivors=20, corrupt=0.0),
    }
    ring = FixedPoint(bits=32, fraction_bits=16, clip=1.0)
    for config in (EASEConfig(), EASEConfig(sketch=3)):
        with pytest.raises(ConfigError, match=r"16 binary digits.*0 in the block co-occurrences"):
            engine(drawn(20, 6, 9), config, layers, ring=ring)


def test_a_choice_under_a_large_norm_is_within_what_is_encoded() -> None:
    rows = drawn(20, 6, 9)
    config = EASEConfig(rounds=2, candidates=(0.1, 1.0), largest_norm=3.0)
    assert trained(rows, config).public.table[0] in (0.1, 1.0)


def test_the_narrowest_ring_holds_the_cohort_and_no_narrower_one_does() -> None:
    for cohort in (1, 127, 128, 943, 6040):
        ring = EASE.ring(cohort)
        ring.require_budget(cohort)
        if ring.bits > 8:
            with pytest.raises(SumBudgetError):
                FixedPoint(bits=ring.bits - 1, fraction_bits=0, clip=1.0).require_budget(cohort)


def test_a_catalogue_too_large_for_memory_is_refused_with_the_price_of_a_sketch() -> None:
    with pytest.raises(ConfigError, match=r"155,100,078 sums and 8\.7 GB.*256 columns.*4,508,672"):
        EASE(EASEConfig(), 1874, 17612)
    EASE(EASEConfig(sketch=256), 1874, 17612)
    EASE(EASEConfig(max_memory_gb=9.0), 1874, 17612)


def test_one_user_and_an_item_that_nobody_has_are_no_trouble_with_a_shrinkage() -> None:
    rows = np.array([[1.0, 1.0, 0.0]])
    found = scores(trained(rows, EASEConfig()), rows)
    assert np.isfinite(found).all()
    assert found[0, 2] == 0.0


@pytest.mark.parametrize("solved_at", ["client", "server"])
def test_without_shrinkage_a_singular_sum_is_refused(solved_at: str) -> None:
    rows = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    with pytest.raises(ConfigError, match=r"algorithm\.shrinkage.*singular.*an item has no users"):
        made = trained(rows, EASEConfig(shrinkage=0.0, solved_at=solved_at))
        scores(made, rows)
    regular = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    assert np.isfinite(scores(trained(regular, EASEConfig(shrinkage=0.0)), regular)).all()


@pytest.mark.parametrize(
    ("items", "ratings", "problem"),
    [
        ([0, 2], [1.0, 4.0], r"client 0.*value of 4 for item 2.*0 and 1"),
        ([0, 0], [1.0, 1.0], r"client 0.*item 0: items ascend, each of them once"),
        ([0, 3], [1.0, 1.0], r"client 0.*item 3: there are 3"),
        ([0, 2], [1.0, np.nan], r"client 0.*value of nan for item 2"),
    ],
)
def test_a_row_that_is_not_of_0_and_1_is_refused(
    items: list[int], ratings: list[float], problem: str
) -> None:
    made = Vault(
        indptr=np.array([0, 2]), items=np.array(items, dtype=np.int32), ratings=np.array(ratings)
    )
    with pytest.raises(DataError, match=problem):
        EASE(EASEConfig(), 1, 3).initialise(made, Streams.from_seed(0))


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"candidates": (0.1, 1.0)}, "algorithm.rounds"),
        ({"candidates": (0.1,), "rounds": 2}, "algorithm.candidates"),
        ({"candidates": (0.1, 1.0), "rounds": 2, "solution": "eigenvectors"}, "algorithm.candid"),
        ({"solved_at": "server", "rounds": 2}, "algorithm.solved_at"),
        ({"solved_at": "server", "sketch": 4}, "algorithm.solved_at"),
        ({"largest_norm": 1.0, "sketch": 4}, "algorithm.sketch"),
        ({"solution": "guess"}, "algorithm.solution"),
    ],
)
def test_settings_that_do_not_agree_are_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        EASEConfig(**settings)
