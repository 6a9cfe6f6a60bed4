"""Hidden bits behind linear equations: which subset of known columns adds up to a known sum.

There are many small systems, each solved on one core. A library call per system would spread
systems of a hundred unknowns over all cores and spend its time on that; and the last bits of its
answer depend on the number of cores. Compiled loops keep IEEE arithmetic in a fixed order.
"""

import numpy as np

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.compiled import compiled_loop


@compiled_loop
def add_products(rows: FloatArray, products: FloatArray) -> None:
    """``products += rows.T @ rows``, upper triangle only."""
    size, width = rows.shape
    whole = size - size % 4
    for row in range(0, whole, 4):  # four rows a pass: a quarter of the walks over the products
        for one in range(width):
            a, b = rows[row, one], rows[row + 1, one]
            c, d = rows[row + 2, one], rows[row + 3, one]
            for other in range(one, width):
                products[one, other] += (a * rows[row, other] + b * rows[row + 1, other]) + (
                    c * rows[row + 2, other] + d * rows[row + 3, other]
                )
    for row in range(whole, size):
        for one in range(width):
            a = rows[row, one]
            for other in range(one, width):
                products[one, other] += a * rows[row, other]


@compiled_loop
def solve_positive(matrix: FloatArray, vector: FloatArray) -> bool:
    """Replace ``vector`` by the solution of ``matrix @ x = vector``.

    Cholesky's method on the upper triangle, row by row; ``matrix`` is overwritten.

    Args:
        matrix: float64[K, K], symmetric and positive definite; its lower triangle is not read.
        vector: float64[K].

    Returns:
        False if the matrix is not positive definite; the arrays are then of no use.
    """
    size = len(vector)
    for step in range(size):
        if not matrix[step, step] > 0.0:
            return False
        root = matrix[step, step] ** 0.5
        for other in range(step, size):
            matrix[step, other] /= root
        for one in range(step + 1, size):
            factor = matrix[step, one]
            for other in range(one, size):
                matrix[one, other] -= factor * matrix[step, other]
    for step in range(size):  # the transposed factor, from above
        vector[step] /= matrix[step, step]
        for other in range(step + 1, size):
            vector[other] -= matrix[step, other] * vector[step]
    for step in range(size - 1, -1, -1):
        for other in range(step + 1, size):
            vector[step] -= matrix[step, other] * vector[other]
        vector[step] /= matrix[step, step]
    return True


_SHARE = 1e-12
"""Ridge over the trace of the system: no more than keeps it solvable in float64."""

_RAREST = 1e-3


def fit_bits(
    design: FloatArray, target: FloatArray, *, expected: float, noise: float = 0.0, copies: int = 1
) -> FloatArray:
    """Best linear estimate of independent bits b from ``design @ b = target``.

    The bits have mean p and variance p (1 - p) beforehand, so the estimate is p plus the smallest
    change that satisfies the equations as well as their noise allows (ridge regression around p;
    Hoerl and Kennard 1970). With K independent exact equations it is the solution.

    Args:
        design: float64[E, K], rows of comparable size.
        target: float64[E].
        expected: p, mean number of ones over K.
        noise: variance of an equation's error.
        copies: bits that every column stands for; equations are no more than bits if several.

    Returns:
        float64[K], rounded to 6 digits so that solved bits are equal to each other.

    Raises:
        ValueError: a column or the target is not finite.
    """
    equations, bits = design.shape
    prior = min(max(expected, _RAREST), 1.0 - _RAREST)
    if not equations or not bits:
        return np.full(bits, prior)
    missing = target - copies * design.sum(axis=1) * prior
    # Of the two forms of the normal equations, the one with fewer unknowns.
    dual = equations <= copies * bits
    rows = np.ascontiguousarray(design.T if dual else design)
    size = rows.shape[1]
    matrix = np.zeros((size, size))
    add_products(rows, matrix)
    matrix *= copies
    ridge = _SHARE * float(np.trace(matrix)) + noise / (prior * (1.0 - prior))
    matrix[np.diag_indices(size)] += ridge if ridge > 0.0 else 1.0
    vector = missing.copy() if dual else (design * missing[:, None]).sum(axis=0)
    if not solve_positive(matrix, vector):
        raise ValueError("the equations are not finite")
    change = (rows * vector).sum(axis=1) if dual else vector
    return np.asarray(np.round(prior + change, 6))
