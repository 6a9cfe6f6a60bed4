"""Claims about a client's examples: their most frequent class, and their distribution."""

from dataclasses import dataclass

import numpy as np

from attacks.base import need
from attacks.scoring.chance import beside_sums, hit_interval, hit_null, normal_null, ranked_unit
from attacks.scoring.gains import Figures, Gain, Gains, interval_figures
from attacks.scoring.truth import (
    NO_CONTRAST,
    NOBODY,
    Scored,
    SecretClaim,
    is_honest,
    require_finite,
)
from secure_fedrec.core.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelClaim(SecretClaim):
    """How likely each class is to be a client's own.

    Args:
        name: name of the classes.
        clients: int64[B].
        scores: float64[B, C], the highest is the guess.
    """

    kind = "labels"
    """A class of every client, int64[n], -1 where it has none."""

    scores: FloatArray

    def judged(self, truth: IntArray, corrupted: frozenset[int], seed: int) -> Scored:
        """Judge a class per client.

        - ``label_accuracy``: share of clients whose class has the highest score, ties shared;
        - ``label_chance``: the same if guesses were assigned to clients at random;
        - ``label_base_rate``: share of the most frequent class, the best guess that reads nothing;
        - ``label_lift``: accuracy above the base rate.
        """
        known = is_honest(self.clients, corrupted) & (truth[self.clients] >= 0)
        need(known.any(), NOBODY)
        scores, classes = self.scores[known], truth[self.clients[known]]
        require_finite("scores of classes", scores)
        need(len(np.unique(classes)) > 1, NO_CONTRAST)
        best = scores == scores.max(axis=1, keepdims=True)
        guesses = best / best.sum(axis=1, keepdims=True)
        odds = guesses[np.arange(len(classes)), classes]
        shares = np.bincount(classes, minlength=scores.shape[1]) / len(classes)
        chance, base = float(guesses.mean(axis=0) @ shares), float(shares.max())
        accuracy = interval_figures("label_accuracy", hit_interval(odds, seed=seed))
        dealt = np.random.default_rng(seed).permutation(classes)
        null = guesses[np.arange(len(classes)), dealt]
        return Scored(
            figures={**accuracy, "label_chance": chance, "label_base_rate": base},
            gains={"label_lift": Gain(odds - base, guesses=True)},
            units={"clients": len(classes), "pairs": scores.size, "positives": len(classes)},
            details={"label": self.name},
            null_control=hit_null("label_accuracy", null, chance),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HistogramClaim(SecretClaim):
    """How a client's records are distributed.

    Args:
        name: name of the bins.
        clients: int64[B].
        shares: float64[B, K], at least 0, of sum 1 for each client.
        activity: float64[B], grows with the number of records.
    """

    kind = "histograms"
    """Counts of every client, float64[n, K]."""

    shares: FloatArray
    activity: FloatArray

    def judged(self, truth: FloatArray, corrupted: frozenset[int], seed: int) -> Scored:
        """Judge how each client's records are distributed.

        - ``histogram_error``: half the L1 distance of the shares, the part of the records in a
          wrong bin; low is a leak;
        - ``histogram_correlation``: rank correlation of the shares over bins;
        - ``..._chance``: the same claim against the other clients' truths, as clients resemble each
          other; ``..._lift``: how much better it is on the client's own;
        - ``activity_correlation``: rank correlation over clients of the claimed and true activity.
        """
        known = is_honest(self.clients, corrupted) & (truth[self.clients].sum(axis=1) > 0)
        need(known.any(), NOBODY)
        claimed, actual = self.shares[known], truth[self.clients[known]]
        require_finite("claimed histograms", claimed)
        totals = actual.sum(axis=1)
        shares = actual / totals[:, None]
        # [claim, truth]: the diagonal is the claim about the client itself.
        errors = np.abs(claimed[:, None] - shares[None]).sum(axis=2) / 2
        correlations = ranked_unit(claimed) @ ranked_unit(shares).T
        figures: Figures = {"activity_correlation": None}
        gains: Gains = {}
        better = (
            ("histogram_error", errors, 1.0, -1.0),
            ("histogram_correlation", correlations, 2.0, 1.0),
        )
        for name, values, span, sign in better:
            own, sums, size = values.diagonal(), values.sum(axis=1), len(values)
            found, more = beside_sums(name, own, sums, size, seed=seed, span=span, sign=sign)
            figures, gains = figures | found, gains | more
        if len(np.unique(totals)) > 2:
            activity = ranked_unit(self.activity[known][None]) @ ranked_unit(totals[None]).T
            figures["activity_correlation"] = float(activity[0, 0])
        bins, there = shares.shape[1], int((shares > 0).sum())
        dealt = np.random.default_rng(seed).permuted(ranked_unit(shares), axis=1)
        null = float((ranked_unit(claimed) * dealt).sum(axis=1).mean())
        # Of unrelated orders it has mean 0 and variance 1 / (bins - 1), ties or not.
        deviation = 1.0 / np.sqrt(max(1, bins - 1) * len(totals))
        return Scored(
            figures=figures,
            gains=gains,
            units={"clients": len(totals), "pairs": shares.size, "positives": there},
            details={"histogram": self.name},
            null_control=normal_null("histogram_correlation", null, 0.0, float(deviation)),
        )
