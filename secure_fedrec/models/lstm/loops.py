"""Inner loops of an LSTM over characters, forward and backward, in single precision.

A client has a handful of short texts. A library then spends most of its time between the operations
of the LSTM. Here one compiled loop passes over the time steps, and the input's part of a step is a
row of a table with as many rows as there are characters. Gates are stored in the order of torch:
input, forget, cell, output. Sums run in the order of the loops: equal arguments give equal bits.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.core.compiled import compiled_loop

SingleArray: TypeAlias = npt.NDArray[np.float32]
"""Values of a model in single precision."""

_ONE, _HALF, _ZERO = np.float32(1.0), np.float32(0.5), np.float32(0.0)
# tanh x = x P(x^2) / Q(x^2): the twelfth convergent of Lambert's continued fraction
# x / (1 + x^2 / (3 + x^2 / (5 + ...))). All terms are positive, so nothing cancels.
_TOP = tuple(map(np.float32, (316234143225, 45831035250, 1571349780, 18378360, 75075, 78)))
_BELOW = tuple(
    map(np.float32, (316234143225, 151242416325, 9820936125, 192972780, 1351350, 3003, 1))
)
_BOUND = np.float32(8.0)  # tanh is 1 up to 2.3e-7 here


@compiled_loop
def tanh(x: np.float32) -> np.float32:
    """Hyperbolic tangent, off by less than 1e-6; made of operations that run eight at a time."""
    x = _BOUND if x > _BOUND else x  # in this order NaN stays NaN
    x = -_BOUND if x < -_BOUND else x
    y = x * x
    top = _TOP[0] + y * (_TOP[1] + y * (_TOP[2] + y * (_TOP[3] + y * (_TOP[4] + y * _TOP[5]))))
    below = _BELOW[0] + y * (
        _BELOW[1]
        + y * (_BELOW[2] + y * (_BELOW[3] + y * (_BELOW[4] + y * (_BELOW[5] + y * _BELOW[6]))))
    )
    # numpy's division has no check for zero, which would stop the compiler from pairing lanes.
    return np.divide(x * top, below)  # type: ignore[no-any-return]


@compiled_loop
def lstm_forward(
    table: SingleArray,
    codes: IntArray,
    recurrent: SingleArray,
    gates: SingleArray,
    hidden: SingleArray,
    cell: SingleArray,
    bent: SingleArray,
) -> None:
    """All steps of a batch, from states of zero.

    Args:
        table: [codes, 4, H], the input's part of the gates for each character.
        codes: int64[T, B].
        recurrent: [H, 4H], recurrent weights, transposed; H is a multiple of 4.
        gates: [T, B, 4, H], written: the gates after their nonlinearities.
        hidden: [T + 1, B, H], written from step 1 on; step 0 holds zeros.
        cell: [T + 1, B, H], likewise.
        bent: [T, B, H], written: tanh of the cell.
    """
    steps, batch, width = bent.shape
    for step in range(steps):
        now = gates[step]
        for row in range(batch):
            code = codes[step, row]
            for gate in range(4):
                for unit in range(width):
                    now[row, gate, unit] = table[code, gate, unit]
        _add_product(hidden[step], recurrent, now.reshape(batch, 4 * width))
        before, after, last = cell[step], cell[step + 1], bent[step]
        found = hidden[step + 1]
        for row in range(batch):
            for unit in range(width):
                now[row, 0, unit] = _HALF * tanh(_HALF * now[row, 0, unit]) + _HALF
            for unit in range(width):
                now[row, 1, unit] = _HALF * tanh(_HALF * now[row, 1, unit]) + _HALF
            for unit in range(width):
                now[row, 2, unit] = tanh(now[row, 2, unit])
            for unit in range(width):
                now[row, 3, unit] = _HALF * tanh(_HALF * now[row, 3, unit]) + _HALF
            for unit in range(width):
                kept = now[row, 1, unit] * before[row, unit]
                after[row, unit] = kept + now[row, 0, unit] * now[row, 2, unit]
            for unit in range(width):
                last[row, unit] = tanh(after[row, unit])
            for unit in range(width):
                found[row, unit] = now[row, 3, unit] * last[row, unit]


@compiled_loop
def lstm_backward(
    codes: IntArray,
    recurrent: SingleArray,
    gates: SingleArray,
    cell: SingleArray,
    bent: SingleArray,
    outputs: SingleArray,
    inputs: SingleArray,
    table: SingleArray,
) -> None:
    """Gradients of the values that ``lstm_forward`` computed.

    Args:
        codes: int64[T, B].
        recurrent: [4H, H], recurrent weights.
        gates: [T, B, 4, H], as written.
        cell: [T + 1, B, H], as written.
        bent: [T, B, H], as written.
        outputs: [T, B, H], gradient of the hidden states.
        inputs: [T, B, 4, H], written: gradient of the gates before their nonlinearities.
        table: [codes, 4, H], the gradient of the table is added to it.
    """
    steps, batch, width = bent.shape
    of_hidden = np.zeros((batch, width), dtype=np.float32)
    of_cell = np.zeros((batch, width), dtype=np.float32)
    for back in range(steps):
        step = steps - 1 - back
        now, found = gates[step], inputs[step]
        before, last, given = cell[step], bent[step], outputs[step]
        for row in range(batch):
            for unit in range(width):
                of_hidden[row, unit] += given[row, unit]
            for unit in range(width):
                leave, curve = now[row, 3, unit], last[row, unit]
                of_cell[row, unit] += of_hidden[row, unit] * leave * (_ONE - curve * curve)
            for unit in range(width):
                enter = now[row, 0, unit]
                found[row, 0, unit] = (
                    of_cell[row, unit] * now[row, 2, unit] * enter * (_ONE - enter)
                )
            for unit in range(width):
                forget = now[row, 1, unit]
                found[row, 1, unit] = (
                    of_cell[row, unit] * before[row, unit] * forget * (_ONE - forget)
                )
            for unit in range(width):
                new = now[row, 2, unit]
                found[row, 2, unit] = of_cell[row, unit] * now[row, 0, unit] * (_ONE - new * new)
            for unit in range(width):
                leave = now[row, 3, unit]
                found[row, 3, unit] = (
                    of_hidden[row, unit] * last[row, unit] * leave * (_ONE - leave)
                )
            for unit in range(width):
                of_cell[row, unit] *= now[row, 1, unit]
            for unit in range(width):
                of_hidden[row, unit] = _ZERO
            code = codes[step, row]
            for gate in range(4):
                for unit in range(width):
                    table[code, gate, unit] += found[row, gate, unit]
        _add_product(found.reshape(batch, 4 * width), recurrent, of_hidden)


@compiled_loop
def _add_product(left: SingleArray, right: SingleArray, total: SingleArray) -> None:
    """``total += left @ right``, two rows at a time; [B, K], [K, N], [B, N], K a multiple of 4."""
    pairs = len(left) - len(left) % 2
    for row in range(0, pairs, 2):
        for inner in range(0, left.shape[1], 4):
            a0, a1 = left[row, inner], left[row, inner + 1]
            a2, a3 = left[row, inner + 2], left[row, inner + 3]
            b0, b1 = left[row + 1, inner], left[row + 1, inner + 1]
            b2, b3 = left[row + 1, inner + 2], left[row + 1, inner + 3]
            for place in range(right.shape[1]):
                w0, w1 = right[inner, place], right[inner + 1, place]
                w2, w3 = right[inner + 2, place], right[inner + 3, place]
                total[row, place] += (a0 * w0 + a1 * w1) + (a2 * w2 + a3 * w3)
                total[row + 1, place] += (b0 * w0 + b1 * w1) + (b2 * w2 + b3 * w3)
    for row in range(pairs, len(left)):
        for inner in range(0, left.shape[1], 4):
            a0, a1 = left[row, inner], left[row, inner + 1]
            a2, a3 = left[row, inner + 2], left[row, inner + 3]
            for place in range(right.shape[1]):
                w0, w1 = right[inner, place], right[inner + 1, place]
                w2, w3 = right[inner + 2, place], right[inner + 3, place]
                total[row, place] += (a0 * w0 + a1 * w1) + (a2 * w2 + a3 * w3)
