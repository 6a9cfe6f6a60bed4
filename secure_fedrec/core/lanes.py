"""Products of rows in eight sums side by side, which processors add at once.

The order of a sum decides its last bits, so a compiler that may not change it adds one number after
the other. Here the order is laid down as processors like it, in vectors of eight: lane j sums the
places j, j + 8, and so on; then halves are added to halves. That is the same for every batch and on
every processor, which may split a vector, never reorder it.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from secure_fedrec.core.compiled import released_loop

_LANES = 8
_INDEX = ir.IntType(64)
_VECTOR = ir.VectorType(ir.FloatType(), _LANES)


@released_loop
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


def _typed(
    _: Any, left: Any, left_row: Any, first: Any, right: Any, right_row: Any, start: Any, size: Any
) -> Any:
    """Of ``size`` values, a multiple of eight, from a place of a row of each array."""
    for array in (left, right):
        if (array.dtype, array.ndim, array.layout) != (types.float32, 2, "C"):
            raise TypingError(f"rows of contiguous float32 are added up, not of {array}")
    index = types.int64
    return types.float32(left, index, index, right, index, index, index), _generate


_sum_of_products: Any = intrinsic(_typed)


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    left, left_row, first, right, right_row, start, size = arguments
    of_left, _, _, of_right, _, _, _ = signature.args
    one = _row(context, builder, of_left, left, left_row, first)
    other = _row(context, builder, of_right, right, right_row, start)
    zeros = ir.Constant(_VECTOR, [0.0] * _LANES)
    total = cgutils.alloca_once_value(builder, zeros)  # type: ignore[no-untyped-call]
    steps = builder.udiv(size, ir.Constant(_INDEX, _LANES))
    with cgutils.for_range(builder, steps) as loop:
        place = builder.mul(loop.index, ir.Constant(_INDEX, _LANES))
        product = builder.fmul(_load(builder, one, place), _load(builder, other, place))
        builder.store(builder.fadd(builder.load(total), product), total)
    lanes = builder.load(total)
    for half in (4, 2, 1):
        lanes = builder.fadd(*(_part(builder, lanes, begin, half) for begin in (0, half)))
    return builder.extract_element(lanes, ir.Constant(ir.IntType(32), 0))


def _row(context: Any, builder: Any, kind: Any, array: Any, row: Any, first: Any) -> Any:
    """Pointer to a place of a row."""
    made = context.make_array(kind)(context, builder, array)
    width = builder.extract_value(made.shape, 1)
    return builder.gep(made.data, [builder.add(builder.mul(row, width), first)])


def _load(builder: Any, row: Any, place: Any) -> Any:
    pointer = builder.bitcast(builder.gep(row, [place]), _VECTOR.as_pointer())
    return builder.load(pointer, align=4)


def _part(builder: Any, lanes: Any, begin: int, size: int) -> Any:
    """Consecutive lanes of a vector."""
    chosen = ir.Constant(ir.VectorType(ir.IntType(32), size), [*range(begin, begin + size)])
    return builder.shuffle_vector(lanes, ir.Constant(lanes.type, ir.Undefined), chosen)
