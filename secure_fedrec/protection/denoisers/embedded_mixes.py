"""FedRec++'s denoisers behind the mix cascade: the anonymous channel that the paper assumes.

A client's virtual rows go to its denoiser in cells of one size through ``routing``, so no party on
the way links an ordinary client to a message, and the denoiser sees none of its senders. The rows
are those of the paper's form: whoever holds a client's upload as well links them by value. A client
hands in as many cells as its message fills, one at least: how many is not hidden from the first
mixes.

Cells have no authentic sender: a mix may put its own in the place of others. So every denoiser
signs one list of receipts for all clients, and a client that misses a cell in it ends the round.

All cells of a round are one batch, and a round with one ordinary client alone is refused.
``"simulated"`` counts the cells and lets messages lose their senders; ``"real"`` also encodes every
message, wraps it, passes all of a round through mixes with keys of their own, and requires that
what comes out is what went in.
"""

from collections import Counter
from dataclasses import asdict
from typing import Any, Unpack

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import LosslessnessError, ProtocolError
from secure_fedrec.protection.base.table import TableSizes
from secure_fedrec.protection.denoisers.config import DenoisersConfig
from secure_fedrec.protection.denoisers.embedded import Denoisers, DenoisingSession
from secure_fedrec.protection.routing import (
    LEAST_SENDERS,
    SentCells,
    address_of,
    cells_needed,
    send,
)
from secure_fedrec.protection.routing.config import RoutingLayerConfig
from secure_fedrec.protection.routing.line_receipts import LineReceipts, count_receipts
from secure_fedrec.protection.routing.network import MixNetwork
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Messages, Step, Wire, encode_rows


class RoutedDenoisers(Denoisers):
    """Collector with denoising clients behind mixes.

    Args:
        config: settings of the denoisers.
        routing: settings of the mixes.
        streams: the run's random streams.
        table: sizes and ring, see ``TableCollector``.
    """

    def __init__(
        self,
        config: DenoisersConfig,
        *,
        routing: RoutingLayerConfig,
        streams: Streams,
        **table: Unpack[TableSizes],
    ) -> None:
        super().__init__(config, streams=streams, **table)
        self.routing = routing

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> "RoutedSession":
        """Begin a round.

        Raises:
            ProtocolError: its batch would hold the cells of one sender alone.
        """
        self.require_senders(round_, int(np.count_nonzero(~self.binding.is_denoiser[participants])))
        return RoutedSession(self, round_, participants, wire)

    @staticmethod
    def require_senders(round_: int, senders: int) -> None:
        """Refuse a batch of one sender's cells.

        Raises:
            ProtocolError: one client alone would send through the mixes.
        """
        if 0 < senders < LEAST_SENDERS:
            raise ProtocolError(
                f"round {round_}: {senders} client sends through the mixes, at least "
                f"{LEAST_SENDERS} must"
            )

    def noise_sizes(self, block: RowBlock) -> IntArray:
        """Bytes of each client's cells."""
        plain = super().noise_sizes(block)
        capacity = self.routing.routing.capacity
        return np.maximum(1, -(-plain // capacity)) * self.routing.cell_bytes

    def describe(self) -> tuple[str, dict[str, Any]]:
        """Denoisers and mixes are public."""
        name, settings = super().describe()
        return name, {**settings, "routing": asdict(self.routing)}


class RoutedSession(DenoisingSession):
    """One round with denoisers behind mixes."""

    collector: RoutedDenoisers

    def __init__(
        self, collector: RoutedDenoisers, round_: int, participants: IntArray, wire: Wire
    ) -> None:
        super().__init__(collector, round_, participants, wire)
        self._network: MixNetwork | None = None
        self._cells: list[bytes] = []
        self._sent: Counter[tuple[int, bytes]] = Counter()
        self._noted: list[SentCells] = []
        self._receipts = LineReceipts(round_)
        self._cells_of = np.zeros(collector.config.count, dtype=np.int64)
        if collector.routing.execution == "real":
            recipients = collector.config.count
            self._network = MixNetwork.start(
                collector.routing.routing, recipients=recipients, epoch=round_, wire=wire
            )

    def close(self) -> Aggregate:
        """Mix, let the clients look for their cells, then end the round.

        Raises:
            ProtocolError: a client does not find its cell.
            LosslessnessError: messages do not come out of the mixes as they went in.
        """
        if self._network is not None and self._cells:
            self._mix(self._network)
        self._receipts.require_received()
        aggregate = super().close()
        used = np.flatnonzero(self._cells_of)
        binding = self.collector.binding
        count_receipts(
            self.wire.meter,
            self._cells_of[used],
            signers=binding.denoisers[used],
            readers=self.order[~binding.is_denoiser[self.order]],
        )
        return aggregate

    def _send_noise(self, clients: IntArray, block: RowBlock) -> None:
        cells = self.collector.noise_sizes(block) // self.collector.routing.cell_bytes
        np.add.at(self._cells_of, self._groups(clients), cells)
        if self._network is not None:
            self._wrap(self._network, self._groups(clients), block)
        super()._send_noise(clients, block)

    def _delivered(self, sent: Messages, delivered: Messages) -> None:
        self._receipts.note(sent, delivered)

    def _wrap(self, network: MixNetwork, groups: IntArray, block: RowBlock) -> None:
        """Make the cells of some clients; they wait for those of the other clients."""
        codec, capacity = self.collector.codec, network.directory.config.capacity
        for group, one in zip(groups.tolist(), block.split(), strict=True):
            message = encode_rows(one, round_=self.round, step=Step.NOISE, codec=codec)
            self._sent[group, message] += 1
            self._noted.append(SentCells(network.directory, batch=self.round))
            self._cells += send(
                [message],
                recipient=group,
                cells=cells_needed([message], capacity),
                directory=network.directory,
                sent=self._noted[-1],
            )

    def _mix(self, network: MixNetwork) -> None:
        """Pass the messages of the round through the mixes; require that they come out unchanged.

        Raises:
            LosslessnessError: they do not.
            ProtocolError: a client does not find its cell in the receipts.
        """
        found: Counter[tuple[int, bytes]] = Counter()
        for cell in network.carry(self._cells):
            place = address_of(cell).node
            whole = network.ends[place].receive(cell)
            if whole is not None:
                found[place, whole] += 1
        network.require_received(self._noted, batch=self.round)
        for end in network.ends:
            end.require_whole()
        if found != self._sent:
            raise LosslessnessError(f"round {self.round}: the mixes changed or lost a message")
