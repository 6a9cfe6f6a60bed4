"""The code that ``lanes`` generates: sums of products in vectors of eight, for the compiler."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

_LANES = 8
_INDEX = ir.IntType(64)
_VECTOR = ir.VectorType(ir.FloatType(), _LANES)


def _typed(
    _: Any, left: Any, left_row: Any, first: Any, right: Any, right_row: Any, start: Any, size: Any
) -> Any:
    """Of ``size`` values, a multiple of eight, from a place of a row of each array."""
    for array in (left, right):
        if (array.dtype, array.ndim, array.layout) != (types.float32, 2, "C"):
            raise TypingError(f"rows of contiguous float32 are added up, not of {array}")
    index = types.int64
    return types.float32(left, index, index, right, index, index, index), _generate


sum_of_products: Any = intrinsic(_typed)
"""``(left, left_row, first, right, right_row, start, size)``: the sum as a float32."""


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
