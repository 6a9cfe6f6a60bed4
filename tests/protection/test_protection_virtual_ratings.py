"""The draw of virtual items, and how virtual rows are mixed in between real ones."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import VirtualRatings, VirtualRatingsConfig
from secure_fedrec.protection.cloaks.virtual_ratings import draw_unrated
from secure_fedrec.streams import Stream, Streams, uniform_ranks
from secure_fedrec.uploads import RowBlock, Upload

Rated = list[list[int]]


def block_of(rated: Rated) -> RowBlock:
    """Rated items, without values."""
    rows = [item for items in rated for item in items]
    return RowBlock(
        indptr=np.concatenate([[0], np.cumsum([len(items) for items in rated])]).astype(np.int64),
        rows=np.array(rows, dtype=np.int32),
        values=None,
    )


def draw(
    rated: Rated,
    wanted: list[int],
    n_items: int,
    *,
    clients: list[int] | None = None,
    round_: int = 1,
    stream: Stream | None = None,
) -> Rated:
    """Virtual items of each client."""
    drawn = draw_unrated(
        block_of(rated),
        np.array(range(len(rated)) if clients is None else clients, dtype=np.int64),
        np.array(wanted, dtype=np.int64),
        n_items=n_items,
        stream=Streams.from_seed(1).stream("fakes") if stream is None else stream,
        round_=round_,
    )
    assert drawn.values is None
    return [part.rows.tolist() for part in drawn.split()]


@st.composite
def batches(data: st.DrawFn) -> tuple[Rated, list[int], int, list[int]]:
    n_items = data(st.integers(1, 40))
    items = st.sets(st.integers(0, n_items - 1)).map(sorted)
    rated = data(st.lists(items, min_size=1, max_size=6))
    wanted = [data(st.integers(0, n_items - len(items))) for items in rated]
    distinct = st.lists(
        st.integers(0, 2**40), min_size=len(rated), max_size=len(rated), unique=True
    )
    return rated, wanted, n_items, data(distinct)


@settings(deadline=None)
@given(batches(), st.integers(0, 2**32 - 1))
def test_exactly_as_many_distinct_unrated_items_as_wanted(
    batch: tuple[Rated, list[int], int, list[int]], round_: int
) -> None:
    rated, wanted, n_items, clients = batch
    virtual = draw(rated, wanted, n_items, clients=clients, round_=round_)
    assert [len(items) for items in virtual] == wanted
    for mine, fake in zip(rated, virtual, strict=True):
        assert not set(mine) & set(fake)


@settings(deadline=None)
@given(batches())
def test_a_client_alone_draws_what_it_draws_in_a_batch(
    batch: tuple[Rated, list[int], int, list[int]],
) -> None:
    rated, wanted, n_items, clients = batch
    together = draw(rated, wanted, n_items, clients=clients)
    assert draw(rated, wanted, n_items, clients=clients) == together
    for place, client in enumerate(clients):
        alone = draw([rated[place]], [wanted[place]], n_items, clients=[client])
        assert alone == [together[place]]
    backwards = draw(rated[::-1], wanted[::-1], n_items, clients=clients[::-1])
    assert backwards[::-1] == together


def test_clients_rounds_and_seeds_draw_differently() -> None:
    rated: Rated = [[0, 1]] * 2
    first = draw(rated, [20, 20], 60)
    assert first[0] != first[1]
    assert draw(rated, [20, 20], 60, round_=2) != first
    assert draw(rated, [20, 20], 60, stream=Streams.from_seed(2).stream("fakes")) != first


def subset_counts(size: int, wanted: int, rounds: int) -> list[int]:
    """How often each subset of a client's unrated items is drawn."""
    n_items, rated = 2 * size, list(range(0, 2 * size, 2))
    unrated = list(range(1, 2 * size, 2))
    number = {subset: place for place, subset in enumerate(combinations(unrated, wanted))}
    counts = [0] * len(number)
    batch = 100
    stream = Streams.from_seed(77).stream("fakes")
    for round_ in range(rounds // batch):
        virtual = draw([rated] * batch, [wanted] * batch, n_items, round_=round_, stream=stream)
        for subset in virtual:
            counts[number[tuple(subset)]] += 1
    return counts


@pytest.mark.claim("virtual-items-uniform")
@pytest.mark.parametrize(("size", "wanted"), [(6, 1), (6, 2), (6, 3), (6, 4), (6, 5), (9, 2)])
def test_every_subset_is_equally_likely(size: int, wanted: int) -> None:
    counts = np.array(subset_counts(size, wanted, 6000))
    expected = counts.sum() / len(counts)
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert chi2.sf(statistic, len(counts) - 1) > 1e-4
    assert chi2.cdf(statistic, len(counts) - 1) > 1e-4


@pytest.mark.parametrize("wanted", [3, 15, 16, 27])
def test_every_item_is_equally_likely_over_rounds(wanted: int) -> None:
    room, rounds, batch = 30, 40, 100
    stream = Streams.from_seed(78).stream("fakes")
    counts = np.zeros(room)
    for round_ in range(rounds):
        virtual = draw([[]] * batch, [wanted] * batch, room, round_=round_, stream=stream)
        counts += np.bincount(np.concatenate(virtual), minlength=room)
    share, draws = wanted / room, rounds * batch
    # Without replacement items exclude each other: variance n p (1 - p) m / (m - 1).
    statistic = ((counts - draws * share) ** 2).sum() * (room - 1) / room
    statistic /= draws * share * (1 - share)
    assert chi2.sf(float(statistic), room - 1) > 1e-4
    assert chi2.cdf(float(statistic), room - 1) > 1e-4


class Local:
    """Answers like an algorithm would; values tell client and item, virtual ones are negative."""

    def __init__(self, rated: Rated) -> None:
        self.clients = np.arange(len(rated))
        self.rated = block_of(rated)
        self.asked: list[tuple[str, int]] = []

    @property
    def upload(self) -> Upload:
        raise AssertionError("a cloak makes its own upload")

    def impute(
        self, indptr: IntArray, items: IndexArray, *, method: str, local_steps: int
    ) -> FloatArray:
        self.asked.append((method, local_steps))
        return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)) + 0.5 * (items >= 0)

    def resample_residuals(
        self, indptr: IntArray, items: IndexArray, *, draws: IntArray
    ) -> FloatArray:
        raise AssertionError("hybrid filling asks for no residuals")

    def rows(
        self, indptr: IntArray, items: IndexArray, virtual: BoolArray, ratings: FloatArray
    ) -> FloatArray:
        owners = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        assert np.array_equal(ratings, owners[virtual] + 0.5)
        values = np.stack([owners, items], axis=1).astype(np.float64)
        return np.where(virtual[:, None], -1.0 - values, values)


