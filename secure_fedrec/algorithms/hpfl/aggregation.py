"""Differentiated component aggregation (HPFL, Algorithm 2), inside one protected sum.

Row k of the table belongs to attribute k: [KM_u[k], KM_v[k], RM[k]] and a weight. The global vector
of an attribute is a mean over the clients that are accurate on it,

    c_k^g = sum_i delta(Acc_ki > p) I_ki Acc_ki c_ki / sum_i delta(Acc_ki > p) I_ki Acc_ki   (eq. 3)

so a client sends ``w c_ki`` and ``w = delta I_ki Acc_ki`` in one row, and the server divides sums:
no weight, count or accuracy of one client is needed. A row of weight 0 is not sent, and an
attribute that no client sends keeps its old global vector (eq. 3 is 0 / 0 there).

The threshold p is a quantile of the accuracies of all clients on all their attributes. Clients add
their histogram to the same sum, in rows behind those of the attributes; p of the next round is the
largest number below the bucket that holds the quantile: since delta requires more than p, the whole
bucket passes, including its lower edge. The server learns the summed histogram.
"""

from dataclasses import dataclass

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray
from secure_fedrec.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class HPFLTable:
    """The public layout of the shared table.

    Args:
        attributes: K.
        hidden: N.
        share_hidden: whether there is a row for HM.
        buckets: buckets of the histogram of accuracies; 0 for no histogram.
    """

    attributes: int
    hidden: int
    share_hidden: bool = False
    buckets: int = 0

    @property
    def vector(self) -> int:
        """Values of an attribute vector: 2 N + K."""
        return 2 * self.hidden + self.attributes

    @property
    def width(self) -> int:
        """Values per row: a vector and its weight."""
        return self.vector + 1

    @property
    def means(self) -> int:
        """Rows that become means; they are the first rows."""
        return self.attributes + int(self.share_hidden)

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self.means + -(-self.buckets // self.width)

    def require_rows(self, rows: int) -> None:
        """Check that a table has the size for this.

        Raises:
            ConfigError: the table has another size.
        """
        if rows != self.rows:
            raise ConfigError("rows", rows, f"{self.attributes} attributes need {self.rows} rows")

    def contribution(
        self, vectors: FloatArray, weights: FloatArray, histogram: IntArray
    ) -> tuple[IndexArray, FloatArray]:
        """One client's rows.

        Args:
            vectors: float64[means, vector], attribute vectors, and HM padded with zeros.
            weights: float64[means], at least 0.
            histogram: int64[buckets].

        Returns:
            (row numbers int32[R], values float64[R, width]); rows of weight 0 are left out.
        """
        sent = np.flatnonzero(weights > 0)
        chosen = weights[sent, None]
        means = np.hstack([vectors[sent] * chosen, chosen])
        counts = np.zeros(((self.rows - self.means), self.width))
        counts.reshape(-1)[: self.buckets] = histogram
        rows = np.concatenate([sent, np.arange(self.means, self.rows)])
        return rows.astype(np.int32), np.concatenate([means, counts])

    def means_of(self, sums: FloatArray, old: FloatArray) -> FloatArray:
        """The next table: means where at least one client contributed, old vectors elsewhere.

        Args:
            sums: float64[rows, width], the decoded aggregate.
            old: float64[rows, width], the present table.
        """
        table = old.copy()
        weights = sums[: self.means, -1]
        known = np.flatnonzero(weights > 0)
        table[known, :-1] = sums[known, :-1] / weights[known, None]
        return table

    def histogram_of(self, sums: FloatArray) -> FloatArray:
        """float64[buckets], how many accuracies of all clients lie in each bucket."""
        return sums[self.means :].reshape(-1)[: self.buckets]


def count_accuracies(accuracies: FloatArray, buckets: int) -> IntArray:
    """int64[buckets], accuracies in [b / buckets, (b + 1) / buckets); 1 is in the last bucket."""
    # Compared with the edges: ``accuracy * buckets`` can round across an edge.
    places = np.searchsorted(_edges(buckets), accuracies, side="right") - 1
    return np.bincount(places, minlength=buckets)


def accuracy_threshold(histogram: FloatArray, quantile: float) -> float:
    """p, below every accuracy of the bucket that holds the quantile and of those above it.

    Args:
        histogram: float64[buckets], as of :func:`count_accuracies`.
        quantile: in [0, 1).

    Returns:
        The largest number below the bucket; 0 for the first bucket, for the quantile 0, and where
        nothing was counted. Accuracies above 0 have a weight in eq. 3.
    """
    total = float(histogram.sum())
    if total <= 0 or quantile == 0:  # p is used in the next round, where accuracies may be smaller
        return 0.0
    bucket = int(np.searchsorted(np.cumsum(histogram), quantile * total, side="right"))
    edge = _edges(len(histogram))[min(bucket, len(histogram) - 1)]
    return float(np.nextafter(edge, 0.0))


def _edges(buckets: int) -> FloatArray:
    """float64[buckets], lower edges."""
    return np.arange(buckets) / buckets
