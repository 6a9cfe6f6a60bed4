"""Deductions from counts against every possible world, and figures of row claims by hand."""

import itertools
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.families.sums.participation import Verdicts, deduce
from attacks.scoring.single_rows import AnonymousRowClaim, row_figures
from attacks.view.knowledge import Knowledge
from attacks.view.presence import Presence
from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.traits import BARE
from secure_fedrec.wire import BlockStore, Truth

# --- deductions by brute force --------------------------------------------------------------------


def presence_of(present: BoolArray, bits: BoolArray, possible: BoolArray) -> Presence:
    return Presence(
        rounds=tuple(range(1, len(present) + 1)),
        clients=np.arange(present.shape[1]),
        present=present,
        counts=present.astype(np.int64) @ bits.astype(np.int64),
        visible=np.ones_like(bits),
        possible=possible,
    )


EXACT = Knowledge(
    stack=asdict(replace(BARE, uploads="dense")), rows={"rows": "items", "row_sets": "rated"}
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    clients=st.integers(1, 7), rounds=st.integers(1, 8), items=st.integers(1, 3), seed=st.integers()
)
def test_deductions_hold_in_every_world_that_fits_the_counts(
    clients: int, rounds: int, items: int, seed: int
) -> None:
    """Against all 2^n assignments of bits; nothing that differs between two may be settled."""
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
        assert not (verdicts.rated[:, item] & ~always).any()
        assert not (~verdicts.possible[:, item] & ever).any()


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


# --- figures by hand ------------------------------------------------------------------------------


def table_of(triples: list[tuple[int, int, float]]) -> RatingTable:
    return RatingTable.from_columns(
        name="tiny",
        n_clients=4,
        n_items=6,
        clients=np.array([u for u, _, _ in triples], dtype=np.int64),
        items=np.array([i for _, i, _ in triples], dtype=np.int64),
        ratings=np.array([r for _, _, r in triples], dtype=np.float64),
        scale=RatingScale(1.0, 5.0, 1.0),
        client_labels=np.arange(4, dtype=np.int64),
        item_labels=np.arange(6, dtype=np.int64),
    )


def ints(*values: int) -> IntArray:
    return np.array(values, dtype=np.int64)


def test_row_claims_by_hand() -> None:
    """Items 0, 1 of client 0, 2 of client 1, 3 of client 2; 4 of clients 0 and 1; 5 of client 3."""
    train = table_of(
        [
            (0, 0, 5.0),
            (0, 1, 3.0),
            (0, 4, 2.0),
            (1, 2, 4.0),
            (1, 4, 1.0),
            (2, 3, 1.0),
            (3, 5, 2.0),
        ]
    )
    vectors = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    store = BlockStore(None)
    store.append(1, "private-user_vectors", {"values": vectors})
    claim = AnonymousRowClaim(
        round=1,
        items=ints(0, 1, 2, 3, 4),
        groups=ints(0, 0, 0, 1, 2),
        ratings=np.array([5.0, 2.0, 4.0, 0.0, 2.0]),
        named=np.array([True, True, True, False, True]),
        vectors=np.array([[3.0, 4.0], [0.0, -2.0], [9.0, 9.0]]),
        solved=np.array([True, True, False]),
        owners=ints(0, -1, 3),
    )

    def figures(cohort: IntArray, corrupted: frozenset[int]) -> dict[str, float | None]:
        return row_figures((claim,), {1: cohort}, train, Truth(store), corrupted)[0]

    everybody = figures(ints(0, 1, 2, 3), frozenset())
    assert everybody["tail_row_precision"] == pytest.approx(4 / 5)  # item 4 has two raters
    assert everybody["tail_rating_accuracy"] == pytest.approx(2 / 4)
    assert everybody["tail_rating_share"] == pytest.approx(2 / 5)  # of items 0, 1, 2, 3 and 5
    assert everybody["tail_group_accuracy"] == pytest.approx(1 / 3)  # 0 and 1, not 0 and 2, 1 and 2
    assert everybody["tail_owner_accuracy"] == pytest.approx(2 / 4)  # items 0, 1; not 2, not 4
    assert everybody["tail_vector_share"] == pytest.approx(1 / 2)
    # Without client 1 in the round, item 2 has no rater and item 4 has one.
    smaller = figures(ints(0, 2, 3), frozenset())
    assert smaller["tail_row_precision"] == pytest.approx(4 / 5)
    assert smaller["tail_rating_accuracy"] == pytest.approx(2 / 4)  # items 0 and 4
    assert smaller["tail_rating_share"] == pytest.approx(2 / 5)  # of items 0, 1, 3, 4 and 5
    # Nobody attacks himself: rows of client 0 are left out, and beside it item 4 has one rater.
    own = figures(ints(0, 1, 2, 3), frozenset({0}))
    assert own["tail_row_precision"] == pytest.approx(3 / 3)
    assert own["tail_rating_accuracy"] == pytest.approx(1 / 2)
    assert own["tail_rating_share"] == pytest.approx(1 / 4)


def test_no_row_claimed_is_no_figure() -> None:
    train = table_of([(0, 0, 5.0), (1, 0, 3.0)])
    nothing = AnonymousRowClaim(
        round=1,
        items=ints(),
        groups=ints(),
        ratings=np.empty(0),
        named=np.empty(0, dtype=bool),
        vectors=np.empty((0, 2)),
        solved=np.empty(0, dtype=bool),
        owners=ints(),
    )
    figures, gains = row_figures(
        (nothing,), {1: ints(0, 1)}, train, Truth(BlockStore(None)), frozenset()
    )
    assert set(figures.values()) == {None}
    assert gains == {"tail_rating_lift": None}
    alone = row_figures((nothing,), {1: ints(0)}, train, Truth(BlockStore(None)), frozenset())[0]
    assert alone["tail_rating_share"] == 0.0  # one item has one rater, and it was not named
