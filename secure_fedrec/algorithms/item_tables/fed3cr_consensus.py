"""Fed3CR's dense half of a local step, compiled: what the consensus costs beside the score.

With G the client's copy of the global table, P its own, W = W_n and C = G W, a step on batch loss
+ alpha L_con + beta L_com takes six products of m d^2: C, the correlation C^T P, its pull on both
tables, and the way back to W and G. They run tile by tile, so that a tile stays in the cache, and a
tile is small enough that a linear algebra library never takes threads for it: a client's numbers
are the same alone, in any batch and on any number of threads. All else is loops over rows.

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

from secure_fedrec.algorithms.item_tables.local import SingleArray
from secure_fedrec.core.arrays import IndexArray, IntArray
from secure_fedrec.core.compiled import released_loop
from secure_fedrec.core.lanes import dot

_TILE = 2**17
"""Multiplications of a product of one tile: half of what BLAS libraries begin to share out at."""
_CELLS = 2**12
"""Values of a tile: as that, for products with a vector."""
_TINY = np.float32(1e-12)
"""Added to squared lengths, so that a row of zeros has a direction, 0."""


class Work(NamedTuple):
    """Scratch of one thread, float32 unless told; reused from client to client.

    Args:
        common: [m, d], C.
        cosines: [6, m], c, a, and one over the lengths of C_i and P_i; then ``consistency``'s.
        slots: int64[m], which row of ``seen`` stands for an item; -1 for none.
        items: int32[m], item of each row of ``seen``, ascending.
        places: int64[batch], row of ``seen`` of each example.
        seen: [2, m, d], what the score sees and moves; then what it pulls on rows of C and P.
        tiles: [3, t, d], pulls on a tile of C, P and G; before, squares of a tile.
        squares: [5, d, d], W, the correlation, the pull on W, that on the correlation, a product.
        lines: [9, d], prototypes g, p, g W; pulls on p and g W; square lengths of the columns of C
            and P; p of length 1; ones.
        units: [L + 1, widest], values between phi's layers.
        pulls: [L + 1, widest], what pulls on them.
    """

    common: SingleArray
    cosines: SingleArray
    slots: IntArray
    items: IndexArray
    places: IntArray
    seen: SingleArray
    tiles: SingleArray
    squares: SingleArray
    lines: SingleArray
    units: SingleArray
    pulls: SingleArray


def work_for(n_items: int, rank: int, batch: int, sizes: IntArray) -> Work:
    """Scratch for tables of ``n_items`` rows of ``rank`` values and a phi of some sizes."""
    layers = (len(sizes), int(sizes.max()))
    shapes = {
        "common": (n_items, rank),
        "cosines": (6, n_items),
        "seen": (2, n_items, rank),
        "tiles": (3, min(max(min(_TILE // rank, _CELLS) // rank, 1), n_items), rank),
        "squares": (5, rank, rank),
        "lines": (9, rank),
        "units": layers,
        "pulls": layers,
    }
    work = Work(
        slots=np.full(n_items, -1),
        items=np.zeros(n_items, dtype=np.int32),
        places=np.zeros(batch, dtype=np.int64),
        **{name: np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()},
    )
    work.lines[8] = 1
    return work


@released_loop
def prototype(table: SingleArray, items: IntArray, mean: SingleArray) -> None:
    """``mean`` of the rows of some items."""
    mean[:] = 0
    for item in items:
        for factor in range(len(mean)):
            mean[factor] += table[item, factor]
    for factor in range(len(mean)):
        mean[factor] /= np.float32(len(items))


@released_loop
def _squares(rows: SingleArray, squares: SingleArray) -> None:
    values, squared = rows.reshape(-1), squares.reshape(-1)
    for place in range(len(values)):
        squared[place] = values[place] * values[place]


@released_loop
def _similar(
    rows: SingleArray,
    squares: SingleArray,
    lines: SingleArray,
    centre: int,
    cosines: SingleArray,
    inverses: SingleArray,
) -> None:
    """Cosines of rows to ``lines[centre]``, and one over the rows' lengths."""
    one = np.float32(1)
    shrink = one / np.float32(math.sqrt(dot(lines, centre, lines, centre, 0) + _TINY))
    np.dot(squares, lines[8], inverses)
    np.dot(rows, lines[centre], cosines)
    for row in range(len(rows)):
        inverses[row] = one / np.sqrt(inverses[row] + _TINY)
        cosines[row] = cosines[row] * inverses[row] * shrink


