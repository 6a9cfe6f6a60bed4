"""Named pieces of a flat vector of parameters."""

import math
from collections.abc import Sequence

import numpy as np

from secure_fedrec.core.arrays import FloatArray


def size_of(shapes: Sequence[tuple[int, ...]]) -> int:
    """Numbers in pieces of these shapes."""
    return sum(map(math.prod, shapes))


def pieces_of(flat: FloatArray, shapes: Sequence[tuple[int, ...]]) -> list[FloatArray]:
    """Pieces of these shapes, one after another (views); ``flat`` has their size."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends), shapes, strict=True)]
