"""Points of many dimensions in the plane, as the papers draw their users."""

import numpy as np

from secure_fedrec.core.arrays import FloatArray

__all__ = ["embed"]

_PERPLEXITY = 30.0


def embed(points: FloatArray, *, seed: int) -> FloatArray:
    """t-SNE into the plane, on one thread: float64[n, 2]."""
    from sklearn.manifold import TSNE  # noqa: PLC0415  slow to import
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    perplexity = min(_PERPLEXITY, (len(points) - 1) / 3)
    model = TSNE(n_components=2, perplexity=perplexity, init="pca", random_state=seed, n_jobs=1)
    with threadpool_limits(limits=1):
        return np.asarray(model.fit_transform(points), dtype=np.float64)
