"""Games on sums of co-occurrences about a client whose row is known: membership and next choice.

**Membership.** The adversary knows a candidate's row x, except held-out items, and has to tell
whether x x^T is in the sums. The sums are either unchanged or without that client's part, with the
same noise. The harness supplies the row. Judged is the AUC over all clients of both worlds at one
threshold. A pair of the row that no client has proves that the row is not in the sums. Beside
proofs, the score is how far pairs of the row lie above their part that all clients' tastes explain:
the leading eigenvectors of the sums of that world that exceed the noise. Without the view both
worlds are equal, so chance is one half.

**Next choice.** EASE's regression on the sums ranks the items that a client does not have by those
it has; held-out ones should come first. This is the purpose of the model, and it works for people
who are not in the sums as well. So what counts is the gain over the same regression without the
client.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attacks.base import need
from attacks.scoring.chance import mean_auc, nan_mean, normal_null
from attacks.scoring.gains import Figures, Gain, interval_figures
from attacks.scoring.item_sets import ItemSets
from attacks.scoring.sets import score_table
from attacks.scoring.statistics import per_client_auc
from attacks.scoring.truth import ALL_CORRUPTED, NO_CONTRAST, Case, Scored, is_honest
from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.evaluation.intervals import mean_interval

_FEWEST = 2
"""Number of clients whose two worlds are compared."""

_DIRECTIONS, _ITEMS_EACH = 16, 8
"""Largest number of eigenvectors for tastes, and fewest items for each."""

_LEAST_DOUBT, _ACROSS = 0.05, 1e-9
"""Variance of a pair that no client is expected to have, and length below which a vector is a
rounding error.
"""

_SPAN = 3.0
"""Width of the range of one client's term of an AUC: two shares minus the AUC."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairSumsClaim:
    """Sums that contain the rows of the other clients.

    Args:
        matrix: float64[m, m].
        noise: standard deviation of the noise in the diagonal; sqrt(1 / 2) times that elsewhere.
        floor: fewest clients of a pair that is not 0.
        largest_norm: a row x with more items is scaled by this over its number of items; None for
            no scaling.
    """

    matrix: FloatArray
    noise: float
    floor: int
    largest_norm: float | None

    def weight(self, size: int) -> float:
        """The weight of x x^T of a row with so many items."""
        return 1.0 if self.largest_norm is None else min(1.0, self.largest_norm / max(size, 1))


