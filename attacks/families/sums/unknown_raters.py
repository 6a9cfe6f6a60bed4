"""Solve rows of unknown raters: of one rater, of the same two, or of one and a known rater.

A row of one rater gives the direction of its vector, and the rating scale a few possible lengths.
Two items of the same two raters give both vectors; subtracting a known vector's part from a row of
two leaves the row of the other.
"""

from collections.abc import Iterator
from itertools import combinations_with_replacement

import numpy as np

from attacks.families.sums.decoded import LIGHT, UNTOLD, Entry
from attacks.families.sums.state import LOOSEST, SHARP, State
from attacks.families.sums.vector_matches import SLACK, aligned, components, near_pairs
from secure_fedrec.core.arrays import FloatArray, IntArray

MOST_PAIRS = 2**22
"""Largest number held at once."""

_BESIDE = 0.2
"""Largest relative distance of a row that counts as lying in the plane of two rows."""

_MOST_ALIKE = 8
"""Rows of two raters that are solved together."""

_DEVIATIONS = 5.0
"""Bound on the sum of many roundings."""


def lone_rows(state: State) -> None:
    """Group the rows of one rater by their directions, and decode each group."""
    places = state.unexplained(1)
    if not len(places):
        return
    rows, errors = state.sums.rows[places], state.errors[places]
    state.found.stage(len(places) * (len(places) - 1) / 2)
    pairs = state.alike(rows, errors / state.lengths[places])
    for group in [np.arange(len(rows))] if state.sums.alone else components(len(rows), *pairs):
        sure = state.sums.alone or len(group) > 1
        if not state.sums.counted:
            sure &= _separate(state, rows[group]) >= state.found.needed
        if sure or state.sums.counted:
            state.read(places[group], rows[group], errors[group], sure=sure)
        elif len(group) > 1:  # may be a sum of several vectors: proves nothing
            who = state.found.add([])
            for place in places[group].tolist():
                state.found.tie(who, place, UNTOLD, certain=False)


def _separate(state: State, rows: FloatArray) -> int:
    """How many values along one direction are independently ring words.

    A row that is an integer multiple of another consists of ring words whenever the other does, so
    it is not counted, except where rounding makes it differ.
    """
    words = np.rint(rows / state.sums.resolution)
    order = np.argsort(np.linalg.norm(words, axis=1), kind="stable")
    found, before = 0, words[:0]
    for row in words[order]:
        squares = np.maximum((before**2).sum(axis=1), 1.0)
        times = np.rint(before @ row / squares)
        found += int((row != times[:, None] * before).sum(axis=1).min(initial=len(row)))
        before = np.concatenate([before, row[None]])
    return found


def same_pairs(state: State) -> None:
    """Items of the same two raters: both vectors, to be confirmed by further rows."""
    places = state.unexplained(2)
    if len(places) < 2:
        return
    state.found.stage(len(places) * (len(places) - 1) / 2)
    near = near_pairs(aligned(state.sums.rows[places]), min(0.1, state.widest()))
    for group in components(len(places), *near):
        if 1 < len(group) <= _MOST_ALIKE:
            _two(state, places[group])


def _two(state: State, places: IntArray) -> None:
    """Both vectors of the two raters of some rows, who gave equal ratings."""
    levels = [level for level in state.sums.levels.tolist() if level]
    vectors: list[tuple[FloatArray, float]] = []
    for one, other in combinations_with_replacement(levels, 2):
        for start in _starts(state, places, one, other):
            *both, error = _refine(state, places, one, other, start) or (np.inf,)
            size = 2 * float(state.lengths[places[0]])
            if any(k * np.linalg.norm(v) > size for k, v in zip((one, other), both, strict=False)):
                continue
            for vector in both:
                if all(np.linalg.norm(vector - v) > error + e for v, e in vectors):
                    vectors.append((vector, error))
    if not vectors:
        return
    # A vector that fits two rows of a plane also fits its other rows, so these are not further
    # evidence.
    rows, found = state.sums.rows, state.found
    plane = np.linalg.svd(rows[places], full_matrices=False)[2][:2]
    beside = np.linalg.norm(rows - rows @ plane.T @ plane, axis=1)
    inside = (beside < _BESIDE * state.lengths) & (state.sums.counts == 2)
    origin, begin = frozenset(np.flatnonzero(inside).tolist()), len(found.entries)
    for vector, error in vectors:
        who = found.add([])
        # With exactly two vectors each is the other's partner; with more readings there are no
        # partners.
        mate = 2 * begin + 1 - who if len(vectors) == 2 else -1
        found.entries[who] = [Entry(who, vector, error, origin, mate)]


