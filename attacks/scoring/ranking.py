"""Rankings of a catalogue: what everybody could rank by, and precision at the size of the set."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeVar, cast

import numpy as np

from attacks.scoring.statistics import ScoreTable, per_client_auc
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.core.bounded import Bounded
from secure_fedrec.evaluation.ranking import midranks

_CHANCE = 0.5
_CLEARLY = 1.0
"""Standard error above chance from which a ranking is one: the best of several is by chance."""


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


_Made = TypeVar("_Made")


@dataclass(frozen=True, eq=False)
class PublicRanking:
    """What ranks the items without a look at the client.

    Attributes:
        prior: float64[B, m], the ranking; equal values are ties.
        learned: float64[B, m], the same in what two halves of the clients tell of each other. A
            rule fitted on counts that leave one client out could take them from the counts of all,
            where these are released, and be left with that client's set.
    """

    prior: FloatArray
    learned: FloatArray
    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, name: str, make: Callable[[], _Made]) -> _Made:
        """What is computed of a ranking alone: it serves many attacks, with the same labels."""
        if name not in self._known:
            self._known[name] = make()
        return cast(_Made, self._known[name])

    def table(self, labels: BoolArray) -> ScoreTable:
        """The game of who ranks by it."""
        return self.once("table", lambda: _whole_table(self.prior, labels))

    def precision(self, labels: BoolArray) -> FloatArray:
        """Its ``precision_at_size``."""
        return self.once("precision", lambda: precision_at_size(self.prior, labels))


def halves(clients: int, seed: int) -> tuple[IntArray, IntArray]:
    """Two halves of some clients, drawn at random."""
    order = np.random.default_rng(seed).permutation(clients)
    return np.sort(order[: clients // 2]), np.sort(order[clients // 2 :])


def public_ranking(
    popularity: FloatArray, scores: FloatArray, labels: BoolArray, seed: int
) -> PublicRanking:
    """What ranks the items best without a look at the client, in counts of raters.

    The best of popularity among all others or among the other half of the clients, of what an
    attack says of that half (nothing in it is about this one; released counts are such a ranking),
    of its reverse; or nothing, if none is clearly better than chance. So it is where counts are
    nearly equal: the client itself is left out of them, so its own items would rank last. That is
    the harness's doing, and nobody's knowledge.

    Args:
        popularity: float64[B, m], raters of the items apart from the client.
        scores: float64[B, m], the attack's.
        labels: bool[B, m], the rated sets; rankings are compared by their mean AUC.
        seed: of the halves.
    """
    # Attacks on the same clients share what depends on none of them; to hash is a fraction of it.
    whole = sha256(f"{popularity.shape} {seed} ".encode())
    for column in (popularity, labels):
        whole.update(np.ascontiguousarray(column).data)
    counted = _COUNTED.get(whole.digest(), lambda: _counted(popularity, labels, seed))
    best, ranking = _CHANCE, counted[0]
    said = _said_of_others(scores, popularity, halves(len(labels), seed))
    for candidate in (*counted[1:], *said):
        aucs = per_client_auc(candidate.table(labels))
        aucs = aucs[np.isfinite(aucs)]
        found, error = float(aucs.mean()), float(aucs.std()) / np.sqrt(len(aucs))
        if found > best and found - _CHANCE > _CLEARLY * error:
            best, ranking = found, candidate
    return ranking


_Counted = tuple[PublicRanking, PublicRanking, PublicRanking]


def _counted(popularity: FloatArray, labels: BoolArray, seed: int) -> _Counted:
    """No ranking, the one of all others' counts, and the one of the other half's."""
    apart = np.empty_like(popularity)
    for part in halves(len(labels), seed):
        apart[part] = popularity[part] + labels[part] - labels[part].sum(axis=0)
    nothing = np.zeros_like(popularity)
    return (
        PublicRanking(nothing, nothing),
        PublicRanking(popularity, apart),
        PublicRanking(apart, apart),
    )


_COUNTED: Bounded[_Counted] = Bounded(512 * 2**20, lambda kept: 12 * kept[0].prior.nbytes)
"""Each ranking with its sorted scores, its levels and the like takes several times its size."""


def _said_of_others(
    scores: FloatArray, popularity: FloatArray, parts: tuple[IntArray, IntArray]
) -> Iterator[PublicRanking]:
    """Rankings of an attack's mean ranks among the other half, upwards and downwards."""
    if not all(len(part) for part in parts):
        return
    counts = np.sort(popularity.mean(axis=0))
    ranks = midranks(scores)
    for sign in (1.0, -1.0):
        said = np.empty_like(popularity)
        for part, others in (parts, parts[::-1]):
            said[part] = _in_counts(sign * ranks[others].mean(axis=0), counts)
        yield PublicRanking(said, said)


def _in_counts(scores: FloatArray, counts: FloatArray) -> FloatArray:
    """A ranking of the items in the range of ascending counts, in the order of scores: [m]."""
    places = midranks(scores) - 1  # midranks: what is tied stays tied
    # Counts that are equal must not tie what the scores tell apart.
    return np.asarray(counts[places.astype(np.int64)] + places / len(scores))


def _whole_table(scores: FloatArray, labels: BoolArray) -> ScoreTable:
    clients, items = labels.shape
    return ScoreTable(
        indptr=np.arange(clients + 1) * items,
        scores=np.ascontiguousarray(scores, dtype=np.float64).ravel(),
        labels=labels.ravel(),
    )
