"""Items that counts of changing cohorts prove or suggest of each client.

With exact counts every round gives, per item, one equation in the bits "client u rated item i",

    sum over u in cohort_t of b_ui = count_t(i).

A count of 0 clears the whole cohort; a count equal to the number of clients still possible proves
that all of them rated the item; each result tightens the other equations. Linear algebra does not
use that bits are 0 or 1: a bit is also proven if it is the same in all 0-1 solutions of an item's
equations. So do the differences of two rounds,

    sum over who left of b_ui - sum over who came of b_ui = count_s(i) - count_t(i),

which are equations in few bits where cohorts change little. Beyond that, the smallest bits that
satisfy all equations rank what is left: for one client, the difference between the counts of the
rounds with and without it, corrected for the other clients that came and went.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from attacks.families.sums.equations import fit_bits
from attacks.families.sums.subsets import subset_sums
from attacks.scoring.disclosures import Disclosures
from attacks.view.coalition import Presence, others_cohort, others_counts, own_clients, own_uploads
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.wire import View

_RANK = 1e-9  # relative to the largest eigenvalue: smaller ones count as 0
_SETTLED = 1e-6  # tolerance of a leverage of 1
_WHOLE = 1e-3  # tolerance of a settled bit
_MOST_DIFFERENCES = 256  # most pairs of cohorts, with the fewest differing clients first
_MOST_SUMS = 2**20  # most subset sums over all items


class Verdicts(NamedTuple):
    """The conclusions from counts, as grids over clients and items of a ``Presence``.

    Attributes:
        rated: bool[G, m], proven to be rated.
        possible: bool[G, m], not proven to be unrated; holds ``rated``.
        consistent: whether the counts can all be true; if not, nothing is proven.
        undecided: number of items that were not searched completely.
    """

    rated: BoolArray
    possible: BoolArray
    consistent: bool
    undecided: int = 0

    def scores(self, presence: Presence, knowledge: Knowledge) -> FloatArray:
        """Scores in this order: proven rated, undecided, proven unrated, never seen.

        Undecided pairs are ranked by an estimate of their bit: float64[G, m].
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


def unseen(view: View, seen: Iterable[int] = ()) -> set[int]:
    """Clients that are in the sum but upload nothing, since they collect others' rows in clear."""
    knowledge = Knowledge.of(view)
    holders = knowledge.stack.get("denoising") == "shares"
    return set() if holders else {*knowledge.denoisers} - {*map(int, seen)} - own_clients(view)


def came(view: View, round_: int) -> IntArray | None:
    """The other clients in a round's sum, ascending; None if participants are not seen."""
    seen = others_cohort(view, round_)
    if seen is None:
        return None
    return np.array(sorted({*seen[0].tolist()} | unseen(view, seen[0])), dtype=np.int64)


def most_others(view: View, round_: int) -> int:
    """How many of the others are in a round's sum, at most: how many are invited is public."""
    clients, there = int(view.public["n_clients"]), came(view, round_)
    if there is not None:
        return len(there)
    everybody, own = clients - len(own_clients(view)), own_uploads(view, round_)
    if view.public.get("cohort") is None:
        return everybody
    invited = CohortConfig(**view.public["cohort"]).invited(round_, clients)
    return min(everybody, invited + len(unseen(view)) - (0 if own is None else len(own)))


def of_one(view: View, moved: Mapping[int, BoolArray], *, all_rated: bool) -> list[Disclosures]:
    """Items rated by a client that was the only one to take part, or to be left out.

    In a round of one client, its items are those that moved. In rounds of all clients but one, the
    count of an item takes one of two values, the lower one if the client left out rated it.

    Args:
        view: view of clients, which need not see the participants.
        moved: bool[m] by round, items that one of the others rated.
        all_rated: whether every participant sends a row of each rated item.
    """
    everybody = int(view.public["n_clients"]) - len(own_clients(view))
    others = {round_: most_others(view, round_) for round_ in moved}
    counts = {round_: others_counts(view, round_) for round_ in moved}
    one = [round_ for round_, number in others.items() if number == 1]
    found = [(round_, moved[round_], name_alone(view, round_)) for round_ in one]
    told = {
        round_: each
        for round_, each in counts.items()
        if each is not None and all_rated and everybody - others[round_] <= 1 < everybody
    }
    most = np.fmax.reduce([*told.values()]) if told else np.zeros(0)
    fewer = {round_: most - each for round_, each in told.items() if others[round_] < everybody}
    if not any((each > 1).any() for each in fewer.values()):
        found += [(round_, each == 1, -1) for round_, each in fewer.items()]
    return [
        Disclosures.named(round_, np.full(int(items.sum()), whose), np.flatnonzero(items))
        for round_, items, whose in found
    ]


