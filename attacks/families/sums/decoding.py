"""Sums over few clients, solved as equations: whose vectors stand behind them, and who is in which.

A row of the aggregate less ``lambda n V`` is ``sum of e U`` over the item's n raters, with
``e = r - U.V``. A row of one rater gives the direction of its vector, and the rating scale a few
possible lengths. Two items of the same two raters give both vectors; a known vector taken off a
row of two leaves the row of the other. Known vectors add up to further rows: subsets are searched
by halves, ordered along one direction (Horowitz and Sahni 1974).

What fits is not believed for that. Every tolerance is a bound on what rounding explains, carried
through to what is derived, and a fit within it holds so many bits (``Spread.bits``). It is certain
if it holds 20 more than the search had to choose among: all false ones together are then expected
less than 2^-20 times. Bits are counted in the spread of the clients' vectors around their mean, and
member by member, since one may be right and the next a stranger's.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement
from math import comb, log2

import numpy as np

from attacks.families.sums.knapsack import MOST_UNKNOWNS, coefficients
from attacks.families.sums.round_sums import (
    BUDGET,
    LIGHT,
    SURE_BITS,
    Columns,
    Decoded,
    Entry,
    RoundSums,
    Spread,
)
from attacks.families.sums.vector_matches import (
    SLACK,
    aligned,
    components,
    cost,
    fitting_subsets,
    near_pairs,
    scale_roots,
    tuples,
    vector_error,
    widest_fit,
)
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.errors import MissingExtraError

_MOST_PAIRS = 2**22  # held at once
_PASSES = 20
_LOOSEST = 0.05
"""Relative error of a vector beyond which nothing is derived from it."""

_SHARP = 1e-4
"""Relative error of a vector that is taken off rows first."""

_BESIDE = 0.2
"""Of a row's length: as much may lie beside the plane of two rows for it to count as in it."""

MOST_RATERS = 6
"""Of a sum that is searched."""

DEVIATIONS = 5.0
"""Of the sum of many roundings: more than they will be off."""


def decode(
    sums: RoundSums,
    known: Sequence[tuple[FloatArray, float]] = (),
    *,
    stages: int = 0,
    budget: float = BUDGET,
) -> Decoded:
    """Solve a round.

    Args:
        sums: the round.
        known: private vectors that are known beforehand, each with a bound of its error; they are
            the first pseudonyms.
        stages: searches before it, over which the odds of a false match are dealt out as well.
        budget: sums that may be formed or looked up.
    """
    found = Decoded(stages=stages, budget=budget, known=len(known))
    for each in known:
        found.settle(found.add([each], sure=True))
    if len(sums.items) < 2:
        return found
    solver = _Solver(sums, found)
    solver.lone_rows()
    if not len(sums.levels):
        return found
    solver.look_up(2)
    solver.pairs()
    for _ in range(_PASSES):
        before = len(found.entries), len(found.explained)
        solver.merge()
        solver.look_up(2)
        solver.propagate()
        solver.refine()
        if before == (len(found.entries), len(found.explained)):
            break
    for raters in range(3, MOST_RATERS + 1):
        solver.look_up(raters)
        solver.refine()
    try:
        solver.reduce()
    except MissingExtraError as absent:
        found.lacking = str(absent)
    return found


