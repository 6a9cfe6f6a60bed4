"""Division of sums by counts: exactly rounded, and refused where the sums cannot be."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier import AverageStep, rounded_quotients

VALUES = FixedPoint(bits=32, fraction_bits=8, clip=1000.0)
COUNTS = FixedPoint(bits=16, fraction_bits=0, clip=1.0)
ROWS, WIDTH = 6, 2
STEP = AverageStep(codec=VALUES, counts=COUNTS, width=WIDTH)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(st.integers(-(2**61), 2**61) | st.integers(-20, 20), st.integers(1, 9)),
        min_size=1,
        max_size=20,
    )
)
def test_quotients_are_rounded_to_nearest_with_ties_to_even(
    pairs: list[tuple[int, int]],
) -> None:
    sums, counts = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
    expected = [round(Fraction(a, b)) for a, b in pairs]
    assert rounded_quotients(sums, counts).tolist() == expected


def test_the_step_refuses_sums_that_cannot_be() -> None:
    table = VALUES.encode(np.full(ROWS * WIDTH, 999.0))
    none = COUNTS.encode(np.zeros(ROWS))
    one = COUNTS.encode(np.ones(ROWS))
    gradients = VALUES.encode(np.full(ROWS * WIDTH, -2.0))
    assert STEP(table, (VALUES.encode(np.zeros(ROWS * WIDTH)), none)).tolist() == table.tolist()
    for sums, error in (
        ((gradients, none), ProtocolError),
        ((gradients, COUNTS.encode(-np.ones(ROWS))), ProtocolError),
        ((gradients[1:], one), ProtocolError),
        ((gradients,), ProtocolError),
        ((gradients, one), EncodingError),  # 1001 is beyond the clip
    ):
        with pytest.raises(error):
            STEP(table, sums)
    with pytest.raises(ConfigError, match="fraction_bits"):
        AverageStep(codec=VALUES, counts=VALUES, width=2)
    with pytest.raises(ConfigError, match="width"):
        AverageStep(codec=VALUES, counts=COUNTS, width=0)
