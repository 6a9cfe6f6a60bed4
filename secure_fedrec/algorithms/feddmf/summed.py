"""FedDMF through a protected sum, and the baseline that averages models through one."""

from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from secure_fedrec.algorithms.base import FinishedStep, PublicState
from secure_fedrec.algorithms.feddmf.organisations import DMFOrganisations, Trained, unit
from secure_fedrec.blocks import BlockKind, BlockShape
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.models.dmf.training import TrainingState
from secure_fedrec.streams import Streams
from secure_fedrec.traits import RowTraits
from secure_fedrec.uploads import Aggregate, FlatBlock, RowBlock, Upload
from secure_fedrec.vault import Vault

_ITEMS: Final = "items"
_LAYERS: Final = "layers"
_PARTICIPANTS: Final = "participants"
_LAST: Final = "last_round"
_SUMMED: Final = RowTraits(rows="items", row_sets="others", form="vectors")
_AVERAGED: Final = RowTraits(rows="items", row_sets="others", form="other")


class _OverASum(DMFOrganisations):
    """Base class: rows of common items go into the block "items", which is summed."""

    @property
    def width(self) -> int:
        """Values per uploaded row."""
        return self.config.model.width

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        """int64[n], common items of each organisation and its rows of other blocks."""
        common = self.data.listed[vault.clients] & self.data.common
        return np.asarray(common.sum(axis=1), dtype=np.int64)

    def upload_vectors(self, vault: Vault) -> dict[str, IntArray]:
        """No vectors: the algorithm does not use bags."""
        return {}

    def common_of(self, client: int) -> IntArray:
        """int64[k], items of an organisation that others have too: the rows that it sends."""
        return np.flatnonzero(self.data.listed[client] & self.data.common)

    def _rows(self, trained: list[Trained], values: list[FloatArray]) -> RowBlock:
        rows = [self.common_of(each.client).astype(np.int32) for each in trained]
        ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return RowBlock(indptr=ends, rows=np.concatenate(rows), values=np.concatenate(values))

    def _vectors(self, each: Trained) -> FloatArray:
        """float64[k, d], the vectors of its common items."""
        items = self.model(each.client).items_of(each.state.parameters)
        return items[self.places(each.client, self.common_of(each.client))]


class SummedFedDMF(_OverASum):
    """FedDMF with a sum of vectors; see the package.

    The public table is the sum of the last round, float64[m, d]; an organisation that was part of
    it subtracts its own vectors, which have not changed since.
    """

    def blocks(self, n_rows: int = 0) -> tuple[BlockShape, ...]:
        """Vectors of common items, at length 1."""
        size = self.data.n_items
        return (BlockShape(name=_ITEMS, kind=BlockKind.ITEMS, size=size, width=self.width),)

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """No sum yet: float64[m, d], zeros. There are no targets in round 1."""
        return PublicState(round=0, table=np.zeros((self.data.n_items, self.width)))

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Create the private tables; see ``DMFOrganisations.start``."""
        self.start(vault, streams)
        vault.create(_LAST, np.full((vault.n_clients, 1), -1.0))

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FinishedStep:
        """An epoch of each organisation, towards the mean direction of the others."""
        round_ = public.round + 1
        aim = partial(self._targets, public=public, vault=vault)
        trained = self.train(clients, aim, round_=round_, vault=vault, streams=streams)

        def commit(vault: Vault) -> None:
            self.keep(trained, vault)
            vault.write(_LAST, clients, np.full((len(clients), 1), float(round_)))

        rows = self._rows(trained, [unit(self._vectors(each)) for each in trained])
        upload = Upload(clients=clients, blocks={_ITEMS: rows})
        return FinishedStep(clients=clients, upload=upload, commit=commit)

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """The sum is the next table."""
        return replace(public, round=public.round + 1, table=aggregate.of(_ITEMS).values)

    def public_knowledge(self) -> dict[str, Any]:
        """All hyper-parameters, and how many items are common."""
        return self.knowledge("feddmf-summed", _SUMMED)

    def _targets(
        self, client: int, state: TrainingState, public: PublicState, vault: Vault
    ) -> tuple[IntArray, FloatArray]:
        """One target per common item: the sum minus this organisation's own vector."""
        common = self.common_of(client)
        others = public.table[common]
        places = self.places(client, common)
        if vault.read(_LAST, np.array([client]))[0, 0] == public.round:
            vectors = self.model(client).items_of(state.parameters)[places]
            others = others - unit(vectors)
        indptr = np.searchsorted(places, np.arange(len(self.listed(client)) + 1))
        return indptr.astype(np.int64), _nothing_below(others)


