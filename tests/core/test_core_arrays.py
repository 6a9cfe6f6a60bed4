"""A masked array is refused at every door to a sum, and a plain one is not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.arrays import unmasked
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.errors import FedRecError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.dp.clipping import Contribution, Part
from secure_fedrec.protection.masking import MeanLayout, SumLayout
from secure_fedrec.protection.means.arrays import SharedArrays, select
from secure_fedrec.protection.session.statement import state_hash

CODEC = FixedPoint(bits=32, fraction_bits=8, clip=100.0)


def table_of(ratings: Any) -> RatingTable:
    pair = np.arange(2)
    columns: dict[str, Any] = dict.fromkeys(
        ("clients", "items", "client_labels", "item_labels"), pair
    )
    return RatingTable(
        name="t", n_clients=2, n_items=2, ratings=ratings, scale=RatingScale(1, 99, 1), **columns
    )


DOORS: dict[str, Callable[[Any], object]] = {
    "ring": CODEC.encode,
    "sum": SumLayout(bits=32, length=2, clients=2, largest=100).encode,
    "mean": lambda values: MeanLayout(codec=CODEC, length=2, clients=2).encode(values),
    "clip": lambda values: Contribution(parts=(Part(name="a", size=2),)).join({"a": values}),
    "arrays": lambda values: SharedArrays(shapes={"a": (2,)}).join({"a": values}),
    "model": lambda values: select({"a": values}, shared=("*",), private=()),
    "table": table_of,
    "state": lambda values: state_hash({"a": values}),
}


@pytest.mark.claim("masked-arrays")
@pytest.mark.parametrize("door", DOORS)
def test_what_a_mask_hides_is_in_no_sum(door: str) -> None:
    values = np.array([1, 99], dtype=np.int64 if door == "sum" else np.float64)
    DOORS[door](values)
    for mask in ([False, True], np.ma.nomask):
        with pytest.raises(FedRecError, match=r"is a numpy\.ma\.MaskedArray, and what its mask"):
            DOORS[door](np.ma.array(values, mask=mask))


def test_lists_are_arrays() -> None:
    assert unmasked([1, 2], "it").tolist() == [1, 2]
