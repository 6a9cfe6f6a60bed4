"""Fine-grained personalized update (HPFL, Algorithm 1): blends local parts with the global model.

What a client has learnt is kept in proportion to how accurate it is:

    c_k   <- Acc_k c_k + (1 - Acc_k) c_k^g                                             (eq. 1)
    Emb_j <- Acc * Emb_j + (1 - Acc) * Emb_j^g                                         (eq. 2)

with Acc the client's accuracy on each attribute, the dimension of an embedding being an attribute
as well, and Emb_j^g the mean of the global centres, weighted by their distance from Emb_j. Eq. 2 as
printed, and as published code, gives *more* weight to farther centres; "nearer" reverses that.
"""

from typing import Final

import numpy as np

from secure_fedrec.core.arrays import FloatArray

CENTRE_WEIGHTS: Final = ("farther", "nearer")

_BLOCK: Final = 1 << 20
"""Number of distances computed at a time: they fit in a processor's cache, and reading the centres
for every block costs little."""


def blend(local: FloatArray, shared: FloatArray, accuracies: FloatArray) -> FloatArray:
    """``Acc local + (1 - Acc) shared`` (eq. 1, 2).

    Args:
        local: float64[...].
        shared: float64[...], of the same shape.
        accuracies: in [0, 1], broadcast against both.
    """
    return np.asarray(local * accuracies + shared * (1.0 - accuracies))


def general_representations(
    embeddings: FloatArray, centres: FloatArray, weights: str = "farther"
) -> FloatArray:
    """Emb^g of every embedding: a weighted mean of all centres (eq. 2).

    Args:
        embeddings: float64[n, d].
        centres: float64[m, d], m > 0.
        weights: "farther" weighs a centre by its distance (as printed), "nearer" by the inverse.

    Returns:
        float64[n, d]. Where all weights are 0 (the only centre is the embedding itself), or a
        distance to be inverted is 0, the centres at distance 0 share the weight equally.
    """
    squares = (centres**2).sum(axis=1)
    found = np.empty((len(embeddings), centres.shape[1]))
    block = max(1, _BLOCK // len(centres))
    for start in range(0, len(embeddings), block):
        part = slice(start, start + block)
        found[part] = _factors(embeddings[part], centres, squares, weights) @ centres
    return found


def _factors(
    embeddings: FloatArray, centres: FloatArray, squares: FloatArray, weights: str
) -> FloatArray:
    """Share of every centre in the mean of every embedding: float64[n, m], rows of sum 1."""
    factors = _distances(embeddings, centres, squares)
    if weights == "nearer":
        here = factors == 0
        with np.errstate(divide="ignore"):
            np.divide(1.0, factors, out=factors)
        met = here.any(axis=1)
        factors[met] = here[met]
    else:
        factors[~factors.any(axis=1)] = 1.0
    factors /= factors.sum(axis=1, keepdims=True)
    return factors


def _distances(points: FloatArray, centres: FloatArray, squares: FloatArray) -> FloatArray:
    """Euclidean distances, float64[n, m], from one matrix product; ``squares`` of the centres."""
    found = np.asarray(points @ centres.T)
    found *= -2.0
    found += (points**2).sum(axis=1)[:, None]
    found += squares
    np.maximum(found, 0.0, out=found)
    return np.sqrt(found, out=found)
