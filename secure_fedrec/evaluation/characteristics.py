"""How well a model's hidden characteristics rank users and attributes (HPFL, eq. 9, 10).

A model gives every user one number per attribute, h_uk (eq. 8): a student's capability in a
concept, a viewer's liking of a genre. The records give a mean score per user and attribute. Both
measures compare the two orders: the degree of agreement across users, NDCG across the attributes of
a user.
"""

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.evaluation.ranking import tied_means


def mean_scores(
    users: IntArray, items: IntArray, scores: FloatArray, attributes: BoolArray, *, n_users: int
) -> FloatArray:
    """Mean score of each user over its records that have an attribute.

    Args:
        users: int64[N].
        items: int64[N].
        scores: float64[N].
        attributes: bool[items, K].
        n_users: number of users.

    Returns:
        float64[n_users, K]; NaN where a user has no record with the attribute.
    """
    own = attributes[items].astype(np.float64)
    totals = np.zeros((n_users, attributes.shape[1]))
    counts = np.zeros_like(totals)
    np.add.at(totals, users, own * scores[:, None])
    np.add.at(counts, users, own)
    means = np.full_like(totals, np.nan)
    np.divide(totals, counts, out=means, where=counts > 0)
    return means


def degree_of_agreement(
    characteristics: FloatArray, means: FloatArray, clients: IntArray, *, ties: bool = True
) -> float | None:
    """Agreement on the larger of two users' values, for users of different clients (eq. 9).

    For attribute k: among the ordered pairs (a, b) of users of different clients that both have
    records with k, and in which the model's value of a is strictly larger, the share in which a's
    mean score is strictly larger as well. Equation 9 prints the sum over two clients; here it runs
    over all pairs of clients at once. Attributes without a pair are left out of the mean.

    Args:
        characteristics: float64[U, K], h.
        means: float64[U, K], mean scores; NaN without records.
        clients: int64[U], client of each user.
        ties: whether pairs of equal mean score count, as disagreement, which is what is printed.
            If users have few records of an attribute, many pairs are equal, and a guess is right
            for less than half of all; without them, for about half.

    Returns:
        The mean over attributes, in [0, 1]; None where no attribute has a pair.
    """
    found = []
    for hidden, mean in zip(characteristics.T, means.T, strict=True):
        known = np.flatnonzero(~np.isnan(mean))
        h, g, c = hidden[known], mean[known], clients[known]
        ahead = (h[:, None] > h[None, :]) & (c[:, None] != c[None, :])
        if not ties:
            ahead &= g[:, None] != g[None, :]
        pairs = int(np.count_nonzero(ahead))
        if pairs:
            found.append(np.count_nonzero(ahead & (g[:, None] > g[None, :])) / pairs)
    return float(np.mean(found)) if found else None


def ndcg_of_characteristics(characteristics: FloatArray, means: FloatArray) -> float | None:
    """Agreement on the order of a user's attributes (eq. 10).

    DCG(u) = sum over ranks k of gain / (log2(k) + 1), where the attributes of u's records are
    ranked by mean score; the ideal DCG ranks them by h. The denominator is as printed. A gain must
    not be negative, which h may be: it is h less the smallest h of the user's attributes, so no
    constant added to a user's characteristics changes the measure. Attributes of equal mean score
    share the mean of their ranks' discounts: the DCG expected of a random order among them, which
    the numbering of the attributes cannot change.

    Args:
        characteristics: float64[U, K], h.
        means: float64[U, K], mean scores; NaN without records.

    Returns:
        The mean, in [0, 1], over users whose h differs between their attributes; None if there
        are none.
    """
    known = ~np.isnan(means)
    least = np.where(known, characteristics, np.inf).min(axis=1, keepdims=True)
    # A missing attribute ranks last, with gain 0: it adds nothing to either sum.
    gains = np.where(known, characteristics - least, 0.0)
    discounts = 1.0 / (np.log2(np.arange(1, means.shape[1] + 1)) + 1.0)
    reached = (gains * tied_means(np.where(known, -means, np.inf), discounts)).sum(axis=1)
    ideal = -np.sort(-gains, axis=1) @ discounts
    judged = ideal > 0
    return float(np.mean(reached[judged] / ideal[judged])) if judged.any() else None
