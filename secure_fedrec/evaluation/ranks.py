"""Computes the ranks of held-out items from a client's scores of all items.

Items with the same score stand before the held-out one: a model that tells nothing apart has not
found it. Three places per client: among the sampled negatives for validation and for the test, and
of the test item among everything outside the client's training and validation items.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.data.negatives import Ragged
from secure_fedrec.evaluation.protocols import RankingCase
from secure_fedrec.evaluation.ranking import client_quality


class Ranks(NamedTuple):
    """Places of held-out items, from 1; 0 where a client has none.

    Attributes:
        validation: int64[B], among the validation negatives.
        test: int64[B], among the test negatives.
        full: int64[B], of the test item among all items that are neither trained on nor held out
            for validation.
    """

    validation: IntArray
    test: IntArray
    full: IntArray


@compiled_loop
def place_among(scores: FloatArray, item: int, others: IndexArray) -> int:
    """Place of an item among itself and others, from 1; -1 ends the others. 0 without an item."""
    if item < 0:
        return 0
    place = 1
    for other in others:
        if other < 0:
            break
        place += scores[other] >= scores[item]
    return place


@compiled_loop
def place_among_all(scores: FloatArray, item: int, apart: int, trained: IndexArray) -> int:
    """Place of an item among all but ``trained`` and ``apart``, from 1; 0 without an item."""
    if item < 0:
        return 0
    place = 0  # counts the item itself, so places start at 1
    for other in range(len(scores)):
        place += scores[other] >= scores[item]
    for other in trained:
        place -= scores[other] >= scores[item]
    if apart >= 0:
        place -= scores[apart] >= scores[item]
    return place


def client_ranks(
    case: RankingCase, clients: npt.NDArray[np.integer], scores: npt.NDArray[np.floating]
) -> Ranks:
    """Places by the scores of some clients' own models.

    Args:
        case: what is held out.
        clients: int[B].
        scores: float[B, m], of every item, finite.

    Raises:
        ValueError: the scores have another shape, or one is not a finite number; names the client.
    """
    if scores.shape != (len(clients), case.n_items):
        raise ValueError(f"{scores.shape} scores of {len(clients)} x {case.n_items}")
    finite = np.isfinite(scores).all(axis=1)
    if not finite.all():
        raise ValueError(f"a score of client {clients[int(np.argmin(finite))]} is not finite")
    ranks = Ranks(*np.zeros((3, len(clients)), dtype=np.int64))
    rated = case.rated.of_all(clients)
    _rank(
        np.ascontiguousarray(scores),
        case.validation[clients],
        case.test[clients],
        case.validation_negatives[clients],
        case.test_negatives[clients],
        rated,
        ranks,
    )
    return ranks


@compiled_loop
def _rank(
    scores: npt.NDArray[np.floating],
    validation: IntArray,
    test: IntArray,
    validation_negatives: IndexArray,
    test_negatives: IndexArray,
    trained: Ragged,
    ranks: Ranks,
) -> None:
    for row in range(len(scores)):
        apart, item, own = validation[row], test[row], scores[row]
        ranks.validation[row] = place_among(own, apart, validation_negatives[row])
        ranks.test[row] = place_among(own, item, test_negatives[row])
        rated = trained.items[trained.indptr[row] : trained.indptr[row + 1]]
        ranks.full[row] = place_among_all(own, item, apart, rated)


def client_figures(
    case: RankingCase, clients: npt.NDArray[np.integer], ranks: Ranks, *, cutoff: int = 10
) -> dict[str, FloatArray]:
    """Every figure of every client, for differences that are paired by client.

    Args:
        case: what the ranks are of.
        clients: int[B].
        ranks: theirs.
        cutoff: K.

    Returns:
        float64[B] by name, NaN where a client has none: ``hit_rate_at_K`` and ``ndcg_at_K`` of the
        test item among its negatives; with ``validation_`` before them of the validation item; with
        ``full_`` of the test item among all items; with ``warm_`` like the first without cold test
        items (in no client's training set), and with ``cold_`` only those.
    """
    cold = case.cold[clients]
    kinds = {
        "": ranks.test,
        "validation_": ranks.validation,
        "full_": ranks.full,
        "warm_": np.where(cold, 0, ranks.test),
        "cold_": np.where(cold, ranks.test, 0),
    }
    found = client_quality(np.stack([*kinds.values()]), cutoff=cutoff)
    return {
        f"{kind}{name}": values[place]
        for place, kind in enumerate(kinds)
        for name, values in found.items()
    }


def quality(figures: Mapping[str, FloatArray]) -> dict[str, float]:
    """Means over the clients that have a figure; a figure that no client has is left out.

    Args:
        figures: figures of ``client_figures``, all clients of a case.

    Returns:
        The means, and ``cold_test_items``: clients whose test item is in no client's training set.
    """
    means = {
        name: float(np.nanmean(values))
        for name, values in figures.items()
        if np.isfinite(values).any()
    }
    cold = next(values for name, values in figures.items() if name.startswith("cold_"))
    return {**means, "cold_test_items": float(np.isfinite(cold).sum())}


def chosen_round(qualities: Sequence[Mapping[str, float]], *, cutoff: int = 10) -> int:
    """The round whose model is reported: chosen on validation items only.

    Args:
        qualities: qualities of ``quality``, one per round that may be chosen.
        cutoff: K.

    Returns:
        Place of the largest validation HR@K; of equal ones that of the largest NDCG@K, then the
        first.

    Raises:
        ValueError: there is no round, or a round was not validated.
    """
    names = f"validation_hit_rate_at_{cutoff}", f"validation_ndcg_at_{cutoff}"
    if not qualities or not all(name in each for each in qualities for name in names):
        raise ValueError("a model is chosen on validation items: a round has no figure of them")
    return max(range(len(qualities)), key=lambda n: (*(qualities[n][name] for name in names), -n))
