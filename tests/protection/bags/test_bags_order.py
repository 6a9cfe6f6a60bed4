"""A bag lies in the ascending order of its vectors' values, whatever they arrived in."""

import numpy as np
import pytest

from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.bags import canonical_order

CODEC = FixedPoint()


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_vectors_lie_in_the_order_of_all_their_values(width: int) -> None:
    rng, tied = np.random.default_rng(width), 0
    for count in (*range(6), *[40] * 20, 300):
        values = rng.integers(-2, 2, size=(count, width)).astype(np.float64)
        words = CODEC.encode(values)
        ordered = canonical_order(words, CODEC)
        assert CODEC.decode(ordered).tolist() == sorted(values.tolist())
        assert canonical_order(words[rng.permutation(count)], CODEC).tobytes() == ordered.tobytes()
        tied += count - len(np.unique(values[:, :2], axis=0)) if count else 0
    assert tied > 200  # vectors that the first values do not tell apart
