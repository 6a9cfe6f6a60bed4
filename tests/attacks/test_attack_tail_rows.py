"""Rows of single clients inside a sum: grouped and decoded where they follow, else left alone."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.families.sums.tail_rows import RowGroups, group_rows
from attacks.scoring.single_rows import pairs_within
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.fixedpoint import FixedPoint

STARS = np.arange(1.0, 6.0)
HALF_STARS = np.arange(0.5, 5.25, 0.5)
WIDE = FixedPoint()
LAMBDA = 0.05


class Planted:
    """Clients with some tail items each, and the rows they put into the sum."""

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

    def groups(self, sent: FloatArray | None = None) -> RowGroups:
        words = self.codec.encode(self.sent if sent is None else sent)
        rows = self.codec.decode(words) - LAMBDA * self.vectors
        return group_rows(rows, self.vectors, self.levels, resolution=self.codec.resolution)


def assert_true(found: RowGroups, planted: Planted) -> None:
    """Every group is of one client, every named rating and solved vector is right."""
    for group in range(len(found.solved)):
        members = np.flatnonzero(found.groups == group)
        assert len(np.unique(planted.owner[members])) == 1
        if found.solved[group]:
            own = planted.users[planted.owner[members[0]]]
            assert np.linalg.norm(found.vectors[group] - own) < 1e-3 * np.linalg.norm(own)
    np.testing.assert_array_equal(found.ratings[found.named], planted.ratings[found.named])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=12),
    width=st.integers(3, 20),
    seed=st.integers(0, 10_000),
    size=st.sampled_from([0.005, 0.5, 2.0]),
    levels=st.sampled_from([STARS, HALF_STARS]),
)
def test_every_claim_about_planted_rows_is_true(
    sizes: list[int], width: int, seed: int, size: float, levels: FloatArray
) -> None:
    planted = Planted(sizes, width=width, seed=seed, size=size, levels=levels)
    assert_true(planted.groups(), planted)


@pytest.mark.parametrize("width", [3, 8, 20])
def test_clients_with_several_tail_items_are_recovered_whole(width: int) -> None:
    planted = Planted([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], width=width, seed=3)
    found = planted.groups()
    assert_true(found, planted)
    for client, size in enumerate(range(1, 11)):
        groups = np.unique(found.groups[planted.owner == client])
        assert len(groups) == 1
        assert found.solved[groups[0]] == (size > 1)
    assert found.named.sum() == 54


def test_a_row_alone_keeps_its_rating() -> None:
    """One row fits every rating with a scale of its own: naming one would be guessing."""
    for seed in range(20):
        found = Planted([1] * 6, width=6, seed=seed).groups()
        assert not found.named.any()
        assert not found.solved.any()
        np.testing.assert_array_equal(found.groups, np.arange(6))


@pytest.mark.parametrize("level", STARS)
def test_equal_ratings_are_named_by_the_curvature(level: float) -> None:
    planted = Planted([6], width=6, seed=int(level), ratings=np.full(6, level))
    found = planted.groups()
    assert found.named.all()
    assert_true(found, planted)


@pytest.mark.parametrize("level", STARS)
def test_two_readings_of_a_group_name_neither(level: float) -> None:
    """Where rounding blurs the curvature, "all fours" and "all twos" are both possible."""
    coarse = FixedPoint(bits=32, fraction_bits=20, clip=16.0)
    planted = Planted([6], width=6, seed=1, ratings=np.full(6, level), size=0.005, codec=coarse)
    found = planted.groups()
    np.testing.assert_array_equal(found.groups, 0)
    assert not found.named.any()
    assert not found.solved.any()


@pytest.mark.parametrize("digits", [32, 15, 13])
def test_values_off_the_scale_are_not_named(digits: int) -> None:
    """Rows of one client all right, but of no ratings: a scale that fits some of them is chance."""
    codec = FixedPoint(bits=64, fraction_bits=digits, clip=16.0)
    rng = np.random.default_rng(digits)
    pairs = 0
    for seed in range(40):
        ratings = rng.uniform(1.0, 5.0, 20)
        found = Planted([2] * 10, width=6, seed=seed, ratings=ratings, codec=codec).groups()
        pairs += int((np.bincount(found.groups) == 2).sum())
        assert not found.named.any()
    assert pairs > 200


def test_a_coarse_ring_leaves_ratings_open_before_it_gets_them_wrong() -> None:
    """Fewer digits name fewer ratings, none of them falsely."""
    named = []
    for digits in (32, 20, 14, 10, 6):
        codec = FixedPoint(bits=32 if digits < 24 else 64, fraction_bits=digits, clip=16.0)
        count = 0
        for seed in range(6):
            planted = Planted([2, 3, 5], width=6, seed=seed, codec=codec)
            found = planted.groups()
            assert_true(found, planted)
            count += int(found.named.sum())
        named.append(count)
    assert named[0] == 60
    assert all(more >= fewer for more, fewer in itertools.pairwise(named))
    assert named[-1] == 0


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 1.0])
def test_noised_rows_are_not_recovered(noise: float) -> None:
    planted = Planted([5, 5, 5], width=8, seed=1)
    rng = np.random.default_rng(0)
    found = planted.groups(planted.sent + noise * rng.standard_normal(planted.sent.shape))
    assert not found.named.any()
    assert len(found.solved) == 15


def test_clipped_rows_are_not_recovered() -> None:
    """A clip scales the whole row, the pull towards the public vector included."""
    planted = Planted([6, 6], width=8, seed=2)
    factors = np.array([0.37, 0.81])[planted.owner]
    assert not planted.groups(planted.sent * factors[:, None]).named.any()


@pytest.mark.parametrize("width", [1, 2])
def test_rows_of_few_dimensions_are_left_alone(width: int) -> None:
    found = Planted([4, 4], width=width, seed=0).groups()
    np.testing.assert_array_equal(found.groups, np.arange(8))
    assert not found.named.any()


def test_empty_and_zero_rows_are_left_alone() -> None:
    nothing = group_rows(np.empty((0, 5)), np.empty((0, 5)), STARS, resolution=WIDE.resolution)
    assert len(nothing.groups) == len(nothing.solved) == 0
    zeros = group_rows(np.zeros((3, 5)), np.ones((3, 5)), STARS, resolution=WIDE.resolution)
    np.testing.assert_array_equal(zeros.groups, np.arange(3))
    assert not zeros.named.any()


@given(st.lists(st.integers(0, 6), max_size=30))
def test_pairs_of_rows_are_those_of_one_group(groups: list[int]) -> None:
    one, other = pairs_within(np.array(groups, dtype=np.int64))
    expected = [
        pair
        for pair in itertools.combinations(range(len(groups)), 2)
        if groups[pair[0]] == groups[pair[1]]
    ]
    assert sorted(zip(one.tolist(), other.tolist(), strict=True)) == expected
