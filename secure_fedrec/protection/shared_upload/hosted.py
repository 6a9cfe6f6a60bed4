"""Rounds of shared uploads whose parties are elsewhere (``base.hosting``).

A denoiser is at the host of the client that was recruited for it. Contexts are equal on every host:
a round's id is the hash of federation and attempt.
"""

from collections.abc import Sequence
from functools import partial
from hashlib import sha256

import numpy as np
from typing_extensions import override

from secure_fedrec.core.arrays import IndexArray, IntArray, RingArray
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.base.answer_once import Once
from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.base.hosting import (
    Desk,
    HostedSum,
    NoHelpers,
    Standing,
    joined_clients,
    read_each,
)
from secure_fedrec.protection.base.table import aggregate_note, client_messages, denoiser_sums
from secure_fedrec.protection.session import Identity, Node, Parcel, Role
from secure_fedrec.protection.session.journal import Journal
from secure_fedrec.protection.shared_upload.client import SharingClient
from secure_fedrec.protection.shared_upload.embedded import SharedUpload
from secure_fedrec.protection.shared_upload.helper import SharingDenoiser
from secure_fedrec.protection.shared_upload.messages import (
    Kind,
    decode_rows,
    open_envelope,
    rows_message_bytes,
    seed_message_bytes,
)
from secure_fedrec.protection.shared_upload.round_context import DOMAIN, RoundContext
from secure_fedrec.protection.shared_upload.server import SharingServer
from secure_fedrec.protection.shared_upload.share_sums import share_block
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Parties, Step, Wire


