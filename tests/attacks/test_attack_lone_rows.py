"""Rows of single clients inside a sum: grouped and decoded where they follow, else left alone."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.families.sums.decoded import Decoded
from attacks.families.sums.round_sums import RoundSums
from attacks.families.sums.sum_decoding import decode
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.fixedpoint import FixedPoint

STARS = np.arange(1.0, 6.0)
HALF_STARS = np.arange(0.5, 5.25, 0.5)
WIDE = FixedPoint()
LAMBDA = 0.05


class Planted:
    """Clients with some items each that nobody else rated, and the rows of these."""

    def __init__(
        self,
        sizes: list[int],
        *,
        width: int,
        seed: int,
        levels: FloatArray = STARS,
        size: float = 0.5,
        ratings: FloatArray | None = None,
        codec: FixedPoint = WIDE,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.users = rng.uniform(-size, size, (len(sizes), width))
        total = sum(sizes)
        order = rng.permutation(total)
        self.owner: IntArray = np.repeat(np.arange(len(sizes)), sizes)[order]
        drawn = rng.choice(levels, total) if ratings is None else ratings
        self.ratings: FloatArray = drawn[order]
        self.vectors = rng.uniform(-size, size, (total, width))
        self.levels = levels
        self.codec = codec
        own = self.users[self.owner]
        residuals = self.ratings - (own * self.vectors).sum(axis=1)
        self.sent = -residuals[:, None] * own + LAMBDA * self.vectors

    def decoded(self, sent: FloatArray | None = None) -> Decoded:
        values = self.codec.decode(self.codec.encode(self.sent if sent is None else sent))
        return decode(
            RoundSums(
                items=np.arange(len(values)),
                counts=np.ones(len(values), dtype=np.int64),
                rows=LAMBDA * self.vectors - values,
                vectors=self.vectors,
                levels=self.levels,
                resolution=self.codec.resolution,
            )
        )


def groups_of(found: Decoded) -> list[list[int]]:
    """Places of the rows of each pseudonym that is certain."""
    groups = defaultdict(list)
    for (who, row), (_, certain) in found.ties.items():
        if certain:
            groups[who].append(row)
    return list(groups.values())


def named(found: Decoded) -> dict[int, float]:
    """Ratings that are certain, by place."""
    told = {row: rating for (_, row), (rating, certain) in found.ties.items() if certain}
    return {row: rating for row, rating in told.items() if not np.isnan(rating)}


def assert_true(found: Decoded, planted: Planted) -> None:
    """Every group is of one client, every rating and vector that is certain is right."""
    for group in groups_of(found):
        assert len(np.unique(planted.owner[group])) == 1
    for row, rating in named(found).items():
        assert planted.ratings[row] == rating
    for who in found.solved:
        rows = [row for of, row in found.ties if of == who]
        own = planted.users[planted.owner[rows[0]]]
        (entry,) = found.entries[who]
        assert np.linalg.norm(entry.vector - own) <= entry.error + 1e-12


@pytest.mark.claim("certain-is-right")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=12),
    width=st.integers(1, 20),
    seed=st.integers(0, 10_000),
    size=st.sampled_from([0.005, 0.5, 2.0]),
    levels=st.sampled_from([STARS, HALF_STARS, STARS[:1]]),
)
def test_every_claim_about_planted_rows_is_true(
    sizes: list[int], width: int, seed: int, size: float, levels: FloatArray
) -> None:
    planted = Planted(sizes, width=width, seed=seed, size=size, levels=levels)
    assert_true(planted.decoded(), planted)


@pytest.mark.parametrize("levels", [STARS, STARS[:1]], ids=["stars", "one level"])
@pytest.mark.parametrize("width", [3, 8, 20])
def test_clients_with_several_such_items_are_recovered_whole(
    width: int, levels: FloatArray
) -> None:
    planted = Planted([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], width=width, seed=3, levels=levels)
    found = planted.decoded()
    assert_true(found, planted)
    assert sorted(map(len, groups_of(found))) == list(range(2, 11))
    assert len(named(found)) == 54
    assert len(found.solved) == 9


def test_a_row_alone_keeps_its_rating() -> None:
    """One row fits every rating with a scale of its own: naming one would be guessing."""
    for seed in range(20):
        found = Planted([1] * 6, width=6, seed=seed).decoded()
        assert not groups_of(found)
        assert not found.solved


@pytest.mark.parametrize("level", STARS)
def test_equal_ratings_are_named_by_the_curvature(level: float) -> None:
    planted = Planted([6, 5, 4], width=6, seed=int(level), ratings=np.full(15, level))
    found = planted.decoded()
    assert len(named(found)) == 15
    assert_true(found, planted)


@pytest.mark.parametrize("level", STARS)
def test_two_readings_of_a_group_name_neither(level: float) -> None:
    """Where rounding blurs the curvature, "all fours" and "all twos" are both possible."""
    coarse = FixedPoint(bits=32, fraction_bits=20, clip=16.0)
    planted = Planted(
        8 * [6], width=6, seed=1, ratings=np.full(48, level), size=0.005, codec=coarse
    )
    found = planted.decoded()
    assert len(groups_of(found)) == 8
    assert not named(found)
    assert not found.solved


def test_values_off_the_scale_are_not_named() -> None:
    """Rows of one client all right, but of no ratings."""
    rng = np.random.default_rng(32)
    for seed in range(20):
        ratings = rng.uniform(1.0, 5.0, 20)
        found = Planted([2] * 10, width=6, seed=seed, ratings=ratings).decoded()
        assert not groups_of(found)


def test_a_coarse_ring_leaves_ratings_open_before_it_gets_them_wrong() -> None:
    """Fewer digits name fewer ratings, none of them falsely."""
    told = []
    for digits in (32, 20, 14, 10, 6):
        codec = FixedPoint(bits=32 if digits < 24 else 64, fraction_bits=digits, clip=16.0)
        count = 0
        for seed in range(6):
            planted = Planted([2, 3, 5], width=6, seed=seed, codec=codec)
            found = planted.decoded()
            assert_true(found, planted)
            count += len(named(found))
        told.append(count)
    assert told[0] == 60
    assert all(more >= fewer for more, fewer in itertools.pairwise(told))
    assert told[-1] == 0


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 1.0])
def test_noised_rows_are_not_recovered(noise: float) -> None:
    planted = Planted([5, 5, 5], width=8, seed=1)
    rng = np.random.default_rng(0)
    found = planted.decoded(planted.sent + noise * rng.standard_normal(planted.sent.shape))
    assert not groups_of(found)


def test_clipped_rows_are_not_recovered() -> None:
    """A clip scales the whole row, the pull towards the public vector included."""
    planted = Planted([6, 6], width=8, seed=2)
    factors = np.array([0.37, 0.81])[planted.owner]
    assert not groups_of(planted.decoded(planted.sent * factors[:, None]))


def test_rows_of_one_dimension_are_left_alone() -> None:
    """All of them lie along one line."""
    assert not groups_of(Planted([4, 4], width=1, seed=0).decoded())


def test_empty_and_zero_rows_are_left_alone() -> None:
    planted = Planted([3], width=5, seed=0)
    planted.vectors[:] = 0.0
    assert not planted.decoded(np.zeros((3, 5))).ties
    assert not Planted([], width=5, seed=0).decoded().ties
