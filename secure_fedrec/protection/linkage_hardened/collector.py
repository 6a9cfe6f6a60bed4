"""The collector: a round of linkage-hardened denoisers, simulated or with real cryptography.

The simulation draws the shares of a whole batch of clients from one AES-256-CTR stream per round,
keyed by the operating system; it wraps and signs nothing. A message under a name that was changed
on the wire is refused, as its signature would be. A changed cell is missed by its sender, in the
receipts of the denoisers. Views and sums are those of the protocol; dummies, which no view can
tell apart and no sum contains, are metered but not recorded. Executed as ``"real"``, the halves and
a mix cascade run beside it, and any difference is an error.
"""

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IndexArray, IntArray, RingArray, WordArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.group_sums import pick
from secure_fedrec.protection.layer import Claim, Layer, Stand
from secure_fedrec.protection.line_receipts import LineReceipts, count_receipts
from secure_fedrec.protection.linkage_hardened.config import LinkageHardenedConfig
from secure_fedrec.protection.linkage_hardened.hosted import HostedLinkage
from secure_fedrec.protection.linkage_hardened.real import RealRound
from secure_fedrec.protection.linkage_hardened.rows import decode_sums
from secure_fedrec.protection.linkage_hardened.tally import FakeTally
from secure_fedrec.protection.plain import (
    ServerSum,
    TableSession,
    TableSizes,
    aggregate_note,
    client_messages,
    denoiser_sums,
)
from secure_fedrec.protection.routing.network import MixNetwork
from secure_fedrec.protection.session import OverWire
from secure_fedrec.protection.session.envelope import ENVELOPE_BYTES
from secure_fedrec.protection.shared_upload.collector import joined, require_equal
from secure_fedrec.protection.shared_upload.context import LEAST_FLOOR
from secure_fedrec.protection.shared_upload.messages import (
    Kind,
    decode_rows,
    open_envelope,
    rows_message_bytes,
)
from secure_fedrec.protection.shared_upload.recruits import RecruitedDenoisers
from secure_fedrec.protection.shared_upload.tally import require_genuine, reveal
from secure_fedrec.protection.shared_upload.words import UniformWords
from secure_fedrec.streams import Streams
from secure_fedrec.traits import Traits
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Messages, Parties, Step, Traffic, Wire

_ROW_SET_BYTES = ENVELOPE_BYTES + 40


class LinkageHardened(RecruitedDenoisers):
    """Collector with linkage-hardened denoisers.

    Args:
        config: settings.
        streams: the run's random streams.
        table: sizes and ring, see ``TableCollector``.

    Raises:
        ConfigError: the settings do not fit the federation.
        SumBudgetError: the ring is too small for a sum over all clients.
    """

    config: LinkageHardenedConfig

    def __init__(
        self, config: LinkageHardenedConfig, *, streams: Streams, **table: Unpack[TableSizes]
    ) -> None:
        config.require_fits(table["n_clients"], width=table["width"], codec=table["codec"])
        super().__init__(
            config, layer=LINKAGE_HARDENED, floor=LEAST_FLOOR, streams=streams, **table
        )

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> "LinkageSession":
        """Begin a round.

        Raises:
            ProtocolError: fewer participants than the least floor, who would not fill a batch.
            ConfigError: more participants than run with real cryptography.
        """
        self.require_round(round_, participants)
        return LinkageSession(self, round_, participants, wire)

    def hosting(self) -> HostedLinkage:
        """Halves of rounds whose parties are elsewhere."""
        return HostedLinkage(self)

    def real_round(self, round_: int, wire: Wire) -> tuple[RealRound, OverWire]:
        """The real halves of a round, behind a mix cascade with keys of its own."""
        config, value = self.config, self.codec.bytes_per_value
        nothing = int(rows_message_bytes(np.zeros(1, dtype=np.int64), 0, 0)[0])
        line = OverWire(
            wire,
            round=round_,
            steps={"UPLOAD": Step.UPLOAD, "FAKES": Step.DENOISE},
            rows={
                "UPLOAD": lambda sizes: (sizes - nothing) // (4 + self.width * value),
                "FAKES": lambda sizes: (sizes - nothing - 4) // (8 + self.width * value),
            },
            denoisers=self.denoisers,
        )
        identities = self.identities()
        network = MixNetwork.start(
            config.routing,
            recipients=config.count,
            epoch=round_,
            max_pieces=1,
            identities=identities.denoisers,
            wire=wire,
        )
        context = self.context(round_)
        return RealRound(context, identities, network, cells=config.cells, carrier=line), line

    def traffic(self, rows: IntArray, virtual: IntArray) -> tuple[Traffic, ...]:
        """One upload per client, one message per fake and denoiser, one sum per denoiser."""
        count, width, fakes = self.config.count, self.width, int(virtual.sum())
        sums = count * min(self.n_items, fakes)
        uploads = Traffic(step=Step.UPLOAD, messages=len(rows), rows=int(rows.sum()), width=width)
        noise = Traffic(step=Step.NOISE, messages=count * fakes, rows=count * fakes, width=width)
        totals = Traffic(step=Step.DENOISE, messages=count, rows=sums, width=width, counts=True)
        return uploads, noise, totals


