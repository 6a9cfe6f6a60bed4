"""What one denoiser holds in a simulated round."""

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray, WordArray
from secure_fedrec.core.kernels import scatter_add
from secure_fedrec.errors import ProtocolError
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Messages, Step


class FakeTally:
    """Row ids, sums and counts by row.

    Args:
        round_: the round in progress.
        like: [m, d] ring words; the sums have this shape.
    """

    def __init__(self, round_: int, like: RingArray) -> None:
        self._round = round_
        self._tags: list[WordArray] = []
        self.totals: RingArray = np.zeros_like(like)
        self.counts: IntArray = np.zeros(len(like), dtype=np.int64)

    def accept(self, delivered: Messages) -> None:
        """Add the row shares that arrived of a batch.

        Raises:
            ProtocolError: messages of another round or step, or without tags or words.
        """
        if delivered.round != self._round or delivered.step is not Step.NOISE:
            raise ProtocolError(
                f"round {self._round} awaits row shares, got {delivered.step.name} of round "
                f"{delivered.round}"
            )
        block, tags = delivered.payload, delivered.tags
        if not isinstance(block, RowBlock) or block.values is None or tags is None:
            raise ProtocolError(f"round {self._round}: row shares are tagged rows with words")
        self._tags.append(tags)
        scatter_add(self.totals, block.rows, block.values)
        self.counts += np.bincount(block.rows, minlength=len(self.counts))

    def tags(self) -> WordArray:
        """Row ids, ascending."""
        held: WordArray = np.concatenate([np.empty(0, dtype=np.uint64), *self._tags])
        return np.sort(held)
