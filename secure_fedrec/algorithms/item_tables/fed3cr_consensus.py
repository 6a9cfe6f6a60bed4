"""Fed3CR's dense half of a local step, compiled: the consensus, without the score.

With G the client's copy of the global table, P its own, W = W_n and C = G W, a step on batch loss
+ alpha L_con + beta L_com takes six products of m d^2: C, the correlation C^T P, its gradient at
both tables, and that at W and G. They run tile by tile, so that a tile stays in the cache, and a
tile is small enough that a linear algebra library takes no threads for it (up to d = 512, where it
is one row): a client's numbers do not depend on its batch or on the number of threads. Weighted
sums over rows are products with a vector, tile by tile as well; all else is loops over rows.

The regularisers follow the paper's prose (eq. 15 to 18), with cosines and columns of length 1,
without which gradient steps at the rates of the tables diverge:

    a_i = cos(p, P_i)    c_i = cos(g W, C_i)      p, g: mean rows of P, G over the rated items
    L_con = -sum_i softmax(a)_i log softmax(c)_i
    L_com = mean over d x d of (column a of C . column b of P / their lengths)^2

Gradients are exact, through the prototypes and both distributions.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from secure_fedrec.algorithms.item_tables.local import SingleArray, tails
from secure_fedrec.core.arrays import IndexArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.core.lanes import dot

_TILE = 5 * 2**15
"""Multiplications in a product of one tile: five eighths of the size at which BLAS libraries use
threads.
"""
_CELLS = 5 * 2**10
"""Values of a tile: the same limit, for products with a vector."""
TINY = np.float32(1e-12)
"""Added to squared lengths, so that a row of zeros has the direction 0."""

G, P, U, GW, PULL_P, PULL_GW, NORMS_C, NORMS_P, UNIT_P, ONES, PULL_U = range(11)
"""Lines of the scratch."""
W, CORRELATION, PULL_W, PULL_CORRELATION, PRODUCT, W_TURNED, PULL_TURNED = range(7)
"""Its squares."""


class Asked(NamedTuple):
    """The parts of a step besides the score.

    Args:
        transfer: a matrix W; without it C is G.
        consistent: the consistency.
        complementary: the complementarity.
    """

    transfer: bool
    consistent: Any
    complementary: Any


class Work(NamedTuple):
    """Scratch of one thread, float32 unless told; reused from client to client.

    Args:
        common: [m, d], C.
        cosines: [6, m], c, a, and one over the lengths of C_i and P_i; then ``consistency``'s.
        scores: [2, m], (C_i + P_i) . u; what pulls on it.
        slots: int64[m], which row of ``seen`` stands for an item; -1 for none.
        items: int32[m], item of each row of ``seen``, ascending.
        places: int64[batch], row of ``seen`` of each example.
        seen: [2, m, d], what the score sees and moves; then what it pulls on rows of C and P.
        tiles: [3, t, d], pulls on a tile of C, P and G; before, squares of a tile.
        column: [t], a number for each row of a tile.
        squares: [7, d, d], by ``W`` and those behind it: W, the correlation, what pulls on either,
            a product; W^T, and the pull on the correlation turned: products with them take less
            time.
        lines: [11, d], by ``G`` and those behind it: prototypes g, p; u, or zeros; g W; pulls on p
            and g W; square lengths of the columns of C and P; p of length 1; ones; the pull on u.
        units: [L + 1, widest], values between phi's layers.
        pulls: [L + 1, widest], what pulls on them.
    """

    common: SingleArray
    cosines: SingleArray
    slots: IntArray
    items: IndexArray
    places: IntArray
    seen: SingleArray
    scores: SingleArray
    tiles: SingleArray
    column: SingleArray
    squares: SingleArray
    lines: SingleArray
    units: SingleArray
    pulls: SingleArray


def work_for(n_items: int, rank: int, batch: int, sizes: IntArray) -> Work:
    """Scratch for tables of ``n_items`` rows of ``rank`` values and a phi of some sizes."""
    layers = (len(sizes), max(int(sizes.max()), 2 * rank))
    tile = min(max(min(_TILE // rank, _CELLS) // rank, 1), n_items)
    shapes = {
        "common": (n_items, rank),
        "cosines": (6, n_items),
        "seen": (2, n_items, rank),
        "scores": (2, n_items),
        "tiles": (3, tile, rank),
        "column": (tile,),
        "squares": (PULL_TURNED + 1, rank, rank),
        "lines": (PULL_U + 1, rank),
        "units": layers,
        "pulls": layers,
    }
    work = Work(
        slots=np.full(n_items, -1),
        items=np.zeros(n_items, dtype=np.int32),
        places=np.zeros(batch, dtype=np.int64),
        **{name: np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()},
    )
    work.lines[ONES] = 1
    return work


@compiled_loop
def prototype(table: SingleArray, items: IntArray, mean: SingleArray) -> None:
    """``mean`` of the rows of some items."""
    mean[:] = 0
    for item in items:
        for factor in range(len(mean)):
            mean[factor] += table[item, factor]
    for factor in range(len(mean)):
        mean[factor] /= np.float32(len(items))


@compiled_loop
def _squares(rows: SingleArray, squares: SingleArray) -> None:
    values, squared = rows.reshape(-1), squares.reshape(-1)
    for place in range(len(values)):
        squared[place] = values[place] * values[place]


@compiled_loop
def _similar(
    rows: SingleArray,
    squares: SingleArray,
    ones: SingleArray,
    centre: SingleArray,
    cosines: SingleArray,
    inverses: SingleArray,
) -> None:
    """Cosines with a centre, and one over the rows' lengths."""
    np.dot(rows, centre, cosines)
    one, square = np.float32(1), np.float32(0)
    for value in centre:
        square += value * value
    shrink = one / np.float32(math.sqrt(square + TINY))
    np.dot(squares, ones, inverses)
    for row in range(len(rows)):
        # Not ``/``: its check for a divisor of 0 prevents vector instructions.
        inverses[row] = np.divide(one, np.sqrt(inverses[row] + TINY))
        cosines[row] = cosines[row] * inverses[row] * shrink


