"""Sums over few clients as equations: of a server's aggregate, or of a step of the public table.

A row of the aggregate less ``lambda n V`` is ``sum of e U`` over the item's n raters, with
``e = r - U.V``. Rows along score vectors are also multiples of vectors, by unknown factors.

Clients hold the table before and after a round, and the rule by which the server moves it is
public. So clients compute sums without the server: if an item's step differs from what their own
rows explain, others rated it, and the step times the number of raters is the sum.
"""

from typing import NamedTuple

import numpy as np

from attacks.families.sums.participation import most_others
from attacks.families.sums.vector_matches import Spread
from attacks.view.coalition import (
    WHOLE,
    others_counts,
    others_sum,
    own_clients,
    public_step,
    words_of,
)
from attacks.view.knowledge import Knowledge
from secure_fedrec.algorithms import PMF, PMFConfig, PublicState
from secure_fedrec.algorithms.biases import BIAS_SUMS
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import Step, View


def factorization(view: View) -> PMF:
    """The matrix factorization that a view's public settings describe."""
    told = view.public["algorithm"].items()
    return PMF(PMFConfig(**{key: each for key, each in told if key not in ("name", "traits")}))


class TableStep(NamedTuple):
    """A round, as clients see it.

    Attributes:
        round: its number.
        moved: bool[m], items that one of the others rated.
        change: float64[m, d], the mean over all raters.
        own: the sum over the adversary's own clients.
        counts: float64[m], how many of the others rated each, where biases tell it.
    """

    round: int
    moved: BoolArray
    change: FloatArray
    own: Aggregate
    counts: FloatArray | None = None

    @classmethod
    def read(cls, view: View, round_: int) -> "TableStep | None":
        """Read one round; None if the adversary's own rows were not kept."""
        found = public_step(view, round_)
        if found is None:
            return None
        before, after, own = found
        algorithm = factorization(view)
        state = PublicState(round=round_ - 1, table=before, extras=view.extras(round_))
        change = (before - after) / algorithm.config.step_size(round_ - 1)
        counts = others_counts(view, round_) if algorithm.config.biases else None
        if counts is None:
            explained = algorithm.server_step(state, own).table
            # What a tail floor keeps out of the sum does not move, whoever rated it.
            moved = (after != explained).any(axis=1) & (after != before).any(axis=1)
        else:  # counts are known; biases also move without a rating
            moved, raters = counts > 0, np.nan_to_num(counts) + own.counts
            summed = state.extras[BIAS_SUMS] - view.extras(round_, after=True)[BIAS_SUMS]
            change[:, -1] = before[:, -1] + summed / np.maximum(raters, 1)
        return cls(round=round_, moved=moved, change=change, own=own, counts=counts)

    def rows(self, raters: int | FloatArray) -> tuple[FloatArray, BoolArray]:
        """The sum of what this many other clients sent, for moved items only.

        Args:
            raters: raters of every item, or float64[m].

        Returns: float64[m, d], and whether each row is of ring words, as every sum is: bool[m].
        """
        sums = self.change * (self.own.counts + raters)[:, None]
        words = sums * self.own.codec.scale
        off = np.abs(words - np.rint(words)).max(axis=1, initial=0.0)
        return sums - self.own.values, off <= WHOLE


MOST_RATERS = 6
"""Largest number of raters of a sum that is searched."""

_DOUBLE, _SINGLE = 1e-14, 2.0**-22  # relative rounding errors of a few operations


