"""Points close to each other, and subsets that add up to a point, with tolerances, in floats."""

from math import comb

import numpy as np

from attacks.families.sums.decoded import Columns
from secure_fedrec.core.arrays import FloatArray, IntArray

SLACK = 1.001
_MOST_HITS = 2**20  # held at once
# Width of a normal density relative to its peak, per half tolerance.
_WIDTH = np.sqrt(2 * np.pi) / 2


class Spread:
    """Spread of points around their mean along each of their axes.

    Args:
        points: float64[N, d].
        scale: what the deviations are divided by.
    """

    def __init__(self, points: FloatArray, scale: float = 1.0) -> None:
        around = points - points.mean(axis=0) if len(points) else points
        values = np.linalg.eigvalsh(around.T @ around / max(1, len(points) - 1))
        self.deviations: FloatArray = np.sqrt(np.maximum(values, 0.0)) / scale

    def bits(self, tolerance: float, size: float = 1.0) -> float:
        """Bits of a fit: -log2 of the probability that another point, times ``size``, fits."""
        cells = _WIDTH * size * self.deviations / max(tolerance, 1e-300)
        return float(np.log2(np.maximum(cells, 1.0)).sum())


def aligned(rows: FloatArray) -> FloatArray:
    """Directions of rows, with the sign that points along their main axis."""
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    main = np.linalg.eigh(units.T @ units)[1][:, -1]
    return np.asarray(units * np.where(units @ main < 0, -1.0, 1.0)[:, None])


def widest_fit(spread: Spread, needed: float) -> float:
    """The largest tolerance within which a fit is evidence of so many bits; 0 if there is none."""
    low, high = -60.0, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if spread.bits(2.0**middle) >= needed else (low, middle)
    return 2.0**low if spread.bits(2.0**low) >= needed else 0.0


def near_pairs(points: FloatArray, reach: float) -> tuple[IntArray, IntArray]:
    """Pairs of points no further apart than that."""
    from scipy.spatial import KDTree  # noqa: PLC0415 - who only reads of attacks need not wait

    pairs = KDTree(points).query_pairs(reach, output_type="ndarray").astype(np.int64)
    pairs = pairs[np.lexsort(pairs.T)]
    return pairs[:, 0], pairs[:, 1]


def components(size: int, one: IntArray, other: IntArray) -> list[IntArray]:
    """Groups of places that pairs connect; every other place is a group of its own."""
    from scipy import sparse  # noqa: PLC0415 - who only reads of attacks need not wait for it
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    marks = np.ones(len(one), dtype=bool)
    pairs = sparse.csr_array((marks, (one, other)), shape=(size, size))
    labels = np.asarray(connected_components(pairs, directed=False)[1])
    order = np.argsort(labels, kind="stable")
    return [g for g in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(g)]


def vector_error(vector: FloatArray, public: FloatArray, level: float, error: float) -> float:
    """How far U can be off where ``(level - U.V) U`` is off by ``error``."""
    off = level - float(vector @ public)
    lever = off - float(vector @ public)
    if not off or not lever:
        return float("inf")
    reach = float(np.linalg.norm(vector) * np.linalg.norm(public))
    return error / abs(off) * (1.0 + reach / abs(lever)) * SLACK


def cost(size: int, raters: int) -> float:
    """Sums that a search forms or looks up."""
    return float(comb(size, raters // 2) + comb(size, raters - raters // 2))


def tuples(who: IntArray, count: int) -> IntArray:
    """Subsets of so many columns of different pseudonyms: int64[T, count]."""
    found = np.arange(len(who))[:, None]
    for _ in range(count - 1):
        rest = len(who) - 1 - found[:, -1]
        base = np.repeat(np.arange(len(found)), rest)
        starts = np.repeat(np.cumsum(rest) - rest, rest)
        last = found[base, -1] + 1 + np.arange(len(base)) - starts
        found = np.concatenate([found[base], last[:, None]], axis=1)
        apart = (who[found[:, :-1]] != who[last][:, None]).all(axis=1)
        found = found[apart]
    return found


def fitting_subsets(
    columns: Columns,
    target: FloatArray,
    error: float,
    halves: tuple[IntArray, IntArray],
    line: FloatArray,
) -> IntArray:
    """Subsets of columns, of different pseudonyms, that add up to a row: int64[F, raters]."""
    left, right = halves
    raters, along = left.shape[1] + right.shape[1], columns.values @ line
    slack = error + float(np.sort(columns.errors)[-raters:].sum())
    sums = along[left.T].sum(axis=0)
    order = np.argsort(sums)
    sums = sums[order]
    wanted = float(target @ line) - along[right.T].sum(axis=0)
    queries = np.argsort(wanted)  # in their order, each is looked up near the one before
    wanted, right = wanted[queries], right[queries]
    first = np.searchsorted(sums, wanted - slack, side="left")
    sizes = np.searchsorted(sums, wanted + slack, side="right") - first
    if sizes.sum() > 16 * _MOST_HITS:
        return np.zeros((0, raters), dtype=np.int64)
    base = np.repeat(np.arange(len(right)), sizes)
    place = order[np.arange(len(base)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + first[base]]
    # Compared along a second direction first, which drops nearly all candidates; its tolerance is
    # at least that of the check below.
    other = columns.values @ line[::-1]
    off = float(target @ line[::-1]) - other[left.T].sum(axis=0)[place]
    errors = columns.errors[left.T].sum(axis=0)[place] + columns.errors[right.T].sum(axis=0)[base]
    near = np.abs(off - other[right.T].sum(axis=0)[base]) <= SLACK**2 * (error + errors)
    chosen = np.concatenate([left[place[near]], right[base[near]]], axis=1)
    whose = np.sort(columns.who[chosen], axis=1)
    chosen = chosen[(whose[:, 1:] != whose[:, :-1]).all(axis=1)]
    kept: list[IntArray] = []
    for part in np.array_split(chosen, 1 + len(chosen) // _MOST_HITS * raters):
        rest = target - columns.values[part].sum(axis=1)
        within = SLACK * (error + columns.errors[part].sum(axis=1))
        kept.append(part[(rest**2).sum(axis=1) <= within**2])
    fits = np.sort(np.concatenate(kept), axis=1)
    return np.unique(fits, axis=0) if len(fits) else fits