def _honest_rows(case: Case) -> tuple[IntArray, ItemSets]:
    """Clients whose rows are tried, and all rows; requires at least one."""
    rows = ItemSets.rated(need(case.truth.train, "the truth holds no ratings"))
    clients = np.arange(len(rows))
    clients = clients[is_honest(clients, case.corrupted) & (rows.lengths > 0)]
    need(len(clients) >= _FEWEST, ALL_CORRUPTED)
    return clients, rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MembershipClaim(PairSumsClaim):
    """Judged by the rows of all clients.

    Args:
        unknown: bool[m], items of which the sums are not told; None for none.
    """

    unknown: BoolArray | None = None

    def scored(self, case: Case) -> Iterator[Scored]:
        """Score both worlds of every client."""
        clients, rows = _honest_rows(case)
        scores, proven = np.zeros((2, len(clients))), np.zeros((2, len(clients)), dtype=bool)
        leading = self._leading()
        for place, client in enumerate(clients.tolist()):
            items = rows.items[rows.indptr[client] : rows.indptr[client + 1]]
            weight = self.weight(len(items))
            if self.unknown is not None:
                items = items[~self.unknown[items]]
            seen = self.matrix[np.ix_(items, items)]
            less = seen - weight
            if self.floor > 1:
                less = np.where((seen > 0) & (less >= self.floor), less, 0.0)
            for world, sums in enumerate((seen, less)):
                told = leading.within(items, float(seen.sum()), weight if world else 0.0)
                scores[world, place] = self._beyond(sums, told)
                exact = self.noise == 0 and self.floor <= 1
                proven[world, place] = exact and sums.min(initial=1.0) <= 0
        scores[proven] = scores.min() - 1.0  # proven absence ranks below everything else
        members = _below(scores[1], scores[0])
        each = members + 1.0 - _below(scores[0], scores[1]) - members.mean()
        size, interval = len(clients), mean_interval(each, seed=case.seed, span=_SPAN)
        dealt = np.random.default_rng(case.seed).permutation(scores.reshape(-1)).reshape(2, -1)
        null = float(_below(dealt[1], dealt[0]).mean())
        deviation = float(np.sqrt((2 * size + 1) / (12 * size**2)))  # Mann and Whitney 1947
        yield Scored(
            figures={
                **interval_figures("membership_auc", interval),
                "absence_proven": float(proven[1].mean()),
            },
            gains={"membership_gain": Gain(each - 0.5, span=_SPAN)},
            units={"clients": size, "pairs": 2 * size, "positives": size},
            null_control=normal_null("membership_auc", null, 0.5, deviation),
        )

    def _leading(self) -> "_Leading":
        """Eigenvectors that exceed the noise, few relative to the size of the sums."""
        from scipy.sparse.linalg import eigsh  # noqa: PLC0415 - who only reads need not wait

        size = len(self.matrix)
        count = min(_DIRECTIONS, size // _ITEMS_EACH)
        if not count:
            return _Leading(np.zeros(0), np.zeros((size, 0)))
        values, vectors = eigsh(self.matrix, k=count, which="LA", v0=np.ones(size))
        kept = values > 2 * self.noise * np.sqrt(size / 2)  # Wigner
        return _Leading(values[kept], vectors[:, kept])

    def _beyond(self, sums: FloatArray, told: FloatArray) -> float:
        """How far pairs of a row lie above their expected values, in standard deviations.

        Args:
            sums: float64[k, k], of the items of the row.
            told: float64[k, k].
        """
        pairs = np.triu_indices(len(sums), 1)
        doubt = np.maximum(told[pairs], _LEAST_DOUBT) + self.noise**2 / 2
        weighed = float(((sums[pairs] - told[pairs]) / doubt).sum())
        return weighed / float(np.sqrt((1.0 / doubt).sum() or 1.0))


class _Leading(NamedTuple):
    """Leading eigenvectors of sums.

    Attributes:
        values: float64[q].
        vectors: float64[m, q].
    """

    values: FloatArray
    vectors: FloatArray

    def within(self, items: IndexArray | IntArray, total: float, weight: float) -> FloatArray:
        """Expected values of the pairs of a row x if w x x^T were not in the sums: float64[k, k].

        The eigenvectors without it are approximated within the span of those of the sums and x
        (Ritz), where the sums are diagonal.

        Args:
            items: int[k], those of x.
            total: total of the sums of their pairs, x G x.
            weight: w; 0 for the sums as they are.
        """
        own, values = self.vectors[items], self.values
        along = own.sum(axis=0)
        across = max(len(items) - float(along @ along), 0.0) ** 0.5
        if weight and across > _ACROSS:
            rest = (1.0 - own @ along) / across
            last = (total - float((along * values) @ along)) / across**2
            both = np.append(along, across)
            whole = np.diag(np.append(values, last)) - weight * np.outer(both, both)
            found, mixed = np.linalg.eigh(whole)
            own = np.column_stack([own, rest]) @ mixed[:, 1:]
            values = found[1:]
        return np.asarray((own * values) @ own.T)


def _below(some: FloatArray, others: FloatArray) -> FloatArray:
    """Share of ``some`` that lie below each of the others, ties by half: float64[n]."""
    ordered = np.sort(some)
    both = (np.searchsorted(ordered, others, side) for side in ("left", "right"))
    return np.asarray(sum(both) / (2 * len(some)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChoiceClaim(PairSumsClaim):
    """Judged by held-out interests, ``HeldOutClaim``, and by the rows of all clients.

    Args:
        shrinkage: lambda of the regression, in clients.
    """

    shrinkage: float

    def scored(self, case: Case) -> Iterator[Scored]:
        """Rank by the regression with and without each client."""
        truth = case.truth.of_kind("held_out").get("items")
        if truth is None:
            return
        clients, rows = _honest_rows(case)
        labels, keep = truth[clients] == 1, truth[clients] >= 0
        with_own, without = self._ranked(rows.take(clients).grid())
        aucs, earlier, prior = (
            per_client_auc(score_table(scores, labels, keep))
            for scores in (with_own, without, np.broadcast_to(rows.popularity, labels.shape))
        )
        need(np.isfinite(aucs).any(), NO_CONTRAST)
        figures: Figures = {
            **interval_figures("choice_auc", mean_auc(aucs, case.seed)),
            "choice_prior_auc": nan_mean(prior),
            "choice_without_auc": nan_mean(earlier),
        }
        yield Scored(
            figures=figures,
            gains={"choice_gain": Gain(aucs - earlier)},
            units={
                "clients": len(clients),
                "pairs": int(keep.sum()),
                "positives": int(labels.sum()),
            },
        )

    def _ranked(self, rows: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Scores of all items by each row, with its client in the sums and without: float64[B, m].

        With z = P x and h = x P x, P is P + w z z^T / (1 - w h) without a client of weight w
        (Sherman and Morrison 1950). Of items outside the row x B is -z over the diagonal.
        """
        size = len(self.matrix)
        radius = 2 * self.noise * np.sqrt(size / 2)  # radius of the noise's spectrum (Wigner)
        lowest = max(0.0, -float(np.linalg.eigvalsh(self.matrix)[0])) if self.floor > 1 else radius
        inverse = np.linalg.inv(self.matrix + (self.shrinkage + lowest) * np.eye(size))
        along, own = rows @ inverse, inverse.diagonal()
        weights = np.array([self.weight(int(row.sum())) for row in rows])
        left = 1.0 - weights * (along * rows).sum(axis=1)
        without = own + np.square(along) * (weights / left)[:, None]
        return -along / own, -along / left[:, None] / without
