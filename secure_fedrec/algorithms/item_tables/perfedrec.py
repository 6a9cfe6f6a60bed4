"""PerFedRec (Luo et al., CIKM 2022): mixes the tables of all, of the cluster and its own.

The server clusters clients by their private vectors, which they have to send, and sends each a
mixture: ``of_all`` of the mean table, ``of_cluster`` of its cluster's mean, and the rest of its
own. Local training is FedMF's. Left out is the graph network that refines the vectors from
neighbours and public attributes of users, which our data lack.
"""

import numpy as np

from secure_fedrec.algorithms.item_tables.fedmf import FedMF, FedMFConfig
from secure_fedrec.algorithms.item_tables.single_tables import parts_of_tables
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.settings import Count, Probability

_SWEEPS = 50


class PerFedRecConfig(FedMFConfig, section="algorithm"):
    """Hyper-parameters, beside those of FedMF.

    Args:
        clusters: clusters of clients.
        of_all: share of the mean table.
        of_cluster: share of the cluster's.

    Raises:
        ConfigError: a field is out of range, or the shares exceed 1.
    """

    clusters: Count = 5
    of_all: Probability = 1 / 3
    of_cluster: Probability = 1 / 3

    def _agree(self) -> None:
        if self.of_all + self.of_cluster > 1:
            raise self.refusal("of_cluster", "must not exceed 1 together with of_all")


class PerFedRec(FedMF):
    """The method; see the module docstring. ``own`` is u."""

    name = "perfedrec"
    dense = True
    config: PerFedRecConfig

    def mix(self, tables: FloatArray, own: FloatArray) -> FloatArray:
        """Mixtures of mean, cluster and own tables, written over the own ones: float64[B, m, d]."""
        config = self.config
        labels = np.empty(0, dtype=np.int64)  # empty where no cluster tables are mixed in
        if config.of_cluster > 0:
            labels = clusters_of(own, min(config.clusters, len(own)))
        of_own = 1 - config.of_all - config.of_cluster
        for part in parts_of_tables(tables):
            mixed = config.of_all * part.mean(axis=0) + of_own * part
            for label in np.unique(labels):
                members = labels == label
                mixed[members] += config.of_cluster * part[members].mean(axis=0)
            part[:] = mixed
        return tables


def clusters_of(vectors: FloatArray, count: int) -> IntArray:
    """Lloyd's algorithm, no randomness: int64[B].

    The first centre begins at the vector of the lowest client, each further one at the vector
    farthest from the previous centres.
    """
    centres = vectors[:1]
    while len(centres) < count:
        apart = np.linalg.norm(vectors[:, None] - centres, axis=2).min(axis=1)
        centres = np.concatenate([centres, vectors[[int(np.argmax(apart))]]])
    labels = np.zeros(len(vectors), dtype=np.int64)
    for _ in range(_SWEEPS):
        labels = np.linalg.norm(vectors[:, None] - centres, axis=2).argmin(axis=1)
        means = [
            vectors[labels == label].mean(axis=0) if np.any(labels == label) else centre
            for label, centre in enumerate(centres)
        ]
        if np.array_equal(means, centres):
            break
        centres = np.array(means)
    return np.asarray(labels, dtype=np.int64)
