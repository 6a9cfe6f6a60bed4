import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data import RatingScale, RatingTable, k_fold, leave_one_out
from secure_fedrec.errors import ConfigError, DataError


def table_of(counts: list[int], times: bool = False) -> RatingTable:
    """Client u rates items 0 .. counts[u] - 1; later items earlier, if times are asked for."""
    clients = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    items = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
    return RatingTable(
        name="tiny",
        n_clients=len(counts),
        n_items=max(counts) + 1,
        clients=clients,
        items=items,
        ratings=1.0 + items % 5,
        scale=RatingScale(1.0, 5.0, 1.0),
        client_labels=np.arange(len(counts)),
        item_labels=np.arange(max(counts) + 1),
        timestamps=1000 - items if times else None,
    )


def pairs(table: RatingTable) -> set[tuple[int, int]]:
    return set(zip(table.clients.tolist(), table.items.tolist(), strict=True))


sizes = st.lists(st.integers(0, 8), min_size=1, max_size=8).filter(lambda c: sum(c) >= 5)


@settings(max_examples=50)
@given(counts=sizes, folds=st.integers(2, 5), seed=st.integers(0, 2**70))
def test_folds_are_disjoint_and_cover(counts: list[int], folds: int, seed: int) -> None:
    table = table_of(counts)
    tests = []
    for fold in range(folds):
        train, test = k_fold(table, folds=folds, fold=fold, seed=seed)
        assert not pairs(train) & pairs(test)
        assert pairs(train) | pairs(test) == pairs(table)
        tests.append(pairs(test))
    assert set.union(*tests) == pairs(table)
    lengths = [len(test) for test in tests]
    assert sum(lengths) == len(table)
    assert max(lengths) - min(lengths) <= 1


def test_folds_follow_the_seed() -> None:
    table = table_of([30, 30])
    first = k_fold(table, fold=1, seed=7)
    assert first.test.fingerprint() == k_fold(table, fold=1, seed=7).test.fingerprint()
    assert first.test.fingerprint() != k_fold(table, fold=1, seed=8).test.fingerprint()


def test_folds_are_pinned() -> None:
    # A seed must name the same split on every platform and numpy version.
    assert k_fold(table_of([10]), fold=0, seed=1).test.items.tolist() == [2, 5]


@pytest.mark.parametrize(
    ("folds", "fold", "seed", "key"),
    [
        (5, 5, 0, "data.fold"),
        (5, -1, 0, "data.fold"),
        (1, 0, 0, "data.folds"),
        (11, 0, 0, "data.folds"),
        (5, 0, -1, "data.seed"),
    ],
)
def test_bad_folds(folds: int, fold: int, seed: int, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        k_fold(table_of([10]), folds=folds, fold=fold, seed=seed)
    assert caught.value.key == key


@settings(max_examples=50)
@given(counts=sizes, times=st.booleans(), seed=st.integers(0, 9))
def test_leave_one_out_holds_one_per_client(counts: list[int], times: bool, seed: int) -> None:
    table = table_of(counts, times)
    train, test = leave_one_out(table, seed=seed)
    assert not pairs(train) & pairs(test)
    assert pairs(train) | pairs(test) == pairs(table)
    assert test.counts().tolist() == [int(count > 1) for count in counts]


def test_leave_one_out_takes_the_latest() -> None:
    _, test = leave_one_out(table_of([3, 1, 0, 4], times=True), seed=0)
    assert pairs(test) == {(0, 0), (3, 0)}


def test_leave_one_out_takes_the_named_item_over_the_latest() -> None:
    latest = np.array([2, 0, 99, 1])
    _, test = leave_one_out(table_of([3, 1, 0, 4], times=True), latest=latest, seed=0)
    assert pairs(test) == {(0, 2), (3, 1)}


def test_leave_one_out_breaks_ties_by_item() -> None:
    table = table_of([3])
    tied = RatingTable.from_columns(
        name="tied",
        n_clients=1,
        n_items=table.n_items,
        clients=table.clients,
        items=table.items,
        ratings=table.ratings,
        scale=table.scale,
        client_labels=table.client_labels,
        item_labels=table.item_labels,
        timestamps=np.array([5, 5, 4]),
    )
    assert pairs(leave_one_out(tied, seed=0).test) == {(0, 1)}


def test_random_choice_follows_the_seed() -> None:
    table = table_of([50] * 20)
    held = [pairs(leave_one_out(table, seed=seed).test) for seed in (3, 3, 4)]
    assert held[0] == held[1] != held[2]
    # 20 uniform choices of 50 items cannot all be the same one.
    assert len({item for _, item in held[0]}) > 5


@pytest.mark.parametrize("latest", [np.array([0]), np.array([0.0, 0.0]), np.array([0, 3])])
def test_leave_one_out_refuses_wrong_latest_items(latest: IntArray) -> None:
    with pytest.raises(DataError, match="latest item"):
        leave_one_out(table_of([3, 3]), latest=latest, seed=0)


def test_leave_one_out_refuses_a_negative_seed() -> None:
    with pytest.raises(ConfigError, match=r"data\.seed"):
        leave_one_out(table_of([3, 3]), seed=-1)