LINKAGE_HARDENED = Layer(
    name="linkage-hardened",
    role="collector",
    settings=LinkageHardenedConfig,
    build=lambda own, place: LinkageHardened(own, **place.table),
    traits=Traits(
        virtual_rows="taken-out", reports=None, uploads="rows", noise=None, denoising="shares"
    ),
    requires=("virtual-ratings",),
    stands=(Stand(corrupt=("denoiser:0",), hides="values"),),
    claim=Claim(
        system="FedRec++ with linkage-hardened denoisers",
        hides="which client sent a virtual row to the denoisers, and its values, from all but "
        "one of the denoisers; who sent a cell, from the mixes but one of each path and from "
        "whoever watches the lines; from the server, nothing",
        assumes="honest-but-curious parties, one honest mix per path, one honest denoiser; a "
        "server that tells nobody what it reads; clients that look for their cells in the "
        "denoisers' receipts, since a mix can replace them",
        lossless=True,
        found="the server needs no link: the sums and counts of the virtual rows of an item, "
        "beside all rows under their senders' names, name the virtual ones",
    ),
    simulated="shares were drawn from one keystream, no cell was sealed or mixed; run with "
    "execution = real for the cryptography itself",
    uncounted="What mixes pass on to one another and their keys are not counted.",
)


