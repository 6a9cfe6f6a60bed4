"""Layer "routing" over bags: one vector per cell, anonymous, through the mix cascade.

Every client hands in the same public number of cells, ``most`` for each bag; those that no vector
fills are dummies. So no mix learns how many vectors a client gives, and the server, at the end of
all paths, learns which vectors there are and how many in all: neither whose one is, nor which ones
are of one client.

``"simulated"`` sends the cells as anonymous messages of one size, dummies as empty ones.
``"real"`` also encodes every vector, wraps it, passes all cells of the round through mixes with
keys of their own as one batch, and requires that the same bags come out, bit for bit.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.errors import LosslessnessError, ProtocolError
from secure_fedrec.protection.bags.mixes import Mixes
from secure_fedrec.protection.bags.named import Sending
from secure_fedrec.protection.routing import LEAST_SENDERS, SentCells, send
from secure_fedrec.protection.routing.line_receipts import count_receipts
from secure_fedrec.protection.routing.network import MixNetwork
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import (
    Messages,
    Meter,
    Parties,
    Step,
    Wire,
)

_SERVER = 0


class MixedLine:
    """One round of anonymous cells.

    Args:
        mixes: the layer.
        round_: the round in progress.
        participants: int64[P].
        wire: of the run; None where nothing is carried over one.

    Raises:
        ProtocolError: one client alone, whom no mix could hide.
    """

    def __init__(
        self, mixes: Mixes, round_: int, participants: IntArray, wire: Wire | None = None
    ) -> None:
        if 0 < len(participants) < LEAST_SENDERS:
            raise ProtocolError(
                f"round {round_}: {len(participants)} client sends vectors through the mixes, at "
                f"least {LEAST_SENDERS} must"
            )
        self._mixes = mixes
        self._round = round_
        self._participants = participants
        self._cells: list[bytes] = []
        self._sent: list[SentCells] = []
        self._network: MixNetwork | None = None
        if mixes.config.execution == "real":
            self._network = MixNetwork.start(
                mixes.routing, recipients=1, epoch=round_, max_pieces=1, wire=wire
            )

    def due(self, bag: str) -> int:
        """So many cells of every participant."""
        return len(self._participants) * self._mixes.bags[bag].most

    def hand_in(self, clients: IntArray, blocks: Mapping[str, SetBlock]) -> Iterator[Sending]:
        """One anonymous message per cell, with one vector or none."""
        if self._network is not None:
            self._wrap(self._network, blocks)
        for name, block in blocks.items():
            most = self._mixes.bags[name].most
            places = np.tile(np.arange(most), len(clients))
            origins = np.repeat(clients, most)
            filled = places < np.repeat(block.lengths, most)
            tags = self._mixes.arrival[name].words_at(self._round, origins, places, width=1)
            messages = Messages(
                round=self._round,
                step=Step.BAG,
                senders=Parties.anonymous("client", len(origins)),
                receivers=Parties.server(len(origins)),
                payload=SetBlock(
                    indptr=np.concatenate([[0], np.cumsum(filled)]), values=block.values
                ),
                sizes=np.full(len(origins), self._mixes.config.cell_bytes),
                tags=tags[:, 0],
                bag=name,
            )
            yield Sending(bag=name, messages=messages, origins=origins)

    def count_receipts(self, meter: Meter) -> None:
        """The server's list, to every participant."""
        cells = np.array([len(self._participants) * self._mixes.cells])
        count_receipts(meter, cells, signers=None, readers=self._participants)

    def require_delivered(self, bags: Mapping[str, RingArray]) -> None:
        """Pass the round's cells through the mixes; require that the same bags come out.

        Raises:
            LosslessnessError: they do not.
            ProtocolError: a cell fails authentication, or comes twice, or its sender does not find
                it in the server's receipts.
        """
        if self._network is None or not len(self._participants):
            return
        found = self._open(self._network)
        self._network.require_received(self._sent, batch=self._round)
        dummies = len(self._cells) - sum(len(words) for words in bags.values())
        same = all(np.array_equal(found[name], words) for name, words in bags.items())
        if not same or self._network.ends[_SERVER].dummies != dummies:
            raise LosslessnessError(f"round {self._round}: the mixes changed or lost a vector")

    def _wrap(self, network: MixNetwork, blocks: Mapping[str, SetBlock]) -> None:
        """Make the cells of some clients; they wait for those of the other clients."""
        for messages in self._mixes.messages(blocks, self._round):
            self._sent.append(SentCells(network.directory, batch=self._round))
            self._cells += send(
                messages,
                recipient=_SERVER,
                cells=self._mixes.cells,
                directory=network.directory,
                sent=self._sent[-1],
            )

    def _open(self, network: MixNetwork) -> dict[str, RingArray]:
        """What the server finds at the end of the paths, in canonical order."""
        end = network.ends[_SERVER]
        arrived = (end.receive(cell) for cell in network.carry(self._cells))
        return self._mixes.read((each for each in arrived if each is not None), self._round)
