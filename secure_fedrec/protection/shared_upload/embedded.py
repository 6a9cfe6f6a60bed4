"""A round of shared uploads for the engine.

The denoisers' shares of a whole batch of clients are drawn from one AES-256-CTR stream per
denoiser, keyed by the operating system in every round, instead of one stream per client. Nothing is
signed or sealed, and a message that was changed on the wire is refused where the halves would find
an invalid signature. Sums, counts, supports and message sizes are those of the protocol.
"""

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Unpack

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray, RingArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.base.table import (
    TableCollector,
    TableSession,
    TableSizes,
    aggregate_note,
    client_messages,
    denoiser_sums,
)
from secure_fedrec.protection.routing.sealing import require_kem
from secure_fedrec.protection.shared_upload.client import with_counts
from secure_fedrec.protection.shared_upload.config import SharedUploadConfig
from secure_fedrec.protection.shared_upload.messages import (
    Kind,
    agreement_bytes,
    rows_message_bytes,
    seed_message_bytes,
)
from secure_fedrec.protection.shared_upload.share_sums import ShareTally, reveal, share_block
from secure_fedrec.protection.shared_upload.uniform_words import UniformWords
from secure_fedrec.streams import Streams
from secure_fedrec.traits import Traits
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Parties, Step, Traffic, Wire

MAX_REAL_CLIENTS = 64
"""Clients of a round that runs with real cryptography in one process."""

SHARED = Traits(
    virtual_rows="taken-out", reports=None, uploads="shares", noise=None, denoising="shares"
)
"""Traits of shared uploads, without the denoisers' numbers."""


class SharedUpload(TableCollector):
    """Collector of additively shared uploads.

    Args:
        config: settings.
        streams: the run's random streams; "denoisers" draws who they are. Shares and keys come
            from the operating system.
        table: sizes and ring, see ``TableCollector``.

    Attributes:
        denoisers: int64[count], client number of each denoiser, drawn once.

    Raises:
        ConfigError: the settings do not fit the federation.
        SumBudgetError: the ring is too small for a sum over all clients.
    """

    def __init__(
        self, config: SharedUploadConfig, *, streams: Streams, **table: Unpack[TableSizes]
    ) -> None:
        config.require_fits(table["n_clients"])
        super().__init__(**table)
        self.codec.require_budget(self.n_clients)
        self.config, self.execution = config, config.execution
        draw = streams.stream("denoisers").generator()
        self.denoisers: IntArray = draw.permutation(self.n_clients)[: config.count].astype(np.int64)

    def describe(self) -> tuple[str, dict[str, Any]]:
        """All settings and the denoisers are public."""
        return "shared-upload", {**asdict(self.config), "clients": self.denoisers.tolist()}

    @property
    def traits(self) -> Traits:
        """Secret-shared sums, and the denoisers."""
        return replace(SHARED, denoisers=tuple(self.denoisers.tolist()))

    def simulated(self, round_: int, participants: IntArray, wire: Wire) -> "SharedUploadSession":
        """One round of shares from keystreams."""
        return SharedUploadSession(self, round_, participants, wire)

    def require_round(self, round_: int, participants: IntArray) -> None:
        """Check that a round of these clients can begin.

        Raises:
            ProtocolError: fewer participants than the floor.
            ConfigError: there are too many participants for real cryptography.
        """
        if len(participants) < self.config.floor:
            raise ProtocolError(
                f"round {round_}: {len(participants)} clients are fewer than the floor of "
                f"{self.config.floor}"
            )
        if self.config.execution == "real" and len(participants) > MAX_REAL_CLIENTS:
            raise ConfigError(
                "protection.execution",
                "real",
                f"{len(participants)} clients, at most {MAX_REAL_CLIENTS} run with real "
                "cryptography; set cohort.clients_per_round",
            )

    def traffic(self, rows: IntArray, virtual: IntArray) -> tuple[Traffic, ...]:
        """One upload per client, one share per client and denoiser, one sum per denoiser."""
        count, total, width = self.config.count, int(rows.sum()), self.width
        parts = (
            (Step.UPLOAD, len(rows), total),
            (Step.SHARE, count * len(rows), count * total),
            (Step.DENOISE, count, count * min(self.n_items, total)),
        )
        return tuple(
            Traffic(step=step, messages=messages, rows=sent, width=width, counts=True)
            for step, messages, sent in parts
        )