@compiled_loop
def look(table: SingleArray, own: SingleArray, asked: Asked, work: Work) -> SingleArray:
    """C, its scores, and values that both regularisers need."""
    transfer, consistent, complementary = asked
    squares, lines, cosines, scores = work.squares, work.lines, work.cosines, work.scores
    common = work.common if transfer else table
    tile = work.tiles.shape[1]
    squares[CORRELATION] = 0
    lines[NORMS_C : NORMS_P + 1] = 0
    for first in range(0, len(table), tile):
        last = min(first + tile, len(table))
        rows, mine = common[first:last], own[first:last]
        if transfer:
            np.dot(table[first:last], squares[W], rows)
        of_own = work.column[: last - first]
        np.dot(rows, lines[U], scores[0, first:last])
        np.dot(mine, lines[U], of_own)
        scores[0, first:last] += of_own
        squared, own_squared = work.tiles[0, : last - first], work.tiles[1, : last - first]
        if consistent or complementary:
            _squares(rows, squared)
            _squares(mine, own_squared)
        if consistent:
            c, a = cosines[0, first:last], cosines[1, first:last]
            _similar(rows, squared, lines[ONES], lines[GW], c, cosines[2, first:last])
            _similar(mine, own_squared, lines[ONES], lines[P], a, cosines[3, first:last])
        if complementary:
            np.dot(rows.T, mine, squares[PRODUCT])
            _add_up(squares[CORRELATION], squares[PRODUCT])
            ones = of_own
            ones[:] = 1
            lines[NORMS_C] += np.dot(ones, squared)
            lines[NORMS_P] += np.dot(ones, own_squared)
    return common


