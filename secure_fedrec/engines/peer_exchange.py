"""Messages besides uploads: rows from client to client, and parts of the state for some clients.

Layers of protection do not cover them. An exchange is seen by the two clients at its ends, a part
by the server and by those it is addressed to; both are metered and recorded like any message.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from secure_fedrec.algorithms.base import Addressed, Algorithm, PublicState
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.folding import encode_block
from secure_fedrec.protection.base.table import client_messages
from secure_fedrec.uploads import DenseBlock, PeerBlock, RowBlock
from secure_fedrec.wire import Messages, Parties, Step, Wire, message_sizes
from secure_fedrec.wire.message_batches import select_segments

_EMPTY = np.zeros(0)


def parts_of(
    algorithm: Algorithm, public: PublicState
) -> tuple[DenseBlock, list[tuple[DenseBlock, IntArray]]]:
    """The part that all clients are sent, and each further part with its receivers.

    Raises:
        WireError: a part is addressed that the state does not have.
    """
    to = algorithm.addressed(public) if isinstance(algorithm, Addressed) else {}
    if unknown := sorted(to.keys() - public.extras.keys()):
        raise WireError(f"no extra {unknown[0]!r}: there are {', '.join(public.extras)}")
    common = {name: values for name, values in public.extras.items() if name not in to}
    parts = [
        (DenseBlock(values=_EMPTY, shape=(0,), extras={name: public.extras[name]}), clients)
        for name, clients in to.items()
    ]
    whole = DenseBlock(values=public.table, shape=public.table.shape, extras=common)
    return whole, parts


class PeerExchange:
    """One round's rows from client to client.

    Args:
        round_: the round in progress.
        participants: int64[P], ascending: the clients that give and receive.
        codec: encodes the values sent.
        wire: carries it.
    """

    def __init__(self, round_: int, participants: IntArray, codec: FixedPoint, wire: Wire) -> None:
        self._round = round_
        self._participants = participants
        self._codec = codec
        self._wire = wire
        self._delivered: list[Messages] = []

    def send(self, clients: IntArray, given: PeerBlock) -> None:
        """Send the rows that a batch of clients gives.

        Raises:
            WireError: a sender is not of the batch, or a receiver does not take part.
            EncodingError: a value cannot be encoded.
            ProtocolError: a message was lost, repeated, or of another round.
        """
        for ends, those in ((given.senders, clients), (given.receivers, self._participants)):
            stray = ends[~np.isin(ends, those)]
            if len(stray):
                raise WireError(f"client {int(stray[0])} takes no part in this exchange")
        block = encode_block(given.block, self._codec)
        width = 0 if block.values is None else block.values.shape[1]
        sizes = message_sizes(block, width=width, codec=self._codec)
        to = Parties(role="client", ids=given.receivers)
        sent = client_messages(
            self._round, given.senders, block, sizes, step=Step.PEER, receivers=to
        )
        got = self._wire.send(sent, origins=given.senders, targets=given.receivers)
        if got.round != self._round or _pairs(got) != _pairs(sent):
            raise ProtocolError(
                f"round {self._round}: a message between clients was lost, repeated or late; the "
                "round is abandoned"
            )
        self._delivered.append(got)

    def received(self, clients: IntArray) -> PeerBlock:
        """The rows that a batch of clients received, ordered by receiver, then by sender."""
        senders, receivers, block = self._all()
        mine = np.flatnonzero(np.isin(receivers, clients))
        mine = mine[np.lexsort((senders[mine], receivers[mine]))]
        chosen = select_segments(block, mine)
        words = chosen.values
        values = None if words is None else self._codec.decode(words)
        return PeerBlock(
            senders=senders[mine], receivers=receivers[mine], block=replace(chosen, values=values)
        )

    def _all(self) -> tuple[IntArray, IntArray, RowBlock]:
        """Senders, receivers and rows of everything that was delivered."""
        blocks = [part.payload for part in self._delivered if isinstance(part.payload, RowBlock)]
        ends = [(part.senders.ids, part.receivers.ids) for part in self._delivered]
        senders, receivers = (np.concatenate(side) for side in zip(*ends, strict=True))
        return senders, receivers, joined_rows(blocks)


def joined_rows(blocks: Sequence[RowBlock]) -> RowBlock:
    """The segments of several blocks, one block after the other; an empty block may have any width.

    Raises:
        WireError: rows are not of one width.
    """
    values = [block.values for block in blocks if block.values is not None]
    filled = [each for each in values if len(each)] or values[:1]
    if len({each.shape[1:] for each in filled}) > 1:
        raise WireError("clients give rows of unequal width")
    lengths = np.concatenate([block.lengths for block in blocks])
    return RowBlock(
        indptr=np.concatenate([[0], np.cumsum(lengths)]),
        rows=np.concatenate([block.rows for block in blocks]),
        values=np.concatenate(filled) if filled else None,
    )


def _pairs(messages: Messages) -> list[tuple[int, int]]:
    ends = (messages.senders.ids.tolist(), messages.receivers.ids.tolist())
    return sorted(zip(*ends, strict=True))