def name_alone(view: View, round_: int) -> int:
    """The only participant of a round of one; -1 if unknown."""
    everybody = np.setdiff1d(np.arange(int(view.public["n_clients"])), sorted(own_clients(view)))
    there = came(view, round_)
    left = everybody if there is None else there
    return int(left[0]) if len(left) == 1 else -1


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
    consistent, undecided = exact and _prove(presence, cohorts, counts, known, possible), 0
    if consistent and presence.copies == 1:
        undecided = _search(cohorts, counts, known, possible)
        consistent = undecided >= 0
    if not consistent:
        known, possible, undecided = nothing, presence.possible, 0
    return Verdicts(
        rated=known, possible=possible, consistent=consistent or not exact, undecided=undecided
    )


def _prove(
    came: Presence, cohorts: FloatArray, counts: FloatArray, known: BoolArray, possible: BoolArray
) -> bool:
    """Set what follows for certain, in place; False if the counts contradict each other."""
    of_round = np.unique(came.present, axis=0, return_inverse=True)[1].reshape(-1)
    if np.nan_to_num(came.counts - counts[of_round]).any():
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
    """The equations, and differences of similar cohorts: float64[E, G] and float64[E, m]."""
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
    """Eliminate every equation completely, in place; False if two of them contradict each other."""
    more, less = np.maximum(signs, 0.0), np.maximum(-signs, 0.0)
    items = np.arange(sums.shape[1])
    while len(items):  # items that the last pass learned about
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


def _search(cohorts: FloatArray, counts: FloatArray, known: BoolArray, possible: BoolArray) -> int:
    """Set in place the bits on which all solutions of an item's equations agree.

    Linear algebra does not use that bits are 0 or 1. All combinations are formed, half of an item's
    bits at a time, as sums of fingerprints: combinations that satisfy the equations have the
    fingerprint of the counts; others that have it by chance only leave more bits unsettled.

    Returns:
        How many items were too large; -1 where an item's counts cannot be true.
    """
    words = np.random.default_rng(0).integers(2**64, size=len(cohorts), dtype=np.uint64)
    left = np.nan_to_num(counts - cohorts @ known).astype(np.int64).view(np.uint64)
    open_, spent = possible & ~known, 0
    sizes = open_.sum(axis=0)
    for item in np.argsort(sizes, kind="stable").tolist():
        members, told = np.flatnonzero(open_[:, item]), ~np.isnan(counts[:, item])
        spent += 2 ** (len(members) - len(members) // 2)
        if spent > _MOST_SUMS:
            return int((sizes >= len(members)).sum())
        if not len(members):
            continue
        weights = words[told] @ cohorts[np.ix_(told, members)].astype(np.uint64)
        halves = np.split(weights, [len(members) // 2])
        one, other = (subset_sums(half) for half in halves)
        missing = (words[told] * left[told, item]).sum() - one
        fits = np.isin(missing, other), np.isin(other, missing)
        if not fits[0].any():
            return -1
        bits = [
            (np.flatnonzero(fit)[:, None] >> np.arange(len(half))) & 1 == 1
            for fit, half in zip(fits, halves, strict=True)
        ]
        known[members, item] |= np.concatenate([each.all(axis=0) for each in bits])
        possible[members, item] &= np.concatenate([each.any(axis=0) for each in bits])
    return 0


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