def cover(
    rated: Rated,
    n_items: int,
    *,
    exempt: BoolArray | None = None,
    round_: int = 1,
    **settings: Any,
) -> tuple[Rated, Rated, FloatArray, Local]:
    """Rows sent by each client, the virtual ones among them, and all values."""
    cloak = VirtualRatings(
        VirtualRatingsConfig(**settings), n_items=n_items, streams=Streams.from_seed(1)
    )
    local = Local(rated)
    nobody = np.zeros(len(rated), dtype=bool)
    cloaked = cloak.cover(local, round_=round_, exempt=nobody if exempt is None else exempt)
    block = cloaked.upload.block
    bounds = list(zip(block.indptr[:-1].tolist(), block.indptr[1:].tolist(), strict=True))
    sent = [block.rows[start:stop].tolist() for start, stop in bounds]
    virtual = [
        block.rows[start:stop][cloaked.virtual[start:stop]].tolist() for start, stop in bounds
    ]
    assert block.values is not None
    assert block.counts is None
    return sent, virtual, block.values, local


def items_of(seed: int, clients: int, n_items: int, most: int) -> Rated:
    rng = np.random.default_rng(seed)
    return [
        sorted(rng.choice(n_items, rng.integers(0, most + 1), replace=False).tolist())
        for _ in range(clients)
    ]


@pytest.mark.claim("row-order-tells-nothing")
@settings(deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.4, 1.0, 1.5, 3.0, 100.0]))
def test_uploads_are_sorted_and_hide_where_the_virtual_rows_are(seed: int, rho: float) -> None:
    n_items = 20
    rated = items_of(seed, 5, n_items, n_items)
    sent, virtual, values, _ = cover(rated, n_items, rho=rho)
    place = 0
    for client, (mine, fake, rows) in enumerate(zip(rated, virtual, sent, strict=True)):
        assert len(fake) == min(int(rho * len(mine)), n_items - len(mine))
        assert rows == sorted(set(mine) | set(fake))
        for row in rows:
            expected = [client, row] if row in mine else [-1.0 - client, -1.0 - row]
            assert values[place].tolist() == expected
            place += 1
    assert place == len(values)


