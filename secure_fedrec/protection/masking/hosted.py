"""Masked rounds whose clients are elsewhere (``base.hosting``)."""

from collections.abc import Sequence
from functools import cache

from typing_extensions import override

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.protection.base.dense_uploads import (
    DenseLayout,
    DenseWords,
    layout_hash,
    words_of_one,
)
from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.base.hosting import (
    EveryRowSum,
    NoHelpers,
    Standing,
)
from secure_fedrec.protection.base.table import aggregate_note
from secure_fedrec.protection.masking.client.half import MaskingClient
from secure_fedrec.protection.masking.config.policy import EncodedVector, Expected
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.embedded import MaskedSum
from secure_fedrec.protection.masking.envelope import Kind
from secure_fedrec.protection.masking.keys_ahead import KeysAhead
from secure_fedrec.protection.masking.server.half import MaskingServer
from secure_fedrec.protection.masking.server.shown import show_uploads
from secure_fedrec.protection.session import Identity
from secure_fedrec.protection.session.journal import Journal
from secure_fedrec.protection.session.statement import Later
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Wire


class HostedMaskedSum(EveryRowSum):
    """The server's side of one attempt.

    Args:
        collector: collector of the round or rounds.
        hub: the server's half.
        at: the attempt.
        layout: meaning of the words.
    """

    def __init__(
        self, collector: MaskedSum, hub: MaskingServer, at: Standing, layout: DenseLayout
    ) -> None:
        self._collector = collector
        self._layout = layout
        self._at = at
        self.hub = hub

    @override
    def aggregate(self) -> Aggregate:
        """Sums and counts over the clients that are in the sum."""
        return self._layout.split(self.hub.result, self._collector.codec)

    @override
    def heard(self) -> IntArray:
        """int64[k]: the survivors."""
        return self.hub.survivors

    @override
    def show(self, wire: Wire, arrived: Sequence[bytes], aggregate: Aggregate) -> None:
        """Masked words of the clients in the sum."""
        codec, round_ = self._collector.codec, self._at.round
        show_uploads(wire, arrived, self.hub, codec, self._layout, round_=round_)
        wire.show(aggregate_note(round_, aggregate))


class HostedMasks(NoHelpers, KeysAhead):
    """Halves of masked rounds, whose keys can be agreed on ahead (``hosting.KeysAhead``).

    Args:
        collector: collector of the round or rounds.
    """

    opens = last_stage = Kind.REVEAL.name

    def __init__(self, collector: MaskedSum) -> None:
        self._collector = collector
        self._policy = collector.config.policy
        self._layout = collector.layout
        self._config = cache(self._config_of)
        self.takes_beacons = collector.config.beacon == "operator"

    @override
    def hub(
        self, at: Standing, identity: Identity, generations: dict[bytes, int]
    ) -> HostedMaskedSum:
        return self.summed_by(at, self.open_server(at, identity, generations))

    @override
    def half(
        self, at: Standing, identity: Identity, journal: Journal, rows: ClientRows
    ) -> MaskingClient:
        client = self.open_client(at, identity, journal)
        self.load(at, client, rows)
        return client

    @override
    def open_server(
        self, at: Standing, identity: Identity, generations: dict[bytes, int]
    ) -> MaskingServer:
        config = self._config(len(at.clients), at.statement.later)
        return MaskingServer(
            identity=identity,
            roster=at.roster,
            config=config,
            cohort=at.clients,
            round_number=at.serial,
            epoch=at.epoch if config.needs_beacon else 0,
            generations=generations,
            later=at.statement.later,
        )

    @override
    def summed_by(self, at: Standing, server: MaskingServer) -> HostedMaskedSum:
        server.name_statement(at.statement.known)
        return HostedMaskedSum(self._collector, server, at, self._layout)

    @override
    def open_client(self, at: Standing, identity: Identity, journal: Journal) -> MaskingClient:
        config = self._config(len(at.clients), at.statement.later)
        return MaskingClient(
            identity=identity,
            roster=at.roster,
            policy=self._policy,
            journal=journal,
            expected=Expected.of(config, at.clients, at.roster, at.statement.later),
        )

    @override
    def load(self, at: Standing, client: MaskingClient, rows: ClientRows) -> None:
        vector = self._vector(
            at, client.number, rows.block, self._config(len(at.clients), at.statement.later)
        )
        client.load(vector, statement=at.statement.known)

    def _vector(
        self, at: Standing, client: int, block: RowBlock, config: MaskingConfig
    ) -> EncodedVector:
        part = words_of_one(self._collector, client, block, self._layout)
        return EncodedVector(
            words=self._protected(part, at).words[0],
            bits=config.bits,
            layout_hash=config.layout_hash,
            clients=config.clients,
        )

    def _protected(self, part: DenseWords, at: Standing) -> DenseWords:
        """A client's step, with its words before they are masked."""
        return part

    def _config_of(self, clients: int, later: Later) -> MaskingConfig:
        """The protocol's settings, which are the same for every cohort of so many clients."""
        collector, layout = self._collector, self._layout
        named = layout_hash(layout, collector.codec)
        return collector.masking_config(clients, layout.length, named, later.digest)
