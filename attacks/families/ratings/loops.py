"""Inner loops of decoding ratings, compiled."""

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.compiled import compiled_loop


@compiled_loop
def count_on_levels(
    a: FloatArray,
    b: FloatArray,
    levels: FloatArray,
    scales: FloatArray,
    tolerance: FloatArray,
    hits: IntArray,
) -> None:
    """How many of the ratings ``-a / s + s b`` each scale s puts within its tolerance of a level.

    Levels are evenly spaced; the nearest one is found and compared as arrays of them would be.
    """
    low, spacing, top = levels[0], levels[1] - levels[0], len(levels) - 1.0
    for number in range(len(scales)):
        scale, near, found = scales[number], tolerance[number], 0
        for row in range(len(a)):
            rating = -a[row] / scale + scale * b[row]
            place = min(max(np.rint((rating - low) / spacing), 0.0), top)
            found += abs(rating - levels[int(place)]) <= near
        hits[number] = found