@compiled_loop
def consistency(alpha: np.float32, cosines: SingleArray) -> Any:
    """Alpha L_con, its gradients at the cosines c and a, and sums for the centres' gradients.

    Row 0 and 1 of ``cosines`` become alpha dL / dc_i / |C_i| and alpha dL / da_i / |P_i|; their old
    values go to rows 2 and 3, times the same factors over the lengths. So the gradient at x of the
    cosine of x and centre z is ``row01 z / |z| - row23 x``.

    Returns:
        alpha L_con.
    """
    scratch = np.empty(cosines.shape[1], dtype=np.int32)
    tails(cosines[0], cosines[4], scratch)
    tails(cosines[1], cosines[5], scratch)
    one, total, own_total = np.float32(1), 0.0, 0.0
    for row in range(2):
        like, powers = cosines[row], cosines[4 + row]
        for item in range(len(like)):
            inverse = np.divide(one, powers[item])
            powers[item] = inverse if like[item] > 0 else powers[item]
    for item in range(cosines.shape[1]):
        total += cosines[4, item]
        own_total += cosines[5, item]
    scale, own_scale = np.float32(1 / total), np.float32(1 / own_total)
    summed = 0.0
    for item in range(cosines.shape[1]):
        summed += cosines[5, item] * cosines[0, item]
    mean = np.float32(summed / own_total)
    for item in range(cosines.shape[1]):
        c, a = cosines[0, item], cosines[1, item]
        own_share = cosines[5, item] * own_scale
        slope = alpha * (cosines[4, item] * scale - own_share) * cosines[2, item]
        own_slope = alpha * own_share * (mean - c) * cosines[3, item]
        cosines[0, item], cosines[2, item] = slope, slope * c * cosines[2, item]
        cosines[1, item], cosines[3, item] = own_slope, own_slope * a * cosines[3, item]
    return alpha * (math.log(total) - mean)


@compiled_loop
def complementarity(beta: np.float32, squares: SingleArray, lines: SingleArray) -> Any:
    """Beta L_com; its gradient at the raw correlation and at the columns' square lengths.

    ``squares[PULL_CORRELATION]`` gets D, for gradients P D^T of C and C D of P. The lines of square
    lengths get factors of the columns of C and P, for further gradients.

    Returns:
        beta L_com.
    """
    width, one = squares.shape[1], np.float32(1)
    inverses = one / np.sqrt(lines[NORMS_C] + TINY)
    own_inverses = one / np.sqrt(lines[NORMS_P] + TINY)
    weight = np.float32(2) * beta / np.float32(width * width)
    for row in range(width):
        for column in range(width):
            scale = inverses[row] * own_inverses[column]
            value = squares[CORRELATION, row, column] * scale
            squares[PULL_CORRELATION, row, column] = weight * value * scale
            squares[PRODUCT, row, column] = value * value
    total, lines[NORMS_P] = 0.0, 0
    for row in range(width):
        lines[NORMS_C, row] = dot(squares[PRODUCT], row, lines, ONES, 0)
        total += lines[NORMS_C, row]
        for column in range(width):
            lines[NORMS_P, column] += squares[PRODUCT, row, column]
    for column in range(width):
        lines[NORMS_C, column] *= -weight * inverses[column] * inverses[column]
        lines[NORMS_P, column] *= -weight * own_inverses[column] * own_inverses[column]
    turn(squares[PULL_CORRELATION], squares[PULL_TURNED])
    return beta * total / (width * width)


@compiled_loop
def turn(square: SingleArray, turned: SingleArray) -> None:
    """``turned`` is the transpose."""
    for row in range(len(square)):
        for column in range(len(square)):
            turned[column, row] = square[row, column]


@compiled_loop
def _add_up(total: SingleArray, more: SingleArray) -> None:
    values, others = total.reshape(-1), more.reshape(-1)
    for place in range(len(values)):
        values[place] += others[place]


class _Pulls(NamedTuple):
    """Gradient at the n rows of a tile of C or P, without the part from the other table.

    Args:
        slopes: float32[n], of the rows' cosines.
        shrinks: float32[n], beside those, what the rows' lengths pull.
        errors: float32[n], of the rows' scores.
        centre: float32[d], of length 1.
        vector: float32[d], u.
        columns: float32[d], what the lengths of columns pull.
    """

    slopes: SingleArray
    shrinks: SingleArray
    errors: SingleArray
    centre: SingleArray
    vector: SingleArray
    columns: SingleArray


