"""Sales: how often each item of an organisation was chosen, from vectors that it gives away.

The adversary knows sales of its own, of items that both have, and fits a linear probe to them: from
the organisation's vectors of these items to the logarithm of how often they sell at home. The
harness plays that part, as it has the counts. What is judged are items that the adversary does not
sell: of these it knows nothing without the vectors. Where it is shown no others, those that both
sell are judged, beside its own sales of them, which tell most of it.

Who sells nothing (a server) is given the sales of all other organisations, more than anyone knows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attacks.scoring.chance import normal_null, ranked_unit
from attacks.scoring.gains import Estimate, Figures
from attacks.scoring.scored import NOBODY, NotApplicable, Scored, is_honest, require_finite
from attacks.scoring.truth import Case, SecretClaim
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.evaluation.scores import area_under_curve

KIND = "sales"
"""Kind of secret: counts by client and item, int64[n, m]; -1 where a client lacks the item."""

SELLS = 5
"""From so many interactions on an item counts as selling."""

_RIDGE = 1e-2
"""Share of a feature's spread that the probe is pulled to zero by."""

_FEWEST = 20
"""Items to fit or to judge; fewer tell nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SalesClaim(SecretClaim):
    """What was seen of the items of organisations.

    Args:
        name: what the items are.
        clients: int64[T], whose.
        items: int64[k] of each.
        features: float64[k, F] of each, in the same order.
    """

    items: tuple[IntArray, ...]
    features: tuple[FloatArray, ...]

    def scored(self, case: Case) -> Iterator[Scored | NotApplicable]:
        """Judge it by the counts of that name."""
        return self.judged(case, KIND, score_sales)


class _Told(NamedTuple):
    """What was told of one organisation's items.

    Attributes:
        correlation, prior: with the true counts.
        auc: of items that sell; None where all do, or none.
        null: correlation with counts dealt to the items at random.
        size: items judged.
        sold: whether the adversary sells them.
    """

    correlation: float
    prior: float
    auc: float | None
    null: float
    size: int
    sold: bool


def score_sales(
    claim: SalesClaim, truth: IntArray, corrupted: frozenset[int], seed: int
) -> Scored | NotApplicable:
    """Judge how often items were chosen, mean over organisations.

    Args:
        claim: the claim.
        truth: int64[n, m], as of ``KIND``.
        corrupted: the adversary's own organisations, whose sales it knows.
        seed: of the null control.

    Raises:
        ValueError: a feature is not finite.
    """
    told: list[_Told] = []
    for place in np.flatnonzero(is_honest(claim.clients, corrupted)).tolist():
        client, items = int(claim.clients[place]), claim.items[place]
        features = claim.features[place]
        require_finite("features of items", features)
        who = np.array(sorted(corrupted) or [n for n in range(len(truth)) if n != client])
        known = np.where(truth[who] >= 0, truth[who], 0).sum(axis=0)[items]
        sold = (truth[who] >= 0).any(axis=0)[items]
        found = _tell(features, truth[client, items], known, sold, seed)
        if found is not None:
            told.append(found)
    if not told:
        few = f"fewer than {_FEWEST} items are known to whoever looks, or left to be told"
        return NotApplicable(reason=few if len(claim.clients) else NOBODY)
    size, parts = sum(each.size for each in told), len(told)
    correlation, prior, null = (
        float(np.mean([getattr(each, name) for each in told]))
        for name in ("correlation", "prior", "null")
    )
    # A rank correlation over k items varies by 1 / (k - 1), the difference of two by twice that.
    deviation = float(np.sqrt(sum((1 + each.sold) / (each.size - 1) for each in told))) / parts
    aucs = [each.auc for each in told if each.auc is not None]
    figures: Figures = {
        "item_sales_correlation": correlation,
        "item_sales_prior": prior,
        "item_sales_auc": float(np.mean(aucs)) if aucs else None,
    }
    return Scored(
        figures=figures,
        gains={"item_sales_gain": Estimate(correlation - prior, deviation, size)},
        units={"clients": size, "pairs": size, "positives": size},
        details={"sales": claim.name, "of_items_it_sells": any(each.sold for each in told)},
        null_control=normal_null("item_sales_correlation", null, 0.0, deviation),
    )


def _tell(
    features: FloatArray, counts: IntArray, known: IntArray, sold: BoolArray, seed: int
) -> _Told | None:
    """Sales of one organisation's items; None where there is too little to fit or to judge.

    Args:
        features: float64[k, F].
        counts: int64[k], true.
        known: int64[k], sales of whoever looks.
        sold: bool[k], whether it has the item.
        seed: of the null control.
    """
    others = ~sold
    judged = others if others.sum() >= _FEWEST else sold
    if sold.sum() < _FEWEST or judged.sum() < _FEWEST or len(np.unique(counts[judged])) < 2:
        return None
    guess, prior = probe(features, np.log1p(known), sold)[judged], 0.0
    own = ranked_unit(known[judged].astype(np.float64))
    combined = ranked_unit(guess)
    if judged is sold:
        prior = float(own @ ranked_unit(counts[judged].astype(np.float64)))
        combined = ranked_unit(combined + own)
    true = ranked_unit(counts[judged].astype(np.float64))
    dealt = np.random.default_rng(seed).permutation(true)
    return _Told(
        correlation=float(combined @ true),
        prior=prior,
        auc=area_under_curve(combined, counts[judged] >= SELLS),
        null=float(combined @ dealt),
        size=int(judged.sum()),
        sold=judged is sold,
    )


def probe(features: FloatArray, values: FloatArray, known: BoolArray) -> FloatArray:
    """Ridge regression of values where they are known, read out everywhere: float64[k].

    Args:
        features: float64[k, F].
        values: float64[k].
        known: bool[k].
    """
    centre = features[known].mean(axis=0)
    spread = features[known].std(axis=0)
    scaled = (features - centre) / np.where(spread > 0, spread, 1.0)
    own = scaled[known]
    pull = _RIDGE * len(own) * np.eye(own.shape[1])
    slope = np.linalg.solve(own.T @ own + pull, own.T @ (values[known] - values[known].mean()))
    return np.asarray(scaled @ slope)
