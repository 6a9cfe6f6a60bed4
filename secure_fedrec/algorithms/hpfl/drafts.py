"""Drafts of private representations: cluster centres in the place of embeddings (HPFL, 4.2, 4.3).

A client sends the centres of its users' and items' clusters instead of the embeddings themselves;
the server clusters all centres again: K-means, the number of clusters a share of the number of
points. A draft is a mean of embeddings, and the mean of one member is its embedding:
``least_members`` keeps the centres of smaller clusters at home. Its count must be of the points
averaged in a centre, so centres are computed here: K-means stops by tolerance, and the points it
assigns last are not always those that its own centres are the means of.
"""

import warnings
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IndexArray
from secure_fedrec.core.kernels import scatter_add
from secure_fedrec.core.threads import one_thread
from secure_fedrec.errors import EncodingError, require_installed

require_installed("sklearn", "torch", "the clustering of HPFL's drafts")

SEEDINGS: Final = ("k-means++", "random")
"""How clusterings choose their starting points."""

_MAX_ITERATIONS = 100


def n_clusters(points: int, share: float) -> int:
    """Clusters for a number of points: its ``share``, rounded down, but at least one."""
    return min(points, max(1, int(points * share)))


def cluster_centres(
    points: FloatArray,
    share: float,
    *,
    seed: int,
    seeding: str = "k-means++",
    least_members: int = 1,
) -> FloatArray:
    """Centres of the clusters of some points.

    There are never more clusters than distinct points: equal points (embeddings not moved from a
    common start) share a cluster. Points are assigned to clusters in single precision, in half the
    time; centres are means in double precision. Sums run on one thread, and those of the centres in
    the order of the points, so equal arguments give equal bits.

    Args:
        points: float64[n, d].
        share: clusters per point, in (0, 1].
        seed: seed of the starting points, below 2^32.
        seeding: how these are chosen, one of ``SEEDINGS``.
        least_members: centres of clusters with fewer members are left out.

    Returns:
        float64[m, d], each the mean of its cluster's points, in ascending order of their values;
        m = 0 without points, or where no cluster is large enough.

    Raises:
        EncodingError: a value is NaN, infinite, or beyond single precision: training diverged.
    """
    # Imported late: it takes more than a second, and reading settings does not need it.
    from sklearn.cluster import KMeans  # noqa: PLC0415
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415

    if not len(points):
        return points.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        # Centred at their mean, where single precision separates most of them.
        single = (points - points.mean(axis=0)).astype(np.float32)
    if not np.isfinite(single).all():
        raise EncodingError("an embedding is not finite, or too large to be clustered")
    distinct = len(np.unique(single, axis=0))
    model = KMeans(
        n_clusters=min(distinct, n_clusters(len(points), share)),
        init=seeding,
        n_init=1,
        max_iter=_MAX_ITERATIONS,
        random_state=seed,
    )
    with one_thread(), warnings.catch_warnings():
        # Points that differ only in their last bits become equal in the library, which leaves
        # clusters without members.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(single)
    centres = _means(points, model.labels_, least_members)
    return centres[np.lexsort(centres.T[::-1])]


def _means(points: FloatArray, labels: IndexArray, least: int) -> FloatArray:
    """Means of the points of each label that ``least`` points have: float64[m, d].

    Args:
        points: float64[n, d].
        labels: int32[n], of every point.
        least: at least 1.
    """
    members = np.bincount(labels)
    sums = np.zeros((len(members), points.shape[1]))
    scatter_add(sums, labels, points)
    kept = np.flatnonzero(members >= least)
    return sums[kept] / members[kept, None]