@dataclass(eq=False)
class SharedUploadSession(TableSession):
    """One round of shared uploads."""

    collector: SharedUpload

    def __post_init__(self) -> None:
        collector, participants = self.collector, self.order
        self._streams: list[UniformWords] = []
        self._named = np.zeros(collector.n_items, dtype=np.int64)
        self._server = self._tally(Step.UPLOAD, "the server", participants)
        self._held = [
            self._tally(Step.SHARE, f"denoiser {number}", participants)
            for number in range(collector.config.count)
        ]

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        """Send the shares of the next clients."""
        if block.values is None:
            raise ProtocolError("rows without values cannot be shared")
        self._named += np.bincount(block.rows, minlength=len(self._named))
        collector, codec = self.collector, self.collector.codec
        if not self._streams:
            self._streams = [UniformWords(secrets.token_bytes(32)) for _ in self._held]
        shape = len(block.rows), collector.width + 1
        shares = [stream.draw(*shape, codec) for stream in self._streams]
        rest = with_counts(block.values, ~virtual)
        for share in shares:
            rest -= share
        overhead = require_kem("protection.kem", collector.config.kem).overhead
        sizes = rows_message_bytes(block.lengths, collector.width + 1, codec.bytes_per_value)
        payload = share_block(block, codec.reduce(rest), codec)
        uploads = client_messages(self.round, clients, payload, sizes)
        self._server.accept(uploads, self.wire.send(uploads, origins=clients))
        sizes = seed_message_bytes(block.lengths, overhead)
        for number, (held, words) in enumerate(zip(self._held, shares, strict=True)):
            payload = share_block(block, words, codec)
            holder = Parties(role="denoiser", ids=np.full(len(block), number))
            sent = client_messages(
                self.round, clients, payload, sizes, step=Step.SHARE, receivers=holder
            )
            targets = np.full(len(clients), collector.denoisers[number])
            held.accept(sent, self.wire.send(sent, origins=clients, targets=targets))

    def close(self) -> Aggregate:
        """Agree on the clients, release the sums, add them up.

        Raises:
            ProtocolError: a message is missing, repeated, late or not its sender's.
        """
        for holder in (self._server, *self._held):
            holder.require_complete()
        sizes = self._foreseen()
        self._count_agreement(sizes)
        support = np.flatnonzero(self._named).astype(np.int32)
        totals = self._server.totals
        for number, held in enumerate(self._held):
            totals[support] += self._release(number, held.totals[support], sizes[Kind.SUMS])
        aggregate = reveal(totals, self._named, self.collector.codec)
        self.wire.show(aggregate_note(self.round, aggregate))
        return aggregate

    def _foreseen(self) -> Mapping[Kind, int]:
        """Sizes of the messages between denoisers and server, where no halves run."""
        collector, clients = self.collector, len(self.order)
        config, rows = collector.config, np.array([np.count_nonzero(self._named)])
        public_bytes = require_kem("protection.kem", config.kem).public_bytes
        sums = rows_message_bytes(rows, collector.width + 1, collector.codec.bytes_per_value)
        agreement = agreement_bytes(clients, config.count, public_bytes)
        return {**agreement, Kind.SUMS: int(sums[0])}

    def _release(self, number: int, sums: RingArray, size: int) -> RingArray:
        """Send a denoiser's sums; what the server receives."""
        collector, codec = self.collector, self.collector.codec
        support = np.flatnonzero(self._named).astype(np.int32)
        block = RowBlock(indptr=np.array([0, len(support)]), rows=support, values=None)
        payload = share_block(block, codec.reduce(sums), codec)
        sent = denoiser_sums(self.round, np.array([number]), payload, np.array([size]))
        origin = collector.denoisers[number : number + 1]
        delivered = self.wire.send(sent, origins=origin)
        holder = f"the server, of denoiser {number}"
        received = self._tally(Step.DENOISE, holder, np.array([number]))
        received.accept(sent, delivered)
        received.require_complete()
        return received.totals[support]

    def _tally(self, step: Step, holder: str, senders: IntArray) -> ShareTally:
        return ShareTally(self.collector, self.round, step, holder, senders)

    def _count_agreement(self, sizes: Mapping[Kind, int]) -> None:
        """Meter keys and agreement, which add nothing to a view."""
        denoisers, meter = self.collector.denoisers, self.wire.meter
        count = len(denoisers)
        for kind in (Kind.ADVERT, Kind.HELD, Kind.CONSENT):
            meter.count_beside(np.full(count, sizes[kind]), senders=denoisers, receivers=None)
        for kind in (Kind.PROPOSAL, Kind.AGREEMENT):
            meter.count_beside(np.full(count, sizes[kind]), senders=None, receivers=denoisers)
        everybody = np.repeat(self.order, count)  # each client gets every denoiser's key
        adverts = np.full(len(everybody), sizes[Kind.ADVERT])
        meter.count_beside(adverts, senders=None, receivers=everybody)
