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
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import LosslessnessError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.configured import as_configured
from secure_fedrec.protection.denoisers import Denoisers, DenoisersConfig, DenoisingSession
from secure_fedrec.protection.executions import require_execution
from secure_fedrec.protection.line_receipts import LineReceipts, count_receipts
from secure_fedrec.protection.linkage_hardened.config import ROUTING_KEYS
from secure_fedrec.protection.routing import (
    LEAST_SENDERS,
    RoutingConfig,
    SentCells,
    address_of,
    cells_needed,
    send,
)
from secure_fedrec.protection.routing.network import MixNetwork
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Messages, Step, Wire, encode_rows

__all__ = ["RoutedDenoisers", "RoutingLayerConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingLayerConfig:
    """Settings of the layer.

    Args:
        layers: mixes a cell passes.
        cell_bytes: size of a cell.
        kem: key encapsulation, "x25519" or "mlkem768-x25519".
        execution: "simulated" or "real".

    Raises:
        ConfigError: a field is out of range.
    """

    layers: int = 3
    cell_bytes: int = 65536
    kem: str = "x25519"
    execution: str = "simulated"

    def __post_init__(self) -> None:
        require_execution(self.execution)
        with as_configured(ROUTING_KEYS):
            _ = self.routing

    @property
    def routing(self) -> RoutingConfig:
        """Sizes of the mix network.

        The numbers of cells differ and have no public bound, so the smallest batch in cells cannot
        stand for senders: ``RoutedDenoisers.open`` counts them, and a round is one batch.
        """
        return RoutingConfig(
            layers=self.layers,
            cell_bytes=self.cell_bytes,
            kem=self.kem,
            min_batch=LEAST_SENDERS,
        )


class RoutedDenoisers(Denoisers):
    """Collector with denoising clients behind mixes.

    Args:
        config: settings of the denoisers.
        routing: settings of the mixes.
        n_clients: clients of the federation.
        n_items: rows of the shared table.
        width: values per row.
        codec: the ring.
        streams: the run's random streams.
    """

    def __init__(
        self,
        config: DenoisersConfig,
        *,
        routing: RoutingLayerConfig,
        n_clients: int,
        n_items: int,
        width: int,
        codec: FixedPoint,
        streams: Streams,
    ) -> None:
        super().__init__(
            config,
            n_clients=n_clients,
            n_items=n_items,
            width=width,
            codec=codec,
            streams=streams,
        )
        self.routing = routing

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> "RoutedSession":
        """Begin a round.

        Raises:
            ProtocolError: its batch would hold the cells of one sender alone.
        """
        senders = int(np.count_nonzero(~self.binding.is_denoiser[participants]))
        if 0 < senders < LEAST_SENDERS:
            raise ProtocolError(
                f"round {round_}: {senders} client sends through the mixes, at least "
                f"{LEAST_SENDERS} must"
            )
        return RoutedSession(self, round_, participants, wire)

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

    _collector: RoutedDenoisers

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
        binding = self._collector.binding
        count_receipts(
            self._wire.meter,
            self._cells_of[used],
            signers=binding.denoisers[used],
            readers=self.order[~binding.is_denoiser[self.order]],
        )
        return aggregate

    def _send_noise(self, clients: IntArray, block: RowBlock) -> None:
        cells = self._collector.noise_sizes(block) // self._collector.routing.cell_bytes
        np.add.at(self._cells_of, self._groups(clients), cells)
        if self._network is not None:
            self._wrap(self._network, self._groups(clients), block)
        super()._send_noise(clients, block)

    def _delivered(self, sent: Messages, delivered: Messages) -> None:
        self._receipts.note(sent, delivered)

    def _wrap(self, network: MixNetwork, groups: IntArray, block: RowBlock) -> None:
        """Make the cells of some clients; they wait for those of the other clients."""
        codec, capacity = self._collector.codec, network.directory.config.capacity
        for group, one in zip(groups.tolist(), block.split(), strict=True):
            message = encode_rows(one, round_=self._round, step=Step.NOISE, codec=codec)
            self._sent[group, message] += 1
            self._noted.append(SentCells(network.directory, batch=self._round))
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
        network.require_received(self._noted, batch=self._round)
        for end in network.ends:
            end.require_whole()
        if found != self._sent:
            raise LosslessnessError(f"round {self._round}: the mixes changed or lost a message")
