"""What sums of co-occurrences tell of one whose row is known: that it took part, and its choice.

**Membership.** The adversary knows a candidate's row x, all but what is held out of it, and asks
whether its x x^T is in the sums. A coin decides: the sums are as they are, or the same without that
client, noise and all. The harness plays the part of the row. Judged is the AUC over all clients of
both worlds at one threshold. A pair of the row that nobody has proves that it is not there. Beside
proofs, what counts is how far pairs of the row lie above what popularity explains of them,
n p_i p_j, rare pairs more. Without the view both worlds are alike: chance is one half.

**Next choice.** EASE's regression on the sums ranks the items that a client does not have by those
it has; held-out ones are to come first. That is what the model is for, and it is so of people who
are in no sum. So what counts is the gain over the same regression without the client.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attacks.base import need
from attacks.scoring.chance import mean_auc, nan_mean, normal_null
from attacks.scoring.gains import Figures, Gain, interval_figures
from attacks.scoring.item_sets import ItemSets
from attacks.scoring.sets import score_table
from attacks.scoring.statistics import per_client_auc
from attacks.scoring.truth import ALL_CORRUPTED, NO_CONTRAST, Case, Scored, is_honest
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.evaluation.intervals import mean_interval

_FEWEST = 2
"""Clients to compare worlds of."""

_SPAN = 3.0
"""Of what a client adds to an area that it is in on both sides: two shares less the area."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairSumsClaim:
    """Sums that the others' rows are in.

    Args:
        matrix: float64[m, m].
        noise: standard deviation of what is added to the diagonal; sqrt(1 / 2) of it beside that.
        floor: fewest clients of a pair that is not 0.
        largest_norm: a row x of more items counts as this over its items; None for all alike.
    """

    matrix: FloatArray
    noise: float
    floor: int
    largest_norm: float | None

    def weight(self, size: int) -> float:
        """Of the x x^T of a row of so many items."""
        return 1.0 if self.largest_norm is None else min(1.0, self.largest_norm / max(size, 1))


def _honest_rows(case: Case) -> tuple[IntArray, ItemSets]:
    """Clients whose rows are tried, and all rows; needs some."""
    rows = ItemSets.rated(need(case.truth.train, "the truth holds no ratings"))
    clients = np.arange(len(rows))
    clients = clients[is_honest(clients, case.corrupted) & (rows.lengths > 0)]
    need(len(clients) >= _FEWEST, ALL_CORRUPTED)
    return clients, rows


class MembershipClaim(PairSumsClaim):
    """Judged by the rows of all clients."""

    def scored(self, case: Case) -> Iterator[Scored]:
        """Compare both worlds of every client."""
        clients, rows = _honest_rows(case)
        scores = np.zeros((2, len(clients)))
        proven = np.zeros((2, len(clients)), dtype=bool)
        n_clients = len(rows)
        for place, client in enumerate(clients.tolist()):
            items = rows.items[rows.indptr[client] : rows.indptr[client + 1]]
            seen = self.matrix[np.ix_(items, items)]
            without = seen - self.weight(len(items))
            if self.floor > 1:
                without = np.where((seen > 0) & (without >= self.floor), without, 0.0)
            for world, sums in enumerate((seen, without)):
                scores[world, place], proven[world, place] = self._score(sums, n_clients)
        # A proof of absence lies below all else.
        scores[proven] = scores.min() - 1.0
        areas = [_below(scores[1], scores[0]), 1.0 - _below(scores[0], scores[1])]
        auc = float(areas[0].mean())
        each = areas[0] + areas[1] - auc
        dealt = np.random.default_rng(case.seed).permutation(scores.reshape(-1)).reshape(2, -1)
        size = len(clients)
        deviation = float(np.sqrt((2 * size + 1) / (12 * size**2)))  # Mann and Whitney 1947
        yield Scored(
            figures={
                **interval_figures(
                    "membership_auc", mean_interval(each, seed=case.seed, span=_SPAN)
                ),
                "absence_proven": float(proven[1].mean()),
            },
            gains={"membership_gain": Gain(each - 0.5, span=_SPAN)},
            units={"clients": size, "pairs": 2 * size, "positives": size},
            null_control=normal_null(
                "membership_auc", float(_below(dealt[1], dealt[0]).mean()), 0.5, deviation
            ),
        )

    def _score(self, sums: FloatArray, n_clients: int) -> tuple[float, bool]:
        """How far pairs of a row lie above chance, in deviations; whether one is nobody's.

        Args:
            sums: float64[k, k], of the items of the row.
            n_clients: n.
        """
        own, pairs = sums.diagonal(), np.triu_indices(len(sums), 1)
        absent = self.noise == 0 and self.floor <= 1 and bool(sums.min() <= 0)
        had = np.maximum(own, 1.0)
        expected = np.outer(had, had)[pairs] / n_clients
        doubt = expected + self.noise**2 / 2
        weighed = float(((sums[pairs] - expected) / doubt).sum())
        return weighed / float(np.sqrt((1.0 / doubt).sum() or 1.0)), absent


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
        radius = 2 * self.noise * np.sqrt(size / 2)  # of what noise makes negative (Wigner)
        lowest = max(0.0, -float(np.linalg.eigvalsh(self.matrix)[0])) if self.floor > 1 else radius
        inverse = np.linalg.inv(self.matrix + (self.shrinkage + lowest) * np.eye(size))
        along, own = rows @ inverse, inverse.diagonal()
        weights = np.array([self.weight(int(row.sum())) for row in rows])
        left = 1.0 - weights * (along * rows).sum(axis=1)
        without = own + np.square(along) * (weights / left)[:, None]
        return -along / own, -along / left[:, None] / without
