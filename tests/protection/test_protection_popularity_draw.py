"""The draw of virtual items by public popularity."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import VirtualRatings, VirtualRatingsConfig
from secure_fedrec.protection.cloaks.virtual_ratings import draw_by_popularity, draw_unrated
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock

Rated = list[list[int]]


def block_of(rated: Rated) -> RowBlock:
    return RowBlock(
        indptr=np.concatenate([[0], np.cumsum([len(items) for items in rated])]).astype(np.int64),
        rows=np.array([item for items in rated for item in items], dtype=np.int32),
        values=None,
    )


def draw(
    rated: Rated, wanted: list[int], popularity: IntArray, clients: IntArray, *, round_: int = 1
) -> Rated:
    drawn = draw_by_popularity(
        block_of(rated),
        clients,
        np.array(wanted, dtype=np.int64),
        popularity=popularity,
        stream=Streams.from_seed(3).stream("fakes"),
        round_=round_,
    )
    return [part.rows.tolist() for part in drawn.split()]


@settings(deadline=None)
@given(st.data(), st.integers(1, 30), st.integers(1, 6))
def test_as_many_unrated_items_as_wanted_and_the_same_alone(
    data: st.DataObject, n_items: int, batch: int
) -> None:
    items = st.sets(st.integers(0, n_items - 1)).map(sorted)
    rated = data.draw(st.lists(items, min_size=batch, max_size=batch))
    wanted = [data.draw(st.integers(0, n_items - len(mine))) for mine in rated]
    popularity = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 50, n_items)
    clients = np.arange(batch) * 7 + 1
    together = draw(rated, wanted, popularity, clients)
    assert [len(fake) for fake in together] == wanted
    for place, (mine, fake) in enumerate(zip(rated, together, strict=True)):
        assert fake == sorted(set(fake) - set(mine))
        alone = draw([mine], [wanted[place]], popularity, clients[place : place + 1])
        assert alone == [fake]


def test_many_clients_draw_in_blocks_what_they_draw_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    popularity = rng.integers(0, 50, 40)
    rated = [sorted(rng.choice(40, 5, replace=False).tolist()) for _ in range(30)]
    whole = draw(rated, [5] * 30, popularity, np.arange(30))
    monkeypatch.setattr("secure_fedrec.protection.cloaks.virtual_ratings._NUMBERS_AT_ONCE", 200)
    assert draw(rated, [5] * 30, popularity, np.arange(30)) == whole


def test_sets_have_the_probabilities_of_drawing_one_item_after_the_other() -> None:
    popularity, rated, size, clients = np.array([0, 9, 3, 0, 1, 19]), [1], 3, 30_000
    weights = popularity + 1.0
    unrated = [item for item in range(6) if item not in rated]
    expected: dict[tuple[int, ...], float] = {}
    for order in permutations(unrated, size):
        left, chance = sum(weights[item] for item in unrated), 1.0
        for item in order:
            chance *= weights[item] / left
            left -= weights[item]
        key = tuple(sorted(order))
        expected[key] = expected.get(key, 0.0) + chance
    counts = dict.fromkeys(expected, 0)
    for fake in draw([rated] * clients, [size] * clients, popularity, np.arange(clients)):
        counts[tuple(fake)] += 1
    statistic = sum(
        (counts[key] - clients * chance) ** 2 / (clients * chance)
        for key, chance in expected.items()
    )
    assert chi2.sf(statistic, len(expected) - 1) > 1e-4
    assert chi2.cdf(statistic, len(expected) - 1) > 1e-4


def test_popularity_tells_fewer_virtual_items_from_real_ones() -> None:
    """Something remains: a client's most popular items are among its own, and cannot be drawn."""
    rng = np.random.default_rng(11)
    weights = 1.0 / np.arange(1, 201) ** 0.9
    rated = [
        sorted(rng.choice(200, 20, replace=False, p=weights / weights.sum()).tolist())
        for _ in range(200)
    ]
    popularity = np.bincount(np.concatenate(rated), minlength=200)
    clients, wanted = np.arange(200), np.full(200, 20)
    uniform = draw_unrated(
        block_of(rated),
        clients,
        wanted,
        n_items=200,
        stream=Streams.from_seed(3).stream("fakes"),
        round_=1,
    )

    def told_apart(virtual: Rated) -> float:
        """Chance that a rated item is more popular than a virtual one of the same client."""
        aucs = []
        for mine, fake in zip(rated, virtual, strict=True):
            real, cover = popularity[mine][:, None] - 1, popularity[fake][None, :]
            aucs.append(np.mean((real > cover) + 0.5 * (real == cover)))
        return float(np.mean(aucs))

    beside_uniform = told_apart([part.rows.tolist() for part in uniform.split()])
    beside_popular = told_apart(draw(rated, wanted.tolist(), popularity, clients))
    assert beside_uniform > 0.75
    assert beside_popular - 0.5 < (beside_uniform - 0.5) / 2


def test_the_draw_needs_to_know_the_popularity() -> None:
    config = VirtualRatingsConfig(draw="popularity")
    with pytest.raises(ConfigError, match="popularity"):
        VirtualRatings(config, n_items=5, streams=Streams.from_seed(1))
    with pytest.raises(ConfigError, match="uniform"):
        VirtualRatingsConfig(draw="alphabet")
