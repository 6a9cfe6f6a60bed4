"""Rankings of a catalogue: precision at the size of the set, ties shared."""

import numpy as np

from secure_fedrec.arrays import BoolArray, FloatArray

__all__ = ["precision_at_size"]


def precision_at_size(scores: FloatArray, labels: BoolArray) -> FloatArray:
    """Precision of each client's best |I| items, |I| the number that it rated.

    Items tied at the cut are drawn at random: hits are expected ones, whatever the order of rows.

    Args:
        scores: float64[B, m].
        labels: bool[B, m], the rated sets.

    Returns:
        float64[B]; NaN for a client that rated nothing, or everything.
    """
    sizes = labels.sum(axis=1)
    n_items = labels.shape[1]
    ordered = np.sort(scores, axis=1)
    cut = ordered[np.arange(len(sizes)), n_items - np.clip(sizes, 1, n_items)][:, None]
    above, tied = scores > cut, scores == cut
    places = sizes - above.sum(axis=1)
    share = places / tied.sum(axis=1)
    hits = (above & labels).sum(axis=1) + share * (tied & labels).sum(axis=1)
    known = (sizes > 0) & (sizes < n_items)
    return np.asarray(np.divide(hits, sizes, out=np.full(len(sizes), np.nan), where=known))
