"""Rows of single clients inside a sum: which are of one client, and what they say about it.

An item that one client rated has that client's row in the aggregate, whatever hid the uploads:
``g = -e U + lambda V_i``. What is left after taking lambda V_i off lies along U, so rows of one
client over several items are collinear, and rows of two clients are not. Within a group of
collinear rows the one unknown scale of U follows from the rating scale, as in ``ratings``: a
candidate must put every row of the group on it.

Nothing is taken on faith. Rows are grouped if their angle is within what the rounding of the ring
explains; ratings are named if one assignment of ratings fits, and a wrong one would by chance with
odds below 1e-4. Clipped or noised rows pass neither test.
"""

from dataclasses import fields

import numpy as np

from attacks.families.ratings.lattice import nearest_levels, refine_scale, scale_candidates
from attacks.scoring.single_rows import AnonymousRowClaim, GroupedRows
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.wire import View

_FEWEST_DIMENSIONS = 3  # in a plane, rows of different clients come close to collinear by chance
_SHARPEST = 2.5e-4  # relative error of a row beyond which it is left alone
_MULTIPLE = 4.0
_FLOAT_ERROR = 1e-14
CHANCE = 1e-4
"""Odds of a wrong name that are small enough."""
_BLOCK = 512


class RowGroups(GroupedRows):
    """Rows after grouping and decoding; what is not named or solved is 0."""

    __slots__ = ()

    @classmethod
    def alone(cls, size: int, width: int) -> "RowGroups":
        """Every row by itself, nothing decoded."""
        return cls(
            groups=np.arange(size),
            ratings=np.zeros(size),
            named=np.zeros(size, dtype=bool),
            vectors=np.zeros((size, width)),
            solved=np.zeros(size, dtype=bool),
        )

    def keep(self, rows: BoolArray) -> "RowGroups":
        """Some of the rows, bool[N]; their groups renumbered."""
        used, groups = np.unique(self.groups[rows], return_inverse=True)
        return RowGroups(
            groups=groups.reshape(-1).astype(np.int64),
            ratings=self.ratings[rows],
            named=self.named[rows],
            vectors=self.vectors[used],
            solved=self.solved[used],
        )

    def claim(self, round_: int, items: IntArray, owners: IntArray) -> AnonymousRowClaim:
        """The rows of a round: int64[N], their items, and int64[G], whose each group is."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return AnonymousRowClaim(round=round_, items=items, owners=owners, **found)


def group_steps(view: View, round_: int, items: IntArray, rows: FloatArray) -> RowGroups:
    """Group and decode rows of PMF, each one gradient step of some client: float64[N, d]."""
    vectors = view.table(round_)[items]
    pull = float(view.public["algorithm"]["regularization"]) * vectors
    levels = np.asarray(view.public["rating_levels"], dtype=np.float64)
    return group_rows(rows - pull, vectors, levels, resolution=view.codec.resolution)


def group_rows(
    rows: FloatArray, vectors: FloatArray, levels: FloatArray, *, resolution: float
) -> RowGroups:
    """Group rows by client and decode the groups.

    Args:
        rows: float64[N, d], aggregate rows less lambda V: each -e U of some client.
        vectors: float64[N, d], the public item vectors.
        levels: float64[L], the rating scale, positive and evenly spaced.
        resolution: of the ring; a coordinate is off by at most half of it.
    """
    size, width = rows.shape
    found = RowGroups.alone(size, width)
    if size < 2 or width < _FEWEST_DIMENSIONS:
        return found
    norms = np.sqrt((rows**2).sum(axis=1))
    errors = np.sqrt(width) * resolution / 2 + _FLOAT_ERROR * norms
    groups = _collinear(rows, norms, errors)
    count = int(groups.max()) + 1
    solved, own = np.zeros(count, dtype=bool), np.zeros((count, width))
    for group in np.flatnonzero(np.bincount(groups) > 1):
        members = np.flatnonzero(groups == group)
        decoded = _decode(rows[members], vectors[members], errors[members], levels)
        if decoded is not None:
            found.ratings[members], own[group] = decoded
            found.named[members] = solved[group] = True
    return RowGroups(
        groups=groups, ratings=found.ratings, named=found.named, vectors=own, solved=solved
    )


def _collinear(rows: FloatArray, norms: FloatArray, errors: FloatArray) -> IntArray:
    """Number of each row's group: chains of rows within the angle that rounding explains."""
    from scipy import sparse  # noqa: PLC0415 - who only reads of attacks need not wait for it
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    sharp = np.flatnonzero(errors <= _SHARPEST * norms)
    units = rows[sharp] / norms[sharp, None]
    blur = errors[sharp] / norms[sharp]
    ones: list[IntArray] = []
    others: list[IntArray] = []
    for start in range(0, len(sharp), _BLOCK):
        part = units[start : start + _BLOCK]
        near = (1.0 - (part @ units.T) ** 2) < (8.0 * _MULTIPLE * _SHARPEST) ** 2
        one, other = np.nonzero(near)  # a first look; squares of small angles are mostly rounding
        dots = (part[one] * units[other]).sum(axis=1)
        angles = np.sqrt(((part[one] - dots[:, None] * units[other]) ** 2).sum(axis=1))
        same = angles <= _MULTIPLE * (blur[start + one] + blur[other])
        ones.append(sharp[start + one[same]])
        others.append(sharp[other[same]])
    one, other = (np.concatenate([np.empty(0, dtype=np.int64), *ends]) for ends in (ones, others))
    shape = (len(rows), len(rows))
    pairs = sparse.csr_array((np.ones(len(one), dtype=bool), (one, other)), shape=shape)
    return np.asarray(connected_components(pairs, directed=False)[1]).astype(np.int64)