def _starts(state: State, places: IntArray, one: float, other: float) -> Iterator[FloatArray]:
    """Initial guesses of the first vector: from the sum, and from its change between two V."""
    rows, public = state.sums.rows[places], state.sums.vectors[places]
    far = int(np.argmax(np.linalg.norm(public - public[0], axis=1)))
    total, moved, step = rows[0], rows[0] - rows[far], public[far] - public[0]
    tau, size = float(total @ step), 1.0 / other**2
    quadratic = (1.0 + one**2 * size, -2.0 * one * tau * size, tau**2 * size - moved @ step)
    root = quadratic[1] ** 2 - 4 * quadratic[0] * quadratic[2]
    for sign in (1.0, -1.0) if root > 0 else ():
        along = (-quadratic[1] + sign * np.sqrt(root)) / (2 * quadratic[0])
        rest = tau - one * along
        lever = along - one * rest * size
        if lever:
            yield np.asarray((moved - rest * size * total) / lever)


def _refine(
    state: State, places: IntArray, one: float, other: float, start: FloatArray
) -> tuple[FloatArray, FloatArray, float] | None:
    """Newton's method on the exact equations: both vectors and their error."""
    rows, public = state.sums.rows[places], state.sums.vectors[places]
    width, eye = rows.shape[1], np.eye(rows.shape[1])
    first, second = start, (rows[0] - one * start) / other
    for _ in range(8):
        blocks, left = [], []
        for row, v in zip(rows, public, strict=True):
            a, b = one - first @ v, other - second @ v
            left.append(row - a * first - b * second)
            blocks.append(np.hstack([a * eye - np.outer(first, v), b * eye - np.outer(second, v)]))
        jacobian, missing = np.vstack(blocks), np.concatenate(left)
        if not np.isfinite(jacobian).all():
            return None
        step, _, _, singular = np.linalg.lstsq(jacobian, missing, rcond=None)
        first, second = first + step[:width], second + step[width:]
        if np.linalg.norm(step) <= 1e-12 * np.linalg.norm(first):
            break
    noise = float(np.linalg.norm(state.errors[places]))
    if not singular[-1] > 0 or not np.linalg.norm(missing) <= 2 * noise:
        return None
    # Independent rounding errors do not all point along the worst-conditioned direction.
    each = state.sums.resolution * np.sqrt(2 / 12)
    error = _DEVIATIONS * each * float(np.sqrt((singular**-2.0).sum()))
    both = np.stack([first, second])
    loose = error > LOOSEST * np.linalg.norm(both, axis=1).min()
    if loose or np.abs(both).max() > state.sums.bound + error:
        return None
    return first, second, error


def propagate(state: State) -> None:
    """Subtract a known rater from rows of two: remainders that agree are another client's.

    Begins with the vectors known best, since a wide tolerance takes long to search.
    """
    before = len(state.found.entries)
    for most in (SHARP, 1.0):
        if len(state.found.entries) == before:
            _propagate(state, most)


