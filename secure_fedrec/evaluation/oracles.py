"""Rules without a model, under a protocol; the gain of a result over these counts.

``random`` and ``popularity`` do not need a model. ``never drawn`` follows only which items a
client's training negatives were drawn from: under a sound protocol it is another random rule; under
one that keeps held-out items out of the draws it finds them without any knowledge of taste.

Rules have ties, so each figure is its expectation over all orders of tied items.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.data.negatives import draw_negatives
from secure_fedrec.evaluation.protocols import RankingCase
from secure_fedrec.streams import Stream

ORACLES: Final = ("random", "popularity", "never drawn")
"""Rules that are printed beside every result."""


def expected_quality(above: IntArray, tied: IntArray, *, cutoff: int = 10) -> dict[str, FloatArray]:
    """HR@K and NDCG@K of an item whose ties are broken at random, in expectation.

    Args:
        above: int64[n], candidates with a larger score; -1 where there is no item to find.
        tied: int64[n], candidates with the same score, the item aside.
        cutoff: K.

    Returns:
        ``hit_rate_at_K`` and ``ndcg_at_K``, float64[n]; NaN without an item.
    """
    discounts = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(cutoff) + 2.0))])
    first, last = np.minimum(np.maximum(above, 0), cutoff), np.minimum(above + tied + 1, cutoff)
    places = tied + 1.0
    none = above < 0
    return {
        f"hit_rate_at_{cutoff}": np.where(none, np.nan, (last - first) / places),
        f"ndcg_at_{cutoff}": np.where(none, np.nan, (discounts[last] - discounts[first]) / places),
    }


def rule_quality(
    item: IntArray, negatives: IndexArray, scores: npt.NDArray[Any], *, cutoff: int = 10
) -> dict[str, FloatArray]:
    """Figures per client of a rule that scores items.

    Args:
        item: int64[n], the item to find; -1 for a client without one.
        negatives: int32[n, K], items that it is ranked among; padded with -1.
        scores: [m] for all clients alike, or [n, m].
        cutoff: cutoff of the figures.
    """
    rows = np.arange(len(item))
    each = np.broadcast_to(scores, (len(item), scores.shape[-1]))
    own, others = each[rows, item], each[rows[:, None], negatives]
    there = negatives >= 0
    above = ((others > own[:, None]) & there).sum(axis=1)
    tied = ((others == own[:, None]) & there).sum(axis=1)
    return expected_quality(np.where(item < 0, -1, above), tied, cutoff=cutoff)


def drawn_items(
    case: RankingCase,
    *,
    rounds: int,
    stream: Stream,
    per_positive: int,
    present: Callable[[int], IntArray] | None = None,
) -> BoolArray:
    """bool[n, m], which items were a client's negative in any of its rounds.

    The draws are those of a training on the same stream, in rounds 1, 2, ... (``draw_negatives``).

    Args:
        case: what clients train on, and what is kept out.
        rounds: rounds of training.
        stream: stream of the draws.
        per_positive: negatives of a positive; 0 where none is drawn.
        present: int64[P], ascending, clients that take part in a round; None for all.
    """
    drawn = np.zeros((case.n_clients, case.n_items), dtype=np.bool_)
    if not per_positive:
        return drawn
    clients, rated, kept_out = np.arange(case.n_clients, dtype=np.int64), case.rated, case.kept_out
    for round_ in range(1, rounds + 1):
        if present is not None:
            clients = present(round_)
            rated, kept_out = case.rated.of_all(clients), case.kept_out.of_all(clients)
        examples = draw_negatives(
            rated,
            kept_out,
            case.n_items,
            per_positive=per_positive,
            stream=stream,
            round=round_,
            clients=clients,
        )
        _mark(clients, examples.indptr, examples.items, examples.labels, drawn)
    return drawn


@compiled_loop
def _mark(
    clients: IntArray, indptr: IntArray, items: IndexArray, labels: FloatArray, drawn: BoolArray
) -> None:
    for place in range(len(clients)):
        for row in range(indptr[place], indptr[place + 1]):
            if labels[row] == 0.0:
                drawn[clients[place], items[row]] = True


def rule_figures(
    case: RankingCase, drawn: BoolArray, *, cutoff: int = 10
) -> Mapping[str, dict[str, FloatArray]]:
    """Figures of the test items per client under each of ``ORACLES``.

    Args:
        case: the case.
        drawn: bool[n, m], of ``drawn_items``.
        cutoff: K.
    """
    scores = {
        "random": np.zeros(case.n_items),
        "popularity": case.train.item_popularity(),
        "never drawn": ~drawn,
    }
    return {
        name: rule_quality(case.test, case.test_negatives, scores[name], cutoff=cutoff)
        for name in ORACLES
    }


def warm_figures(case: RankingCase, figures: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Figures of clients whose test item is in some client's training set, NaN for the others.

    Args:
        case: the case.
        figures: figures of test items, [n] by name.

    Returns:
        float64[n] by name, with ``warm_`` before it.
    """
    return {f"warm_{name}": np.where(case.cold, np.nan, values) for name, values in figures.items()}
