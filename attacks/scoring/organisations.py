"""Games on an organisation's item vectors: how often items were chosen, and its users.

**Sales.** The adversary knows its own sales of items that both have, and fits a linear probe to
them: from the organisation's vectors of these items to the logarithm of how often they sell at
home. The harness does this, since it has the counts. Only items that the adversary does not sell
are judged: without the vectors it does not know anything about these. If it sees no others, items
that both sell are judged, compared with its own sales of them, which already tell most. An
adversary that sells nothing (a server) is given the sales of all other organisations, which is more
than any party knows.

**Members.** The adversary has records of persons, what each has chosen, and asks of each whether it
is of a user of the organisation. Vectors are trained on what the same users choose together; so
they explain the choices of a person on whom they were trained better than those of others. The
statistic is the share of a record, after removing what popularity explains, that is a linear
function of the vectors. The harness plays the part of the records: they are candidates in the
truth, users of all organisations, of which those of the others stand for persons who are not users
of the organisation. The number of items that a person chose also has some AUC, in a small
federation by chance: it is the comparison value, in the better direction, and what counts is the
gain over it. Other prior knowledge is not considered: if users of organisations differ in taste,
vectors that were not trained on any user, such as genres, tell them apart as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from attacks.base import need
from attacks.scoring.chance import normal_null, ranked_unit
from attacks.scoring.gains import Estimate, Figures
from attacks.scoring.truth import NOBODY, Scored, SecretClaim, is_honest, require_finite
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.evaluation.scores import area_under_curve

SELLS: Final = 5
"""Fewest interactions of an item that counts as selling."""

_RIDGE: Final = 1e-2
"""Ridge of the probe, relative to a feature's spread."""

_FEWEST: Final = 20
"""Fewest items to fit or to judge, and fewest candidates of either kind."""

_ROUNDING: Final = 1e-12
"""A record counts as explained by popularity if at most this share is left."""

_CHOICES: Final = 3
"""Fewest choices of a candidate that is judged."""


class _Told(NamedTuple):
    """The results about one organisation.

    Attributes:
        figure: correlation, or area.
        prior: the figure without the vectors.
        null: the same with truths dealt to items, or persons, at random.
        variance: variance of the figure by chance.
        size: items, or persons, judged.
        auc: AUC of items that sell; None if all do, or none does.
        sold: whether the adversary sells the items.
        members: users among the persons.
    """

    figure: float
    prior: float
    null: float
    variance: float
    size: int
    auc: float | None = None
    sold: bool = False
    members: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OrganisationClaim(SecretClaim):
    """The item vectors of organisations that were seen.

    Args:
        name: name of the secret.
        clients: int64[T], the organisations.
        items: int64[k] of each.
        vectors: float64[k, d] of each, in the same order.
    """

    items: tuple[IntArray, ...]
    vectors: tuple[FloatArray, ...]

    few: ClassVar[str]

    def told(
        self, corrupted: frozenset[int], tell: Callable[[int, IntArray, FloatArray], _Told | None]
    ) -> list[_Told]:
        """The results about each other organisation, if there are enough data.

        Raises:
            InapplicableError: data about all other organisations are too few.
            ValueError: a vector is not finite.
        """
        found = []
        for place in np.flatnonzero(is_honest(self.clients, corrupted)).tolist():
            require_finite("vectors of items", self.vectors[place])
            found.append(tell(int(self.clients[place]), self.items[place], self.vectors[place]))
        told = [each for each in found if each is not None]
        return need(told, self.few if len(self.clients) else NOBODY)


def _means(told: Sequence[_Told]) -> tuple[float, float, float, float]:
    """Figure, prior and null over organisations, and the deviation of the figure by chance."""
    figure, prior, null = (float(np.mean([each[place] for each in told])) for place in range(3))
    deviation = float(np.sqrt(sum(each.variance for each in told))) / len(told)
    return figure, prior, null, deviation


class SalesClaim(OrganisationClaim):
    """Judged by counts by client and item, int64[n, m]; -1 where a client lacks the item."""

    kind = "sales"
    few = f"fewer than {_FEWEST} items are known to the adversary, or left to be told"

    def judged(self, truth: IntArray, corrupted: frozenset[int], seed: int) -> Scored:
        """How often items were chosen, mean over organisations other than the adversary's.

        Raises:
            ValueError: a vector is not finite.
        """

        def tell(client: int, items: IntArray, vectors: FloatArray) -> _Told | None:
            others = [other for other in range(len(truth)) if other != client]
            known = truth[np.array(sorted(corrupted) or others)][:, items]
            sold = (known >= 0).any(axis=0)
            return _sales(vectors, truth[client, items], np.maximum(known, 0).sum(0), sold, seed)

        told = self.told(corrupted, tell)
        correlation, prior, null, deviation = _means(told)
        size = sum(each.size for each in told)
        aucs = [each.auc for each in told if each.auc is not None]
        figures: Figures = {"item_sales_correlation": correlation, "item_sales_prior": prior}
        return Scored(
            figures={**figures, "item_sales_auc": float(np.mean(aucs)) if aucs else None},
            gains={"item_sales_gain": Estimate(correlation - prior, deviation, size)},
            units={"clients": size, "pairs": size, "positives": size},
            details={"sales": self.name, "of_items_it_sells": any(each.sold for each in told)},
            null_control=normal_null("item_sales_correlation", null, 0.0, deviation),
        )


