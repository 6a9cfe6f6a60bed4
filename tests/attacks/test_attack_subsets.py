"""Subset sums by halves find what trying every subset finds."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.families.linkage import fingerprints
from attacks.families.sums import subsets
from attacks.families.sums.subsets import (
    MOST_ROWS,
    MOST_SUBSETS,
    find_subset,
    first_subsets,
    table_of_subsets,
)
from secure_fedrec.fixedpoint import FixedPoint

CODEC = FixedPoint(bits=48, fraction_bits=20, clip=16.0)


def search(
    rng: np.random.Generator, rows: int, count: int, *, shift: int = 0, halves: bool = True
) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """What is found, and the subset that was summed, among rows at scattered places."""
    limit = CODEC.largest
    words = CODEC.from_integers(rng.integers(-limit, limit, (rows + 5, 4)))
    members = sorted(rng.permutation(rows + 5)[:rows].tolist())
    planted = tuple(sorted(rng.permutation(members)[:count].tolist()))
    total = CODEC.to_integers(words[list(planted)]).sum(axis=0) + shift
    summed = CODEC.from_integers(total)
    found = find_subset(
        members,
        count,
        prints=fingerprints(words, CODEC).tolist(),
        words=words,
        total=summed,
        target=(int(fingerprints(words[list(planted)], CODEC).sum()) + shift) % 2**64,
        codec=CODEC,
        halves=halves,
    )
    return found, planted


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


@pytest.mark.parametrize(("rows", "halves"), [(MOST_ROWS + 1, True), (MOST_ROWS, False)])
def test_too_many_subsets_are_not_tried(rows: int, halves: bool) -> None:
    found, _ = search(np.random.default_rng(1), rows, rows // 2, halves=halves)
    assert found is None


def test_halves_agree_with_trying_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subsets, "MOST_SUBSETS", 0)
    prints = np.random.default_rng(2).integers(0, 8, 11).tolist()  # small: many subsets match
    for target in range(20):
        found = subsets._by_halves(prints, 4, target)
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
        alone = find_subset(
            range(size),
            count,
            prints=own.tolist(),
            words=np.zeros((size, 1), dtype=np.uint64),
            total=np.zeros(1, dtype=np.uint64),
            target=int(target),
            codec=CODEC,
            halves=False,
        )
        assert (None if place < 0 else tuple(table[place].tolist())) == alone


def test_a_table_holds_what_is_tried_one_by_one() -> None:
    assert table_of_subsets(100, 2) is not None
    assert table_of_subsets(101, 2) is None  # beyond MOST_SUBSETS
    assert table_of_subsets(MOST_SUBSETS, MOST_SUBSETS - 1) is None  # few, but long
