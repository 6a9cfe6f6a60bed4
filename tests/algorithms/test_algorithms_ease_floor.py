"""The floor on pairs that EASE publishes."""

from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.ease import EASE, EASEConfig
from secure_fedrec.blocks import BlockLayout
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate

ITEMS = 3
SUMS = np.array([5.0, 2.0, 3.0, 4.0, 1.0, 3.0])  # pairs 00, 01, 02, 11, 12, 22


def after(config: EASEConfig) -> tuple[EASE, PublicState]:
    algorithm = EASE(config, 8, ITEMS)
    layout = BlockLayout(algorithm.blocks(ITEMS), FixedPoint(fraction_bits=0))
    place = layout["co-occurrences"]
    ring = place.codec.from_integers(SUMS.astype(np.int64)).reshape(place.rows, place.width)
    counts = np.full(layout.rows, 8)
    whole = Aggregate(ring=ring, counts=counts, codec=layout.codec, layout=layout)
    before = algorithm.initial_public(ITEMS, Streams.from_seed(1))
    return algorithm, algorithm.server_step(before, whole)


@pytest.mark.parametrize(
    ("floor", "published"),
    [(0, SUMS), (1, SUMS), (3, [5, 0, 3, 4, 0, 3]), (4, [5, 0, 0, 4, 0, 0]), (6, [0] * 6)],
)
def test_pairs_of_fewer_clients_are_left_out(floor: int, published: FloatArray) -> None:
    _, public = after(EASEConfig(pair_floor=floor))
    np.testing.assert_array_equal(public.extras["co-occurrences"], published)


def test_weights_are_of_what_is_left() -> None:
    algorithm, public = after(EASEConfig(pair_floor=3, solved_at="server"))
    weights = public.extras["weights"]
    assert "co-occurrences" not in public.extras
    assert weights[0, 1] == weights[1, 0] == weights[1, 2] == 0.0
    assert weights[0, 2] > 0
    assert algorithm.n_items == len(weights)


@pytest.mark.parametrize("other", [{"sketch": 2}, {"largest_norm": 1.0}, {"rounds": 2}])
def test_a_floor_needs_counts_of_one_round(other: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        EASEConfig(pair_floor=2, **other)
    assert caught.value.key == "algorithm.pair_floor"


def test_a_floor_goes_with_a_choice_of_the_shrinkage() -> None:
    assert EASEConfig(pair_floor=2, rounds=2, candidates=(0.5, 1.0)).pair_floor == 2


def test_what_a_floor_makes_singular_says_so() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.pair_floor.*raise it above"):
        after(EASEConfig(pair_floor=6, shrinkage=0.0, solved_at="server"))