def _decode(
    rows: FloatArray, vectors: FloatArray, errors: FloatArray, levels: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Ratings [k] and private vector [d] of a group; None if they do not follow."""
    direction = np.linalg.svd(rows, full_matrices=False)[2][0]
    a, b = rows @ direction, vectors @ direction
    tilt = float(errors.max()) * np.sqrt(len(rows)) / float(np.linalg.norm(rows))
    lengths = np.sqrt((vectors**2).sum(axis=1))
    spacing = float(levels[1] - levels[0])
    fits: list[tuple[float, float, FloatArray, FloatArray]] = []
    tried = 0
    for candidate in np.unique(scale_candidates(a, b, levels)).tolist():
        tried += 1
        loose = _tolerance(candidate, errors, lengths, tilt) * 2 * _MULTIPLE
        if (_misfit(a, b, candidate, levels) > loose).any():
            continue
        scale = refine_scale(a, b, levels, candidate, np.ones(len(a), dtype=bool))
        tolerance = _tolerance(scale, errors, lengths, tilt)
        misfit = _misfit(a, b, scale, levels)
        if (misfit <= tolerance).all():
            ratings = levels[nearest_levels(-a / scale + scale * b, levels)]
            fits.append((float(misfit.max()), scale, ratings, tolerance))
    if not fits:
        return None
    _, scale, ratings, tolerance = min(fits, key=lambda fit: fit[0])
    if any(not np.array_equal(other, ratings) for _, _, other, _ in fits):
        return None
    # The candidate was made to fit one row, the others would have to be hit by chance.
    hits = np.sort(np.minimum(1.0, 2 * tolerance / spacing))[1:]
    if tried * float(np.prod(hits)) > CHANCE:
        return None
    return ratings, scale * direction


def _misfit(a: FloatArray, b: FloatArray, scale: float, levels: FloatArray) -> FloatArray:
    ratings = -a / scale + scale * b
    return np.asarray(np.abs(ratings - levels[nearest_levels(ratings, levels)]))


def _tolerance(scale: float, errors: FloatArray, lengths: FloatArray, tilt: float) -> FloatArray:
    """How far rounding can push the decoded ratings, through the row and through the direction."""
    return _MULTIPLE * (errors / abs(scale) + abs(scale) * lengths * tilt + 1e-9)
