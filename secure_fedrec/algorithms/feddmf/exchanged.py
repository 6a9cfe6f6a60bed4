"""FedDMF as published: every organisation sees every other's vectors of their common items."""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from secure_fedrec.algorithms.base import FinishedStep, PublicState
from secure_fedrec.algorithms.feddmf.organisations import DMFOrganisations, require_width
from secure_fedrec.blocks import BlockKind, BlockShape
from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.streams import Streams
from secure_fedrec.traits import OTHER_ROWS
from secure_fedrec.uploads import Aggregate, FlatBlock, PeerBlock, RowBlock, Upload
from secure_fedrec.vault import Vault

_RECEIVED: Final = "received"
_PARTICIPANTS: Final = "participants"


class ExchangedFedDMF(DMFOrganisations):
    """The algorithm; see the package. All organisations take part in every round.

    The server learns which organisations took part; the sum of a round is their number.
    """

    width = 1

    def blocks(self, n_rows: int = 0) -> tuple[BlockShape, ...]:
        """One number: 1 from each organisation that takes part."""
        return (BlockShape(name=_PARTICIPANTS, kind=BlockKind.FLAT, size=1, width=1),)

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """How many took part in the last round: float64[1]."""
        return PublicState(round=0, table=np.zeros(1))

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Create the private tables; see ``DMFOrganisations.start``."""
        self.start(vault, streams)
        sizes = [len(self._pairs(client)[1]) for client in vault.clients.tolist()]
        ends = np.cumsum([0, *sizes], dtype=np.int64)
        vault.create_ragged(_RECEIVED, ends, np.zeros((ends[-1], self.config.model.width)))

    def give(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> PeerBlock:
        """Every organisation's vectors for each other one, of the items that it offers it."""
        ends, senders, receivers = [0], [], []
        rows: list[IndexArray] = []
        values: list[Any] = []
        for client in clients.tolist():
            for other in self._others(client):
                block = self.hand_over(vault, client, self.offered(client, other))
                rows.append(block.rows)
                values.append(block.values)
                ends.append(ends[-1] + len(block.rows))
                senders.append(client)
                receivers.append(other)
        block = RowBlock(
            indptr=np.array(ends), rows=np.concatenate(rows), values=np.concatenate(values)
        )
        return PeerBlock(senders=np.array(senders), receivers=np.array(receivers), block=block)

    def take(self, clients: IntArray, given: PeerBlock, vault: Vault) -> None:
        """Keep the vectors that others gave, by receiver, then by sender.

        Raises:
            ConfigError: vectors of another width, or of other items than both have, or an
                organisation did not hear from each other one.
        """
        for client in clients.tolist():
            mine = np.flatnonzero(given.receivers == client)
            mine = mine[np.argsort(given.senders[mine], kind="stable")]
            heard = given.senders[mine].tolist()
            if heard != self._others(client):
                problem = f"are the senders to organisation {client}, not {self._others(client)}"
                raise ConfigError("data.organisations", heard, problem)
            parts = [
                self._part(given.block, place, heard[n], client)
                for n, place in enumerate(mine.tolist())
            ]
            vault.write_ragged(_RECEIVED, client, np.concatenate(parts))

    def given_rows(self, n_clients: int) -> tuple[int, int, int]:
        """Vectors from every organisation to every other, of the items that are offered."""
        everybody = range(self.data.n_organisations)
        rows = sum(
            len(self.offered(client, other))
            for client in everybody
            for other in self._others(client)
        )
        return n_clients * (n_clients - 1), rows, self.config.model.width

    def offered(self, sender: int, receiver: int) -> IntArray:
        """int64[k], items whose vectors one organisation gives to another: those that both have."""
        return self._shared(sender, receiver)

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FinishedStep:
        """An epoch of each organisation, towards the vectors that the others gave it."""

        def aim(client: int, _: object) -> tuple[IntArray, FloatArray]:
            indptr, order = self._pairs(client)
            return indptr, vault.read_ragged(_RECEIVED, client)[order]

        round_ = public.round + 1
        trained = self.train(clients, aim, round_=round_, vault=vault, streams=streams)
        upload = Upload(
            clients=clients, blocks={_PARTICIPANTS: FlatBlock(values=np.ones((len(clients), 1)))}
        )
        return FinishedStep(
            clients=clients, upload=upload, commit=lambda vault: self.keep(trained, vault)
        )

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """Count the organisations that took part, which is all that the server does."""
        count = aggregate.vector(_PARTICIPANTS)
        return replace(public, round=public.round + 1, table=np.rint(count))

    def public_knowledge(self) -> dict[str, Any]:
        """All hyper-parameters, and how many items are common."""
        return self.knowledge("feddmf-exchanged", OTHER_ROWS)

    def _others(self, client: int) -> list[int]:
        return [other for other in range(self.data.n_organisations) if other != client]

    def _shared(self, client: int, other: int) -> IntArray:
        """int64[k], items that both have."""
        return np.flatnonzero(self.data.listed[client] & self.data.listed[other])

    def _part(self, block: RowBlock, place: int, sender: int, client: int) -> FloatArray:
        """The vectors that one organisation gave to another, after a check of their shape."""
        own = slice(*block.indptr[[place, place + 1]].tolist())
        vectors = np.zeros((0, 0)) if block.values is None else block.values[own]
        require_width(vectors, self.config.model.width, f"vectors of organisation {sender}")
        offered = self.offered(sender, client)
        if not np.array_equal(block.rows[own], offered):
            problem = f"items from organisation {sender}, not those it has with {client}"
            raise ConfigError("data.items", len(vectors), problem)
        return np.asarray(vectors[self.data.listed[client, offered]])

    def _pairs(self, client: int) -> tuple[IntArray, IntArray]:
        """int64[I + 1] and int64[T]: what is received for each item, in order of senders."""
        shared = [self._shared(client, other) for other in self._others(client)]
        places = self.places(client, np.concatenate(shared))
        order = np.argsort(places, kind="stable")
        counts = np.bincount(places, minlength=len(self.listed(client)))
        return np.concatenate([[0], np.cumsum(counts)]), order
