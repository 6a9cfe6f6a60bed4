"""How different the clients' public vectors are (HPFL, eq. 11)."""

from collections.abc import Sequence

import numpy as np

from secure_fedrec.core.arrays import FloatArray


def total_dissimilarity(vectors: Sequence[FloatArray]) -> float:
    """Sum over ordered pairs of clients of the mean cosine *distance* of corresponding vectors.

    The paper names this Simi and prints cos(x, y), but reads it as "the lower, the more similar":
    that is 1 - cos(x, y). Pairs of a client with itself are not counted. A zero vector has distance
    1 from every other vector.

    Args:
        vectors: float64[K, N] per client, one vector per attribute.

    Returns:
        0 for equal directions, up to 2 C (C - 1).
    """
    stacked = np.stack(vectors)
    lengths = np.linalg.norm(stacked, axis=2, keepdims=True)
    unit = np.divide(stacked, lengths, out=np.zeros_like(stacked), where=lengths > 0)
    cosines = np.einsum("ikn,jkn->ijk", unit, unit)
    distances = 1.0 - np.clip(cosines, -1.0, 1.0)
    distances[np.arange(len(unit)), np.arange(len(unit))] = 0.0
    return float(distances.mean(axis=2).sum())
