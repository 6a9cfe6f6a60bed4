"""The server's side of a bag: every message that is due, once.

The server cannot tell whether a cell is unchanged: senders look for their cells in its receipts,
and only they can see that one was changed or replaced. Named messages are those of the plain stack,
without authentication: a change on the line is not detected.
"""

import numpy as np

from secure_fedrec.core.arrays import RingArray, WordArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.bags.bag_vectors import canonical_order
from secure_fedrec.protection.base.layer_interfaces import BagShape
from secure_fedrec.protection.routing.line_receipts import LineReceipts
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import Messages, Step


class Arrivals:
    """The vectors that arrive for one bag in one round.

    Args:
        round_: the round in progress.
        name: name of the bag.
        shape: its sizes.
        due: messages that must arrive.
        most: most vectors that they hold in total; memory of vectors that do not arrive is not
            touched.
        codec: the ring.
    """

    def __init__(
        self, *, round_: int, name: str, shape: BagShape, due: int, most: int, codec: FixedPoint
    ) -> None:
        self._round = round_
        self._name = name
        self._due = due
        self._codec = codec
        self._receipts = LineReceipts(round_)
        self._keys: list[WordArray] = [np.empty(0, dtype=np.uint64)]
        self._words: RingArray = np.empty((most, shape.width), dtype=codec.dtype)
        self._arrived = 0

    def accept(self, sent: Messages, delivered: Messages) -> None:
        """Take the delivered messages of a batch.

        Args:
            sent: the batch as its senders made it.
            delivered: the messages that arrived.

        Raises:
            ProtocolError: a message of another round, step, bag or width.
        """
        if (delivered.round, delivered.step) != (self._round, Step.BAG):
            raise ProtocolError(
                f"round {self._round} awaits vectors for {self._name!r}, got "
                f"{delivered.step.name} of round {delivered.round}"
            )
        block = delivered.payload
        if delivered.bag != self._name or not isinstance(block, SetBlock) or block.values is None:
            raise ProtocolError(
                f"round {self._round}: vectors for {self._name!r} were due, got a message for "
                f"{delivered.bag!r}"
            )
        words = block.values
        if (words.dtype, words.shape[1]) != (self._words.dtype, self._words.shape[1]):
            raise ProtocolError(
                f"round {self._round}: vectors of {words.shape[1]} {words.dtype} values came for "
                f"{self._name!r}, {self._words.shape[1]} {self._words.dtype} were due"
            )
        if sent.tags is not None:
            self._receipts.note(sent, delivered)
        keys = delivered.senders.ids if delivered.tags is None else delivered.tags
        self._keys.append(keys.astype(np.uint64))
        here = self._words[self._arrived : self._arrived + len(words)]
        here[:] = words[: len(here)]  # an excess vector is counted, which ends the round
        self._arrived += len(words)

    def close(self) -> RingArray:
        """The bag in canonical order: [N, d] ring words.

        Raises:
            ProtocolError: a message came twice, there are more or fewer than are due, or a sender
                does not find its own in the receipts.
        """
        keys = np.concatenate(self._keys)
        if len(np.unique(keys)) != len(keys):
            raise ProtocolError(
                f"round {self._round}: a message for the bag {self._name!r} arrived twice"
            )
        if len(keys) != self._due:
            raise ProtocolError(
                f"round {self._round}: {len(keys)} messages for the bag {self._name!r} arrived, "
                f"{self._due} were due: some are missing or too many; the round is abandoned"
            )
        if self._arrived > len(self._words):
            raise ProtocolError(
                f"round {self._round}: {self._arrived} vectors for the bag {self._name!r} arrived, "
                f"{len(self._words)} may be: the round is abandoned"
            )
        self._receipts.require_received()
        return canonical_order(self._words[: self._arrived], self._codec)