class _Solver:
    """One round's equations and what is known of them so far."""

    def __init__(self, sums: RoundSums, found: Decoded) -> None:
        self.sums, self.found = sums, found
        self.errors = sums.errors
        self.lengths = np.linalg.norm(sums.rows, axis=1)
        # Sums over n spread by sqrt(n), and by ratings: less is taken for the vectors' own.
        widest = float(np.abs(sums.levels).max(initial=0.0)) or 1.0
        shown = self.lengths > self.errors
        if not shown.any():
            shown[:] = True
        self.vectors = Spread(sums.rows[shown] / np.sqrt(sums.counts[shown, None]), widest)
        self.usual = max(float(np.linalg.norm(self.vectors.deviations)), 1e-300)
        self.directions = Spread(aligned(sums.rows[shown])[0])
        line = np.random.default_rng(0).standard_normal((1, sums.rows.shape[1]))
        self.line: FloatArray = (line / np.linalg.norm(line))[0]
        known = [found.entries[who][0] for who in range(found.known)]
        self.unclear = frozenset(np.flatnonzero(self._along_others(known)).tolist())

    def _along_others(self, entries: Sequence[Entry]) -> BoolArray:
        """Vectors that lie along another one, such as copies and multiples: bool[E].

        Either may stand for the other, and together they may add up to nothing.
        """
        along = np.zeros(len(entries), dtype=bool)
        levels = np.abs(self.sums.levels)
        if len(entries) < 2 or not levels.any():
            return along
        vectors = np.array([each.vector for each in entries])
        lengths = np.maximum(np.linalg.norm(vectors, axis=1), 1e-300)
        # Nor does a row tell directions apart better than its rounding lets it.
        loose = 2 * float(self.errors.max()) / float(levels[levels > 0].min())
        blur = np.minimum((np.array([each.error for each in entries]) + loose) / lengths, _LOOSEST)
        units = vectors / lengths[:, None]
        either = np.concatenate([units, -units])
        one, other = near_pairs(either, SLACK * 2 * float(blur.max()))
        one, other, off = one % len(along), other % len(along), either[one] - either[other]
        near = np.linalg.norm(off, axis=1) <= SLACK * (blur[one] + blur[other])
        along[one[near]] = along[other[near]] = True
        return along

    def unexplained(self, raters: int) -> IntArray:
        """Places of rows of so many raters that are not explained."""
        places = np.flatnonzero((self.sums.counts == raters) & (self.lengths > self.errors))
        done = np.fromiter(self.found.explained, dtype=np.int64)
        return places[~np.isin(places, done)]

    # --- one unknown rater ------------------------------------------------------------------------

    def lone_rows(self) -> None:
        """Group the rows of one rater by their directions, and decode each group."""
        places = self.unexplained(1)
        if not len(places):
            return
        needed = self.found.stage(len(places) * (len(places) - 1) / 2)
        rows, errors = self.sums.rows[places], self.errors[places]
        for group in self._grouped(rows, errors, needed):
            odds = rows.shape[1] * self._separate(rows[group])
            sure = len(group) > 1 and (self.sums.counted or odds >= needed)
            if sure or self.sums.counted:  # else it may be a sum of several, as others are of them
                self._decode_group(places[group], rows[group], errors[group], sure=sure)

    def _separate(self, rows: FloatArray) -> int:
        """How many rows along one direction are no whole multiple of another, but for rounding.

        Those that are come out as ring words whenever the other one does.
        """
        words = rows / self.sums.resolution
        lengths = np.linalg.norm(words, axis=1)
        kept: list[int] = []
        for row in np.argsort(lengths, kind="stable").tolist():
            times = np.rint(words[kept] @ words[row] / lengths[kept] ** 2)
            off = np.abs(words[row] - times[:, None] * words[kept]).max(axis=1, initial=0.0)
            if not (off <= np.maximum(np.abs(times), 1.0) + 1.0).any():
                kept.append(row)
        return len(kept)

    def _grouped(self, rows: FloatArray, errors: FloatArray, needed: float) -> list[IntArray]:
        """Rows along one direction, as far as that is certain: places, in groups."""
        units, blur = aligned(rows)[0], errors / np.linalg.norm(rows, axis=1)
        one, other = self._alike(units, blur, needed)
        return components(len(rows), one, other)

    def _alike(
        self, units: FloatArray, blur: FloatArray, needed: float
    ) -> tuple[IntArray, IntArray]:
        """Pairs of directions that are equal for certain."""
        widest = widest_fit(self.directions, needed)
        sharp = np.flatnonzero(2 * blur <= widest)
        if len(sharp) < 2:
            return sharp[:0], sharp[:0]
        one, other = near_pairs(units[sharp], SLACK * 2 * float(blur[sharp].max()))
        one, other = sharp[one], sharp[other]
        tolerance = SLACK * (blur[one] + blur[other])
        apart = units[one] - units[other]
        fits = ((apart**2).sum(axis=1) <= tolerance**2) & (tolerance <= widest)
        if fits.any():
            self._expect(needed, self.directions.bits(float(tolerance[fits].max())))
        return one[fits], other[fits]

    def _expect(self, needed: float, bits: float) -> None:
        """Account for the false ones among fits of so many bits at least."""
        share = 2.0 ** -(SURE_BITS + log2(self.found.stages * (self.found.stages + 1)))
        odds, stage = self.found.odds, self.found.stages
        odds[stage] = max(odds.get(stage, 0.0), share * 2.0 ** -max(0.0, bits - needed))

    def _decode_group(
        self, places: IntArray, rows: FloatArray, errors: FloatArray, *, sure: bool
    ) -> int | None:
        """A pseudonym from rows along its vector; None where no length fits."""
        found = self.found
        if not len(self.sums.levels):
            return self._direction(places, rows, errors) if sure else None
        possible = list(self._lengths(places, rows, errors))
        if not possible:
            return None
        vectors = [(vector, error) for vector, error, _ in possible]
        if any(error > _LOOSEST * np.linalg.norm(vector) for vector, error in vectors):
            vectors = []  # of what is possible, all is a candidate or nothing
        who = found.add(vectors, sure=sure)
        if sure:
            found.settle(who)
        ratings = zip(*(told for *_, told in possible), strict=True)
        for place, options in zip(places.tolist(), ratings, strict=True):
            rating = options[0] if len(set(options)) == 1 else np.nan
            found.tie(who, place, rating, certain=sure)
            if self.sums.counts[place] == 1:
                found.explained.add(place)
        return who

    def _direction(self, places: IntArray, rows: FloatArray, errors: FloatArray) -> int:
        """A pseudonym of whom no length can be told."""
        best = rows[int(np.argmax(np.linalg.norm(rows, axis=1) / errors))]
        who = self.found.add([], sure=True)
        self.found.directions[who] = best / np.linalg.norm(best)
        for place in places.tolist():
            self.found.tie(who, place, np.nan, certain=True)
            self.found.explained.add(place)
        return who

    def _lengths(
        self, places: IntArray, rows: FloatArray, errors: FloatArray
    ) -> Iterator[tuple[FloatArray, float, list[float]]]:
        """Vectors along a direction that all rows allow: each with its error and the ratings."""
        sums, base = self.sums, int(np.argmax(np.linalg.norm(rows, axis=1) / errors))
        length = float(np.linalg.norm(rows[base]))
        unit, public = rows[base] / length, sums.vectors[places]
        tilt = float(public[base] @ unit)
        for level in sums.levels.tolist():
            for scale in scale_roots(length, tilt, level):
                vector = scale * unit
                error = vector_error(vector, public[base], level, float(errors[base]))
                if np.abs(vector).max() > sums.bound + error:
                    continue
                ratings = [
                    self._rating(row, v, each, vector, error)
                    for row, v, each in zip(rows, public, errors.tolist(), strict=True)
                ]
                if None not in ratings:
                    yield vector, error, [float(r) for r in ratings if r is not None]

    def _rating(
        self, row: FloatArray, public: FloatArray, error: float, vector: FloatArray, loose: float
    ) -> float | None:
        """The rating with which a vector gives a row; NaN if several do, None if none does."""
        levels, dot = self.sums.levels, float(vector @ public)
        off = np.linalg.norm(row - (levels[:, None] - dot) * vector, axis=1)
        reach = np.linalg.norm(vector) * np.linalg.norm(public)
        fits = off <= SLACK * (error + (np.abs(levels - dot) + reach) * loose)
        if not fits.any():
            return None
        return float(levels[fits][0]) if fits.sum() == 1 else float("nan")

    # --- two raters -------------------------------------------------------------------------------

    def pairs(self) -> None:
        """Items of the same two raters: both vectors, to be confirmed by further rows."""
        places = self.unexplained(2)
        if len(places) < 2:
            return
        needed = self.found.stage(len(places) * (len(places) - 1) / 2)
        units = aligned(self.sums.rows[places])[0]
        widest = min(0.1, widest_fit(self.directions, needed))
        for group in components(len(places), *near_pairs(units, widest)):
            if 1 < len(group) <= 8:
                self._two(places[group])

    def _two(self, places: IntArray) -> None:
        """Both vectors behind rows of the same two raters, each rating the same."""
        levels = [level for level in self.sums.levels.tolist() if level]
        possible: list[tuple[FloatArray, FloatArray, float]] = []
        for one, other in combinations_with_replacement(levels, 2):
            for start in self._starts(places, one, other):
                solved = self._refine(places, one, other, start)
                size = 2 * float(self.lengths[places[0]])
                if solved is not None and all(
                    level * np.linalg.norm(vector) <= size
                    for level, vector in zip((one, other), solved[:2], strict=True)
                ):
                    possible.append(solved)
        if not possible:
            return
        vectors: list[tuple[FloatArray, float]] = []
        for first, second, error in possible:
            for vector in (first, second):
                if all(np.linalg.norm(vector - v) > error + e for v, e in vectors):
                    vectors.append((vector, error))
        # Whatever fits two rows of one plane fits the others in it by less than chance.
        plane = np.linalg.svd(self.sums.rows[places], full_matrices=False)[2][:2]
        rows = self.sums.rows
        beside = np.linalg.norm(rows - rows @ plane.T @ plane, axis=1)
        inside = (beside < _BESIDE * self.lengths) & (self.sums.counts == 2)
        origin, begin = frozenset(np.flatnonzero(inside).tolist()), len(self.found.entries)
        for vector, error in vectors:
            who = self.found.add([], sure=False)
            # Two vectors are told apart alone; of several readings none is another's mate.
            mate = 2 * begin + 1 - who if len(vectors) == 2 else -1
            self.found.entries[who] = [Entry(who, vector, error, origin, mate)]

    def _starts(self, places: IntArray, one: float, other: float) -> Iterator[FloatArray]:
        """First guesses of the first vector: the sum, and how it moved from one V to the other."""
        rows, public = self.sums.rows[places], self.sums.vectors[places]
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
        self, places: IntArray, one: float, other: float, start: FloatArray
    ) -> tuple[FloatArray, FloatArray, float] | None:
        """Newton's method on the exact equations: both vectors and their error."""
        rows, public = self.sums.rows[places], self.sums.vectors[places]
        width, eye = rows.shape[1], np.eye(rows.shape[1])
        first, second = start, (rows[0] - one * start) / other
        for _ in range(8):
            blocks, left = [], []
            for row, v in zip(rows, public, strict=True):
                a, b = one - first @ v, other - second @ v
                left.append(row - a * first - b * second)
                blocks.append(
                    np.hstack([a * eye - np.outer(first, v), b * eye - np.outer(second, v)])
                )
            jacobian, missing = np.vstack(blocks), np.concatenate(left)
            if not np.isfinite(jacobian).all():
                return None
            step, _, _, singular = np.linalg.lstsq(jacobian, missing, rcond=None)
            first, second = first + step[:width], second + step[width:]
            if np.linalg.norm(step) <= 1e-12 * np.linalg.norm(first):
                break
        noise = float(np.linalg.norm(self.errors[places]))
        if not singular[-1] > 0 or not np.linalg.norm(missing) <= 2 * noise:
            return None
        # Independent roundings do not all push along the one direction that is solved worst.
        each = self.sums.resolution * np.sqrt(2 / 12)
        error = DEVIATIONS * each * float(np.sqrt((singular**-2.0).sum()))
        both = np.stack([first, second])
        loose = error > _LOOSEST * np.linalg.norm(both, axis=1).min()
        if loose or np.abs(both).max() > self.sums.bound + error:
            return None
        return first, second, error

    def propagate(self) -> None:
        """Rows of two less a known rater: where two of them agree, that is the row of another.

        First by the vectors that are known best: a wide tolerance takes long to search.
        """
        before = len(self.found.entries)
        for sharpest in (True, False):
            if len(self.found.entries) == before:
                self._propagate(sharpest=sharpest)

    def _propagate(self, *, sharpest: bool) -> None:
        places, entries = self.unexplained(2), self._entries(alone=True)
        parts = [
            (place, self._columns(place, entries, self.sums.levels)) for place in places.tolist()
        ]
        total = sum(len(columns.who) for _, columns in parts)
        if not total:
            return
        if total > _MOST_PAIRS // 4:
            self.found.beyond += len(places)
            return
        needed = self.found.stage(total * (total - 1) / 2)
        self.found.spent += total
        rest = np.concatenate([self.sums.rows[p] - c.values for p, c in parts])
        errors = np.concatenate([self.errors[p] + c.errors for p, c in parts])
        place = np.concatenate([np.full(len(c.who), p) for p, c in parts])
        column = np.concatenate([np.arange(len(c.who)) for _, c in parts])
        who = np.concatenate([c.who for _, c in parts])
        blur = errors / np.maximum(np.linalg.norm(rest, axis=1), 1e-300)
        most = _SHARP if sharpest else 1.0
        evident = [self._evident(entries, p)[c.entries] & c.weighty for p, c in parts]
        kept = np.flatnonzero((blur < most) & np.concatenate(evident))
        units, blur = aligned(rest[kept])[0], blur[kept]
        one, other = (kept[each] for each in self._alike(units, blur, needed))
        # Of two rows of the same raters any third client can be taken off, with like remainders.
        apart = (place[one] != place[other]) & (who[one] != who[other])
        apart &= self._told_apart(place, rest, errors, (one, other)) >= needed
        # Nor do two readings of the same rows, which lie in one plane, agree by chance alone.
        sources = {e.origin: n for n, e in enumerate(entries) if e.who not in self.found.sure}
        source = np.array(
            [
                -1 - n if e.who in self.found.sure else sources[e.origin]
                for n, e in enumerate(entries)
            ]
        )
        of = source[np.concatenate([c.entries for _, c in parts])]
        lone = np.array([not e.origin for e in entries])[
            np.concatenate([c.entries for _, c in parts])
        ]
        apart &= (of[one] != of[other]) | lone[one]
        by_row = dict(parts)
        groups = [g for g in components(len(rest), one[apart], other[apart]) if len(g) > 1]
        told = np.bincount(place[np.concatenate(groups)]) if groups else place[:0]
        for group in groups:
            # A row that is of several groups, or in one twice, can be explained in several ways.
            if (told[place[group]] > 1).any():
                continue
            fresh = [int(p) for p in place[group] if int(p) not in self.found.explained]
            if len(fresh) < len(group):
                continue
            new = self._decode_group(place[group], rest[group], errors[group], sure=True)
            if new is None:
                continue
            for each in group.tolist():
                columns, at = by_row[int(place[each])], int(column[each])
                entry = entries[int(columns.entries[at])]
                like = columns.like(at, errors[each])
                if len(np.unique(columns.who[like])) > 1:
                    continue  # another one's vector leaves the same
                self.found.settle(entry.who, entry)
                ratings = np.unique(columns.levels[like])
                rating = float(ratings[0]) if len(ratings) == 1 else float("nan")
                self.found.tie(entry.who, int(place[each]), rating, certain=True)
                self.found.explained.add(int(place[each]))
                self.found.most = max(self.found.most, 2)

    def _told_apart(
        self,
        place: IntArray,
        rest: FloatArray,
        errors: FloatArray,
        pairs: tuple[IntArray, IntArray],
    ) -> FloatArray:
        """Bits by which like remainders are due to what was taken off: float64[P].

        Rows that are alike stay so if like vectors are taken off them, whoever has these; and
        next to nothing may be taken off a row that is almost one rater's.
        """
        (one, other), rows = pairs, self.sums.rows[place]
        scale = (rest[one] * rest[other]).sum(axis=1) / (rest[other] ** 2).sum(axis=1)
        tolerance = errors[one] + np.abs(scale) * errors[other]
        moved = [
            rows[one] - scale[:, None] * rows[other],
            rows[one] - scale[:, None] * rest[other],
            scale[:, None] * rows[other] - rest[one],
        ]
        least = np.min([np.linalg.norm(each, axis=1) for each in moved], axis=0) / tolerance
        return np.asarray((rows.shape[1] - 1) * np.log2(np.maximum(least, 1.0)))

    def refine(self) -> None:
        """Sharpen vectors by all rows that they explain: with the e known, the U are linear."""
        found, sums = self.found, self.sums
        members: dict[int, list[tuple[int, float]]] = {row: [] for row in found.explained}
        for (who, row), (rating, certain) in found.ties.items():
            if row in members:
                good = certain and who in found.solved and rating == rating  # noqa: PLR0124
                members[row].append((who, rating if good else np.nan))
        kept = [
            row
            for row, raters in members.items()
            if len(raters) == sums.counts[row] and not np.isnan([r for _, r in raters]).any()
        ]
        whose = sorted({who for row in kept for who, _ in members[row]})
        if len(kept) < len(whose) or not whose:
            return
        place = {who: number for number, who in enumerate(whose)}
        at = np.array([[n, place[w]] for n, row in enumerate(kept) for w, _ in members[row]])
        ratings = np.array([r for row in kept for _, r in members[row]])
        public, rows = sums.vectors[kept], sums.rows[kept]
        reach = np.linalg.norm(public, axis=1)
        for _ in range(3):
            vectors = np.array([found.entries[who][0].vector for who in whose])
            loose = np.array([found.entries[who][0].error for who in whose])
            system = np.zeros((len(kept), len(whose)))
            dots = (vectors[at[:, 1]] * public[at[:, 0]]).sum(axis=1)
            system[at[:, 0], at[:, 1]] = ratings - dots
            inverse = np.linalg.pinv(system)
            solved = inverse @ rows
            # What the old vectors' errors do to the e, and these to the new ones.
            sizes = np.linalg.norm(vectors, axis=1) + loose
            off = self.errors[kept].copy()
            np.add.at(off, at[:, 0], reach[at[:, 0]] * (loose * sizes)[at[:, 1]])
            errors = np.abs(inverse) @ off * SLACK
            whole = np.abs(inverse @ system - np.eye(len(whose))).sum(axis=1) < 1e-6
            for number in np.flatnonzero(whole & (errors < loose)).tolist():
                found.entries[whose[number]] = [
                    Entry(whose[number], solved[number], float(errors[number]))
                ]

    def merge(self) -> None:
        """Take pseudonyms for one client whose vectors are equal, as far as that is certain.

        Those known beforehand are different clients, and who may be either of two is neither.
        """
        found = self.found
        one = [(e[0].error, who) for who, e in found.entries.items() if len(e) == 1]
        order = [who for _, who in sorted(one)]
        needed = found.stage(len(order) * (len(order) - 1) / 2)
        for place, who in enumerate(order):
            for other in order[place + 1 :]:
                both_known = max(who, other) < found.known
                if both_known or not found.entries[who] or not found.entries[other]:
                    continue
                this, that = found.entries[who][0], found.entries[other][0]
                reach = this.error + that.error
                if np.linalg.norm(this.vector - that.vector) > reach:
                    continue
                if self.vectors.bits(reach) >= needed and len(self._known_as(that)) < 2:
                    self._one_person(who, other)

    def _known_as(self, entry: Entry) -> list[int]:
        """Who of those known beforehand may have a vector."""
        known = (self.found.entries[who][0] for who in range(self.found.known))
        return [
            each.who
            for each in known
            if np.linalg.norm(each.vector - entry.vector) <= each.error + entry.error
        ]

    def _one_person(self, who: int, other: int) -> None:
        """All that is of another pseudonym is of this one."""
        found = self.found
        found.entries[other] = []
        for kind in (found.sure, found.solved):
            if other in kind:
                kind.add(who)
                kind.discard(other)
        for of, row in [tie for tie in found.ties if tie[0] == other]:
            rating, certain = found.ties.pop((of, row))
            found.tie(who, row, rating, certain=certain)

    # --- known raters -----------------------------------------------------------------------------

    def _entries(self, *, alone: bool = False) -> list[Entry]:
        """Possible vectors; ``alone`` leaves out pseudonyms that are unsure and have several."""
        return [
            each
            for who, entries in self.found.entries.items()
            if who not in self.unclear
            if not alone or len(entries) == 1 or who in self.found.sure
            for each in entries
        ]

    def _evident(self, entries: Sequence[Entry], place: int) -> BoolArray:
        """Of which possible vectors a row is evidence: bool[E]."""
        sure = self.found.sure
        return np.array(
            [place not in e.origin or e.who in sure or e.mate in sure for e in entries], dtype=bool
        )

    def _columns(self, place: int, entries: Sequence[Entry], levels: FloatArray) -> Columns:
        sums, width = self.sums, self.sums.rows.shape[1]
        vectors = np.array([each.vector for each in entries]).reshape(-1, width)
        loose = np.array([each.error for each in entries])
        public = sums.vectors[place]
        off = levels[None, :] - (vectors @ public)[:, None]
        sizes = np.linalg.norm(vectors, axis=1)
        reach = sizes * np.linalg.norm(public)
        # A vector much shorter than others adds next to nothing, however far off a rating is.
        share = np.minimum(1.0, sizes / self.usual)
        columns = len(entries) * len(levels)
        return Columns(
            (off[:, :, None] * vectors[:, None, :]).reshape(columns, width),
            ((np.abs(off) + reach[:, None]) * loose[:, None]).reshape(-1),
            (np.abs(off) * share[:, None]).reshape(-1),
            np.repeat(np.arange(len(entries)), len(levels)),
            np.repeat([each.who for each in entries], len(levels)).astype(np.int64),
            np.tile(levels, len(entries)),
        )

    def look_up(self, raters: int) -> None:
        """Explain rows of so many raters by known vectors, as far as the budget goes."""
        places, entries = self.unexplained(raters), self._entries(alone=raters > 2)
        levels = self.sums.levels
        if raters > 2:  # what is unsure, known loosely, or adds next to nothing fits too much
            sharp = [e.error <= _SHARP * np.linalg.norm(e.vector) for e in entries]
            sure = [e.who in self.found.sure for e in entries]
            entries = [e for e, a, b in zip(entries, sharp, sure, strict=True) if a and b]
            levels = levels[np.abs(levels) > LIGHT * np.abs(levels).max()]
        size = len(entries) * len(levels)
        if not len(places) or size < raters:
            return
        each = cost(size, raters)
        affordable = int((self.found.budget - self.found.spent) // each)
        self.found.beyond += max(0, len(places) - affordable)
        if affordable <= 0 or comb(size, raters - raters // 2) > 2 * _MOST_PAIRS:
            self.found.beyond += len(places[: max(0, affordable)])
            return
        places = places[:affordable]
        needed = self.found.stage(len(places) * float(comb(size, raters)))
        most = float(np.abs(levels).max())
        if self.vectors.bits(float(self.errors[places].min()), most) < needed:
            return  # whatever fits, fits by chance
        self.found.spent += each * len(places)
        who = np.repeat([each.who for each in entries], len(levels))
        halves = tuples(who, raters // 2), tuples(who, raters - raters // 2)
        for place in places.tolist():
            columns = self._columns(place, entries, levels)
            error = float(self.errors[place])
            fits = fitting_subsets(columns, self.sums.rows[place], error, halves, self.line)
            evident = self._evident(entries, place)[columns.entries]
            fits = fits[evident[fits].all(axis=1)]
            if len(fits):
                self._explain(place, columns, fits, entries, needed)

    def reduce(self) -> None:
        """Explain larger sums by lattice reduction: rating steps and bits are small numbers."""
        levels, entries = self.sums.levels, self._entries(alone=True)
        levels = levels[np.abs(levels) > LIGHT * np.abs(levels).max()]
        entries = [each for each in entries if each.who in self.found.sure]
        # One solution is looked at: there must be no other.
        along = self._along_others(entries).tolist()
        entries = [each for each, unclear in zip(entries, along, strict=True) if not unclear]
        parts = 1 if len(levels) == 1 else 2
        raters = np.unique(self.sums.counts[(self.sums.counts > 2)])
        raters = raters[raters <= len(entries)]
        if not len(raters) or parts * len(entries) > MOST_UNKNOWNS:
            return
        vectors = np.array([each.vector for each in entries])
        for each in raters.tolist():
            places, size = self.unexplained(each), float(comb(len(entries), each))
            needed = self.found.stage(max(1, len(places)) * size * float(len(levels)) ** each)
            most = float(np.abs(levels).max())
            if (
                not len(places)
                or self.vectors.bits(float(self.errors[places].min()), most) < needed
            ):
                continue
            for place in places.tolist():
                columns = self._columns(place, entries, levels)
                bases = columns.values[:: len(levels)]
                steps = vectors * (levels[1] - levels[0]) if parts == 2 else vectors[:0]
                unit = float(self.errors[place]) / np.sqrt(vectors.shape[1])
                told = coefficients(np.concatenate([bases, steps]), self.sums.rows[place], unit)
                if told is None:
                    continue
                chosen = np.flatnonzero(told[: len(entries)] == 1)
                step = told[len(entries) :][chosen] if parts == 2 else np.zeros_like(chosen)
                there = len(chosen) == each and ((step >= 0) & (step < len(levels))).all()
                fit = chosen * len(levels) + np.where(there, step, 0)
                off = np.linalg.norm(self.sums.rows[place] - columns.values[fit].sum(axis=0))
                within = SLACK * (self.errors[place] + columns.errors[fit].sum())
                if there and off <= within and len(np.unique(columns.who[fit])) == each:
                    self._explain(place, columns, fit[None], entries, needed)

    def _explain(
        self,
        place: int,
        columns: Columns,
        fits: IntArray,
        entries: Sequence[Entry],
        needed: float,
    ) -> None:
        """Take over what all fits (int64[F, n], columns) agree on.

        A row that is shorter than others, or what is added to it, has fewer bits to show.
        """
        sets = [frozenset(columns.who[fit].tolist()) for fit in fits]
        agreed = frozenset.intersection(*sets)
        tolerance = self.errors[place] + columns.errors[fits].sum(axis=1).max()
        sure = {}
        for who in agreed:
            mine = fits[columns.who[fits] == who]
            size = min(float(columns.sizes[mine].min()), float(self.lengths[place]) / self.usual)
            bits = self.vectors.bits(float(tolerance), size)
            sure[who] = bits >= needed
            if sure[who]:
                self._expect(needed, bits)
                which = np.unique(columns.entries[mine])
                self.found.settle(who, entries[int(which[0])] if len(which) == 1 else None)
            levels = np.unique(columns.levels[mine])
            rating = float(levels[0]) if len(levels) == 1 else float("nan")
            self.found.tie(who, place, rating, certain=sure[who])
        if len(agreed) == fits.shape[1] and all(sure.values()):
            self.found.explained.add(place)
            self.found.most = max(self.found.most, fits.shape[1])
