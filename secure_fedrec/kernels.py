"""Float operations whose result for one client does not depend on who shares its batch.

A device runs a batch of one; the simulator runs thousands in one array operation. Both must give
the same bits, or a simulated audit says nothing about the deployed system and losslessness cannot
be tested with ``==``. Library matrix products do not qualify (their blocking depends on the whole
shape). These do, and ``tests/core/test_core_kernels.py`` holds them to it at batch 1, 7 and n:

- one dot product per row (``numpy.vecdot`` calls the same inner loop for each row);
- segment sums in index order (a CSR product adds each row's terms one after the other);
- scatter-adds (a CSC product adds the rows in the order given).
"""

import numpy as np
from scipy import sparse

from secure_fedrec.arrays import FloatArray, IndexArray, IntArray, RingArray

__all__ = ["gram", "outer_products", "row_dot", "scatter_add", "segment_sum", "segments"]


def row_dot(left: FloatArray, right: FloatArray) -> FloatArray:
    """Dot product of matching rows: float64[N, d] x float64[N, d] -> float64[N]."""
    return np.asarray(np.vecdot(left, right))


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


def segment_sum(values: FloatArray, weights: FloatArray, indptr: IntArray) -> FloatArray:
    """Weighted sum of rows per segment, in row order.

    Args:
        values: float64[N, d].
        weights: float64[N].
        indptr: int64[B + 1].

    Returns:
        float64[B, d].
    """
    size = len(values)
    pick = sparse.csr_array((weights, np.arange(size), indptr), shape=(len(indptr) - 1, size))
    return np.asarray(pick @ values)


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
