"""What clients see of sums: the step from one public table to the next, less their own rows.

Clients hold the table before and after a round, and the rule by which the server moves it is
public. They need no server to know sums: an item that moved otherwise than their own rows explain
was rated by one of the others, and the step times the number of raters is their sum.
"""

from dataclasses import dataclass

import numpy as np

from attacks.view.coalition import others_counts, own_clients, own_uploads, rows_of
from secure_fedrec.algorithms import PMF, PMFConfig, PublicState
from secure_fedrec.algorithms.biases import BIAS_SUMS
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import View

_WHOLE = 0.125
"""Of a ring unit: how far from a word a sum may come out, by the rounding of floats."""


def factorization(view: View) -> PMF:
    """The matrix factorization that a view's public settings describe."""
    told = view.public["algorithm"].items()
    return PMF(PMFConfig(**{key: each for key, each in told if key not in ("name", "traits")}))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableStep:
    """A round, as clients see it.

    Args:
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
        """One round; None where the adversary's own rows were not kept."""
        own = _own_sum(view, round_)
        if own is None:
            return None
        before, after = view.table(round_), view.table(round_, after=True)
        algorithm = factorization(view)
        state = PublicState(round=round_ - 1, table=before, extras=view.extras(round_))
        change = (before - after) / algorithm.config.step_size(round_ - 1)
        counts = others_counts(view, round_) if algorithm.config.biases else None
        if counts is None:
            explained = algorithm.server_step(state, own).table
            # What a tail floor keeps out of the sum does not move, whoever rated it.
            moved = (after != explained).any(axis=1) & (after != before).any(axis=1)
        else:  # told outright, where biases also move without a rating
            moved, raters = counts > 0, np.nan_to_num(counts) + own.counts
            summed = state.extras[BIAS_SUMS] - view.extras(round_, after=True)[BIAS_SUMS]
            change[:, -1] = before[:, -1] + summed / np.maximum(raters, 1)
        return cls(round=round_, moved=moved, change=change, own=own, counts=counts)

    def rows(self, raters: int | FloatArray) -> tuple[FloatArray, BoolArray]:
        """What so many others must have sent together; of moved items only.

        Args:
            raters: of every item, or float64[m].

        Returns:
            float64[m, d], and whether it is of ring words, as every sum is: bool[m].
        """
        sums = self.change * (self.own.counts + raters)[:, None]
        words = sums * self.own.codec.scale
        off = np.abs(words - np.rint(words)).max(axis=1, initial=0.0)
        return sums - self.own.values, off <= _WHOLE


def _own_sum(view: View, round_: int) -> Aggregate | None:
    """The sum that the server would hold had only the adversary's clients been there."""
    codec, table = view.codec, view.table(round_)
    ring, counts = np.zeros(table.shape, dtype=codec.dtype), np.zeros(len(table), dtype=np.int64)
    if own_clients(view):
        uploads = own_uploads(view, round_, payload=True)
        if uploads is None:
            return None
        _, block = rows_of(uploads)
        if len(block.rows):
            if block.values is None:
                return None
            np.add.at(ring, block.rows, block.values)
            np.add.at(counts, block.rows, 1 if block.counts is None else block.counts)
    return Aggregate(ring=codec.reduce(ring), counts=counts, codec=codec)