class AveragedDMF(_OverASum):
    """FedAvg: vectors of common items and layers are averaged after every epoch.

    All start from the same model, as in FedAvg. The public table is the mean vectors, float64[m,
    d]; user vectors, vectors of own items and Adam's moments stay where they are.
    """

    def blocks(self, n_rows: int = 0) -> tuple[BlockShape, ...]:
        """Vectors with a weight of 1, layers, and a 1 from each organisation that takes part."""
        d = self.width
        size = self.model(0).size - self.model(0).layers.start
        return (
            BlockShape(name=_ITEMS, kind=BlockKind.ITEMS, size=self.data.n_items, width=d + 1),
            BlockShape(name=_LAYERS, kind=BlockKind.FLAT, size=size, width=d + 1),
            BlockShape(name=_PARTICIPANTS, kind=BlockKind.FLAT, size=1, width=d + 1),
        )

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        """int64[n], common items of each organisation, and the rows that its layers are cut to."""
        flat = self.blocks()[1:]
        extra = sum(-(-shape.size // shape.width) for shape in flat)
        return super().upload_rows(vault, n_rows) + extra

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """The common initial model."""
        vectors, layers = self.common_start(streams)
        return PublicState(round=0, table=vectors, extras={_LAYERS: layers})

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Create the private tables; see ``DMFOrganisations.start``."""
        self.start(vault, streams)

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FinishedStep:
        """An epoch of each organisation from the mean model."""

        def aim(client: int, state: TrainingState) -> tuple[IntArray, FloatArray]:
            self._adopt(client, state, public)
            size = np.zeros(self.model(client).items + 1, dtype=np.int64)  # nothing is pulled
            return size, np.zeros((0, self.width))

        round_ = public.round + 1
        trained = self.train(clients, aim, round_=round_, vault=vault, streams=streams)
        rows = [
            np.pad(self._vectors(each), ((0, 0), (0, 1)), constant_values=1.0) for each in trained
        ]
        layers = [each.state.parameters[self.model(each.client).layers] for each in trained]
        blocks: dict[str, RowBlock | FlatBlock] = {
            _ITEMS: self._rows(trained, rows),
            _LAYERS: FlatBlock(values=np.stack(layers)),
            _PARTICIPANTS: FlatBlock(values=np.ones((len(clients), 1))),
        }
        upload = Upload(clients=clients, blocks=blocks)
        return FinishedStep(
            clients=clients, upload=upload, commit=lambda vault: self.keep(trained, vault)
        )

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """Means of the rows that any organisation sent; other rows stay."""
        sums = aggregate.of(_ITEMS).values
        sent = np.flatnonzero(sums[:, -1] > 0)
        table = public.table.copy()
        table[sent] = sums[sent, :-1] / sums[sent, -1:]
        count = float(aggregate.vector(_PARTICIPANTS)[0])
        layers = aggregate.vector(_LAYERS) / count if count > 0 else public.extras[_LAYERS]
        return PublicState(round=public.round + 1, table=table, extras={_LAYERS: layers})

    def adopt(self, public: PublicState, vault: Vault) -> None:
        """Give all organisations the mean model, as after a last broadcast."""
        for client in vault.clients.tolist():
            state = self.read(client, vault)
            self._adopt(client, state, public)
            self.keep([Trained(client=client, state=state)], vault)

    def public_knowledge(self) -> dict[str, Any]:
        """All hyper-parameters, and how many items are common."""
        return self.knowledge("dmf-averaged", _AVERAGED)

    def _adopt(self, client: int, state: TrainingState, public: PublicState) -> None:
        model, common = self.model(client), self.common_of(client)
        model.items_of(state.parameters)[self.places(client, common)] = public.table[common]
        state.parameters[model.layers] = public.extras[_LAYERS]


def _nothing_below(others: FloatArray) -> FloatArray:
    """Sums no longer than this are rounding errors, not vectors of an organisation."""
    # Above the rounding of a ring with 10 binary digits, far below the length of a vector.
    least = 1e-2
    lengths = np.sqrt((others**2).sum(axis=1))
    return np.where(lengths[:, None] >= least, others, 0.0)