def test_the_whole_complement_is_sent_once_the_draw_is_capped() -> None:
    rated = [[0, 2, 4, 5, 6, 9], [1], list(range(10)), []]
    sent, virtual, _, _ = cover(rated, 10, rho=3.0)
    assert sent[0] == list(range(10))
    assert virtual[0] == [1, 3, 7, 8]
    assert len(virtual[1]) == 3
    assert virtual[2:] == [[], []]
    cloak = VirtualRatings(VirtualRatingsConfig(rho=3.0), n_items=10, streams=Streams.from_seed(1))
    counts = np.array([len(items) for items in rated])
    assert cloak.capped(counts).tolist() == [0, 2]
    rows, fakes = cloak.expected_rows(counts)
    assert fakes.tolist() == [len(items) for items in virtual]
    assert rows.tolist() == [len(items) for items in sent]


def test_exempt_clients_keep_their_uploads() -> None:
    rated = items_of(5, 6, 30, 10)
    exempt = np.array([True, False, False, True, False, False])
    sent, virtual, _, _ = cover(rated, 30, exempt=exempt)
    _, everybody, _, _ = cover(rated, 30)
    for client in range(6):
        if exempt[client]:
            assert (sent[client], virtual[client]) == (rated[client], [])
        else:
            assert virtual[client] == everybody[client]  # and nobody else's draw moved


def test_sticky_items_stay_and_fresh_ones_change() -> None:
    rated = items_of(6, 4, 50, 12)
    fresh = [cover(rated, 50, round_=round_)[1] for round_ in (1, 2, 9)]
    sticky = [cover(rated, 50, round_=round_, sticky=True)[1] for round_ in (1, 2, 9)]
    assert sticky[0] == sticky[1] == sticky[2]
    assert fresh[0] != fresh[1] != fresh[2] != fresh[0]


def test_nothing_wanted_nothing_added() -> None:
    rated = items_of(7, 4, 30, 8)
    sent, virtual, _, local = cover(rated, 30, rho=0.0)
    assert sent == rated
    assert virtual == [[]] * 4
    assert local.asked == []


@pytest.mark.parametrize(
    ("filling", "methods"),
    [
        ("hybrid", ["average", "average", "average", "predicted", "predicted"]),
        ("average", ["average"] * 5),
        ("predicted", ["predicted"] * 5),
    ],
)
def test_fillings_follow_the_round(filling: str, methods: list[str]) -> None:
    asked = [
        cover([[1], [2]], 20, round_=round_, filling=filling, predict_after=2, local_steps=7)[3]
        for round_ in range(1, 6)
    ]
    assert [local.asked for local in asked] == [[(method, 7)] for method in methods]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"rho": -0.1}, "protection.rho"),
        ({"rho": float("inf")}, "protection.rho"),
        ({"rho": float("nan")}, "protection.rho"),
        ({"filling": "none"}, "protection.filling"),
        ({"predict_after": -1}, "protection.predict_after"),
        ({"local_steps": 0}, "protection.local_steps"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        VirtualRatingsConfig(**settings)
    assert refusal.value.key == key


@pytest.mark.parametrize(("items", "rated", "rho"), [(50, 10, 1.0), (50, 10, 3.5), (4000, 6, 1.0)])
def test_items_are_the_first_distinct_ranks_of_the_stream(
    items: int, rated: int, rho: float
) -> None:
    """By the definition, one client and one rank after the other."""
    streams, rng = Streams.from_seed(4), np.random.default_rng(5)
    own = [np.sort(rng.choice(items, rated + extra, replace=False)) for extra in range(9)]
    block = RowBlock(
        indptr=np.cumsum([0, *map(len, own)]),
        rows=np.concatenate(own).astype(np.int32),
        values=None,
    )
    wanted = np.minimum((rho * block.lengths).astype(np.int64), items - block.lengths)
    stream = streams.stream("fakes")
    drawn = draw_unrated(block, np.arange(9), wanted, n_items=items, stream=stream, round_=2)
    for client, (mine, count) in enumerate(zip(own, wanted.tolist(), strict=True)):
        free = np.setdiff1d(np.arange(items), mine)
        fewer = count > len(free) // 2
        words = stream.words(2, np.array([client]), np.array([40 * items]), np.zeros(1, np.int64))
        ranks = uniform_ranks(words, np.full(len(words), len(free)))
        first = list(dict.fromkeys(ranks.tolist()))[: len(free) - count if fewer else count]
        expected = np.setdiff1d(free, free[first]) if fewer else np.sort(free[first])
        found = drawn.rows[drawn.indptr[client] : drawn.indptr[client + 1]]
        assert found.tolist() == expected.tolist()