class LinkageSession(TableSession):
    """One round."""

    collector: LinkageHardened

    def __init__(
        self, collector: LinkageHardened, round_: int, participants: IntArray, wire: Wire
    ) -> None:
        super().__init__(collector, round_, participants, wire)
        self._stream = UniformWords(secrets.token_bytes(32))
        self._real: tuple[RealRound, OverWire] | None = None
        self._server = ServerSum(collector, round_, participants)
        self._receipts = LineReceipts(round_)
        self._held = [FakeTally(round_, self._server.ring) for _ in range(collector.config.count)]
        self._fakes = 0

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        """Send the rows of the next clients, and the shares of their fakes."""
        collector = self.collector
        before = np.concatenate([[0], np.cumsum(virtual)])
        fakes = before[block.indptr[1:]] - before[block.indptr[:-1]]
        collector.config.require_cells(clients, fakes)
        if collector.config.execution == "real":
            self._load(clients, block, virtual, fakes)
            return
        sizes = rows_message_bytes(block.lengths, collector.width, collector.codec.bytes_per_value)
        self._upload(clients, block, sizes)
        self._send_fakes(clients, fakes, block, np.flatnonzero(virtual))

    def close(self) -> Aggregate:
        """Compare the sets of rows, take the fakes off, hand over the sum of the real rows.

        Raises:
            ProtocolError: a message is missing, repeated, late or replaced.
            LosslessnessError: the real halves came to other words than were put into them.
        """
        aggregate = self._simulated() if self._real is None else self._run(*self._real)
        self._count_receipts()
        self.wire.show(aggregate_note(self.round, aggregate))
        return aggregate

    def _simulated(self) -> Aggregate:
        codec = self.collector.codec
        self._server.require_complete()
        tags = [held.tags() for held in self._held]
        for number, own in enumerate(tags):
            # Dummies fill every client's cells up to the public number, so a denoiser counts this.
            if len(own) != self._fakes or not np.array_equal(own, tags[0]):
                raise ProtocolError(
                    f"round {self.round}: denoiser {number} holds other rows than the others; the "
                    "round is abandoned"
                )
        self._receipts.require_received()
        totals = np.concatenate(
            [self._server.ring, codec.from_integers(self._server.counts)[:, None]], axis=1
        )
        counts = self._held[0].counts
        support = np.flatnonzero(counts).astype(np.int32)
        sizes = self._foreseen(len(support))
        self._count_agreement(sizes[Kind.ROW_SET])
        for number, held in enumerate(self._held):
            totals[support, :-1] -= self._release(number, support, held, sizes[Kind.FAKES])
        totals[:, -1] -= counts.astype(totals.dtype)
        return reveal(totals, self._server.counts, codec)

    def _load(
        self, clients: IntArray, block: RowBlock, virtual: BoolArray, fakes: IntArray
    ) -> None:
        """Load the real halves, and add up what must come out of them."""
        if self._real is None:
            self._real = self.collector.real_round(self.round, self.wire)
        self._real[0].submit(clients, block, virtual)
        self._server.add(pick(block, np.ones(len(block), dtype=bool), ~virtual))
        for number in range(self.collector.config.count):
            self._meter_dummies(number, clients, fakes)

    def _run(self, real: RealRound, line: OverWire) -> Aggregate:
        """Drive the real halves, and show what the others were sent."""
        with self.in_round():
            aggregate = real.close()
        require_equal(aggregate, self._server.aggregate())
        self._show_uploads(real, line)
        owners = {
            name: client
            for client, sent in zip(self.order.tolist(), real.sent, strict=True)
            for name in sent.row_ids
        }
        for number, held in enumerate(real.held):
            ids = b"".join(share.row_id[:8] for share in held)
            origins = np.array([owners[share.row_id] for share in held], dtype=np.int64)
            words = [np.empty((0, self.collector.width), self.collector.codec.dtype)]
            sent = self._noise(
                number,
                np.array([share.row for share in held], dtype=np.int32),
                np.concatenate(words + [share.words for share in held]),
                np.frombuffer(ids, dtype="<u8").astype(np.uint64),
            )
            targets = np.full(len(held), self.collector.denoisers[number])
            self.wire.meter.count(sent, senders=origins, receivers=targets)
            self.wire.show(sent, origins=origins)

        def sums_in(data: bytes) -> Any:
            envelope = open_envelope(data, Kind.FAKES, context=real.context)
            return decode_sums(envelope.body, real.context)

        for number, (size, (_, rows, counts, words_)) in line.read("FAKES", sums_in).items():
            shown = self._sums(number, rows, words_, counts, size)
            self.wire.show(shown, origins=self.collector.denoisers[number : number + 1])
        return aggregate

    def _show_uploads(self, real: RealRound, line: OverWire) -> None:
        """The rows that the server read, each client's once."""

        def rows_in(data: bytes) -> tuple[IndexArray, RingArray]:
            body = open_envelope(data, Kind.UPLOAD, context=real.context).body
            return decode_rows(body, real.context, width=self.collector.width)

        read = line.read("UPLOAD", rows_in)
        sizes, found = zip(*(read[number] for number in self.order.tolist()), strict=True)
        block, words = joined(found)
        block = replace(block, values=words)
        shown = client_messages(self.round, self.order, block, np.array(sizes))
        self.wire.show(shown, origins=self.order)

    def _upload(self, clients: IntArray, block: RowBlock, sizes: IntArray) -> None:
        sent = client_messages(self.round, clients, block, sizes)
        delivered = self.wire.send(sent, origins=clients)
        if delivered.round == self.round:
            require_genuine(sent, delivered, "the server")
        self._server.accept(delivered)

    def _send_fakes(
        self, clients: IntArray, fakes: IntArray, block: RowBlock, which: IntArray
    ) -> None:
        collector = self.collector
        config, codec = collector.config, collector.codec
        if block.values is None:
            raise ProtocolError("rows without values cannot be shared")
        self._fakes += len(which)
        owners = np.repeat(clients, fakes)
        rows, last = block.rows[which], block.values[which]
        # The first 64 bits of the row ids; as on any anonymous line, nothing else orders messages.
        tags = np.frombuffer(secrets.token_bytes(8 * len(which)), dtype=np.uint64)
        for number, held in enumerate(self._held):
            share = last
            if number < config.count - 1:
                share = self._stream.draw(len(which), collector.width, codec)
                last = last - share
            sent = self._noise(number, rows, codec.reduce(share), tags)
            targets = np.full(len(which), collector.denoisers[number])
            delivered = self.wire.send(sent, origins=owners, targets=targets)
            held.accept(delivered)
            self._receipts.note(sent, delivered)
            self._meter_dummies(number, clients, fakes)

    def _noise(self, number: int, rows: IndexArray, words: RingArray, tags: WordArray) -> Messages:
        count = len(rows)
        return Messages(
            round=self.round,
            step=Step.NOISE,
            senders=Parties.anonymous("client", count),
            receivers=Parties(role="denoiser", ids=np.full(count, number)),
            payload=RowBlock(indptr=np.arange(count + 1), rows=rows, values=words),
            sizes=np.full(count, self.collector.config.cell_bytes),
            tags=tags,
        )

    def _meter_dummies(self, number: int, clients: IntArray, fakes: IntArray) -> None:
        config = self.collector.config
        senders = np.repeat(clients, config.cells - fakes)
        targets = np.full(len(senders), self.collector.denoisers[number])
        sizes = np.full(len(senders), config.cell_bytes)
        self.wire.meter.count_beside(sizes, senders=senders, receivers=targets)

    def _foreseen(self, support: int) -> Mapping[Kind, int]:
        """Sizes of the messages of denoisers, where no halves run."""
        per_row = 8 + self.collector.width * self.collector.codec.bytes_per_value
        return {Kind.ROW_SET: _ROW_SET_BYTES, Kind.FAKES: ENVELOPE_BYTES + 8 + per_row * support}

    def _release(self, number: int, support: IndexArray, held: "FakeTally", size: int) -> RingArray:
        """Send a denoiser's sums; what the server receives."""
        collector = self.collector
        words = collector.codec.reduce(held.totals[support])
        sent = self._sums(number, support, words, held.counts[support], size)
        origin = collector.denoisers[number : number + 1]
        delivered = self.wire.send(sent, origins=origin)
        if delivered.round != self.round or len(delivered) != 1:
            raise ProtocolError(
                f"round {self.round}: {len(delivered)} sums of denoiser {number} of round "
                f"{delivered.round}; the round is abandoned"
            )
        require_genuine(sent, delivered, "the server")
        payload = delivered.payload
        if not isinstance(payload, RowBlock) or payload.values is None:
            raise ProtocolError(f"round {self.round}: denoisers send rows with words")
        return payload.values

    def _sums(
        self, number: int, rows: IndexArray, words: RingArray, counts: IntArray, size: int
    ) -> Messages:
        """A denoiser's sums of fakes."""
        indptr = np.array([0, len(rows)])
        block = RowBlock(indptr=indptr, rows=rows, values=words, counts=counts)
        return denoiser_sums(self.round, np.array([number]), block, np.array([size]))

    def _count_receipts(self) -> None:
        collector = self.collector
        cells = np.full(collector.config.count, collector.config.cells * len(self.order))
        signers, meter = collector.denoisers, self.wire.meter
        count_receipts(meter, cells, signers=signers, readers=self.order)

    def _count_agreement(self, size: int) -> None:
        """Meter the sets of rows that denoisers compare, over the server."""
        denoisers, meter = self.collector.denoisers, self.wire.meter
        count = len(denoisers)
        meter.count_beside(np.full(count, size), senders=denoisers, receivers=None)
        everybody = np.repeat(denoisers, count)  # each gets the sets of all
        meter.count_beside(np.full(len(everybody), size), senders=None, receivers=everybody)
