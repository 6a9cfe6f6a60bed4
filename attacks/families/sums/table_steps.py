"""What clients see of sums: the step from one public table to the next, less their own rows.

Clients hold the table before and after a round, and the rule by which the server moves it is
public. They need no server to know sums: an item that moved otherwise than their own rows explain
was rated by one of the others, and the step times the number of raters is their sum.
"""

from dataclasses import dataclass

import numpy as np

from attacks.view.coalition import own_clients, rows_of
from secure_fedrec.algorithms import PMF, PMFConfig, PublicState
from secure_fedrec.algorithms.biases import BIAS_COUNTS
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import Messages, Step, View

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
    """

    round: int
    moved: BoolArray
    change: FloatArray
    own: Aggregate

    @classmethod
    def read(cls, view: View, round_: int) -> "TableStep | None":
        """One round; None where the adversary's own rows were not kept."""
        own = _own_sum(view, round_)
        if own is None:
            return None
        before, after = view.table(round_), view.table(round_, after=True)
        algorithm = factorization(view)
        state = PublicState(round=round_ - 1, table=before, extras=view.extras(round_))
        counted = view.extras(round_, after=True).get(BIAS_COUNTS)
        if counted is not None:  # told outright, where biases also move without a rating
            moved = counted - state.extras[BIAS_COUNTS] > own.counts
        else:
            explained = algorithm.server_step(state, own).table
            # What a tail floor keeps out of the sum does not move, whoever rated it.
            moved = (after != explained).any(axis=1) & (after != before).any(axis=1)
        change = (before - after) / algorithm.config.step_size(round_ - 1)
        return cls(round=round_, moved=moved, change=change, own=own)

    def rows(self, raters: int) -> tuple[FloatArray, BoolArray]:
        """What so many others must have sent together; of moved items only.

        Returns:
            float64[m, d], and whether it is of ring words, as every sum is: bool[m].
        """
        sums = self.change * (self.own.counts[:, None] + raters)
        words = sums * self.own.codec.scale
        off = np.abs(words - np.rint(words)).max(axis=1, initial=0.0)
        return sums - self.own.values, off <= _WHOLE


def _own_sum(view: View, round_: int) -> Aggregate | None:
    """The sum that the server would hold had only the adversary's clients been there."""
    codec, table = view.codec, view.table(round_)
    ring, counts = np.zeros(table.shape, dtype=codec.dtype), np.zeros(len(table), dtype=np.int64)
    if own_clients(view):
        uploads = _own_uploads(view, round_)
        if uploads is None:
            return None
        _, block = rows_of(uploads)
        if len(block.rows):
            if block.values is None:
                return None
            np.add.at(ring, block.rows, block.values)
            np.add.at(counts, block.rows, 1 if block.counts is None else block.counts)
    return Aggregate(ring=codec.reduce(ring), counts=counts, codec=codec)


def _own_uploads(view: View, round_: int) -> Messages | None:
    """Uploads of the adversary's clients; None where they were not kept, all of them."""
    known = None if view.own is None else view.own.uploads(round_)
    # Where nothing hides what was sent, it is not kept twice.
    if known is not None or not view.sees(Step.UPLOAD):
        return known
    if round_ not in view.payload_rounds(Step.UPLOAD):
        return None
    kept = view.messages(Step.UPLOAD, round_, payload=True)
    return kept if len(kept) == len(view.messages(Step.UPLOAD, round_)) else None
