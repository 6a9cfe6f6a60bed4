"""Float operations whose result for one client does not depend on who shares its batch.

A device runs a batch of one; the simulator runs thousands in one array operation. Both must give
the same bits, or a simulated audit says nothing about the deployed system and losslessness cannot
be tested with ``==``. Library matrix products do not qualify (their blocking depends on the whole
shape). These do, and ``tests/core/test_core_kernels.py`` holds them to it at batch 1, 7 and n:

- one dot product per row (``numpy.vecdot`` calls the same inner loop for each row);
- segment sums in index order (a CSR product adds each row's terms one after the other);
- scatter-adds (a CSC product adds the rows in the order given).
"""

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from secure_fedrec.arrays import FloatArray, IndexArray, IntArray, RingArray

__all__ = [
    "gram",
    "outer_products",
    "pair_dot",
    "rank_one_rows",
    "row_dot",
    "scatter_add",
    "segment_sum",
    "segments",
]

# Two scratch arrays of so many rows of width 20 fit a second-level cache of 2 MB.
_BLOCK_ROWS = 4096


def row_dot(left: FloatArray, right: FloatArray) -> FloatArray:
    """Dot product of matching rows: float64[N, d] x float64[N, d] -> float64[N]."""
    return np.asarray(np.vecdot(left, right))


def pair_dot(
    left: FloatArray, left_rows: IntArray, right: FloatArray, right_rows: IndexArray | IntArray
) -> FloatArray:
    """Dot products of named rows of two tables, without gathering either table as a whole.

    Args:
        left: float64[p, d].
        left_rows: int64[N].
        right: float64[q, d].
        right_rows: int[N].

    Returns:
        float64[N].
    """
    dots = np.empty(len(left_rows))
    for part, (one, other) in _in_blocks(left_rows, right_rows, left, right):
        np.vecdot(one, other, out=dots[part])
    return dots


def rank_one_rows(
    table: FloatArray,
    items: IndexArray | IntArray,
    users: FloatArray,
    owners: IntArray,
    ratings: FloatArray,
    shrink: float,
) -> tuple[FloatArray, FloatArray]:
    """Rows ``shrink v - e u`` with residuals ``e = r - u . v`` (FedRec++ eq. 3).

    Args:
        table: float64[m, d], item vectors v.
        items: int[N], item of each row.
        users: float64[B, d], user vectors u.
        owners: int64[N], user of each row.
        ratings: float64[N], r.
        shrink: lambda.

    Returns:
        (rows float64[N, d], residuals float64[N]).
    """
    rows = np.empty((len(owners), table.shape[1]))
    residuals = np.empty(len(owners))
    for part, (user, item) in _in_blocks(owners, items, users, table):
        error = residuals[part]
        np.subtract(ratings[part], np.vecdot(user, item), out=error)
        np.multiply(item, shrink, out=item)
        np.multiply(user, error[:, None], out=user)
        np.subtract(item, user, out=rows[part])
    return rows, residuals


def _in_blocks(
    left_rows: IntArray, right_rows: IndexArray | IntArray, left: FloatArray, right: FloatArray
) -> Iterator[tuple[slice, tuple[FloatArray, FloatArray]]]:
    """Gather matching rows of two tables block by block, into scratch that stays in cache."""
    size = min(_BLOCK_ROWS, max(1, len(left_rows)))
    scratch = np.empty((2, size, left.shape[1]))
    for start in range(0, len(left_rows), size):
        part = slice(start, min(start + size, len(left_rows)))
        one, other = scratch[:, : part.stop - start]
        # Out-of-range rows cannot occur; "clip" spares numpy a second, checking copy.
        np.take(left, left_rows[part], axis=0, out=one, mode="clip")
        np.take(right, right_rows[part], axis=0, out=other, mode="clip")
        yield part, (one, other)


def segments(indptr: IntArray, clients: IntArray) -> tuple[IntArray, IntArray]:
    """Positions of some segments of a segmented column, laid end to end.

    Args:
        indptr: int64[n + 1], segment c is ``indptr[c]:indptr[c + 1]``.
        clients: int64[B], which segments.

    Returns:
        (positions int64[N], indptr of the gathered segments int64[B + 1]).
    """
    counts = indptr[clients + 1] - indptr[clients]
    gathered = np.zeros(len(clients) + 1, dtype=np.int64)
    np.cumsum(counts, out=gathered[1:])
    offsets = np.repeat(indptr[clients] - gathered[:-1], counts)
    return np.arange(gathered[-1]) + offsets, gathered


def segment_sum(
    table: FloatArray, rows: IndexArray | IntArray, weights: FloatArray, indptr: IntArray
) -> FloatArray:
    """Weighted sum of the table rows that each segment names, in the order named.

    Args:
        table: float64[m, d].
        rows: int[N], row numbers of ``table``.
        weights: float64[N].
        indptr: int64[B + 1].

    Returns:
        float64[B, d].
    """
    pick = sparse.csr_array((weights, rows, indptr), shape=(len(indptr) - 1, len(table)))
    return np.asarray(pick @ table)


def outer_products(table: FloatArray) -> FloatArray:
    """Upper triangles of v v^T for every row v: float64[m, d] -> float64[m, d (d + 1) / 2]."""
    upper, lower = np.triu_indices(table.shape[1])
    # Indexing columns leaves them in column order; the products below walk along rows.
    return np.ascontiguousarray(table[:, upper] * table[:, lower])


def gram(
    products: FloatArray, rank: int, items: IndexArray | IntArray, indptr: IntArray
) -> FloatArray:
    """Per-segment Gram matrices: sum of v v^T over the table rows that each segment names.

    Args:
        products: ``outer_products`` of the table.
        rank: d.
        items: int[N], row numbers of the table.
        indptr: int64[B + 1].

    Returns:
        float64[B, d, d], symmetric.
    """
    upper, lower = np.triu_indices(rank)
    shape = (len(indptr) - 1, len(products))
    pick = sparse.csr_array((np.ones(len(items)), items, indptr), shape=shape)
    packed = np.asarray(pick @ products)
    full = np.empty((len(packed), rank, rank))
    full[:, upper, lower] = packed
    full[:, lower, upper] = packed
    return full


def scatter_add(
    rows: IndexArray | IntArray,
    values: RingArray | FloatArray,
    *,
    size: int,
    signs: IntArray | None = None,
) -> RingArray:
    """Sum rows that share a destination.

    Integer values add modulo the word size, so their result does not depend on the order.

    Args:
        rows: int[N], destination of each row.
        values: [N, d] of unsigned integers or float64.
        size: number of destinations.
        signs: int64[N] of +1 and -1; None means all +1.

    Returns:
        [size, d] of the dtype of ``values``.
    """
    count = len(rows)
    # Cast to a word, -1 becomes 2^w - 1, which is -1 in the ring.
    weights = np.ones(count, values.dtype) if signs is None else signs.astype(values.dtype)
    place = sparse.csc_array((weights, rows, np.arange(count + 1)), shape=(size, count))
    return np.asarray(place @ values)
