"""Rows of raters whose vectors are not known yet: of one, of the same two, of one beside a known.

A row of one rater gives the direction of its vector, and the rating scale a few possible lengths.
Two items of the same two raters give both vectors; a known vector taken off a row of two leaves the
row of the other.
"""

from collections.abc import Iterator
from itertools import combinations_with_replacement

import numpy as np

from attacks.families.sums.decoded import LIGHT, UNTOLD, Entry
from attacks.families.sums.state import LOOSEST, SHARP, State
from attacks.families.sums.vector_matches import aligned, components, near_pairs
from secure_fedrec.core.arrays import FloatArray, IntArray

MOST_PAIRS = 2**22
"""Held at once."""

_BESIDE = 0.2
"""Of a row's length: as much may lie beside the plane of two rows for it to count as in it."""

_MOST_ALIKE = 8
"""Rows of two raters that are solved together."""

_DEVIATIONS = 5.0
"""Of the sum of many roundings: more than they will be off."""


def lone_rows(state: State) -> None:
    """Group the rows of one rater by their directions, and decode each group."""
    places = state.unexplained(1)
    if not len(places):
        return
    rows, errors = state.sums.rows[places], state.errors[places]
    state.found.stage(len(places) * (len(places) - 1) / 2)
    pairs = state.alike(rows, errors / state.lengths[places])
    for group in [np.arange(len(rows))] if state.sums.alone else components(len(rows), *pairs):
        odds = len(group) * rows.shape[1]
        told = len(group) > 1 and (state.sums.counted or odds >= state.found.needed)
        state.read(places[group], rows[group], errors[group], sure=state.sums.alone or told)


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
    """Both vectors behind rows of the same two raters, each rating the same."""
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
    # Whatever fits two rows of one plane fits the others in it by less than chance.
    rows, found = state.sums.rows, state.found
    plane = np.linalg.svd(rows[places], full_matrices=False)[2][:2]
    beside = np.linalg.norm(rows - rows @ plane.T @ plane, axis=1)
    inside = (beside < _BESIDE * state.lengths) & (state.sums.counts == 2)
    origin, begin = frozenset(np.flatnonzero(inside).tolist()), len(found.entries)
    for vector, error in vectors:
        who = found.add([])
        # Two vectors are told apart alone; of several readings none is another's mate.
        mate = 2 * begin + 1 - who if len(vectors) == 2 else -1
        found.entries[who] = [Entry(who, vector, error, origin, mate)]


def _starts(state: State, places: IntArray, one: float, other: float) -> Iterator[FloatArray]:
    """First guesses of the first vector: the sum, and how it moved from one V to the other."""
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
    # Independent roundings do not all push along the one direction that is solved worst.
    each = state.sums.resolution * np.sqrt(2 / 12)
    error = _DEVIATIONS * each * float(np.sqrt((singular**-2.0).sum()))
    both = np.stack([first, second])
    loose = error > LOOSEST * np.linalg.norm(both, axis=1).min()
    if loose or np.abs(both).max() > state.sums.bound + error:
        return None
    return first, second, error


def propagate(state: State) -> None:
    """Rows of two less a known rater: where two of them agree, that is the row of another.

    First by the vectors that are known best: a wide tolerance takes long to search.
    """
    before = len(state.found.entries)
    for most in (SHARP, 1.0):
        if len(state.found.entries) == before:
            _propagate(state, most)


def _propagate(state: State, most: float) -> None:
    found, places, entries = state.found, state.unexplained(2), state.found.possible(alone=True)
    parts = [state.columns(place, entries, state.sums.levels) for place in places.tolist()]
    sizes = [len(part.who) for part in parts]
    if not sum(sizes):
        return
    if sum(sizes) > MOST_PAIRS // 4:
        found.beyond += len(places)
        return
    found.stage(sum(sizes) * (sum(sizes) - 1) / 2)
    found.spent += sum(sizes)
    place = np.repeat(places, sizes)
    values, loose, off, entry, who = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("values", "errors", "sizes", "entries", "who")
    )
    rest, errors = state.sums.rows[place] - values, state.errors[place] + loose
    blur = errors / np.maximum(np.linalg.norm(rest, axis=1), 1e-300)
    evident = np.concatenate([found.evident(entries, p) for p in places.tolist()])
    evident = evident[np.repeat(np.arange(len(places)) * len(entries), sizes) + entry]
    # Taking off next to nothing leaves a row as it was.
    weighty = off > LIGHT * np.abs(state.sums.levels).max()
    kept = np.flatnonzero((blur < most) & evident & weighty)
    one, other = (kept[each] for each in state.alike(rest[kept], blur[kept]))
    # Of two rows of the same raters any third client can be taken off, with like remainders.
    apart = (place[one] != place[other]) & (who[one] != who[other])
    # Nor do two readings of the same rows, which lie in one plane, agree by chance alone.
    readings: dict[frozenset[int], int] = {}
    source = np.array(
        [
            -1 - n if e.who in found.sure or not e.origin else readings.setdefault(e.origin, n)
            for n, e in enumerate(entries)
        ]
    )[entry]
    apart &= source[one] != source[other]
    for group in components(len(rest), one[apart], other[apart]):
        rows = place[group].tolist()
        if len(group) < 2 or len(set(rows)) < len(group) or found.explained.intersection(rows):
            continue
        if state.read(place[group], rest[group], errors[group], sure=True) is None:
            continue
        for at, row in zip(group.tolist(), rows, strict=True):
            known = entries[int(entry[at])]
            found.settle(known.who, known)
            public = state.sums.vectors[row]
            rating = state.rating(values[at], public, known.error, known.vector, 0.0)
            found.tie(known.who, row, UNTOLD if rating is None else rating, certain=True)
            found.explained.add(row)
            found.most = max(found.most, 2)
