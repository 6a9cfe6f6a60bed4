"""Averaging the user models of organisations: FedSGD, FedAvg, FedProx, FedAtt and Fednoise.

HPFL is compared with these on the same model (``models.gum``). The embeddings of users and items
stay private, because no two organisations have the same ones; what a round averages are the layers
w = KM_u, KM_v, RM and HM. Client i starts local training from (private_i, w) and changes w by d_i:

    w_l <- w_l + eta sum_i a_il d_il / sum_i a_il            for every layer l, at the server

- FedAvg, FedSGD: a_il is the client's number of training records. FedSGD is the same with one epoch
  of a single batch.
- FedProx: the same, and the local loss has the term ``mu / 2 |w_i - w|^2``.
- FedAtt: a_il = exp(|d_il|), eta its step size: the soft attention of the server on the distance
  between its layer and the client's.
- Fednoise: the same as FedAvg on changes that a client releases with noise of its own.

The weights travel inside the sum: a client sends ``a d`` and ``a``, so the server needs sums only
and any protected sum will do. That holds for FedAtt as well. Its paper has the server compare every
client's model with its own, but the client knows both, and a mean weighted by a softmax is a
quotient of two sums. To keep exp() in the ring's range, the weights of a layer are divided by their
mean in the last round, which is public and cancels.

The change is weighted before it is encoded, so ``ring.clip`` has to exceed the largest weight times
the largest change of one parameter; ``weight_unit`` scales the weights of records.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Protocol

import numpy as np

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.layer_table import LayerTable
from secure_fedrec.algorithms.user_models import UserModels, split_records
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.organisations.tables import Organisations
from secure_fedrec.models.gum.arrays import Pull
from secure_fedrec.models.gum.model import GUM, GUMConfig
from secure_fedrec.models.gum.training import GUMTraining, train
from secure_fedrec.settings import Count, NonNegative, OneOf, Positive, Settings
from secure_fedrec.streams import Streams
from secure_fedrec.traits import OTHER_ROWS
from secure_fedrec.uploads import Aggregate, RowBlock, Upload
from secure_fedrec.vault import Vault

__all__ = [
    "FederatedAveraging",
    "FederatedAveragingConfig",
    "FederatedAveragingStep",
    "Release",
    "common_start",
]

WEIGHTINGS = ("records", "attention")
_LAYERS = ("knowledge_user", "knowledge_item", "relation", "hidden")
_START = "gum-start"
_PRIVATE = "private_parameters"
_OFFSETS = "attention-offsets"


class Release(Protocol):
    """What a client does to its change before anything else sees it."""

    def __call__(self, change: FloatArray) -> FloatArray:
        """Released form of one client's change: float64[P] from float64[P]."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedAveragingConfig(Settings, section="algorithm"):
    """Hyper-parameters.

    Args:
        rounds: T.
        gum: form of the user model.
        training: local training of a round.
        weighting: "records" (FedAvg) or "attention" (FedAtt).
        server_step: eta.
        proximal: mu of FedProx; 0 is none.
        weight_unit: training records that make a weight of 1; it cancels in the mean.
        row_width: parameters per row of the shared table.

    Raises:
        ConfigError: a field is out of range.
    """

    rounds: Count = 10
    gum: GUMConfig = field(default_factory=GUMConfig)
    training: GUMTraining = field(
        default_factory=lambda: GUMTraining(epochs=5, patience=0, keep="last")
    )
    weighting: Annotated[str, OneOf(WEIGHTINGS)] = "records"
    server_step: Positive = 1.0
    proximal: NonNegative = 0.0
    weight_unit: Positive = 1024.0
    row_width: Count = 32


