"""Subset sums by halves find what trying every subset finds."""

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.families.linkage import fingerprints
from attacks.families.sums import subsets
from attacks.families.sums.subsets import (
    MOST_ROWS,
    first_subsets,
    subset_by_halves,
    table_of_subsets,
)
from secure_fedrec.fixedpoint import FixedPoint

CODEC = FixedPoint(bits=48, fraction_bits=20, clip=16.0)


def search(
    rng: np.random.Generator, rows: int, count: int, *, shift: int = 0
) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """What is found, and the subset that was summed."""
    limit = CODEC.largest
    words = CODEC.from_integers(rng.integers(-limit, limit, (rows, 4)))
    planted = tuple(sorted(rng.permutation(rows)[:count].tolist()))
    total = CODEC.to_integers(words[list(planted)]).sum(axis=0) + shift
    summed = CODEC.from_integers(total)
    target = fingerprints(words[list(planted)], CODEC).sum(dtype=np.uint64) + np.uint64(shift)
    found = subset_by_halves((fingerprints(words, CODEC), words), count, (target, summed), CODEC)
    return None if found is None else tuple(found.tolist()), planted


@given(seed=st.integers(0, 2**32), rows=st.integers(0, MOST_ROWS), data=st.data())
@settings(deadline=None, max_examples=60)
def test_the_planted_subset_is_found(seed: int, rows: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, rows))
    found, planted = search(np.random.default_rng(seed), rows, count)
    assert found is not None and tuple(sorted(found)) == planted


def test_a_sum_of_no_subset_finds_none() -> None:
    rng = np.random.default_rng(3)
    for rows in (4, 12, MOST_ROWS):
        assert search(rng, rows, rows // 2, shift=1)[0] is None


def test_too_many_subsets_are_not_tried() -> None:
    found, _ = search(np.random.default_rng(1), MOST_ROWS + 1, MOST_ROWS // 2)
    assert found is None


def test_halves_agree_with_trying_all() -> None:
    prints = np.random.default_rng(2).integers(0, 8, 11, dtype=np.uint64)  # many subsets match
    for target in range(20):
        found = subsets._by_halves(prints, 4, np.uint64(target))
        expected = [s for s in combinations(range(11), 4) if sum(prints[p] for p in s) == target]
        assert sorted(tuple(each.tolist()) for each in found) == sorted(expected)


@given(seed=st.integers(0, 2**32), size=st.integers(0, 9), data=st.data())
@settings(deadline=None, max_examples=60)
def test_many_sums_are_searched_as_each_alone(seed: int, size: int, data: st.DataObject) -> None:
    """Among rows that are alike, too: then several subsets fit, and the first one is taken."""
    count = data.draw(st.integers(0, size))
    rng = np.random.default_rng(seed)
    prints = rng.integers(0, data.draw(st.sampled_from([3, 2**64])), (20, size), dtype=np.uint64)
    table = table_of_subsets(size, count)
    assert table is not None
    targets = np.array([each[table[-1]].sum(dtype=np.uint64) for each in prints])
    targets[::2] += np.uint64(1)
    found = first_subsets(prints, targets, table)
    for own, target, place in zip(prints, targets, found.tolist(), strict=True):
        fits = (own[list(each)].sum(dtype=np.uint64) == target for each in table)
        assert place == next((number for number, fit in enumerate(fits) if fit), -1)


def test_a_table_holds_what_is_tried_one_by_one() -> None:
    assert table_of_subsets(100, 2) is not None
    assert table_of_subsets(101, 2) is None  # beyond MOST_SUBSETS
    long = table_of_subsets(600, 599)  # few, but long: not kept
    assert long is not None and long.shape == (600, 599)
