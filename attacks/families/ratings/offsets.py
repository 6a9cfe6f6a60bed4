"""The lattice decode where every client adds a number of its own to all of its predictions.

With biases a row less lambda [V, b] is -e [U, a], and e = r - m - [U, a] . [V, b]: beside the scale
of the vector, the mean m is unknown. Differences of ratings know nothing of m, so the scale is
fitted to those of a few rows with all others. The slope a stands in the last column and is near 1
(before the first round exactly 1), which leaves few scales to try. What is left of m is a whole
number of levels: the one that puts most rows on the scale, of several the highest, because nearly
everybody gives the best rating once.
"""

from functools import partial

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray

_REFERENCES = 6  # at rho = 3 a quarter of the rows is real: all 6 virtual has odds of 0.18
_GUESS_ROWS = 48  # at rho = 3 a quarter of the rows is real: all 48 virtual has odds below 1e-5
_SLOPES = (0.25, 4.0)
_WIDEST_RESIDUAL = 3.0


def scale_roots(a: FloatArray, b: FloatArray, values: FloatArray) -> FloatArray:
    """Both roots of s^2 b - v s - a = 0 for some rows and every value v, where they are real."""
    chosen = np.linspace(0, len(a) - 1, min(len(a), _GUESS_ROWS)).astype(np.int64)
    a, b = a[chosen, None], b[chosen, None]
    inside = values**2 + 4 * a * b
    # The sign of v keeps the sum from cancelling.
    root = values + np.copysign(np.sqrt(np.maximum(inside, 0.0)), values)
    # With a level of 0 the sum is 0 where the row, or the item, is: no root tells the scale there.
    small = np.divide(-2 * a, root, out=np.zeros_like(root), where=root != 0)
    large = np.divide(root, 2 * b, out=np.zeros_like(root), where=b != 0)
    return np.concatenate([small[inside >= 0], large[inside >= 0]])


def hides_residuals(rows: FloatArray, levels: FloatArray) -> bool:
    """Whether the last column is too long for residuals of ratings: the upload is masked."""
    return bool(np.median(np.abs(rows[:, -1])) > _WIDEST_RESIDUAL * (levels[-1] - levels[0]))


def fit_offset(
    a: FloatArray, b: FloatArray, levels: FloatArray, *, slope_share: float, tolerance: float
) -> tuple[FloatArray, float]:
    """Ratings ``-a / s + s b + m`` of the scale and the offset that put most rows on the levels.

    Args:
        a: float64[N], rows along the vector's direction.
        b: float64[N], item vectors and biases along it.
        levels: float64[L], the rating scale, evenly spaced.
        slope_share: last coordinate of the direction, not 0.
        tolerance: of a rating at scale 1, in stars.

    Returns:
        The ratings, float64[N], and the scale s.
    """
    # Equal rows agree at any scale; all average-filled ones are equal before the first round.
    grid = np.rint(np.stack([a, b], axis=1) / tolerance)
    once = np.sort(np.unique(grid, axis=0, return_index=True)[1])
    chosen = np.linspace(0, len(once) - 1, min(len(once), _REFERENCES)).astype(np.int64)
    like = partial(_fit, a[once], b[once], levels, slope_share, tolerance)
    _, scale, reference = max(map(like, np.unique(chosen).tolist()), key=lambda fit: fit[0])
    values = -a / scale + scale * b
    near = tolerance / abs(scale)
    return _shifted(values, int(once[reference]), levels, near), scale


def _fit(
    a: FloatArray, b: FloatArray, levels: FloatArray, share: float, tolerance: float, reference: int
) -> tuple[float, float, int]:
    """Rows that hit beyond chance, the scale, and the row that all others are compared with."""
    spacing = float(levels[1] - levels[0])
    scales = _candidates(a - a[reference], b - b[reference], levels, share)
    values = -a / scales[:, None] + scales[:, None] * b
    steps = (values - values[:, [reference]]) / spacing
    gaps = np.abs(steps - np.rint(steps)) * spacing
    inside = np.abs(steps) <= len(levels) - 1 + tolerance
    near = np.minimum(tolerance / np.abs(scales), spacing / 5)
    hits = ((gaps <= near[:, None]) & inside).sum(axis=1) - 2 * near / spacing * len(a)
    best = int(np.argmax(hits))
    return float(hits[best]), float(scales[best]), reference


def _candidates(a: FloatArray, b: FloatArray, levels: FloatArray, slope_share: float) -> FloatArray:
    """Slope 1, and the roots for all differences of ratings."""
    above = levels[1:] - levels[0]
    found = scale_roots(a, b, np.concatenate([-above, above]))
    slopes = found * slope_share
    near: BoolArray = (slopes >= _SLOPES[0]) & (slopes <= _SLOPES[1])
    return np.concatenate([[1.0 / slope_share], found[near]])


def _shifted(
    values: FloatArray, reference: int, levels: FloatArray, tolerance: float
) -> FloatArray:
    """Values on the levels: the reference row gets the rating that brings most others there."""
    spacing = float(levels[1] - levels[0])
    shifted = values - values[reference] + levels[:, None]
    places = (shifted - levels[0]) / spacing
    on = (np.abs(places - np.rint(places)) * spacing <= tolerance) & (places > -0.5)
    on &= places < len(levels) - 0.5
    hits = on.sum(axis=1)
    best = int(np.flatnonzero(hits == hits.max())[-1])
    return np.asarray(shifted[best])
