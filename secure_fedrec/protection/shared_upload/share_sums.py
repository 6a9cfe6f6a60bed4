"""One holder's sum of shares in a simulated round."""

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.core.kernels import scatter_add
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.expected_senders import Heard
from secure_fedrec.protection.base.table import TableCollector
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Messages, Step


def share_block(block: RowBlock, words: RingArray, codec: FixedPoint) -> RowBlock:
    """Shares [N, d + 1] in the form of the wire: row words, and count words as centred integers.

    The count word of a share is uniform in the ring like the others; alone it is not a count.
    """
    return RowBlock(
        indptr=block.indptr,
        rows=block.rows,
        values=np.ascontiguousarray(words[:, :-1]),
        counts=codec.to_integers(words[:, -1]).copy(),
    )


class ShareTally(Heard):
    """Adds up the shares that one party is sent.

    Args:
        table: sizes and ring.
        round_: the round in progress.
        step: step of the messages awaited.
        holder: the party that sums, for error messages.
        expected: int64[P], numbers of the senders, each of which must be heard once.

    Attributes:
        totals: [m, d + 1] sums, modulo the word size.
    """

    def __init__(
        self, table: TableCollector, round_: int, step: Step, holder: str, expected: IntArray
    ) -> None:
        many, shape = table.n_clients, (table.n_items, table.width + 1)
        super().__init__(round_, step, expected=expected, senders=many, receiver=holder)
        self._codec = table.codec
        self.totals: RingArray = np.zeros(shape, dtype=table.codec.dtype)

    def accept(self, sent: Messages, delivered: Messages) -> None:
        """Add the delivered messages of a batch.

        Args:
            sent: the batch as its senders made it.
            delivered: the messages that arrived.

        Raises:
            ProtocolError: a message of another round or step, of a sender who is not awaited or
                was heard before, or one that its sender did not sign.
        """
        self.take(delivered)
        block = delivered.payload
        if not isinstance(block, RowBlock) or block.values is None or block.counts is None:
            raise self.refusal("got shares that are not rows with words and counts")
        _require_genuine(sent, delivered, self._receiver)
        counts = self._codec.from_integers(block.counts)
        words = np.concatenate([block.values, counts[:, None]], axis=1)
        scatter_add(self.totals, block.rows, words)


def _require_genuine(sent: Messages, delivered: Messages, holder: str) -> None:
    """Check what signatures would show: messages are of their named senders, and unchanged.

    Args:
        sent: a batch.
        delivered: what arrived of it; messages are matched by sender.
        holder: who receives, for error messages.

    Raises:
        ProtocolError: a message has another sender, or was changed.
    """
    if delivered is sent:
        return
    keys = [messages.senders.ids for messages in (sent, delivered)]
    places = np.argsort(keys[0], kind="stable")
    ranks = np.searchsorted(keys[0][places], keys[1])
    found = places[np.minimum(ranks, len(places) - 1)]
    original, arrived = sent.select(found).payload, delivered.payload
    columns = ("indptr", "rows", "values", "counts")
    same = all(np.array_equal(getattr(original, x), getattr(arrived, x)) for x in columns)
    if not same or not np.array_equal(keys[0][found], keys[1]):
        raise ProtocolError(
            f"round {sent.round}: {holder} got a {sent.step.name} message that its sender did not "
            "make"
        )


def reveal(totals: RingArray, named: IntArray, codec: FixedPoint) -> Aggregate:
    """Split the total of all shares into row sums and counts.

    Args:
        totals: [m, d + 1], not yet reduced.
        named: int64[m], clients that named each row, rated or fake.
        codec: the ring.

    Raises:
        ProtocolError: a count is above the clients that named the row, or a sum is larger than so
            many rows can have: shares are missing or wrong.
    """
    totals = codec.reduce(totals)
    words = totals[:, -1].astype(np.uint64)
    if np.any(words > named.astype(np.uint64)):
        raise ProtocolError("a count exceeds the clients that named its row")
    counts = words.astype(np.int64)
    sums = codec.to_integers(totals[:, :-1])
    most = (counts * codec.largest)[:, None]
    if np.any(sums > most) or np.any(sums < -most):
        raise ProtocolError("a sum exceeds what its count of rows can reach")
    return Aggregate(ring=np.ascontiguousarray(totals[:, :-1]), counts=counts, codec=codec)
