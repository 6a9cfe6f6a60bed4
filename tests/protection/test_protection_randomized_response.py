"""Two-stage randomized response: frequencies, permanence, and what exempt clients send."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import RandomizedResponse, RandomizedResponseConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock, Upload

N_CLIENTS, N_ITEMS = 40, 50


class Local:
    """Remembers the draws that choose residuals; a row's value is its item, negative if virtual."""

    def __init__(self, clients: IntArray, rated: RowBlock) -> None:
        self.clients, self.rated = clients, rated
        self.draws: list[int] = []

    @property
    def upload(self) -> Upload:
        raise AssertionError("a cloak makes its own upload")

    def impute(
        self, indptr: IntArray, items: IndexArray, *, method: str, local_steps: int
    ) -> FloatArray:
        raise AssertionError("randomized response imputes no rating")

    def resample_residuals(
        self, indptr: IntArray, items: IndexArray, *, draws: IntArray
    ) -> FloatArray:
        assert len(draws) == len(items) == indptr[-1]
        assert np.all(draws >= 0)
        self.draws += draws.tolist()
        return items.astype(np.float64)

    def rows(
        self, indptr: IntArray, items: IndexArray, virtual: BoolArray, ratings: FloatArray
    ) -> FloatArray:
        assert np.array_equal(items[virtual], ratings)
        return np.where(virtual, -1.0 - items, items)[:, None]


@pytest.fixture(scope="module")
def rated() -> BoolArray:
    return np.asarray(np.random.default_rng(1).random((N_CLIENTS, N_ITEMS)) < 0.4)


def reported(
    cloak: RandomizedResponse,
    rated: BoolArray,
    round_: int,
    *,
    clients: IntArray | None = None,
    exempt: BoolArray | None = None,
    draws: list[int] | None = None,
) -> tuple[BoolArray, BoolArray]:
    """Which items were sent, and which of them virtually: bool[B, n_items] each."""
    owners, items = np.nonzero(rated)
    size = len(rated)
    block = RowBlock(
        indptr=np.searchsorted(owners, np.arange(size + 1)),
        rows=items.astype(np.int32),
        values=None,
    )
    local = Local(np.arange(size) if clients is None else clients, block)
    nobody = np.zeros(size, dtype=bool)
    cloaked = cloak.cover(local, round_=round_, exempt=nobody if exempt is None else exempt)
    if draws is not None:
        draws += local.draws
    got = cloaked.upload.block
    assert got.values is not None
    expected = np.where(cloaked.virtual, -1.0 - got.rows, got.rows)
    assert got.values[:, 0].tolist() == expected.tolist()
    sent = np.zeros((size, N_ITEMS), dtype=bool)
    sent[np.repeat(np.arange(size), got.lengths), got.rows] = True
    assert sent.sum() == len(got.rows)
    for part in got.split():
        assert np.all(np.diff(part.rows) > 0)
    virtual = np.zeros_like(sent)
    virtual[np.repeat(np.arange(size), got.lengths), got.rows] = cloaked.virtual
    assert np.array_equal(virtual, sent & ~rated)
    return sent, virtual


def cloak_of(*, seed: int = 1, **settings: float) -> RandomizedResponse:
    return RandomizedResponse(
        RandomizedResponseConfig(**settings), n_items=N_ITEMS, streams=Streams.from_seed(seed)
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"permanent": 0.5, "report_one": 0.75, "report_zero": 0.25},
        {"permanent": 0.0, "report_one": 0.9, "report_zero": 0.0},
        {"permanent": 1.0, "report_one": 0.6, "report_zero": 0.1},
    ],
)
def test_items_are_reported_as_often_as_promised(
    rated: BoolArray, settings: dict[str, float]
) -> None:
    config = RandomizedResponseConfig(**settings)
    sums = np.zeros(2)
    trials = np.zeros(2)
    for seed in range(12):  # permanent bits are drawn once: vary the seed, not the round
        sent, _ = reported(cloak_of(seed=seed, **settings), rated, 1)
        sums += [sent[rated].sum(), sent[~rated].sum()]
        trials += [rated.sum(), (~rated).sum()]
    for count, total, share in zip(
        sums, trials, (config.report_rated, config.report_unrated), strict=True
    ):
        deviation = np.sqrt(total * share * (1 - share))
        if deviation == 0:
            assert count == total * share
        else:
            assert abs(count - total * share) < norm.isf(1e-5) * deviation


def test_permanent_bits_stay_and_answers_change(rated: BoolArray) -> None:
    certain = cloak_of(permanent=0.4, report_one=1.0, report_zero=0.0)
    first, _ = reported(certain, rated, 1)
    assert all(np.array_equal(reported(certain, rated, round_)[0], first) for round_ in (2, 3, 99))
    flipped = (first != rated).mean()
    assert 0.15 < flipped < 0.25  # half of the replaced bits
    noisy = cloak_of(permanent=0.0, report_one=0.7, report_zero=0.3)
    assert not np.array_equal(reported(noisy, rated, 1)[0], reported(noisy, rated, 2)[0])


def test_averaging_rounds_reveals_the_permanent_bits_only(rated: BoolArray) -> None:
    cloak = cloak_of(permanent=0.5, report_one=0.8, report_zero=0.2)
    share = np.mean([reported(cloak, rated, round_)[0] for round_ in range(1, 120)], axis=0)
    certain = cloak_of(permanent=0.5, report_one=1.0, report_zero=0.0)
    bits, _ = reported(certain, rated, 1)
    assert np.array_equal(share > 0.5, bits)
    assert not np.array_equal(bits, rated)


def test_a_client_alone_reports_what_it_reports_in_a_batch(rated: BoolArray) -> None:
    cloak = cloak_of()
    together: list[int] = []
    sent, _ = reported(cloak, rated, 4, draws=together)
    draws: list[int] = []
    for client in range(N_CLIENTS):
        alone: list[int] = []
        mine = reported(
            cloak, rated[client : client + 1], 4, clients=np.array([client]), draws=alone
        )[0]
        assert np.array_equal(mine[0], sent[client])
        draws += alone
    assert draws == together


def test_exempt_clients_send_exactly_their_ratings(rated: BoolArray) -> None:
    exempt = np.arange(N_CLIENTS) % 3 == 0
    sent, virtual = reported(cloak_of(), rated, 1, exempt=exempt)
    assert np.array_equal(sent[exempt], rated[exempt])
    assert not virtual[exempt].any()
    assert np.array_equal(sent[~exempt], reported(cloak_of(), rated, 1)[0][~exempt])


def test_expected_rows_follow_the_probabilities(rated: BoolArray) -> None:
    cloak, config = cloak_of(), RandomizedResponseConfig()
    counts = rated.sum(axis=1)
    rows, virtual = cloak.expected_rows(counts)
    exact = (N_ITEMS - counts) * config.report_unrated
    assert np.all((virtual >= exact) & (virtual < exact + 1))
    exact = counts * config.report_rated
    assert np.all((rows - virtual >= exact) & (rows - virtual < exact + 1))
    assert len(cloak.capped(counts)) == 0


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"permanent": -0.1}, "protection.permanent"),
        ({"permanent": 1.1}, "protection.permanent"),
        ({"report_one": float("nan")}, "protection.report_one"),
        ({"report_zero": 2.0}, "protection.report_zero"),
        ({"report_one": 0.3, "report_zero": 0.3}, "protection.report_one"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        RandomizedResponseConfig(**settings)
    assert refusal.value.key == key
