"""Loops over sets of items: ranks among what a client has not rated become items."""

from random import Random

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from secure_fedrec.core.item_sets import list_unrated


@st.composite
def catalogues(draw: st.DrawFn) -> tuple[int, list[tuple[set[int], set[int], bool]]]:
    """Items of the catalogue; of each client rated items, chosen ranks, and if others count."""
    n_items = draw(st.one_of(st.integers(1, 9), st.integers(60, 70), st.integers(120, 200)))
    items = st.sets(st.integers(0, n_items - 1), max_size=n_items)
    clients = []
    for _ in range(draw(st.integers(0, 4))):
        rated = draw(items)
        room = n_items - len(rated)
        ranks = draw(st.sets(st.integers(0, room - 1), max_size=room)) if room else set()
        clients.append((rated, ranks, draw(st.booleans())))
    return n_items, clients


def _edges() -> tuple[int, list[tuple[set[int], set[int], bool]]]:
    """Rooms that end with a word of 64 ranks, just before and after one, and no room at all."""
    rated = [
        set(range(0, 2 * (130 - room), 2)) if room > 65 else set(range(130 - room))
        for room in (128, 127, 65, 64, 63, 1, 0)
    ]
    return 130, [
        (own, {0, 129 - len(own)} if len(own) < 130 else set(), flip)
        for own in rated
        for flip in (False, True)
    ]


@settings(deadline=None, max_examples=200)
@example(_edges(), Random(1))
@given(catalogues(), st.randoms(use_true_random=False))
def test_ranks_among_the_unrated_become_items(
    catalogue: tuple[int, list[tuple[set[int], set[int], bool]]], random: Random
) -> None:
    n_items, clients = catalogue
    expected: list[int] = []
    chosen: list[int] = []
    for rated, ranks, inverted in clients:
        unrated = [item for item in range(n_items) if item not in rated]
        expected += [item for rank, item in enumerate(unrated) if (rank in ranks) != inverted]
        order = list(ranks)
        random.shuffle(order)
        chosen += order
    items = np.full(len(expected), -1, dtype=np.int32)
    list_unrated(
        np.array(chosen, dtype=np.int32),
        _bounds([len(ranks) for _, ranks, _ in clients]),
        np.array([n_items - len(rated) for rated, _, _ in clients], dtype=np.int64),
        np.array([inverted for _, _, inverted in clients], dtype=bool),
        _bounds([len(rated) for rated, _, _ in clients]),
        np.array([item for rated, _, _ in clients for item in sorted(rated)], dtype=np.int32),
        items,
    )
    assert items.tolist() == expected


def _bounds(lengths: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([0, *np.cumsum(lengths)], dtype=np.int64)