@released_loop
def look(
    table: SingleArray,
    own: SingleArray,
    transfer: bool,
    consistent: Any,
    complementary: Any,
    work: Work,
) -> SingleArray:
    """C, and what both regularisers need of all of it; where ``transfer`` is False, C is G."""
    squares, lines = work.squares, work.lines
    common = work.common if transfer else table
    tile = work.tiles.shape[1]
    squares[1] = 0
    lines[5:7] = 0
    for first in range(0, len(table), tile):
        last = min(first + tile, len(table))
        rows, mine = common[first:last], own[first:last]
        if transfer:
            np.dot(table[first:last], squares[0], rows)
        squared, own_squared = work.tiles[0, : last - first], work.tiles[1, : last - first]
        _squares(rows, squared)
        _squares(mine, own_squared)
        if consistent:
            c, a = work.cosines[0, first:last], work.cosines[1, first:last]
            _similar(rows, squared, lines, 2, c, work.cosines[2, first:last])
            _similar(mine, own_squared, lines, 1, a, work.cosines[3, first:last])
        if complementary:
            np.dot(rows.T, mine, squares[4])
            squares[1] += squares[4]
            _add_rows(squared, lines[5])
            _add_rows(own_squared, lines[6])
    return common


@released_loop
def consistency(alpha: np.float32, cosines: SingleArray) -> Any:
    """Alpha L_con, its pulls on the cosines c and a times those, and the sums beside the centres.

    Row 0 and 1 of ``cosines`` become alpha dL / dc_i / |C_i| and alpha dL / da_i / |P_i|; what they
    were goes to rows 2 and 3, times the same factors over the lengths. So the pull of the cosine of
    x with centre z on x is ``row01 z / |z| - row23 x``.

    Returns:
        alpha L_con.
    """
    total, own_total = 0.0, 0.0
    for item in range(cosines.shape[1]):
        cosines[4, item] = math.exp(cosines[0, item])
        cosines[5, item] = math.exp(cosines[1, item])
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


@released_loop
def complementarity(beta: np.float32, squares: SingleArray, lines: SingleArray) -> Any:
    """Beta L_com; its pull on the raw correlation, and on the columns' square lengths.

    ``squares[3]`` gets D with pulls P D^T on C and C D on P, and ``lines[5:7]`` the factors of the
    columns of C and P that are pulled on besides.

    Returns:
        beta L_com.
    """
    width = squares.shape[1]
    lengths, own_lengths = np.sqrt(lines[5] + _TINY), np.sqrt(lines[6] + _TINY)
    lines[5:7] = 0
    total = 0.0
    weight = np.float32(2) * beta / np.float32(width * width)
    for one in range(width):
        for other in range(width):
            scale = np.float32(1) / (lengths[one] * own_lengths[other])
            value = squares[1, one, other] * scale
            total += value * value
            squares[3, one, other] = weight * value * scale
            both = weight * value * value
            lines[5, one] -= both / (lengths[one] * lengths[one])
            lines[6, other] -= both / (own_lengths[other] * own_lengths[other])
    return beta * total / (width * width)


@released_loop
def _add_rows(rows: SingleArray, total: SingleArray) -> None:
    for row in range(len(rows)):
        for factor in range(len(total)):
            total[factor] += rows[row, factor]


@released_loop
def _add_scaled(rows: SingleArray, columns: SingleArray, pulls: SingleArray) -> None:
    """Columns of rows times a factor each."""
    for row in range(len(rows)):
        for factor in range(len(columns)):
            pulls[row, factor] += columns[factor] * rows[row, factor]


