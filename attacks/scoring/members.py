"""Members: whose records an organisation's item vectors were trained on.

The adversary has records of persons, what each has chosen, and asks of each whether it is of a user
of the organisation. Vectors are trained on what the same users choose together; so the choices of
one whom they were trained on are explained by them better than those of another. The statistic is
the share of a record, beside what popularity explains of it, that is a linear function of the
vectors. The harness plays the part of the records: they are candidates in the truth, users of all
organisations, of which those of the others stand for persons who are nobody's users there.

How many items a person chose says something too, in a small federation by chance: it stands beside,
whichever way round is better, and what counts is the gain over it. What else is known of people
beforehand is not in it: where organisations' users differ in taste, vectors that were trained on
nobody, such as genres, tell them apart as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from attacks.scoring.chance import normal_null
from attacks.scoring.gains import Estimate, Figures
from attacks.scoring.scored import NOBODY, NotApplicable, Scored, is_honest, require_finite
from attacks.scoring.truth import Case, SecretClaim
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.evaluation.scores import area_under_curve

KIND = "members"
"""Kind of secret: int8[n, C, m + 1], by organisation and candidate: which of the organisation's
items the candidate chose and, in the last column, whether it is one of its users."""

_FEWEST: Final = 20
"""Candidates of either sort; fewer tell nothing."""

_ROUNDING: Final = 1e-12
"""A record of which popularity leaves no more than this share is explained by it."""

_CHOICES: Final = 3
"""Of a candidate who is judged, at least."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MembersClaim(SecretClaim):
    """What was seen of the items of organisations.

    Args:
        name: what the members are.
        clients: int64[T], whose.
        items: int64[k] of each.
        vectors: float64[k, d] of each, in the same order.
    """

    items: tuple[IntArray, ...]
    vectors: tuple[FloatArray, ...]

    def scored(self, case: Case) -> Iterator[Scored | NotApplicable]:
        """Judge it by the candidates of that name."""
        return self.judged(case, KIND, score_members)


class _Told(NamedTuple):
    """What was told of one organisation's users: AUCs, and how many of either sort there were."""

    auc: float
    prior: float
    null: float
    members: int
    others: int


def score_members(
    claim: MembersClaim, truth: npt.NDArray[np.integer], corrupted: frozenset[int], seed: int
) -> Scored | NotApplicable:
    """Judge who is a user, mean over organisations.

    Args:
        claim: the claim.
        truth: int8[n, C, m + 1], as of ``KIND``.
        corrupted: the adversary's own organisations; nobody attacks himself.
        seed: of the null control.

    Raises:
        ValueError: a vector is not finite.
    """
    told: list[_Told] = []
    left_out = 0
    honest = np.flatnonzero(is_honest(claim.clients, corrupted)).tolist()
    for place in honest:
        vectors = claim.vectors[place]
        require_finite("vectors of items", vectors)
        candidates = truth[int(claim.clients[place])]
        chosen = candidates[:, claim.items[place]].astype(np.float64)
        found = _tell(vectors, chosen, candidates[:, -1] == 1, seed)
        left_out += len(candidates)
        if found is not None:
            told.append(found)
            left_out -= found.members + found.others
    if not told:
        few = "too few items or persons are known to tell one from another"
        return NotApplicable(reason=few if len(claim.clients) else NOBODY)
    auc, prior, null = (float(np.mean([each[n] for each in told])) for n in range(3))
    # Of an area under equal distributions, Mann and Whitney 1947; of a difference, twice that.
    variances = [
        (each.members + each.others + 1) / (12 * each.members * each.others) for each in told
    ]
    deviation = float(np.sqrt(sum(variances))) / len(told)
    members = sum(each.members for each in told)
    persons = members + sum(each.others for each in told)
    figures: Figures = {"member_auc": auc, "member_prior_auc": prior}
    gained = Estimate(auc - prior, float(np.sqrt(2)) * deviation, persons)
    return Scored(
        figures=figures,
        gains={"member_gain": gained},
        units={"clients": persons, "pairs": persons, "positives": members},
        details={
            "members": claim.name,
            "organisations": len(told),
            "organisations_left_out": len(honest) - len(told),
            "persons_left_out": left_out,
        },
        null_control=normal_null("member_auc", null, 0.5, deviation),
    )


def _tell(vectors: FloatArray, chosen: FloatArray, member: BoolArray, seed: int) -> _Told | None:
    """Areas of one organisation's candidates; None where there is too little."""
    popularity = np.log1p(chosen.sum(axis=0))
    judged = chosen.sum(axis=1) >= _CHOICES
    member = member[judged]
    counts = int(member.sum()), int((~member).sum())
    if min(counts) < _FEWEST or len(vectors) < 2 * (vectors.shape[1] + 3):
        return None
    shares = explained(vectors, chosen[judged], popularity)
    dealt = np.random.default_rng(seed).permutation(member)
    told = (shares, member), (chosen[judged].sum(axis=1), member), (shares, dealt)
    auc, prior, null = (float(area_under_curve(*each) or 0.0) for each in told)
    return _Told(auc, max(prior, 1.0 - prior), null, *counts)


def explained(vectors: FloatArray, chosen: FloatArray, popularity: FloatArray) -> FloatArray:
    """Share of each record that vectors explain of what popularity does not: float64[C].

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