class FederatedAveraging:
    """The algorithm; see the module docstring.

    Args:
        config: hyper-parameters.
        organisations: the clients' sizes and the attributes of their items. A client reads its own
            part; records come from the vault (``Organisations.vault``).
        release: of a client's change (Fednoise); None gives out the change itself.
    """

    def __init__(
        self,
        config: FederatedAveragingConfig,
        organisations: Organisations,
        *,
        release: Release | None = None,
    ) -> None:
        self.config = config
        self._release = release
        self._gums = UserModels(config.gum, organisations)
        parts = self._gums[0].layout.parts(np.zeros(self._gums[0].layout.size))
        self.layers = LayerTable(
            sizes={name: getattr(parts, name).size for name in _LAYERS},
            row_width=config.row_width,
        )

    @property
    def width(self) -> int:
        """Values per uploaded row."""
        return self.layers.width

    @property
    def rows(self) -> int:
        """Rows of the shared table, all of which every client sends."""
        return self.layers.rows

    @property
    def rounds(self) -> int:
        """T."""
        return self.config.rounds

    def gum(self, client: int) -> GUM:
        """The user model of a client."""
        return self._gums[client]

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """The initial layers.

        Raises:
            ConfigError: ``n_rows`` is not ``rows``.
        """
        self.layers.require_rows(n_rows)
        start = common_start(self.config.gum, self._gums[0].layout.attributes, streams)
        extras = {}
        if self.config.weighting == "attention":
            extras[_OFFSETS] = np.zeros(len(self.layers.sizes))
        return PublicState(round=0, table=self.layers.table(start), extras=extras)

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Draw every client's embeddings.

        Raises:
            ConfigError: the vault is of other clients, or a client has no training record, no
                validation record where one is needed, or a record of a user or item not its own.
        """
        training = self.config.training
        early = training.keep == "best" or training.patience > 0
        self._gums.require_records(vault, validation=early)
        stream = streams.stream(_START)
        own = [
            gum.start(stream.generator(lane=client + 1))[gum.layout.private]
            for client, gum in enumerate(self._gums)
        ]
        ends = np.cumsum([0] + [len(each) for each in own])
        vault.create_ragged(_PRIVATE, ends, np.concatenate(own))

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> "FederatedAveragingStep":
        """Local work of some clients, one after the other."""
        private, changes, tables = [], [], []
        for client in clients.tolist():
            own, change, records = self._train(client, public, vault, streams)
            released = change if self._release is None else self._release(change)
            weights = self._weights(released, records, public)
            private.append(own)
            changes.append(change)
            tables.append(self.layers.table(released, weights))
        return FederatedAveragingStep(clients, private, changes, tables)

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """Weighted mean of the changes, layer by layer; without any weight a layer stays."""
        sums = aggregate.values
        weights = sums[:, -1:]
        means = np.divide(sums, weights, out=np.zeros_like(sums), where=weights > 0)
        table = public.table.copy()
        table[:, :-1] += self.config.server_step * means[:, :-1]
        extras = dict(public.extras)
        if _OFFSETS in extras:
            first = self.layers.first_rows
            present = aggregate.counts[first] * (weights[first, 0] > 0)
            mean = weights[first, 0] / np.maximum(present, 1)
            extras[_OFFSETS] = extras[_OFFSETS] + np.log(np.where(present > 0, mean, 1.0))
        return PublicState(round=public.round + 1, table=table, extras=extras)

    def parameters(self, public: PublicState, vault: Vault, client: int) -> FloatArray:
        """A client's present model, its own embeddings with the shared layers: float64[P]."""
        private = vault.read_ragged(_PRIVATE, client)
        return np.concatenate([private, self.layers.vector(public.table)])

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        """int64[n]: every client sends every row."""
        return np.full(vault.n_clients, n_rows, dtype=np.int64)

    def upload_vectors(self, vault: Vault) -> dict[str, IntArray]:
        """Nothing goes to a bag."""
        del vault
        return {}

    def public_knowledge(self) -> dict[str, Any]:
        """All hyper-parameters, and where the layers lie in the table."""
        layers = {"sizes": dict(self.layers.sizes), "row_width": self.layers.row_width}
        known = {"name": "federated-averaging", **asdict(self.config), "layers": layers}
        return {**known, "traits": asdict(OTHER_ROWS)}

    def _train(
        self, client: int, public: PublicState, vault: Vault, streams: Streams
    ) -> tuple[FloatArray, FloatArray, int]:
        """Private parameters after local training, change of the layers, and training records."""
        gum, config = self._gums[client], self.config
        start = self.parameters(public, vault, client)
        shared = slice(gum.layout.private.stop, gum.layout.size)
        pull = None
        if config.proximal:
            strengths = np.zeros(gum.layout.size)
            strengths[shared] = config.proximal
            pull = Pull(strengths=strengths, anchor=start)
        training, validation = split_records(vault.examples(client))
        generator = streams.stream("gum-batches").generator(public.round + 1, client)
        trained = train(gum, start, training, validation, config.training, generator, pull=pull)
        own, change = trained.parameters[gum.layout.private], trained.parameters - start
        return own, change[shared], len(training.scores)

    def _weights(self, change: FloatArray, records: int, public: PublicState) -> FloatArray:
        """a_il of every layer: float64[layers]."""
        layers = self.layers.layers(change)
        if self.config.weighting == "records":
            return np.full(len(layers), records / self.config.weight_unit)
        distances = np.array([np.linalg.norm(layer) for layer in layers])
        return np.asarray(np.exp(distances - public.extras[_OFFSETS]))


def common_start(config: GUMConfig, n_attributes: int, streams: Streams) -> FloatArray:
    """Start values of the shared layers, which depend on no client: float64[P]."""
    attributes = np.ones((1, n_attributes), dtype=np.bool_)
    gum = GUM(config, n_users=1, attributes=attributes)
    return gum.start(streams.stream(_START).generator())[gum.layout.private.stop :]


class FederatedAveragingStep:
    """One round's work of a batch of clients.

    Args:
        clients: int64[B].
        private: what each client keeps.
        changes: float64[P], by how much local training moved the layers of each client.
        tables: float64[rows, width] that each client gives out.
    """

    def __init__(
        self,
        clients: IntArray,
        private: Sequence[FloatArray],
        changes: Sequence[FloatArray],
        tables: Sequence[FloatArray],
    ) -> None:
        self.clients = clients
        self.changes = changes
        self._private = private
        self._tables = tables

    @property
    def upload(self) -> Upload:
        """Weighted changes, and weights."""
        rows = len(self._tables[0])
        block = RowBlock(
            indptr=np.arange(len(self.clients) + 1) * rows,
            rows=np.tile(np.arange(rows, dtype=np.int32), len(self.clients)),
            values=np.concatenate(self._tables),
        )
        return Upload(clients=self.clients, block=block)

    def commit(self, vault: Vault) -> None:
        """Keep the trained embeddings."""
        for client, own in zip(self.clients.tolist(), self._private, strict=True):
            vault.write_ragged(_PRIVATE, client, own)
