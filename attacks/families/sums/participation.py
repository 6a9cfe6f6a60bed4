"""What counts of changing cohorts prove and suggest about each client.

With exact counts every round gives, per item, one equation in the bits "client u rated item i",

    sum over u in cohort_t of b_ui = count_t(i).

A count of 0 clears the whole cohort; a count equal to the number of clients still in question
convicts them all; each verdict tightens the other equations. So do the differences of two rounds,

    sum over who left of b_ui - sum over who came of b_ui = count_s(i) - count_t(i),

which are equations in few bits where cohorts change little. Beyond that, the smallest bits that
satisfy all equations rank what is left: for one client, the difference between the counts of the
rounds with and without it, put right for who else came and went.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attacks.families.sums.equations import fit_bits
from attacks.scoring.disclosures import Disclosures
from attacks.view.coalition import Presence, others_counts, own_clients, own_uploads
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.wire import View

_RANK = 1e-9  # of the largest eigenvalue: below, an equation is one of the others again
_SETTLED = 1e-6  # what leverage may lack of 1
_WHOLE = 1e-3  # what a settled bit may be off by
_MOST_DIFFERENCES = 256  # of cohorts, those in the fewest clients


class Verdicts(NamedTuple):
    """What the counts say; grids over clients and items of a ``Presence``.

    Attributes:
        rated: bool[G, m], proven to be rated.
        possible: bool[G, m], not proven to be unrated; holds ``rated``.
        consistent: whether the counts can all be true; if not, nothing is proven.
    """

    rated: BoolArray
    possible: BoolArray
    consistent: bool

    def scores(self, presence: Presence, knowledge: Knowledge) -> FloatArray:
        """Rank all pairs: proven rated, what is in question, proven unrated, never seen.

        What is in question is ranked by an estimate of its bit: float64[G, m].
        """
        exact = self.consistent and knowledge.exact and knowledge.constant
        open_, copies = self.possible & ~self.rated, presence.copies
        cohorts, counts = presence.cohorts()
        left = counts - copies * (cohorts @ self.rated)
        estimates = _estimate(cohorts, left, open_, exact=exact, copies=copies)
        between = 1.0 + (np.clip(estimates, -1.0, 2.0) + 1.0) / 3.0
        visible = presence.visible
        scores = np.where(self.possible, between, np.where(visible, 0.5, 0.0))
        scores[self.rated] = 3.0
        return np.asarray(scores)

    def settles_as(self, other: "Verdicts") -> bool:
        """Whether both prove the same pairs."""
        rated, possible = self.rated == other.rated, self.possible == other.possible
        return bool(rated.all() and possible.all())


def left_out(view: View, rounds: Sequence[int]) -> tuple[Disclosures, ...]:
    """What those rated who alone were left out of a round, for who does not see who was.

    Who knows how many clients are invited knows how many of the others are not. The count of an
    item is then one of two numbers: the lower one, if the one left out is among its raters.
    """
    if view.public.get("cohort") is None:
        return ()
    cohort, clients = CohortConfig(**view.public["cohort"]), int(view.public["n_clients"])
    told: dict[int, tuple[int, FloatArray]] = {}
    for round_ in rounds:
        counts, own = others_counts(view, round_), own_uploads(view, round_)
        invited = cohort.invited(round_, clients) - (0 if own is None else len(own))
        absent = clients - len(own_clients(view)) - invited
        if counts is not None and absent <= 1:
            told[round_] = absent, counts
    if not told:
        return ()
    most = np.fmax.reduce([counts for _, counts in told.values()])
    fewer = {round_: most - counts for round_, (absent, counts) in told.items() if absent}
    if any((each > 1).any() for each in fewer.values()):
        return ()
    found = ((round_, np.flatnonzero(each == 1)) for round_, each in fewer.items())
    return tuple(Disclosures.named(round_, np.full(len(at), -1), at) for round_, at in found)


def deduce(presence: Presence, knowledge: Knowledge, rated: BoolArray | None = None) -> Verdicts:
    """Draw all conclusions from counts.

    Args:
        presence: rounds with their cohorts and counts.
        knowledge: whether the counts are exact and the bits constant; if not, nothing is proven.
        rated: bool[G, m], pairs known to be rated from elsewhere.
    """
    cohorts, counts = presence.cohorts()
    nothing = np.zeros(presence.visible.shape, dtype=bool)
    exact = knowledge.exact and knowledge.constant
    known = nothing.copy() if rated is None else rated.copy()
    possible = presence.possible.copy()
    consistent = exact and _prove(presence, cohorts, counts, known, possible)
    if not consistent:
        known, possible = nothing, presence.possible
    return Verdicts(rated=known, possible=possible, consistent=consistent or not exact)


def _prove(
    came: Presence, cohorts: FloatArray, counts: FloatArray, known: BoolArray, possible: BoolArray
) -> bool:
    """Settle what follows for certain, in place; False if the counts contradict each other."""
    if np.nan_to_num(came.counts - counts[_cohort_of(came, cohorts)]).any():
        return False
    told = ~np.isnan(counts).any(axis=0)
    solved, bits = _solve_clients(cohorts, counts[:, told], came.copies)
    whole = np.round(bits)
    if (np.abs(bits - whole) > _WHOLE).any() or not np.isin(whole, (0.0, 1.0)).all():
        return False
    known[np.ix_(solved, told)] |= whole == 1.0
    possible[np.ix_(solved, told)] &= whole == 1.0
    if (known & ~possible).any():
        return False
    signs, sums = _with_differences(cohorts, counts)
    return _propagate(signs, sums, known, possible, came.copies)


def _with_differences(cohorts: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The equations, and what pairs of like cohorts differ by: float64[E, G] and float64[E, m]."""
    one, other = np.triu_indices(len(cohorts), 1)
    shared, sizes = (cohorts @ cohorts.T)[one, other], cohorts.sum(axis=1)
    apart = sizes[one] + sizes[other] - 2 * shared
    near = np.argsort(apart, kind="stable")[:_MOST_DIFFERENCES]
    one, other = one[near], other[near]
    signs = np.concatenate([cohorts, cohorts[one] - cohorts[other]])
    return signs, np.concatenate([counts, counts[one] - counts[other]])


