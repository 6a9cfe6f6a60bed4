"""Receipts of a simulated round: the entries that receivers would sign and senders look for.

Where ``routing.receipts`` hashes fragments under a salt, a simulated round hashes messages under a
key of its own: everything in them, and their tag, which stands for the random bits of a cell. A
receiver knows what it received, a sender what it sent, and no party knows the sender of a message.
"""

import secrets

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import IntArray, WordArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.routing.receipts import receipt_bytes
from secure_fedrec.uploads import DenseBlock
from secure_fedrec.wire import Messages, Meter


class LineReceipts:
    """Lists of one round, of all receivers together.

    Args:
        round_: the round in progress.
    """

    def __init__(self, round_: int) -> None:
        self._round = round_
        self._key = np.frombuffer(secrets.token_bytes(64), dtype=np.uint64)
        self._sent: list[WordArray] = []
        self._received: list[WordArray] = []

    def note(self, sent: Messages, delivered: Messages) -> None:
        """Take a batch of anonymous messages, as its senders and as their receivers know it."""
        if delivered is sent:
            return  # the same batch would add equal entries to both lists
        self._sent.append(self._entries(sent))
        self._received.append(self._entries(delivered))

    def require_received(self) -> None:
        """Check, for every sender, that all its messages stand in the lists.

        Raises:
            ProtocolError: some do not; the message names neither the cells nor their senders.
        """
        nothing = [np.empty(0, dtype=np.uint64)]
        sent, received = (np.concatenate(nothing + x) for x in (self._sent, self._received))
        if not np.isin(sent, received).all():
            raise ProtocolError(
                f"round {self._round}: a sender does not find its cell in the receipts, as it made "
                "it; the round is abandoned"
            )

    def _entries(self, messages: Messages) -> WordArray:
        """uint64[B]: a keyed hash per message, over receiver, tag and rows."""
        block = messages.payload
        if messages.tags is None or isinstance(block, DenseBlock) or block.values is None:
            raise ProtocolError(f"round {self._round}: an anonymous message has words and a tag")
        places = np.arange(1, block.values.shape[1] + 1, dtype=np.uint64)
        words = block.values.astype(np.uint64) ^ _mix(places * self._key[0])
        rows = _mix(words ^ self._key[1]).sum(axis=1, dtype=np.uint64)
        for place, name in ((2, "rows"), (3, "counts")):
            column = getattr(block, name, None)
            if column is not None:
                rows += _mix(column.astype(np.int64).view(np.uint64) ^ self._key[place])
        ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mix(rows), dtype=np.uint64)])
        entries = ends[block.indptr[1:]] - ends[block.indptr[:-1]]
        entries += _mix(messages.tags ^ self._key[4])
        entries += _mix(messages.receivers.ids.view(np.uint64) ^ self._key[5])
        entries += _mix(np.full(len(messages), messages.round, np.uint64) ^ self._key[6])
        return np.asarray(_mix(entries))


def count_receipts(
    meter: Meter, cells: IntArray, *, signers: IntArray | None, readers: IntArray
) -> None:
    """Meter the lists: each goes to the server, which publishes all of them to all senders.

    Args:
        meter: meter of the run.
        cells: int64[D], cells that each receiver signs for.
        signers: int64[D], client numbers of the receivers; None where the server is the receiver.
        readers: int64[P], clients that sent cells. They read the lists of all receivers, since
            asking for one would reveal their receiver.
    """
    sizes = receipt_bytes(0) + (receipt_bytes(1) - receipt_bytes(0)) * cells
    if signers is not None:
        meter.count_beside(sizes, senders=signers, receivers=None)
    each = np.tile(sizes, len(readers))
    meter.count_beside(each, senders=None, receivers=np.repeat(readers, len(sizes)))


def _mix(words: npt.NDArray[np.uint64]) -> WordArray:
    """A bijection of 64-bit words without structure (SplitMix64; Steele, Lea and Flood 2014)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
