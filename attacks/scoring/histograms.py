"""Secret counts of each client: the claim, its figures, and how it is judged."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attacks.scoring.chance import beside_sums, normal_null, ranked_unit
from attacks.scoring.gains import Figures, Gains
from attacks.scoring.scored import NOBODY, NotApplicable, Scored, is_honest, require_finite
from attacks.scoring.truth import Case, SecretClaim
from secure_fedrec.core.arrays import FloatArray

KIND = "histograms"
"""Kind of secret: counts of every client, float64[n, K]."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HistogramClaim(SecretClaim):
    """How a client's records are distributed.

    Args:
        name: what the bins are.
        clients: int64[B].
        shares: float64[B, K], at least 0, of sum 1 for each client.
        activity: float64[B], grows with the number of records.
    """

    shares: FloatArray
    activity: FloatArray

    def scored(self, case: Case) -> Iterator[Scored | NotApplicable]:
        """Judge it by the counts of that name."""
        return self.judged(case, KIND, score_histograms)


def score_histograms(
    claim: HistogramClaim, truth: FloatArray, corrupted: frozenset[int], seed: int
) -> Scored | NotApplicable:
    """Judge how each client's records are distributed.

    - ``histogram_error``: half the L1 distance of the shares, the part of the records in a wrong
      bin; low is a leak;
    - ``histogram_correlation``: rank correlation of the shares over bins;
    - ``..._chance``: the same claim against the other clients' truths, as clients resemble each
      other; ``..._lift``: how much better it is on the client's own;
    - ``activity_correlation``: rank correlation over clients of the claimed and true activity.

    Args:
        claim: the claim.
        truth: float64[n, K], every client's records per bin.
        corrupted: the adversary's own clients; they are left out.
        seed: of the bootstrap and of the null control.

    Raises:
        ValueError: a claimed share is not finite.
    """
    known = is_honest(claim.clients, corrupted) & (truth[claim.clients].sum(axis=1) > 0)
    if not known.any():
        return NotApplicable(reason=NOBODY)
    claimed, actual = claim.shares[known], truth[claim.clients[known]]
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
        activity = ranked_unit(claim.activity[known][None]) @ ranked_unit(totals[None]).T
        figures["activity_correlation"] = float(activity[0, 0])
    bins = shares.shape[1]
    dealt = np.random.default_rng(seed).permuted(ranked_unit(shares), axis=1)
    null = float((ranked_unit(claimed) * dealt).sum(axis=1).mean())
    # A rank correlation of unrelated orders has mean 0 and variance 1 / (bins - 1), ties or not.
    deviation = 1.0 / np.sqrt(max(1, bins - 1) * len(totals))
    return Scored(
        figures=figures,
        gains=gains,
        units={"clients": len(totals), "pairs": shares.size, "positives": int((shares > 0).sum())},
        details={"histogram": claim.name},
        null_control=normal_null("histogram_correlation", null, 0.0, float(deviation)),
    )
