"""Find the raters of rows among clients with known vectors.

Known vectors add up to further rows: subsets are searched by halves, ordered along one direction
(Horowitz and Sahni 1974), or found by lattice reduction.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import comb

import numpy as np

from attacks.families.sums.decoded import LIGHT, UNTOLD, Columns, Entry
from attacks.families.sums.knapsack import MOST_UNKNOWNS, coefficients
from attacks.families.sums.state import SHARP, State
from attacks.families.sums.unknown_raters import MOST_PAIRS
from attacks.families.sums.vector_matches import (
    SLACK,
    aligned,
    cost,
    fitting_subsets,
    near_pairs,
    tuples,
)
from secure_fedrec.core.arrays import FloatArray, IntArray


def look_up(state: State, raters: int) -> None:
    """Explain rows of so many raters by known vectors, as far as the budget goes."""
    found = state.found
    places, entries = state.unexplained(raters), found.possible(alone=raters > 2)
    levels = state.sums.levels
    if raters > 2:  # uncertain, imprecise or tiny vectors fit too many sums
        entries = [e for e in entries if e.error <= SHARP * np.linalg.norm(e.vector)]
        entries, levels = _sure(state, entries)
    size = len(entries) * len(levels)
    if not len(places) or size < raters:
        return
    each = cost(size, raters)
    affordable = max(0, int((found.budget - found.spent) // each))
    if comb(size, raters - raters // 2) > 2 * MOST_PAIRS:
        affordable = 0
    found.beyond += max(0, len(places) - affordable)
    places = places[:affordable]
    if not len(places) or not _telling(state, places, levels, float(comb(size, raters))):
        return
    found.spent += each * len(places)
    who = np.repeat([each.who for each in entries], len(levels))
    halves = tuples(who, raters // 2), tuples(who, raters - raters // 2)
    line = aligned(np.random.default_rng(0).standard_normal((1, state.sums.rows.shape[1])))[0]
    line /= np.linalg.norm(line)
    for place in places.tolist():
        columns = state.columns(place, entries, levels)
        error = float(state.errors[place])
        fits = fitting_subsets(columns, state.sums.rows[place], error, halves, line)
        evident = found.evident(entries, place)[columns.entries]
        _explain(state, place, columns, fits[evident[fits].all(axis=1)], entries)


def solve(state: State) -> None:
    """Explain sums over no more clients than a row has values, all known: one linear system each.

    For every client, its rating is taken if its part of the row allows exactly one.
    """
    entries, levels = state.found.possible(), state.sums.levels
    places = state.unexplained(1, most=len(entries))
    if not entries or not len(places):
        return
    vectors = np.array([each.vector for each in entries])
    if np.linalg.matrix_rank(vectors) < len(entries):
        return
    inverse = np.linalg.pinv(vectors)
    lever, raters = np.linalg.norm(inverse, axis=0), state.sums.counts[places]
    subsets = max(comb(len(entries), n) * len(levels) ** n for n in raters.tolist())
    if subsets > 2**1000 or not _telling(state, places, levels, float(subsets)):
        return
    for place, several in zip(places.tolist(), raters.tolist(), strict=True):
        columns, row = state.columns(place, entries, levels), state.sums.rows[place]
        dots = vectors @ state.sums.vectors[place]
        options = np.concatenate([np.zeros((len(entries), 1)), levels - dots[:, None]], axis=1)
        reach = lever * (state.errors[place] + np.sort(columns.errors)[-several:].sum())
        near = np.abs((row @ inverse)[:, None] - options) <= SLACK * reach[:, None]
        rated = near[:, 1:] & (near.sum(axis=1, keepdims=True) == 1)
        fit, whole = np.flatnonzero(rated), (rated.any(axis=1) | near[:, 0]).all()
        off = np.linalg.norm(row - columns.values[fit].sum(axis=0))
        within = SLACK * (state.errors[place] + columns.errors[fit].sum())
        # Small contributions cannot be excluded by the residual; the count excludes them.
        if whole and len(fit) == several and off <= within:
            _explain(state, place, columns, fit[None], entries)


def reduce(state: State) -> None:
    """Explain larger sums by lattice reduction: rating steps and bits are small numbers."""
    entries, levels = _sure(state, state.found.possible(alone=True))
    # Only one solution is examined, so it has to be the only one.
    clear = np.flatnonzero(~state.along_others(entries))
    counts = np.unique(state.sums.counts[state.sums.counts > 2])
    counts = counts[counts <= len(clear)]
    steps = np.array([entries[each].vector for each in clear]) * np.ptp(levels[:2])
    steps = steps if len(levels) > 1 else steps[:0]
    if not len(counts) or len(clear) + len(steps) > MOST_UNKNOWNS:
        return
    for raters in counts.tolist():
        places, size = state.unexplained(raters), float(comb(len(clear), raters))
        if not len(places) or not _telling(state, places, levels, size * len(levels) ** raters):
            continue
        for place in places.tolist():
            columns = state.columns(place, entries, levels)
            fit = _reduced(state, place, columns, (clear, steps), len(levels))
            if fit is not None and len(np.unique(columns.who[fit])) == raters:
                _explain(state, place, columns, fit[None], entries)


def _reduced(
    state: State, place: int, columns: Columns, among: tuple[IntArray, FloatArray], levels: int
) -> IntArray | None:
    """Columns that add up to a row, by the lattice of some vectors: int64[F]; None for none."""
    (clear, steps), row = among, state.sums.rows[place]
    bases = columns.values[::levels][clear]
    unit = float(state.errors[place]) / np.sqrt(len(row))
    told = coefficients(np.concatenate([bases, steps]), row, unit)
    if told is None:
        return None
    chosen = np.flatnonzero(told[: len(bases)] == 1)
    step = told[len(bases) :][chosen] if len(steps) else np.zeros_like(chosen)
    if not ((step >= 0) & (step < levels)).all():
        return None
    fit = clear[chosen] * levels + step
    off = np.linalg.norm(row - columns.values[fit].sum(axis=0))
    within = SLACK * (state.errors[place] + columns.errors[fit].sum())
    return fit if off <= within else None


def _sure(state: State, entries: Sequence[Entry]) -> tuple[list[Entry], FloatArray]:
    """The possible vectors of certain clients, and the ratings that change rows noticeably."""
    levels = state.sums.levels
    weighty = levels[np.abs(levels) > LIGHT * np.abs(levels).max()]
    return [each for each in entries if each.who in state.found.sure], weighty


def _telling(state: State, places: IntArray, levels: FloatArray, subsets: float) -> bool:
    """Begin a search among so many subsets per row; returns whether a fit can be certain."""
    state.found.stage(len(places) * subsets)
    most = float(np.abs(levels).max())
    return state.vectors.bits(float(state.errors[places].min()), most) >= state.found.needed


def _explain(
    state: State, place: int, columns: Columns, fits: IntArray, entries: Sequence[Entry]
) -> None:
    """Adopt what all fits (int64[F, n], columns) of a row have in common.

    A row, or a part of it, that is shorter than others holds fewer bits. A client is not named if
    another client, which may not have been searched, could take its place.
    """
    if not len(fits):
        return
    found, all_sure = state.found, True
    tolerance = float(state.errors[place] + columns.errors[fits].sum(axis=1).max())
    agreed = frozenset.intersection(*(frozenset(columns.who[fit].tolist()) for fit in fits))
    for who in agreed:
        mine = fits[columns.who[fits] == who]
        size = min(float(columns.sizes[mine].min()), float(state.lengths[place]) / state.usual)
        away = np.linalg.norm(columns.values - columns.values[mine[0]], axis=1)
        rivals = columns.who[away <= 2 * tolerance + columns.errors]
        sure = (rivals == who).all() and found.holds(state.vectors.bits(tolerance, size))
        if sure:
            which = np.unique(columns.entries[mine])
            found.settle(who, entries[int(which[0])] if len(which) == 1 else None)
        levels = np.unique(columns.levels[mine])
        found.tie(who, place, float(levels[0]) if len(levels) == 1 else UNTOLD, certain=sure)
        all_sure &= sure
    if len(agreed) == fits.shape[1] and all_sure:
        found.explained.add(place)
        found.most = max(found.most, fits.shape[1])


def refine(state: State) -> None:
    """Refine vectors by all rows that they explain: given the e, rows are linear in the U."""
    found, sums = state.found, state.sums
    kept, whose, ratings = [], [], []
    for row, raters in found.raters(sums.counts).items():
        told = [found.ties[who, row][0] for who in raters]
        if row in found.explained and found.solved.issuperset(raters) and not np.isnan(told).any():
            kept.append(row)
            whose += [(len(kept) - 1, who) for who in raters]
            ratings += told
    if not kept:
        return
    at = np.array(whose)
    people, at[:, 1] = np.unique(at[:, 1], return_inverse=True)
    if len(kept) < len(people):
        return
    public, reach = sums.vectors[kept], np.linalg.norm(sums.vectors[kept], axis=1)
    for _ in range(3):
        vectors = np.array([found.entries[who][0].vector for who in people.tolist()])
        loose = np.array([found.entries[who][0].error for who in people.tolist()])
        system = np.zeros((len(kept), len(people)))
        dots = (vectors[at[:, 1]] * public[at[:, 0]]).sum(axis=1)
        system[at[:, 0], at[:, 1]] = np.array(ratings) - dots
        inverse = np.linalg.pinv(system)
        solved = inverse @ sums.rows[kept]
        # Errors of the old vectors carry over to e, and from e to the new vectors.
        sizes = np.linalg.norm(vectors, axis=1) + loose
        off = state.errors[kept].copy()
        np.add.at(off, at[:, 0], reach[at[:, 0]] * (loose * sizes)[at[:, 1]])
        errors = np.abs(inverse) @ off * SLACK
        whole = np.abs(inverse @ system - np.eye(len(people))).sum(axis=1) < 1e-6
        for number in np.flatnonzero(whole & (errors < loose)).tolist():
            who = int(people[number])
            found.entries[who] = [Entry(who, solved[number], float(errors[number]))]


def merge(state: State) -> None:
    """Merge pseudonyms with equal vectors, as far as that is certain.

    Clients known beforehand are different, and a pseudonym that may equal either of two is not
    merged.
    """
    found = state.found
    alone = (entries[0] for entries in found.entries.values() if len(entries) == 1)
    order = sorted(alone, key=lambda each: (each.error, each.who))
    found.stage(len(order) * (len(order) - 1) / 2)
    near = list(_near(order))
    names = Counter(range(found.known))  # names that each vector may have
    names.update(a.who for pair in near for a, b in (pair, pair[::-1]) if b.who < found.known)
    for one, other in near:
        reach = one.error + other.error
        here = names[other.who] < 2 and all(found.entries[each.who] for each in (one, other))
        if here and found.holds(state.vectors.bits(reach)):
            found.unite(one.who, other.who)


def _near(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """Pairs of vectors that their errors allow to be equal, those known best first."""
    if len(entries) < 2:
        return
    vectors = np.array([each.vector for each in entries])
    for one, other in zip(*near_pairs(vectors, 2 * entries[-1].error), strict=True):
        a, b = entries[one], entries[other]
        if np.linalg.norm(a.vector - b.vector) <= a.error + b.error:
            yield a, b