class RoundSums(NamedTuple):
    """Rows of one round's aggregate, as equations.

    Attributes:
        items: int64[N].
        counts: int64[N], raters of each; 1 at least.
        rows: float64[N, d], ``sum of e U``.
        vectors: float64[N, d], the public V.
        levels: float64[L], the rating scale; without one, e is unknown and only directions are
            told.
        resolution: that of the ring; larger if rows carry noise, so that half of it bounds the
            noise as well.
        bound: largest magnitude of a value of a private vector, where it is known.
        counted: whether the counts are known; otherwise they are the smallest that give ring words,
            which chance gives for each value with a probability of at most one half.
        alone: whether all rows are of one client.
        relative: error of the arithmetic that made the rows, over 1 and their lengths.
    """

    items: IntArray
    counts: IntArray
    rows: FloatArray
    vectors: FloatArray
    levels: FloatArray
    resolution: float
    bound: float = np.inf
    counted: bool = True
    alone: bool = False
    relative: float = _DOUBLE

    @property
    def lengths(self) -> FloatArray:
        """Euclidean lengths of the rows: float64[N]."""
        return np.asarray(np.linalg.norm(self.rows, axis=1))

    @property
    def errors(self) -> FloatArray:
        """Bound of the Euclidean rounding error of each row: float64[N]."""
        units = np.sqrt(self.rows.shape[1]) * self.resolution / 2
        return np.asarray(self.counts * units + self.relative * (1.0 + self.lengths))

    @property
    def spread(self) -> Spread:
        """Typical length of the vectors, from rows of n raters over sqrt(n) and ratings."""
        shown = self.lengths > self.errors
        widest = float(np.abs(self.levels).max(initial=0.0)) or 1.0
        return Spread(self.rows[shown] / np.sqrt(self.counts[shown, None]), widest)


def of_aggregate(view: View, round_: int) -> RoundSums | None:
    """A round's aggregate, less the adversary's own rows; None if its payload was not kept."""
    if round_ not in view.payload_rounds(Step.AGGREGATE):
        return None
    total = others_sum(view, round_, payload=True)
    if total.counts is None:
        return None
    words, codec = words_of(total), view.codec
    # A rater's row is never all zeros: its sum was left out, by a tail floor.
    there = (total.counts > 0) & (words != 0).any(axis=1)
    values, counts = codec.decode(words[there]), total.counts[there].astype(np.int64)
    items = total.rows[there].astype(np.int64)
    return _equations(view, round_, items, counts, values, counted=True)


def of_step(view: View, step: TableStep) -> RoundSums:
    """A step of the public table; unknown counts are the smallest that give ring words."""
    others = most_others(view, step.round)
    told = others == 1 or step.counts is not None
    counts, rows = np.zeros(len(step.moved), dtype=np.int64), np.zeros(step.change.shape)
    fewest = range(min(MOST_RATERS, others), 0, -1)
    for raters in fewest if step.counts is None else (np.nan_to_num(step.counts),):
        sums, whole = step.rows(raters)
        fits = step.moved & (whole | (others == 1)) & (told | (noise_bound(view, step.round) == 0))
        counts[fits], rows[fits] = np.broadcast_to(raters, fits.shape)[fits], sums[fits]
    items = np.flatnonzero(counts)
    return _equations(view, step.round, items, counts[items], rows[items], counted=told)


_SURELY = 10.0
"""Number of standard deviations that a Gaussian value exceeds with probability 2^-75."""


def noise_bound(view: View, round_: int) -> float:
    """How far Langevin noise pushes a value of one row, at most; 0 without."""
    temperature = float(view.public["algorithm"].get("temperature") or 0.0)
    if not temperature or not Knowledge.of(view).factorized:
        return 0.0
    return _SURELY * float(np.sqrt(temperature / factorization(view).config.step_size(round_ - 1)))


def _equations(
    view: View, round_: int, items: IntArray, counts: IntArray, values: FloatArray, *, counted: bool
) -> RoundSums:
    algorithm, scored = view.public["algorithm"], Knowledge.of(view).scored_rows
    # Values at the limit of the ring may have been clipped.
    whole = (np.abs(values) < counts[:, None] * view.codec.bound).all(axis=1)
    items, counts, values = items[whole], counts[whole], values[whole]
    if scored:
        public, unknown, pull = np.zeros_like(values), True, 0.0
    else:
        public, unknown = view.table(round_)[items], bool(algorithm.get("biases"))
        pull = float(algorithm["regularization"])
    first = round_ == 1 and not unknown
    # Vectors change during training, so one round does not identify them.
    others = int(view.public["n_clients"]) - len(own_clients(view))
    others = others if scored else most_others(view, round_)
    return RoundSums(
        items=items,
        counts=counts,
        rows=pull * counts[:, None] * public - values,
        vectors=public,
        levels=np.asarray([] if unknown else view.public["rating_levels"], dtype=np.float64),
        resolution=view.codec.resolution + 2.0 * noise_bound(view, round_),
        bound=float(algorithm.get("init_scale", np.inf)) if first else np.inf,
        counted=counted,
        alone=others == 1,
        relative=_SINGLE if scored else _DOUBLE,
    )
