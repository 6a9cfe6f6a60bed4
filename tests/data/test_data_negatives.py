"""Training negatives: uniform over the pool, a function of (round, client, index), checked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.data.negatives import Ragged, draw_distinct, draw_negatives
from secure_fedrec.errors import ConfigError
from secure_fedrec.streams import Streams

ITEMS = 13


def ragged(sets: list[list[int]]) -> Ragged:
    indptr = np.cumsum([0, *map(len, sets)], dtype=np.int64)
    return Ragged(
        indptr, np.array([item for each in sets for item in sorted(each)], dtype=np.int32)
    )


item_sets = st.lists(st.integers(0, ITEMS - 1), unique=True, max_size=ITEMS)
few = st.lists(st.tuples(item_sets, item_sets), min_size=1, max_size=6)


@given(few, st.integers(1, 6), st.integers(0, 2**32 - 1), st.data())
@settings(max_examples=60, deadline=None)
def test_a_batch_draws_what_its_clients_draw_alone(
    sets: list[tuple[list[int], list[int]]], per_positive: int, round_: int, data: st.DataObject
) -> None:
    rated, kept = (ragged([each[which] for each in sets]) for which in (0, 1))
    lanes = np.array(data.draw(st.permutations(range(len(sets)))), dtype=np.int64)
    stream = Streams.from_seed(3).stream("negatives")
    asked = {"per_positive": per_positive, "stream": stream, "round": round_}
    batch = draw_negatives(rated, kept, ITEMS, clients=lanes, **asked)  # type: ignore[arg-type]
    for place, lane in enumerate(lanes):
        one = np.array([place])
        alone = draw_negatives(
            rated.of_all(one),
            kept.of_all(one),
            ITEMS,
            clients=lanes[one],
            **asked,  # type: ignore[arg-type]
        )
        rows = slice(int(batch.indptr[place]), int(batch.indptr[place + 1]))
        assert np.array_equal(batch.items[rows], alone.items), lane
        assert np.array_equal(batch.labels[rows], alone.labels)
        pool = set(range(ITEMS)) - set(sets[place][0]) - set(sets[place][1])
        each = 1 + min(per_positive, len(pool))
        groups = alone.items.reshape(-1, each)
        assert groups[:, 0].tolist() == sorted(sets[place][0])
        assert all(
            len(set(group)) == each - 1 and set(group) <= pool for group in groups[:, 1:].tolist()
        )
        assert np.array_equal(alone.labels.reshape(-1, each)[:, 0], np.ones(len(groups)))
        assert alone.labels.sum() == len(groups)


def test_every_set_of_the_pool_is_equally_likely() -> None:
    """Of 6 items outside {0, 7}, 15 pairs; 30,000 draws: chi-square with 14 degrees of freedom."""
    rounds, positives = 300, 100
    stream = Streams.from_seed(0).stream("negatives")
    lanes = np.arange(positives)
    rated, kept = ragged([[0]] * positives), ragged([[7]] * positives)
    counts: dict[tuple[int, ...], int] = {}
    for round_ in range(rounds):
        drawn = draw_negatives(
            rated, kept, 8, per_positive=2, stream=stream, round=round_, clients=lanes
        )
        for pair in np.sort(drawn.items.reshape(-1, 3)[:, 1:], axis=1).tolist():
            counts[tuple(pair)] = counts.get(tuple(pair), 0) + 1
    expected = rounds * positives / 15
    assert len(counts) == 15
    assert sum((each - expected) ** 2 / expected for each in counts.values()) < 36.1  # p = 0.001


def test_positives_of_a_client_draw_independently() -> None:
    """Two positives and one negative each of 5 items: they agree one time in five."""
    stream = Streams.from_seed(1).stream("negatives")
    clients = 20_000
    rated = ragged([[0, 1]] * clients)
    drawn = draw_negatives(
        rated,
        Ragged.empty(clients),
        7,
        per_positive=1,
        stream=stream,
        round=0,
        clients=np.arange(clients),
    )
    pairs = drawn.items.reshape(clients, 2, 2)[:, :, 1]
    assert abs(np.mean(pairs[:, 0] == pairs[:, 1]) - 0.2) < 4 * (0.16 / clients) ** 0.5


def test_distinct_draws_are_in_random_order() -> None:
    stream = Streams.from_seed(2).stream("negatives")
    clients = 12_000
    drawn = draw_distinct(
        ragged([[1]] * clients), 5, count=5, stream=stream, clients=np.arange(clients)
    )
    assert np.array_equal(np.sort(drawn, axis=1), np.tile([-1, 0, 2, 3, 4], (clients, 1)))
    assert (drawn[:, 4] == -1).all()
    for place in range(4):
        counts = np.bincount(drawn[:, place], minlength=5)[[0, 2, 3, 4]]
        assert np.all(np.abs(counts - clients / 4) < 4.5 * (clients * 3 / 16) ** 0.5)
    alone = draw_distinct(ragged([[1]]), 5, count=5, stream=stream, clients=np.array([77]))
    assert np.array_equal(alone[0], drawn[77])


def test_what_cannot_be_drawn_is_refused() -> None:
    stream = Streams.from_seed(0).stream("negatives")
    sets, one = ragged([[0, 4]]), np.zeros(1, dtype=np.int64)

    def draw(**asked: object) -> None:
        wanted = {"n_items": 5, "stream": stream, "round": 0, "clients": one, **asked}
        draw_negatives(sets, Ragged.empty(1), **wanted)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match="negatives"):
        draw(per_positive=0)
    with pytest.raises(ConfigError, match="items"):
        draw(n_items=2**22 + 1)
    with pytest.raises(ValueError, match="outside"):
        draw(n_items=4)
    with pytest.raises(ValueError, match="another number of clients"):
        draw(clients=np.arange(2))
