"""A round's equations and what is known so far: shared by all searches."""

from collections.abc import Iterator, Sequence

import numpy as np

from attacks.families.ratings.lattice import scale_roots
from attacks.families.sums.decoded import UNTOLD, Columns, Decoded, Entry
from attacks.families.sums.round_sums import RoundSums
from attacks.families.sums.vector_matches import (
    SLACK,
    Spread,
    aligned,
    near_pairs,
    vector_error,
    widest_fit,
)
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray

LOOSEST = 0.05
"""Largest relative error of a vector from which more is derived."""

SHARP = 1e-4
"""Relative error below which a vector is subtracted from rows first."""


class State:
    """Equations of one round, and their solutions so far."""

    def __init__(self, sums: RoundSums, found: Decoded) -> None:
        self.sums, self.found = sums, found
        self.errors, self.lengths, self.vectors = sums.errors, sums.lengths, sums.spread
        self.usual = max(float(np.linalg.norm(self.vectors.deviations)), 1e-300)
        self.directions = Spread(aligned(sums.rows[self.lengths > self.errors]))
        along = self.along_others([found.entries[who][0] for who in range(found.known)])
        found.unclear = frozenset(np.flatnonzero(along).tolist())

    def along_others(self, entries: Sequence[Entry]) -> BoolArray:
        """Vectors parallel to another one, such as copies and multiples: bool[E].

        Either can replace the other, and together they may cancel.
        """
        along, levels = np.zeros(len(entries), dtype=bool), np.abs(self.sums.levels)
        if len(entries) < 2 or not levels.any():
            return along
        vectors = np.array([each.vector for each in entries])
        lengths = np.maximum(np.linalg.norm(vectors, axis=1), 1e-300)
        # Rounding limits how well a row separates directions.
        loose = 2 * float(self.errors.max()) / float(levels[levels > 0].min())
        blur = np.minimum((np.array([each.error for each in entries]) + loose) / lengths, LOOSEST)
        units = vectors / lengths[:, None]
        either = np.concatenate([units, -units])
        one, other = near_pairs(either, SLACK * 2 * float(blur.max()))
        off = np.linalg.norm(either[one] - either[other], axis=1)
        one, other = one % len(along), other % len(along)
        near = off <= SLACK * (blur[one] + blur[other])
        along[one[near]] = along[other[near]] = True
        return along

    def unexplained(self, raters: int, most: int = 0) -> IntArray:
        """Places of rows of so many raters, or up to ``most``, that are not explained."""
        counts, shown = self.sums.counts, self.lengths > self.errors
        places = np.flatnonzero((counts >= raters) & (counts <= max(raters, most)) & shown)
        done = np.fromiter(self.found.explained, dtype=np.int64)
        return places[~np.isin(places, done)]

    def widest(self) -> float:
        """The angle within which two directions certainly belong to the same vector."""
        return widest_fit(self.directions, self.found.needed)

    def alike(self, rows: FloatArray, blur: FloatArray) -> tuple[IntArray, IntArray]:
        """Pairs of rows that are certainly parallel, by the errors of their directions."""
        units, widest = aligned(rows), self.widest()
        sharp = np.flatnonzero(2 * blur <= widest)
        if len(sharp) < 2:
            return sharp[:0], sharp[:0]
        one, other = near_pairs(units[sharp], SLACK * 2 * float(blur[sharp].max()))
        one, other = sharp[one], sharp[other]
        tolerance = SLACK * (blur[one] + blur[other])
        apart = np.linalg.norm(units[one] - units[other], axis=1)
        fits = (apart <= tolerance) & (tolerance <= widest)
        if fits.any():
            self.found.holds(self.directions.bits(float(tolerance[fits].max())))
        return one[fits], other[fits]

    def read(
        self, places: IntArray, rows: FloatArray, errors: FloatArray, *, sure: bool
    ) -> int | None:
        """A new pseudonym from rows that are multiples of its vector; None if no length fits.

        Without a rating scale, a direction is all that is told of it.
        """
        found, levels = self.found, self.sums.levels
        base = int(np.argmax(np.linalg.norm(rows, axis=1) / errors))
        possible = list(self._lengths(base, places, rows, errors))
        if not possible and (len(levels) or not sure):
            return None
        vectors = [(vector, error) for vector, error, _ in possible]
        if any(error > LOOSEST * np.linalg.norm(vector) for vector, error in vectors):
            vectors = []  # if one possible vector is too imprecise, none is used
        who = found.add(vectors)
        if not possible:
            found.directions[who] = rows[base] / np.linalg.norm(rows[base])
        if sure:
            found.settle(who)
        for number, place in enumerate(places.tolist()):
            options = {told[number] for *_, told in possible}
            rating = options.pop() if len(options) == 1 else UNTOLD
            found.tie(who, place, rating, certain=sure)
            if self.sums.counts[place] == 1:
                found.explained.add(place)
        return who

    def _lengths(
        self, base: int, places: IntArray, rows: FloatArray, errors: FloatArray
    ) -> Iterator[tuple[FloatArray, float, list[float]]]:
        """Vectors along a direction that fit all rows, each with its error and the ratings."""
        sums, public, length = self.sums, self.sums.vectors[places], np.linalg.norm(rows[base])
        unit = rows[base] / length
        tilt = float(public[base] @ unit)
        for level in sums.levels.tolist():
            roots = scale_roots(*np.array([[-length], [tilt], [level]]))
            for scale in roots[roots != 0].tolist():
                vector = scale * unit
                error = vector_error(vector, public[base], level, float(errors[base]))
                if np.abs(vector).max() > sums.bound + error:
                    continue
                each = zip(rows, public, errors.tolist(), strict=True)
                told = [self.rating(row, v, off, vector, error) for row, v, off in each]
                ratings = [rating for rating in told if rating is not None]
                if len(ratings) == len(told):
                    yield vector, error, ratings

    def rating(
        self, row: FloatArray, public: FloatArray, error: float, vector: FloatArray, loose: float
    ) -> float | None:
        """The rating with which a vector gives a row; NaN if several do, None if none does."""
        levels, dot = self.sums.levels, float(vector @ public)
        off = np.linalg.norm(row - (levels[:, None] - dot) * vector, axis=1)
        reach = np.linalg.norm(vector) * np.linalg.norm(public)
        fits = off <= SLACK * (error + (np.abs(levels - dot) + reach) * loose)
        if not fits.any():
            return None
        return float(levels[fits][0]) if fits.sum() == 1 else UNTOLD

    def columns(self, place: int, entries: Sequence[Entry], levels: FloatArray) -> Columns:
        """The part of a row from each possible vector, for each of some ratings."""
        width, public = self.sums.rows.shape[1], self.sums.vectors[place]
        vectors = np.array([each.vector for each in entries]).reshape(-1, width)
        loose = np.array([each.error for each in entries])
        off = levels[None, :] - (vectors @ public)[:, None]
        sizes = np.linalg.norm(vectors, axis=1)
        reach = sizes * np.linalg.norm(public)
        # A vector much shorter than usual adds almost nothing, whatever its rating.
        share = np.minimum(1.0, sizes / self.usual)
        return Columns(
            (off[:, :, None] * vectors[:, None, :]).reshape(-1, width),
            ((np.abs(off) + reach[:, None]) * loose[:, None]).reshape(-1),
            (np.abs(off) * share[:, None]).reshape(-1),
            np.repeat(np.arange(len(entries)), len(levels)),
            np.repeat([each.who for each in entries], len(levels)).astype(np.int64),
            np.tile(levels, len(entries)),
        )