class HostedSharedSum(HostedSum):
    """The server's side of one attempt.

    Args:
        hub: the server's half.
        context: context of the attempt.
        denoisers: int64[D], client number of each denoiser.
    """

    def __init__(self, hub: SharingServer, context: RoundContext, denoisers: IntArray) -> None:
        self.hub = hub
        self._context = context
        self._denoisers = denoisers

    @override
    def aggregate(self) -> Aggregate:
        """Sums and counts of the clients that all holders agreed on.

        Raises:
            ProtocolError: the round has not come to its end.
        """
        if self.hub.aggregate is None:
            raise ProtocolError("the round ended without sums")
        return self.hub.aggregate

    @override
    def heard(self) -> IntArray:
        """int64[k]: those clients."""
        return joined_clients(self.hub.members)

    @override
    def rows_in(self, stage: str, sizes: IntArray) -> tuple[Step, IntArray] | None:
        """Rows of shares and sums, and row numbers beside seeds."""
        context, nothing = self._context, np.zeros(1, dtype=np.int64)
        words = 4 + (context.width + 1) * context.codec.bytes_per_value
        rows = rows_message_bytes(nothing, 0, 0)
        seed = seed_message_bytes(nothing, context.mechanism.overhead)
        if stage == Kind.SEED.name:
            return Step.SHARE, (sizes - seed) // 4
        steps = {Kind.SHARES.name: Step.UPLOAD, Kind.SUMS.name: Step.DENOISE}
        return (steps[stage], (sizes - rows) // words) if stage in steps else None

    @override
    def show(self, wire: Wire, arrived: Sequence[bytes], aggregate: Aggregate) -> None:
        """Clients' shares, and the denoisers' sums."""
        context = self._context

        def read(data: bytes, kind: Kind) -> tuple[int, RowBlock]:
            signed = open_envelope(data, kind, context=context)
            rows, words = decode_rows(signed.body, context, width=context.width + 1)
            return signed.sender.number, _shown(rows, words, context)

        for client, size, block in read_each(arrived, partial(read, kind=Kind.SHARES)):
            clients = np.array([client])
            sent = client_messages(context.round, clients, block, np.array([size]))
            wire.show(sent, origins=clients)
        for number, size, block in read_each(arrived, partial(read, kind=Kind.SUMS)):
            sent = denoiser_sums(context.round, np.array([number]), block, np.array([size]))
            wire.show(sent, origins=self._denoisers[number : number + 1])
        wire.show(aggregate_note(context.round, aggregate))


class ShowingDenoiser(SharingDenoiser):
    """A denoiser's half that records the shares that it holds.

    Args:
        context: the attempt.
        identity: its key.
        wire: wire of the record.
        completes: whether the record's round is complete once the shares are shown.
    """

    def __init__(
        self, context: RoundContext, identity: Identity, wire: Wire, *, completes: bool
    ) -> None:
        super().__init__(context, identity.node.number, identity.key)
        self._wire = wire
        self._completes = completes

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """As the half (``Party.step``)."""
        parcels = super().step(inbox)
        if any(parcel.stage == Kind.HELD.name for parcel in parcels):
            self._show(inbox)
        return parcels

    def _show(self, inbox: Sequence[bytes]) -> None:
        context = self._context
        denoiser = Parties(role="denoiser", ids=np.array([self._denoiser]))

        def read(data: bytes) -> tuple[int, RowBlock]:
            number = open_envelope(data, Kind.SEED, context=context).sender.number
            return number, _shown(*self.share_of(number), context)

        for client, size, block in read_each(inbox, read):
            clients, sizes = np.array([client]), np.array([size])
            sent = client_messages(
                context.round, clients, block, sizes, step=Step.SHARE, receivers=denoiser
            )
            self._wire.show(sent, origins=clients)
        if self._completes:
            self._wire.end_round(context.round)  # reads no further messages of clients


class HostedShares(NoHelpers):
    """Halves of rounds of shared uploads.

    Args:
        collector: collector of the round or rounds.
    """

    def __init__(self, collector: SharedUpload) -> None:
        self._collector = collector

    @override
    def hub(
        self, at: Standing, identity: Identity, generations: dict[bytes, int]
    ) -> HostedSharedSum:
        context = self._context(at)
        hub = SharingServer(context, identity.key, at.clients.tolist())
        return HostedSharedSum(hub, context, self._collector.denoisers)

    @override
    def half(
        self, at: Standing, identity: Identity, journal: Journal, rows: ClientRows
    ) -> SharingClient:
        """A client's half.

        Raises:
            WireError: its rows have no values.
        """
        block = rows.block
        if block.values is None:
            raise WireError("rows without values cannot be shared")
        client = SharingClient(self._context(at), identity.number, identity.key)
        client.load(block.rows, block.values, ~rows.virtual)
        return client

    @override
    def helpers(self) -> dict[Node, Node]:
        """The denoisers."""
        recruited = enumerate(self._collector.denoisers.tolist())
        return {Node(Role.DENOISER, number): Node(Role.CLIENT, at) for number, at in recruited}

    @override
    def helper(self, at: Standing, identity: Identity, desk: Desk) -> Once:
        context, wire = self._context(at), desk.wire
        if wire is None:
            half = SharingDenoiser(context, identity.node.number, identity.key)
        else:
            half = ShowingDenoiser(context, identity, wire, completes=desk.completes)
        return Once(half, desk.journal, at, same=lambda _: half.summed, stage=Kind.SUMS.name)

    def _context(self, at: Standing) -> RoundContext:
        collector = self._collector
        attempt = at.series + at.statement.digest + at.serial.to_bytes(8, "little")
        return RoundContext(
            codec=collector.codec,
            n_items=collector.n_items,
            width=collector.width,
            floor=collector.config.floor,
            roster=at.roster,
            round=at.round,
            round_id=sha256(DOMAIN + b"|hosted|" + attempt).digest()[:16],
            kem=collector.config.kem,
        )


def _shown(rows: IndexArray, words: RingArray, context: RoundContext) -> RowBlock:
    """Rows and words of one party, as views show them."""
    block = RowBlock(indptr=np.array([0, len(rows)]), rows=rows, values=None)
    return share_block(block, words, context.codec)
