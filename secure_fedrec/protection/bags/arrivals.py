"""The server's side of a bag: every message that is due, once, as its sender made it.

In a deployment a changed message fails authentication, on a named line as inside a cell. The
simulation authenticates nothing; it refuses a message that was changed on the wire in its place.
"""

import numpy as np

from secure_fedrec.arrays import RingArray, WordArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.bags.shapes import BagShape, canonical_order
from secure_fedrec.protection.shared_upload.tally import require_genuine
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import Messages, Step

__all__ = ["Arrivals"]


class Arrivals:
    """What arrives for one bag in one round.

    Args:
        round_: the round in progress.
        name: of the bag.
        shape: its sizes.
        due: messages that must arrive.
        codec: the ring.
    """

    __slots__ = ("_codec", "_due", "_keys", "_name", "_round", "_words")

    def __init__(
        self, *, round_: int, name: str, shape: BagShape, due: int, codec: FixedPoint
    ) -> None:
        self._round = round_
        self._name = name
        self._due = due
        self._codec = codec
        self._keys: list[WordArray] = [np.empty(0, dtype=np.uint64)]
        self._words: list[RingArray] = [np.empty((0, shape.width), dtype=codec.dtype)]

    def accept(self, sent: Messages, delivered: Messages) -> None:
        """Take what was delivered of a batch.

        Args:
            sent: the batch as its senders made it.
            delivered: what arrived.

        Raises:
            ProtocolError: a message of another round, step or bag, or one that its sender did not
                make.
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
        require_genuine(sent, delivered, "the server")
        keys = delivered.senders.ids if delivered.tags is None else delivered.tags
        self._keys.append(keys.astype(np.uint64))
        self._words.append(block.values)

    def close(self) -> RingArray:
        """The bag in canonical order: [N, d] ring words.

        Raises:
            ProtocolError: a message came twice, or one is missing.
        """
        keys = np.concatenate(self._keys)
        if len(np.unique(keys)) != len(keys):
            raise ProtocolError(
                f"round {self._round}: a message for the bag {self._name!r} arrived twice"
            )
        if len(keys) != self._due:
            raise ProtocolError(
                f"round {self._round}: {self._due - len(keys)} messages for the bag "
                f"{self._name!r} are missing; the round is abandoned"
            )
        return canonical_order(np.concatenate(self._words), self._codec)
