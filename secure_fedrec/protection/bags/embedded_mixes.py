"""Layer "routing" over bags: one vector per cell, anonymous, through the mix cascade.

Every client hands in the same public number of cells, ``most`` for each bag; those that no vector
fills are dummies. So mixes do not learn how many vectors a client gives. The server, at the end of
all paths, learns the vectors and their total number, but not their owners, nor which ones are of
the same client.

Cells are simulated by anonymous messages of one size, dummies by empty ones.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.bags.mixes import Mixes
from secure_fedrec.protection.bags.named_senders import Sending
from secure_fedrec.protection.routing import LEAST_SENDERS
from secure_fedrec.protection.routing.line_receipts import count_receipts
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import Messages, Meter, Parties, Step


class MixedLine:
    """One round of anonymous cells.

    Args:
        mixes: the layer.
        round_: the round in progress.
        participants: int64[P].

    Raises:
        ProtocolError: there is only one client, which no mix could hide.
    """

    def __init__(self, mixes: Mixes, round_: int, participants: IntArray) -> None:
        if 0 < len(participants) < LEAST_SENDERS:
            raise ProtocolError(
                f"round {round_}: {len(participants)} client sends vectors through the mixes, at "
                f"least {LEAST_SENDERS} must"
            )
        self._mixes = mixes
        self._round = round_
        self._participants = participants

    def due(self, bag: str) -> int:
        """The same number of cells from every participant."""
        return len(self._participants) * self._mixes.bags[bag].most

    def hand_in(self, clients: IntArray, blocks: Mapping[str, SetBlock]) -> Iterator[Sending]:
        """One anonymous message per cell, with one vector or none."""
        for name, block in blocks.items():
            most = self._mixes.bags[name].most
            places = np.tile(np.arange(most), len(clients))
            origins = np.repeat(clients, most)
            filled = places < np.repeat(block.lengths, most)
            tags = self._mixes.arrival[name].words_at(self._round, origins, places, width=1)
            bounds = np.concatenate([[0], np.cumsum(filled)])
            messages = Messages(
                round=self._round,
                step=Step.BAG,
                senders=Parties.anonymous("client", len(origins)),
                receivers=Parties.server(len(origins)),
                payload=SetBlock(indptr=bounds, values=block.values),
                sizes=np.full(len(origins), self._mixes.config.cell_bytes),
                tags=tags[:, 0],
                bag=name,
            )
            yield name, messages, origins

    def count_receipts(self, meter: Meter) -> None:
        """The server's list, to every participant."""
        cells = np.array([len(self._participants) * self._mixes.cells])
        count_receipts(meter, cells, signers=None, readers=self._participants)
