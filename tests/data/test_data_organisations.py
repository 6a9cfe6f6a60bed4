from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.data import (
    Organisations,
    Records,
    SplitShares,
    SyntheticOrganisationsConfig,
    generate_organisations,
    organise,
)
from secure_fedrec.data.organisations.split import TEST, TRAIN, VALIDATION, draw_parts
from secure_fedrec.errors import ConfigError, DataError

LEVELS = np.array([1.0, 2.0, 3.0])


def columns(**changes: Any) -> dict[str, Any]:
    """Two clients; users 5, 7 at the first and 9 at the second; both have item 3."""
    rows: dict[str, Any] = {
        "name": "tiny",
        "names": ["north", "south"],
        "clients": np.array([1, 0, 0, 0, 1, 0]),
        "users": np.array([9, 7, 5, 5, 9, 7]),
        "items": np.array([3, 3, 3, 1, 2, 1]),
        "scores": np.array([3.0, 2.0, 1.0, 2.0, 1.0, 3.0]),
        "parts": np.array([TRAIN, TRAIN, TRAIN, TEST, TEST, VALIDATION]),
        "attributes": np.array([[1, 0], [1, 0], [0, 1], [1, 1]], dtype=bool),
        "attribute_names": ["a", "b"],
        "levels": LEVELS,
    }
    return {**rows, **changes}


@pytest.fixture
def tiny() -> Organisations:
    return organise(**columns())


def test_local_numbers(tiny: Organisations) -> None:
    assert tiny.n_clients == 2
    assert tiny.n_attributes == 2
    assert tiny.n_users == (2, 1)
    assert tiny.n_items == (2, 2)
    assert [ids.tolist() for ids in tiny.user_ids] == [[5, 7], [9]]
    assert [ids.tolist() for ids in tiny.item_ids] == [[1, 3], [2, 3]]
    assert [own.tolist() for own in tiny.attributes] == [[[1, 0], [1, 1]], [[0, 1], [1, 1]]]
    north = tiny.train.of(0)
    assert [column.tolist() for column in north] == [[0, 1], [1, 1], [1.0, 2.0]]
    assert [column.tolist() for column in tiny.test.of(1)] == [[0], [0], [1.0]]
    assert tiny.validation.counts().tolist() == [1, 0]
    assert tiny.test.owners().tolist() == [0, 1]


def test_records_in_any_order_are_the_same(tiny: Organisations) -> None:
    turned = {
        name: values[::-1] if name in {"clients", "users", "items", "scores", "parts"} else values
        for name, values in columns().items()
    }
    again = organise(**turned)
    for part in ("train", "validation", "test"):
        for one, other in zip(getattr(tiny, part).of(0), getattr(again, part).of(0), strict=True):
            np.testing.assert_array_equal(one, other)


def test_columns_cannot_be_changed(tiny: Organisations) -> None:
    with pytest.raises(ValueError, match="read-only"):
        tiny.train.scores[0] = 2.0


def test_vault_holds_what_may_be_learnt_from(tiny: Organisations) -> None:
    vault = tiny.vault()
    north, south = vault.examples(0), vault.examples(1)
    assert north["users"].tolist() == [0, 1, 1]
    assert north["items"].tolist() == [1, 1, 0]
    assert north["scores"].tolist() == [1.0, 2.0, 3.0]
    assert north["held_out"].tolist() == [False, False, True]
    assert south["held_out"].tolist() == [False]
    assert vault.example_counts().sum() == len(tiny.train) + len(tiny.validation)


def test_pooled_keeps_every_record(tiny: Organisations) -> None:
    pooled = tiny.pooled()
    assert pooled.n_users == (3,)
    assert pooled.n_items == (3,)
    users, items, scores = pooled.train.of(0)
    found = zip(pooled.user_ids[0][users], pooled.item_ids[0][items], scores, strict=True)
    assert list(found) == [(5, 3, 1.0), (7, 3, 2.0), (9, 3, 3.0)]
    assert pooled.attributes[0].tolist() == [[1, 0], [0, 1], [1, 1]]


def test_user_of_two_clients_is_refused() -> None:
    with pytest.raises(DataError, match=r"user 9 is in two clients: \['north', 'south'\]"):
        organise(**columns(users=np.array([9, 7, 5, 5, 9, 9])))


@pytest.mark.parametrize("parts", [[TEST, 0, 0, 0, VALIDATION, 0], [TEST, 0, 0, 0, TEST, 0]])
def test_client_without_training_record_is_named(parts: list[int]) -> None:
    with pytest.raises(DataError, match="client 'south' has no training record"):
        organise(**columns(parts=np.array(parts)))


def test_client_without_any_record_is_named() -> None:
    with pytest.raises(DataError, match="client 'west' has no training record"):
        organise(**columns(names=["north", "south", "west"]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attributes": np.array([[1, 0], [0, 0], [0, 1], [1, 1]], bool)}, "item 1 has no attr"),
        ({"scores": np.array([3.0, 2.5, 1.0, 2.0, 1.0, 3.0])}, "train: score 2.5 is not one of"),
        ({"scores": np.array([3.0, np.nan, 1.0, 2.0, 1.0, 3.0])}, "score nan is not one of"),
        ({"items": np.array([3, 3, 3, 3, 2, 1])}, "user 5 has two records of item 3"),
        ({"levels": np.array([1.0])}, "needs at least two levels"),
        ({"names": ["north", "north"]}, "a name of its own"),
    ],
)
def test_bad_records_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        organise(**columns(**changes))