@released_loop
def _add_turned(
    rows: SingleArray,
    slopes: SingleArray,
    shrinks: SingleArray,
    direction: SingleArray,
    pulls: SingleArray,
) -> None:
    """What cosines with a direction pull on rows."""
    for row in range(len(rows)):
        slope, shrink = slopes[row], shrinks[row]
        for factor in range(len(direction)):
            pulls[row, factor] += slope * direction[factor] - shrink * rows[row, factor]


@released_loop
def _pull_tile(
    common: SingleArray,
    own: SingleArray,
    first: int,
    consistent: Any,
    complementary: Any,
    work: Work,
) -> None:
    """Pulls on the rows of one tile of C and P: in ``tiles[0]`` and ``tiles[1]``."""
    lines, count, width = work.lines, len(common), common.shape[1]
    pulls, own_pulls = work.tiles[0, :count], work.tiles[1, :count]
    if complementary:
        np.dot(own, work.squares[3].T, pulls)
        np.dot(common, work.squares[3], own_pulls)
    else:
        pulls[:] = 0
        own_pulls[:] = 0
    if complementary:
        _add_scaled(common, lines[5], pulls)
        _add_scaled(own, lines[6], own_pulls)
    if consistent:
        here, cosines = slice(first, first + count), work.cosines
        lines[3] += np.dot(cosines[1, here], own)
        lines[4] += np.dot(cosines[0, here], common)
        _add_turned(common, cosines[0, here], cosines[2, here], lines[2], pulls)
        _add_turned(own, cosines[1, here], cosines[3, here], lines[7], own_pulls)
    for row in range(count):
        slot = work.slots[first + row]
        if slot >= 0:
            for factor in range(width):
                pulls[row, factor] += work.seen[0, slot, factor]
                own_pulls[row, factor] += work.seen[1, slot, factor]


@released_loop
def _descend(rows: SingleArray, pulls: SingleArray, rate: np.float32, decay: np.float32) -> None:
    """``rows -= rate (pulls + decay rows)``."""
    values, slopes = rows.reshape(-1), pulls.reshape(-1)
    for place in range(len(values)):
        values[place] -= rate * (slopes[place] + decay * values[place])


@released_loop
def pull(
    table: SingleArray,
    own: SingleArray,
    transfer: bool,
    consistent: Any,
    complementary: Any,
    rate: np.float32,
    decay: np.float32,
    work: Work,
) -> None:
    """Move both tables by all that pulls on their rows, and sum up what pulls on W and the centres.

    ``lines[2]`` and ``lines[7]`` hold the directions, of length 1, of g W and of p.
    """
    squares, tile = work.squares, work.tiles.shape[1]
    common = work.common if transfer else table
    squares[2] = 0
    work.lines[3:5] = 0
    for first in range(0, len(table), tile):
        last = min(first + tile, len(table))
        rows, mine = table[first:last], own[first:last]
        _pull_tile(common[first:last], mine, first, consistent, complementary, work)
        pulls = work.tiles[0, : last - first]
        _descend(mine, work.tiles[1, : last - first], rate, decay)
        if transfer:
            np.dot(rows.T, pulls, squares[4])
            for one in range(squares.shape[1]):
                for other in range(squares.shape[1]):
                    squares[2, one, other] += squares[4, one, other]
            back = work.tiles[2, : last - first]
            np.dot(pulls, squares[0].T, back)
            _descend(rows, back, rate, decay)
        else:
            _descend(rows, pulls, rate, decay)


@released_loop
def unit_length(line: SingleArray) -> np.float32:
    """Bring a vector to length 1; returns what it was."""
    square = np.float32(0)
    for value in line:
        square += value * value
    length = np.float32(math.sqrt(square + _TINY))
    for factor in range(len(line)):
        line[factor] /= length
    return length


@released_loop
def of_direction(direction: SingleArray, length: np.float32, gradient: SingleArray) -> None:
    """From the sum of slopes times rows to the pull on the centre of their cosines, in place."""
    along = np.float32(0)
    for factor in range(len(direction)):
        along += direction[factor] * gradient[factor]
    for factor in range(len(direction)):
        gradient[factor] = (gradient[factor] - along * direction[factor]) / length
