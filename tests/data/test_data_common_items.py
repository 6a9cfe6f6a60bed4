"""Tables cut into organisations with common items: what each knows, is asked, and is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.data.organisations.common_items import (
    CommonItems,
    CommonItemsConfig,
    split_common_items,
)
from secure_fedrec.errors import ConfigError

TABLE = generate(SyntheticConfig(clients=30, items=40, mean_ratings=20.0, seed=6))


def cut(**settings: Any) -> CommonItems:
    return split_common_items(TABLE, CommonItemsConfig(**{"seed": 2, **settings}))


def pairs_of(data: CommonItems) -> set[tuple[int, int, int]]:
    """(organisation, user, item) of everything that is in the data, known or not."""
    places = np.repeat(np.arange(data.n_organisations), np.diff(data.indptr))
    columns = (places.tolist(), data.users.tolist(), data.items.tolist())
    return {*zip(*columns, strict=True)}


@pytest.mark.parametrize(
    ("settings", "items", "users"),
    [
        ({}, [30, 30], [15, 15]),
        ({"common": 0.6, "items": 0.25, "users": 0.1}, [28, 36], [3, 27]),
        ({"organisations": 4}, [25, 25, 25, 25], [8, 7, 7, 8]),
        ({"organisations": 4, "items": 0.4, "users": 0.7}, [28, 24, 24, 24], [21, 3, 3, 3]),
    ],
)
def test_shares_are_as_asked(
    settings: dict[str, float], items: list[int], users: list[int]
) -> None:
    data = cut(**settings)
    assert data.listed.sum(axis=1).tolist() == items
    assert data.n_users.tolist() == users
    common = data.common
    assert common.sum() == round(settings.get("common", 0.5) * 40)
    assert np.all(data.listed[:, common])
    assert np.all(data.listed[:, ~common].sum(axis=0) == 1)


def test_every_rating_is_one_organisations_and_none_is_lost() -> None:
    data = cut(organisations=3)
    assert len(pairs_of(data)) == len(TABLE)
    for place in range(3):
        users, items = data.known(place)
        own = data.items_of(place)
        truth = data.truth(place, own)
        assert truth.sum() == len(users)
        assert np.all(truth[users, items])
        hidden = data.truth(place, np.flatnonzero(data.asked[place]))
        assert truth.sum() + hidden.sum() == np.diff(data.indptr)[place]
        examples = data.vault().examples(place)
        assert examples["users"].tolist() == users.tolist()
        assert examples["items"].tolist() == items.tolist()
        assert np.all(np.diff(users * 10**6 + items) > 0)
    sizes = sorted(TABLE.counts().tolist())
    found = [data.truth(place, np.arange(40)).sum(axis=1) for place in range(3)]
    assert sorted(np.concatenate(found).tolist()) == sizes


def test_a_cut_is_a_function_of_the_seed() -> None:
    one, again, other = cut(), cut(), cut(seed=3)
    assert np.array_equal(one.listed, again.listed)
    assert pairs_of(one) == pairs_of(again)
    assert not np.array_equal(one.listed, other.listed)


def test_hiding_takes_common_items_only_and_asks_for_those() -> None:
    data = cut(organisations=4, common=0.8)
    hidden = data.hiding(0.25, seed=5)
    changed = np.flatnonzero((data.listed != hidden.listed).any(axis=0))
    assert len(changed) == 8
    assert np.all(data.common[changed])
    assert np.all(hidden.listed[:, changed].sum(axis=0) == 1)
    assert hidden.listed[:, changed].sum(axis=1).tolist() == [2, 2, 2, 2]
    assert np.array_equal(np.flatnonzero(hidden.asked.any(axis=0)), changed)
    assert not np.any(hidden.asked & hidden.listed)
    # what is asked for is what its users did with items that it knew before
    assert not np.any(hidden.asked & ~data.listed)
    assert len(data.known(0)[0]) > len(hidden.known(0)[0])


def test_organisations_without_a_common_item_are_refused() -> None:
    data = cut()
    listed = data.listed.copy()
    listed[1, data.common] = False
    with pytest.raises(ConfigError, match=r"organisations 0 and 1 have no item in common"):
        replace(data, listed=listed)


@pytest.mark.parametrize("left", [0, 1])
def test_a_user_with_a_single_interaction_is_refused(left: int) -> None:
    data = cut()
    own = slice(*data.indptr[[1, 2]].tolist())
    seen = data.listed[1, data.items[own]]
    mine = np.flatnonzero((data.users[own] == 4) & seen) + data.indptr[1]
    kept = np.ones(len(data.items), dtype=np.bool_)
    kept[mine[left:]] = False
    indptr = np.array([0, data.indptr[1], kept.sum()])
    with pytest.raises(ConfigError, match=r"data\.users = 4: of organisation 1: .* at least two"):
        replace(data, users=data.users[kept], items=data.items[kept], indptr=indptr)
    kept[mine[:2]] = True
    indptr = np.array([0, data.indptr[1], kept.sum()])
    replace(data, users=data.users[kept], items=data.items[kept], indptr=indptr)


def test_shares_of_everything_or_nothing_are_refused() -> None:
    for name in ("common", "users", "items"):
        for value in (0.0, 1.0):
            with pytest.raises(ConfigError, match=rf"data\.{name} = {value}"):
                cut(**{name: value})
    with pytest.raises(ConfigError, match=r"data\.organisations = 1"):
        cut(organisations=1)
