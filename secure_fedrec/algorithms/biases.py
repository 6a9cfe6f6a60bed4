"""Biases of matrix factorization: items' biases are public, users keep a linear function of them.

With biases a rating is predicted as

    m_u + a_u b_i + U_u . V_i

The client keeps ``m_u`` and ``a_u``: in every round it fits them anew to its own ratings, by least
squares over the public ``b_i``, with ``a_u`` pulled towards 1; they are a function of its ratings
and the public table, and are never stored or sent. Other code treats ``b_i`` as one more column of
the shared table, and ``a_u`` as one more value of the user's vector: the uploaded row is

    -e_ui [U_u, a_u] + lambda [V_i, b_i]

and layers protect it with the row. Before the first round b = 0, so m_u is the user's mean.

The server takes no gradient step on b. The sums S and counts C of a round, with the b that clients
had, give the b that fits this round alone: (S + C b) / C. It averages the two over all rounds so
far and shrinks,

    b_i = mean(S + C b)_i / (C'_i + lambda_b (1 + v / (s C'_i))),   C' = mean(C)

v being the variance of the noise in the mean of the sums: a Gaussian prior on b of variance
s / lambda_b, ratings of variance s, which is 1 in stars from 1 to 5. The noise of several rounds
averages to that of one round with their whole budget, while residuals shrink, so that less is
clipped.
"""

from typing import NamedTuple

import numpy as np

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.kernels import segment_sum
from secure_fedrec.uploads import Aggregate
from secure_fedrec.vault import Rated

BIAS_SUMS, BIAS_COUNTS = "bias_sums", "bias_counts"


class Lines(NamedTuple):
    """The line of each user of a batch.

    Attributes:
        means: float64[B], m.
        slopes: float64[B], a.
    """

    means: FloatArray
    slopes: FloatArray


def fit_lines(biases: FloatArray, rated: Rated, *, pull: float) -> Lines:
    """Least squares of each client's ratings over the biases of their items.

    Args:
        biases: float64[m], b.
        rated: the clients' ratings.
        pull: penalty on (a - 1)^2. A client without ratings has m = 0 and a = 1.
    """
    given = np.stack([biases[rated.items], rated.ratings], axis=1)
    counts = np.maximum(rated.counts, 1)[:, None]
    centres = segment_totals(given, rated.indptr) / counts
    given -= np.repeat(centres, rated.counts, axis=0)
    # Sums of squared biases, and of biases times ratings.
    products = segment_totals(given * given[:, :1], rated.indptr)
    slopes = np.ones(len(counts))
    fitted = products[:, 0] > 0
    slopes[fitted] = (products[fitted, 1] + pull) / (products[fitted, 0] + pull)
    return Lines(means=centres[:, 1] - slopes * centres[:, 0], slopes=slopes)


def initial_sums(n_items: int) -> dict[str, FloatArray]:
    """The server's sums before the first round: float64[m] each."""
    return {BIAS_SUMS: np.zeros(n_items), BIAS_COUNTS: np.zeros(n_items)}


def next_biases(
    public: PublicState, aggregate: Aggregate, *, shrinkage: float, spread: float = 1.0
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """The server's biases after a round, float64[m], and its sums.

    Args:
        public: the state that clients computed from; its table's last column is b.
        aggregate: aggregate of the round.
        shrinkage: lambda_b, as a number of ratings.
        spread: s, the variance of ratings.
    """
    counts = np.asarray(aggregate.counts, dtype=np.float64)
    sums = public.extras[BIAS_SUMS] + counts * public.table[:, -1] - aggregate.values[:, -1]
    counts = public.extras[BIAS_COUNTS] + counts
    rounds = public.round + 1
    evidence = counts / rounds
    seen = evidence > 0
    biases = np.zeros(len(sums))
    variance = aggregate.noise**2 / rounds
    prior = shrinkage * (1 + variance / (spread * evidence[seen]))
    biases[seen] = sums[seen] / rounds / (evidence[seen] + prior)
    return biases, {BIAS_SUMS: sums, BIAS_COUNTS: counts}


def segment_totals(values: FloatArray, indptr: IntArray) -> FloatArray:
    """Sums over segments, in order: float64[B, k] of float64[N, k]."""
    return segment_sum(values, np.arange(len(values)), np.ones(len(values)), indptr)