def test_other_attributes_at_another_client_are_refused(tiny: Organisations) -> None:
    south = np.array([[0, 1], [0, 1]], dtype=bool)
    with pytest.raises(DataError, match="item 3 has other attributes at another client"):
        replace(tiny, attributes=(tiny.attributes[0], south))


def test_numbers_beyond_the_client_are_refused(tiny: Organisations) -> None:
    train = tiny.train
    beyond = Records(
        indptr=train.indptr, users=np.array([0, 1, 1]), items=train.items, scores=train.scores
    )
    with pytest.raises(DataError, match="a user does not belong to its client"):
        replace(tiny, train=beyond)


def test_shares_are_per_user() -> None:
    users = np.repeat(np.arange(40), np.arange(1, 41))
    items = np.arange(len(users)) % 41
    parts = draw_parts(users, items, shares=SplitShares(test=0.2, validation=0.1), seed=3)
    for user in range(40):
        own = parts[users == user]
        n_test = min(int(0.2 * len(own) + 0.5), len(own) - 1)
        rest = len(own) - n_test
        n_validation = min(int(0.1 * rest + 0.5), rest - 1)
        counts = np.bincount(own, minlength=3)
        assert counts.tolist() == [rest - n_validation, n_validation, n_test]


def test_every_user_keeps_a_training_record() -> None:
    users = np.repeat(np.arange(6), np.arange(1, 7))
    items = np.arange(len(users))
    parts = draw_parts(users, items, shares=SplitShares(test=0.9, validation=0.9), seed=1)
    assert np.bincount(users[parts == TRAIN]).tolist() == [1] * 6
    assert np.count_nonzero(parts == TEST) > 6


def test_split_depends_on_seed_and_records_only() -> None:
    users, items = np.repeat(np.arange(30), 10), np.tile(np.arange(10), 30)
    shares = SplitShares()
    once = draw_parts(users, items, shares=shares, seed=1)
    order = np.random.default_rng(0).permutation(len(users))
    turned = draw_parts(users[order], items[order], shares=shares, seed=1)
    np.testing.assert_array_equal(turned, once[order])
    assert np.any(draw_parts(users, items, shares=shares, seed=2) != once)
    # Every place of a user's records is held out for somebody: nothing depends on the item.
    assert set(items[once == TEST]) == set(range(10))


def test_named_test_records_are_kept() -> None:
    users, items = np.repeat(np.arange(5), 10), np.tile(np.arange(10), 5)
    held_out = items >= 7
    parts = draw_parts(users, items, shares=SplitShares(), seed=1, held_out=held_out)
    np.testing.assert_array_equal(parts == TEST, held_out)
    assert np.bincount(users[parts == VALIDATION]).tolist() == [1] * 5


@pytest.mark.parametrize("changes", [{"test": 1.0}, {"validation": -0.1}])
def test_shares_out_of_range(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"data.{next(iter(changes))}"):
        SplitShares(**changes)


def test_negative_seed() -> None:
    with pytest.raises(ConfigError, match=r"data\.seed"):
        draw_parts(np.zeros(1, int), np.zeros(1, int), shares=SplitShares(), seed=-1)


def test_synthetic_is_a_function_of_its_arguments() -> None:
    config = SyntheticOrganisationsConfig(clients=3, users=8, items=30, seed=4)
    one, other = generate_organisations(config), generate_organisations(config)
    np.testing.assert_array_equal(one.train.scores, other.train.scores)
    another = generate_organisations(replace(config, seed=5))
    assert one.train.scores.tolist() != another.train.scores.tolist()
    assert one.n_users == (8, 8, 8)
    assert len(one.validation) > 0 < len(one.test)


def test_synthetic_answers_are_binary() -> None:
    config = SyntheticOrganisationsConfig(clients=2, users=10, items=30, binary=True, seed=1)
    answers = generate_organisations(config)
    assert answers.binary
    assert set(answers.train.scores) == {0.0, 1.0}


def test_synthetic_scores_follow_taste() -> None:
    """With no noise, two users of one client differ by taste: attributes explain scores."""
    config = SyntheticOrganisationsConfig(
        clients=1, users=40, items=60, listed=1.0, noise=0.0, mean_records=50, seed=2
    )
    data = generate_organisations(config)
    users, items, scores = data.train.of(0)
    own = data.attributes[0][items] / data.attributes[0][items].sum(axis=1, keepdims=True)
    design = np.zeros((len(users), 40 * 6 + 60))
    for attribute in range(6):
        design[np.arange(len(users)), users * 6 + attribute] = own[:, attribute]
    design[np.arange(len(users)), 240 + items] = 1.0

    def explained(values: np.ndarray) -> float:
        fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
        return float(np.corrcoef(fitted, values)[0, 1])

    assert explained(scores) > 0.9
    assert explained(np.random.default_rng(0).permutation(scores)) < 0.6


@pytest.mark.parametrize(
    ("name", "value"), [("clients", 0), ("items", 9), ("listed", 0.0), ("noise", -1.0)]
)
def test_synthetic_settings_out_of_range(name: str, value: float) -> None:
    changes: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=f"data.{name}"):
        SyntheticOrganisationsConfig(seed=1, **changes)