def _propagate(
    signs: FloatArray, sums: FloatArray, known: BoolArray, possible: BoolArray, copies: int
) -> bool:
    """Follow every equation to the end, in place; False if two of them contradict each other."""
    more, less = np.maximum(signs, 0.0), np.maximum(-signs, 0.0)
    items = np.arange(sums.shape[1])
    while len(items):  # those that the last pass told more of
        rated, open_, total = known[:, items], possible[:, items], sums[:, items]
        least = copies * (more @ rated - less @ open_)
        most = copies * (more @ open_ - less @ rated)
        if (total < least).any() or (total > most).any():
            return False
        low, high = total == least, total == most
        convicts = (more.T @ high + less.T @ low > 0) & open_ & ~rated
        clears = (more.T @ low + less.T @ high > 0) & open_ & ~rated
        if (convicts & clears).any():
            return False
        known[:, items] |= convicts
        possible[:, items] &= ~clears
        items = items[(convicts | clears).any(axis=0)]
    return True


def _solve_clients(
    cohorts: FloatArray, counts: FloatArray, copies: int
) -> tuple[IntArray, FloatArray]:
    """Clients whose bits follow from the equations alone, and these bits: int64[K], [K, m].

    They are those whose unit vector lies in the span of the cohorts; two cohorts that differ in one
    client are the plainest case.
    """
    values, vectors = np.linalg.eigh(copies * (cohorts @ cohorts.T))
    kept = values > _RANK * values.max(initial=0.0)
    reach = cohorts.T @ vectors[:, kept]
    leverage = (reach**2 / values[kept]).sum(axis=1)
    solved = np.flatnonzero(leverage > 1.0 - _SETTLED)
    return solved, (reach[solved] / values[kept]) @ (vectors[:, kept].T @ counts)


def _estimate(
    cohorts: FloatArray, left: FloatArray, open_: BoolArray, *, exact: bool, copies: int
) -> FloatArray:
    """Bits that are still in question, item by item, from the counts that are not explained yet."""
    estimates = np.zeros(open_.shape)
    for item in range(left.shape[1]):
        members = np.flatnonzero(open_[:, item])
        told = ~np.isnan(left[:, item])
        design, target = cohorts[np.ix_(told, members)], left[told, item]
        asked = copies * design.sum(axis=1)
        odds = max(0.0, float(target.sum())) / max(1.0, float(asked.sum()))
        # Of noisy counts, all that a constant share does not explain may be noise.
        noise = 0.0 if exact else float(np.mean((target - odds * asked) ** 2))
        found = fit_bits(design, target, expected=odds, noise=noise, copies=copies)
        estimates[members, item] = found
    return estimates


def _cohort_of(presence: Presence, cohorts: FloatArray) -> list[int]:
    """Position of each round's cohort among the distinct ones."""
    place = {cohort.tobytes(): number for number, cohort in enumerate(cohorts.astype(bool))}
    return [place[cohort.tobytes()] for cohort in presence.present]
