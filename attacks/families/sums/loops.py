"""Inner loops of the attacks, compiled: many small linear systems, each solved on one core.

A library call per system would spread systems of a hundred unknowns over all cores and spend its
time on that; and the last bits of its answer depend on the number of cores. These loops keep IEEE
arithmetic in a fixed order.
"""

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