@compiled_loop
def _add(found: _Pulls, rows: SingleArray, pulls: SingleArray) -> None:
    for row in range(len(rows)):
        slope, error, shrink = found.slopes[row], found.errors[row], found.shrinks[row]
        for k in range(rows.shape[1]):
            along = slope * found.centre[k] + error * found.vector[k]
            pulls[row, k] += along + (found.columns[k] - shrink) * rows[row, k]


@compiled_loop
def _move(found: _Pulls, rows: SingleArray, pulls: SingleArray, rate: np.float32) -> None:
    for row in range(len(rows)):
        slope, error, shrink = found.slopes[row], found.errors[row], found.shrinks[row]
        for k in range(rows.shape[1]):
            along = slope * found.centre[k] + error * found.vector[k]
            along += (found.columns[k] - shrink) * rows[row, k]
            rows[row, k] -= rate * (pulls[row, k] + along)


@compiled_loop
def _pull_tile(
    common: SingleArray, own: SingleArray, first: int, asked: Asked, rate: np.float32, work: Work
) -> None:
    """Gradients at the rows of one tile of C, in ``tiles[0]``; the rows of P are moved."""
    lines, count, width = work.lines, len(common), common.shape[1]
    pulls, own_pulls = work.tiles[0, :count], work.tiles[1, :count]
    if asked.complementary:
        np.dot(own, work.squares[PULL_TURNED], pulls)
        np.dot(common, work.squares[PULL_CORRELATION], own_pulls)
    else:
        pulls[:] = 0
        own_pulls[:] = 0
    for row in range(count):
        slot = work.slots[first + row]
        if slot >= 0:
            for factor in range(width):
                pulls[row, factor] += work.seen[0, slot, factor]
                own_pulls[row, factor] += work.seen[1, slot, factor]
    slopes = work.cosines[0, first : first + count]
    own_slopes = work.cosines[1, first : first + count]
    shrinks = work.cosines[2, first : first + count]
    own_shrinks = work.cosines[3, first : first + count]
    errors = work.scores[1, first : first + count]
    lines[PULL_U] += np.dot(errors, own) + np.dot(errors, common)
    if asked.consistent:
        lines[PULL_P] += np.dot(own_slopes, own)
        lines[PULL_GW] += np.dot(slopes, common)
    ours = _Pulls(own_slopes, own_shrinks, errors, lines[UNIT_P], lines[U], lines[NORMS_P])
    shared = _Pulls(slopes, shrinks, errors, lines[GW], lines[U], lines[NORMS_C])
    _add(shared, common, pulls)
    _move(ours, own, own_pulls, rate)


@compiled_loop
def _descend(rows: SingleArray, pulls: SingleArray, rate: np.float32, decay: np.float32) -> None:
    """``rows -= rate (pulls + decay rows)``."""
    values, slopes = rows.reshape(-1), pulls.reshape(-1)
    for place in range(len(values)):
        values[place] -= rate * (slopes[place] + decay * values[place])


@compiled_loop
def pull(
    table: SingleArray,
    own: SingleArray,
    asked: Asked,
    rate: np.float32,
    decay: np.float32,
    work: Work,
) -> None:
    """Move the rows of both tables by their gradients; sum up those of W, the centres and u.

    ``lines[GW]`` and ``lines[UNIT_P]`` hold the directions, of length 1, of g W and of p.
    """
    squares, tile = work.squares, work.tiles.shape[1]
    common = work.common if asked.transfer else table
    squares[PULL_W] = 0
    work.lines[PULL_P : PULL_GW + 1] = 0
    work.lines[NORMS_P] += decay
    work.lines[PULL_U] = 0
    for first in range(0, len(table), tile):
        last = min(first + tile, len(table))
        rows, mine = table[first:last], own[first:last]
        _pull_tile(common[first:last], mine, first, asked, rate, work)
        pulls = work.tiles[0, : last - first]
        if asked.transfer:
            np.dot(rows.T, pulls, squares[PRODUCT])
            _add_up(squares[PULL_W], squares[PRODUCT])
            back = work.tiles[2, : last - first]
            np.dot(pulls, squares[W_TURNED], back)
            _descend(rows, back, rate, decay)
        else:
            _descend(rows, pulls, rate, decay)
