"""Hidden bits behind linear equations: which subset of known columns adds up to a known sum.

There are many small systems, each solved on one core: a library that spreads systems of a hundred
unknowns over all cores spends its time on that, and the last bits of its answer depend on their
number.
"""

import numpy as np

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.threads import one_thread

_SHARE = 1e-12
"""Ridge relative to the trace of the system, just large enough to solve it in float64."""

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
        copies: bits that every column represents; with several, equations are at most as many as
            bits.

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
    if not np.isfinite(missing).all():
        raise ValueError("the equations are not finite")
    with one_thread():
        rows = design.T if dual else design
        matrix = copies * (rows.T @ rows)
        ridge = _SHARE * float(np.trace(matrix)) + noise / (prior * (1.0 - prior))
        matrix[np.diag_indices(len(matrix))] += ridge if ridge > 0.0 else 1.0
        solved = np.linalg.solve(matrix, missing if dual else design.T @ missing)
        change = rows @ solved if dual else solved
    return np.asarray(np.round(prior + change, 6))
