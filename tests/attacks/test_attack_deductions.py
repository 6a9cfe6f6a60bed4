"""Deductions from counts against every possible world."""

import itertools
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.families.sums.participation import Verdicts, deduce
from attacks.view.coalition import Presence
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.traits import BARE

# --- deductions by brute force --------------------------------------------------------------------


def presence_of(present: BoolArray, bits: BoolArray, possible: BoolArray) -> Presence:
    return Presence(
        rounds=tuple(range(1, len(present) + 1)),
        clients=np.arange(present.shape[1]),
        present=present,
        counts=present.astype(np.float64) @ bits.astype(np.float64),
        visible=np.ones_like(bits),
        possible=possible,
    )


EXACT = Knowledge(
    stack=asdict(replace(BARE, uploads="dense")), rows={"rows": "items", "row_sets": "rated"}
)


@pytest.mark.claim("exact-counts")
@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    clients=st.integers(1, 7), rounds=st.integers(1, 8), items=st.integers(1, 3), seed=st.integers()
)
def test_deductions_hold_in_every_world_that_fits_the_counts(
    clients: int, rounds: int, items: int, seed: int
) -> None:
    """Against all 2^n assignments of bits: what is alike in all is settled, and nothing else."""
    rng = np.random.default_rng(abs(seed))
    present = rng.random((rounds, clients)) < 0.6
    bits = rng.random((clients, items)) < 0.4
    possible = bits | (rng.random(bits.shape) < 0.7)
    presence = presence_of(present, bits, possible)
    verdicts: Verdicts = deduce(presence, EXACT)
    assert verdicts.consistent
    worlds = np.array(list(itertools.product([False, True], repeat=clients)))
    for item in range(items):
        fits = (worlds @ present.T.astype(np.int64) == presence.counts[:, item]).all(axis=1)
        fits &= ~(worlds & ~possible[:, item]).any(axis=1)
        always, ever = worlds[fits].all(axis=0), worlds[fits].any(axis=0)
        np.testing.assert_array_equal(verdicts.rated[:, item], always)
        np.testing.assert_array_equal(verdicts.possible[:, item], ever)
    assert verdicts.undecided == 0


def test_large_items_are_left_undecided() -> None:
    """Of two cohorts nothing linear follows; of as few as can be tried all is known."""
    rng = np.random.default_rng(0)
    few, many = np.ones((12, 1), dtype=bool), np.ones((60, 1), dtype=bool)
    for possible, undecided in ((few, 0), (many, 1)):
        present = rng.random((2, len(possible))) < 0.5
        bits = rng.random(possible.shape) < 0.5
        verdicts = deduce(presence_of(present, bits, possible), EXACT)
        assert verdicts.consistent
        assert verdicts.undecided == undecided


def test_cohorts_that_differ_in_one_client_settle_it() -> None:
    """Two-round differencing: all bits of that client, and of nobody else."""
    rng = np.random.default_rng(0)
    present = np.ones((2, 12), dtype=bool)
    present[1, 5] = False
    bits = rng.random((12, 40)) < 0.5
    verdicts = deduce(presence_of(present, bits, np.ones_like(bits)), EXACT)
    np.testing.assert_array_equal(verdicts.rated[5], bits[5])
    np.testing.assert_array_equal(verdicts.possible[5], bits[5])
    others = np.delete(np.arange(12), 5)
    assert not verdicts.rated[others].any()
    assert verdicts.possible[others].all()


def test_a_count_that_no_world_explains_is_noticed() -> None:
    bits = np.ones((3, 2), dtype=bool)
    presence = presence_of(np.ones((1, 3), dtype=bool), bits, ~np.eye(3, 2, dtype=bool))
    verdicts = deduce(presence, EXACT)
    assert not verdicts.consistent
    assert not verdicts.rated.any()
    np.testing.assert_array_equal(verdicts.possible, presence.possible)