class MembersClaim(OrganisationClaim):
    """Judged by candidates, int8[n, C, m + 1], of every organisation.

    They say which of its items a candidate chose and, in the last column, whether it is one of its
    users.
    """

    kind = "members"
    few = "too few items or persons are known to tell one from another"

    def judged(self, truth: npt.NDArray[Any], corrupted: frozenset[int], seed: int) -> Scored:
        """Which persons are users, mean over organisations other than the adversary's.

        Raises:
            ValueError: a vector is not finite.
        """

        def tell(client: int, items: IntArray, vectors: FloatArray) -> _Told | None:
            candidates = truth[client]
            chosen = candidates[:, items].astype(np.float64)
            return _members(vectors, chosen, candidates[:, -1] == 1, seed)

        told = self.told(corrupted, tell)
        auc, prior, null, deviation = _means(told)
        members, persons = sum(each.members for each in told), sum(each.size for each in told)
        honest = int(is_honest(self.clients, corrupted).sum())
        gained = Estimate(auc - prior, float(np.sqrt(2)) * deviation, persons)
        return Scored(
            figures={"member_auc": auc, "member_prior_auc": prior},
            gains={"member_gain": gained},
            units={"clients": persons, "pairs": persons, "positives": members},
            details={
                "members": self.name,
                "organisations": len(told),
                "organisations_left_out": honest - len(told),
                "persons_left_out": honest * truth.shape[1] - persons,
            },
            null_control=normal_null("member_auc", null, 0.5, deviation),
        )


def _sales(
    vectors: FloatArray, counts: IntArray, known: IntArray, sold: BoolArray, seed: int
) -> _Told | None:
    """Sales of one organisation's items; None where there is too little to fit or to judge.

    Args:
        vectors: float64[k, d].
        counts: int64[k], true.
        known: int64[k], the adversary's sales.
        sold: bool[k], whether it has the item.
        seed: seed of the null control.
    """
    others = ~sold
    judged = others if others.sum() >= _FEWEST else sold
    if sold.sum() < _FEWEST or judged.sum() < _FEWEST or len(np.unique(counts[judged])) < 2:
        return None
    own, true = (ranked_unit(each[judged].astype(np.float64)) for each in (known, counts))
    combined, prior = ranked_unit(probe(vectors, np.log1p(known), sold)[judged]), 0.0
    if judged is sold:
        combined, prior = ranked_unit(combined + own), float(own @ true)
    size = int(judged.sum())
    return _Told(
        figure=float(combined @ true),
        prior=prior,
        null=float(combined @ np.random.default_rng(seed).permutation(true)),
        # A rank correlation over k items varies by 1 / (k - 1), the difference of two by twice it.
        variance=(1 + (judged is sold)) / (size - 1),
        size=size,
        auc=area_under_curve(combined, counts[judged] >= SELLS),
        sold=judged is sold,
    )


def probe(features: FloatArray, values: FloatArray, known: BoolArray) -> FloatArray:
    """Ridge regression of values where they are known, evaluated everywhere: float64[k].

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


def _members(vectors: FloatArray, chosen: FloatArray, member: BoolArray, seed: int) -> _Told | None:
    """AUCs of one organisation's candidates; None if there are too few."""
    popularity = np.log1p(chosen.sum(axis=0))
    judged = chosen.sum(axis=1) >= _CHOICES
    member = member[judged]
    members, others = int(member.sum()), int((~member).sum())
    if min(members, others) < _FEWEST or len(vectors) < 2 * (vectors.shape[1] + 3):
        return None
    shares = explained(vectors, chosen[judged], popularity)
    dealt = np.random.default_rng(seed).permutation(member)
    told = (shares, member), (chosen[judged].sum(axis=1), member), (shares, dealt)
    auc, prior, null = (float(area_under_curve(*each) or 0.0) for each in told)
    # Of an area under equal distributions, Mann and Whitney 1947.
    variance = (members + others + 1) / (12 * members * others)
    size = members + others
    return _Told(auc, max(prior, 1.0 - prior), null, variance, size, members=members)


def explained(vectors: FloatArray, chosen: FloatArray, popularity: FloatArray) -> FloatArray:
    """Share of each record, beyond popularity, that vectors explain: float64[C].

    Args:
        vectors: float64[k, d], of items.
        chosen: float64[C, k], 1 where a person chose an item.
        popularity: float64[k].
    """
    known = np.stack([np.ones(len(popularity)), popularity, popularity**2], axis=1)
    base = np.linalg.qr(known)[0]
    span = np.linalg.qr(vectors - base @ (base.T @ vectors))[0]
    rest = chosen - (chosen @ base) @ base.T
    total, told = (rest**2).sum(axis=1), ((rest @ span) ** 2).sum(axis=1)
    left = total > _ROUNDING * (chosen**2).sum(axis=1)
    return np.asarray(np.divide(told, total, out=np.zeros(len(total)), where=left))
