"""FedRec++'s denoisers behind the mix cascade: the anonymous channel that the paper assumes.

A client's virtual rows go to its denoiser in cells of one size through ``routing``, so no party on
the way links an ordinary client to a message, and the denoiser sees none of its senders. The rows
are those of the paper's form: a party that also holds a client's upload links them by value. A
client hands in as many cells as its message fills, one at least: the number is not hidden from the
first mixes.

Cells are not authenticated: a mix may replace them by its own. So every denoiser signs one list of
receipts for all clients, and a client that does not find its cell in it ends the round.

All cells of a round are one batch, and a round with one ordinary client alone is refused. Cells are
counted, and messages lose their senders.
"""

from dataclasses import asdict
from typing import Any, Unpack

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.base.table import TableSizes
from secure_fedrec.protection.denoisers.config import DenoisersConfig
from secure_fedrec.protection.denoisers.embedded import Denoisers, DenoisingSession
from secure_fedrec.protection.routing import LEAST_SENDERS
from secure_fedrec.protection.routing.config import RoutingLayerConfig
from secure_fedrec.protection.routing.line_receipts import LineReceipts, count_receipts
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Messages, Wire


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
        self.routing, self.execution = routing, routing.execution

    def simulated(self, round_: int, participants: IntArray, wire: Wire) -> "RoutedSession":
        """One round, whose messages lose their senders."""
        return RoutedSession(self, round_, participants, wire)

    def require_round(self, round_: int, participants: IntArray) -> None:
        """Refuse a batch of one sender's cells (``require_senders``)."""
        self.require_senders(round_, int(np.count_nonzero(~self.binding.is_denoiser[participants])))

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

    def __post_init__(self) -> None:
        super().__post_init__()
        self._receipts = LineReceipts(self.round)
        self._cells_of = np.zeros(self.collector.config.count, dtype=np.int64)

    def close(self) -> Aggregate:
        """Let the clients look for their cells, then end the round.

        Raises:
            ProtocolError: a client does not find its cell.
        """
        self._receipts.require_received()
        aggregate = super().close()
        binding, meter, used = (
            self.collector.binding,
            self.wire.meter,
            np.flatnonzero(self._cells_of),
        )
        signers, readers = binding.denoisers[used], self.order[~binding.is_denoiser[self.order]]
        count_receipts(meter, self._cells_of[used], signers=signers, readers=readers)
        return aggregate

    def _send_noise(self, clients: IntArray, block: RowBlock) -> None:
        cells = self.collector.noise_sizes(block) // self.collector.routing.cell_bytes
        np.add.at(self._cells_of, self._groups(clients), cells)
        super()._send_noise(clients, block)

    def _delivered(self, sent: Messages, delivered: Messages) -> None:
        self._receipts.note(sent, delivered)