def _propagate(state: State, most: float) -> None:
    found, places, entries = state.found, state.unexplained(2), state.found.possible(alone=True)
    parts = [state.columns(place, entries, state.sums.levels) for place in places.tolist()]
    size = len(entries) * len(state.sums.levels)
    total = size * len(places)
    if not total:
        return
    if total > MOST_PAIRS // 4:
        found.beyond += len(places)
        return
    found.stage(total * (total - 1) / 2)
    found.spent += total
    place = np.repeat(places, size)
    values, loose, off, entry, who, level = map(np.concatenate, zip(*parts, strict=True))
    rest, errors = state.sums.rows[place] - values, state.errors[place] + loose
    lengths = np.maximum(np.linalg.norm(rest, axis=1), 1e-300)
    blur = errors / lengths
    evident = np.concatenate([found.evident(entries, p) for p in places.tolist()])
    evident = evident[np.repeat(np.arange(len(places)) * len(entries), size) + entry]
    # Subtracting a tiny contribution barely changes a row, so it is not evidence.
    weighty = off > LIGHT * np.abs(state.sums.levels).max()
    kept = np.flatnonzero((blur < most) & evident & weighty)
    one, other = (kept[each] for each in state.alike(rest[kept], blur[kept]))
    # From two rows of the same raters any third client can be subtracted with similar remainders.
    apart = (place[one] != place[other]) & (who[one] != who[other])
    apart &= _told_apart(state.sums.rows[place], values, errors, (one, other)) >= found.needed
    # Two readings of the same rows lie in one plane, so their agreement is not chance either.
    readings: dict[frozenset[int], int] = {}
    source = np.arange(-1, -1 - len(entries), -1)
    for number, each in enumerate(entries):
        if each.who not in found.sure and each.origin:
            source[number] = readings.setdefault(each.origin, number)
    source = source[entry]
    apart &= source[one] != source[other]
    groups = [g for g in components(len(rest), one[apart], other[apart]) if len(g) > 1]
    told = np.bincount(place[np.concatenate(groups)]) if groups else place[:0]
    for group in groups:
        rows = place[group].tolist()
        # A row in several groups, or twice in one, has several explanations.
        if (told[rows] > 1).any() or found.explained.intersection(rows):
            continue
        # Error bound of each remainder, and the other vectors whose subtraction leaves a remainder
        # within it.
        reach = SLACK * 2 * (blur[group] + blur[group].max()) * lengths[group]
        alike = []
        for at, leeway in zip(group.tolist(), reach.tolist(), strict=True):
            own = np.arange(size) + at - at % size
            away = np.linalg.norm(values[own] - values[at], axis=1)
            alike.append(own[away <= leeway + loose[own] + loose[at]])
        if any(len(np.unique(who[like])) > 1 for like in alike):
            continue  # another client's vector leaves the same remainder
        if state.read(place[group], rest[group], errors[group], sure=True) is None:
            continue
        for at, row, like in zip(group.tolist(), rows, alike, strict=True):
            known, ratings = entries[int(entry[at])], np.unique(level[like])
            found.settle(known.who, known)
            rating = float(ratings[0]) if len(ratings) == 1 else UNTOLD
            found.tie(known.who, row, rating, certain=True)
            found.explained.add(row)
            found.most = max(found.most, 2)


def _told_apart(
    rows: FloatArray, values: FloatArray, errors: FloatArray, pairs: tuple[IntArray, IntArray]
) -> FloatArray:
    """Bits that show that equal remainders are due to the subtracted vectors: float64[P].

    Remainders can also agree for other reasons: similar rows stay similar if similar vectors are
    subtracted; a tiny part may be subtracted from a row that is almost one rater's; and two rows of
    the same raters agree if a part of either's vector is subtracted.
    """
    (one, other), rest = pairs, rows - values
    scale = (rest[one] * rest[other]).sum(axis=1) / (rest[other] ** 2).sum(axis=1)
    tolerance = errors[one] + np.abs(scale) * errors[other]
    moved = [
        rows[one] - scale[:, None] * rows[other],
        rows[one] - scale[:, None] * rest[other],
        scale[:, None] * rows[other] - rest[one],
        _beside(rest[one], values[one], values[other]),
    ]
    least = np.min([np.linalg.norm(each, axis=1) for each in moved], axis=0) / tolerance
    return np.asarray((rows.shape[1] - 1) * np.log2(np.maximum(least, 1.0)))


def _beside(points: FloatArray, one: FloatArray, other: FloatArray) -> FloatArray:
    """The part of each point outside the plane of its two vectors: float64[P, d]."""
    for axis in (one, other - _along(other, one)):
        points = points - _along(points, axis)
    return points


def _along(points: FloatArray, axes: FloatArray) -> FloatArray:
    sizes = np.maximum((axes**2).sum(axis=1, keepdims=True), 1e-300)
    return np.asarray((points * axes).sum(axis=1, keepdims=True) / sizes * axes)
