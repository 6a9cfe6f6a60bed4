"""Subset sums of many known vectors by lattice reduction, where there are too many to try.

Coefficients of few bits beside sums of many: the vector of the right ones is the shortest of a
lattice by far (Lagarias and Odlyzko 1985), and LLL finds it. The one module that imports
python-flint, which the extra ``lattice`` brings.
"""

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.errors import brought_by

MOST_UNKNOWNS = 80
"""Largest number of unknowns of a lattice to reduce; the time grows with its fourth power."""


def coefficients(terms: FloatArray, target: FloatArray, unit: float) -> IntArray | None:
    """Small integer coefficients with which terms add up to a target, within about a unit.

    Args:
        terms: float64[K, d].
        target: float64[d].
        unit: what values are rounded to.

    Returns:
        int64[K], not checked; None where reduction finds none.

    Raises:
        MissingExtraError: python-flint is not installed.
    """
    with brought_by("lattice", "subset sums of many known vectors"):
        from flint import fmpz_mat  # noqa: PLC0415 - what an extra brings

    size = len(terms)
    rows = np.zeros((size + 1, size + 1 + terms.shape[1]), dtype=np.int64)
    rows[:size, :size] = np.eye(size)
    rows[size, size] = 1
    rows[:size, size + 1 :] = np.rint(terms / unit)
    rows[size, size + 1 :] = -np.rint(target / unit)
    reduced = fmpz_mat(size + 1, rows.shape[1], rows.reshape(-1).tolist()).lll()
    # Signs are free: the row in which the target occurs once is the answer or its negative.
    for row in range(size + 1):
        times = int(reduced[row, size])
        if abs(times) == 1:
            return np.array([int(reduced[row, k]) * times for k in range(size)], dtype=np.int64)
    return None
