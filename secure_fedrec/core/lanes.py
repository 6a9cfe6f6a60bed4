"""Products of rows in eight parallel sums, which processors add at once.

The order of a sum determines its last bits, so a compiler must add one number after the other. Here
the order is fixed to suit processors, in vectors of eight: lane j sums the places j, j + 8, and so
on; then halves are added to halves. That is the same for every batch and every processor, which may
split a vector but not reorder it.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.compiler import Late


@compiled_loop
def dot(
    left: npt.NDArray[np.float32],
    left_row: int,
    right: npt.NDArray[np.float32],
    right_row: int,
    start: int,
) -> Any:
    """``left[left_row] . right[right_row, start:]``, over the width of ``left``.

    Args:
        left: float32[p, d], contiguous.
        left_row: below p; nothing is checked.
        right: float32[q, start + d or more], contiguous.
        right_row: below q.
        start: place in a row of ``right``.

    Returns:
        float32.
    """
    width = left.shape[1]
    whole = width - width % 8
    total = _sum_of_products(left, left_row, 0, right, right_row, start, whole)
    for k in range(whole, width):
        total += left[left_row, k] * right[right_row, start + k]
    return total


def _vector_sums() -> Any:
    from secure_fedrec.core.lane_sums import sum_of_products  # noqa: PLC0415 - brings the compiler

    return sum_of_products


_sum_of_products: Any = Late(_vector_sums, _vector_sums)
