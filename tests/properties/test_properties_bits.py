"""Bits are compared as bits: the sign of a zero counts, and NaN is equal to itself."""

import math

import numpy as np
import pytest
import torch

from secure_fedrec.properties.lossless.differences import different_bits
from secure_fedrec.properties.split.trials import same_bits

QUIET, OTHER = np.array([0x7FF8_0000_0000_0000, 0x7FF8_0000_0000_0001], dtype=np.uint64).view(float)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (0.0, -0.0, False),
        (QUIET, QUIET, True),
        (QUIET, OTHER, False),
        (1.0, 1.0, True),
        (1.0, math.nextafter(1.0, 2.0), False),
        (math.inf, -math.inf, False),
    ],
    ids=["zeros", "one NaN", "two NaN", "equal", "one ulp", "infinities"],
)
def test_values_are_the_same_if_their_bits_are(left: float, right: float, same: bool) -> None:
    tables = [np.array([[1.0, each], [each, 1.0]]) for each in (left, right)]
    where = different_bits("table, row", *tables)
    assert where is None if same else str(where).startswith("table, row 0, factor 1: ")
    ours, theirs = ({"name": torch.from_numpy(table)} for table in tables)
    assert same_bits(ours, theirs) is same


def test_other_names_shapes_or_types_are_no_same_bits() -> None:
    one = {"name": torch.zeros(2)}
    for other in (
        {"other": torch.zeros(2)},
        {"name": torch.zeros(2), "more": torch.zeros(2)},
        {"name": torch.zeros(2, 1)},
        {"name": torch.zeros(2, dtype=torch.int32)},
    ):
        assert not same_bits(one, other)
    assert different_bits("row", np.zeros((2, 1)), np.zeros((1, 2))) is not None


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3)])
@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.int8,
        torch.uint16,
        torch.int64,
        torch.bfloat16,
        torch.double,
        torch.cdouble,
    ],
    ids=str,
)
def test_every_type_of_number_has_bits(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    zeros, ones = (made(shape, dtype=dtype) for made in (torch.zeros, torch.ones))
    assert same_bits({"name": ones}, {"name": ones.clone()})
    assert same_bits({"name": ones}, {"name": zeros}) is (not ones.numel())


def test_a_view_has_the_bits_that_it_shows() -> None:
    conjugate = torch.randn(2, 3, dtype=torch.cfloat).conj()
    for view in (conjugate, conjugate.imag, conjugate.t(), torch.randn(4).expand(2, 4)[:, ::2]):
        shown = view.resolve_conj().resolve_neg().contiguous()
        assert same_bits({"name": view}, {"name": shown})
        assert not same_bits({"name": view}, {"name": shown + 1})
