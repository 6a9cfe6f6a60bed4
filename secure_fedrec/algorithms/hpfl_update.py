"""Fine-grained personalized update (HPFL, Algorithm 1): local knowledge meets the global model.

What a client has learnt is kept in proportion to how accurate it is:

    c_k   <- Acc_k c_k + (1 - Acc_k) c_k^g                                             (eq. 1)
    Emb_j <- Acc * Emb_j + (1 - Acc) * Emb_j^g                                         (eq. 2)

with Acc the client's accuracy on each attribute, the dimension of an embedding being an attribute
as well, and Emb_j^g the mean of the global centres, weighted by their distance from Emb_j. Eq. 2 is
printed, and published as code, with *more* weight on farther centres; "nearer" turns that round.
"""

from typing import Final

import numpy as np

from secure_fedrec.arrays import FloatArray

__all__ = ["CENTRE_WEIGHTS", "blend", "general_representations"]

CENTRE_WEIGHTS: Final = ("farther", "nearer")


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
    distances = _distances(embeddings, centres)
    if weights == "nearer":
        here = distances == 0
        with np.errstate(divide="ignore"):
            factors = np.where(here.any(axis=1, keepdims=True), here, 1.0 / distances)
    else:
        factors = np.where(distances.any(axis=1, keepdims=True), distances, 1.0)
    factors /= factors.sum(axis=1, keepdims=True)
    return np.asarray(factors @ centres)


def _distances(points: FloatArray, centres: FloatArray) -> FloatArray:
    """Euclidean distances, float64[n, m], from one matrix product."""
    squares = (points**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(squares - 2.0 * (points @ centres.T), 0.0)))
