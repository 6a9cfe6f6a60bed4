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

The weights travel inside the sum: a client sends ``a d`` and ``a``, so the server only needs sums,
and any protected sum suffices. That holds for FedAtt as well. Its paper has the server compare
every client's model with its own, but the client knows both, and a mean weighted by a softmax is a
quotient of two sums. To keep exp() in the ring's range, the weights of a layer are divided by their
mean in the last round, which is public and cancels.

The change is weighted before it is encoded, so ``ring.clip`` has to exceed the largest weight times
the largest change of one parameter; ``weight_unit`` scales the weights of records.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, TypeAlias

import numpy as np

from secure_fedrec.algorithms.base import FinishedStep, PublicState
from secure_fedrec.algorithms.user_models import UserModels, split_records
from secure_fedrec.blocks import BlockLayout, BlockShape, flat_blocks
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.organisations.tables import Organisations
from secure_fedrec.models.gum.arrays import Pull
from secure_fedrec.models.gum.model import GUM, GUMConfig
from secure_fedrec.models.gum.training import GUMTraining, train
from secure_fedrec.settings import Count, NonNegative, OneOf, Positive, Settings
from secure_fedrec.streams import Streams
from secure_fedrec.traits import OTHER_ROWS
from secure_fedrec.uploads import Aggregate, FlatBlock, Upload
from secure_fedrec.vault import Vault

WEIGHTINGS = ("records", "attention")
_LAYERS = ("knowledge_user", "knowledge_item", "relation", "hidden")
_WEIGHTS = "weights"
_START = "gum-start"
_PRIVATE = "private_parameters"
_OFFSETS = "attention-offsets"


Release: TypeAlias = Callable[[FloatArray], FloatArray]
"""A function that a client applies to its change, float64[P], before any protection layer."""


class FederatedAveragingConfig(Settings, section="algorithm"):
    """Hyper-parameters.

    Args:
        rounds: T.
        gum: form of the user model.
        training: local training of a round.
        weighting: "records" (FedAvg) or "attention" (FedAtt).
        server_step: eta.
        proximal: mu of FedProx; 0 turns it off.
        weight_unit: training records that make a weight of 1; it cancels in the mean.
        row_width: parameters per row of the table that uploads are summed in.

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FederatedAveragingStep(FinishedStep):
    """One round's work of a batch of clients.

    Args:
        changes: float64[n_shared] per client, what its layers changed by in training; ``upload``
            has them after the client's release, if it has one.
    """

    changes: Sequence[FloatArray]


class FederatedAveraging:
    """The algorithm; see the module docstring.

    Args:
        config: hyper-parameters.
        organisations: the clients' sizes and the attributes of their items. A client reads its own
            part; records come from the vault (``Organisations.vault``).
        release: release of a client's change (Fednoise); None gives out the change itself.
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
        self.sizes: dict[str, int] = {name: getattr(parts, name).size for name in _LAYERS}
        self.width = config.row_width
        self.rows = BlockLayout(self.blocks()).rows
        self.rounds = config.rounds

    def gum(self, client: int) -> GUM:
        """The user model of a client."""
        return self._gums[client]

    def blocks(self, n_rows: int = 0) -> tuple[BlockShape, ...]:
        """The weighted change of every layer, and the weights of all."""
        return flat_blocks({**self.sizes, _WEIGHTS: len(self.sizes)}, self.width)

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """The initial layers, one after the other: float64[P]."""
        start = common_start(self.config.gum, self._gums[0].layout.attributes, streams)
        extras = {}
        if self.config.weighting == "attention":
            extras[_OFFSETS] = np.zeros(len(self.sizes))
        return PublicState(round=0, table=start, extras=extras)

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Draw every client's embeddings.

        Raises:
            ConfigError: the vault is of other clients, or a client has no training record, no
                validation record where one is needed, or a record of a user or item not its own.
        """
        training = self.config.training
        early = training.keep == "best" or training.patience > 0
        self._gums.require_records(vault, validation=early)
        own = [
            gum.start(streams.of(client).stream(_START).generator(lane=client + 1))[
                gum.layout.private
            ]
            for client, gum in self._gums.held(vault)
        ]
        ends = np.cumsum([0] + [len(each) for each in own])
        vault.create_ragged(_PRIVATE, ends, np.concatenate(own))

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FederatedAveragingStep:
        """Local work of some clients, one after the other."""
        private, changes, released, weights = [], [], [], []
        for client in clients.tolist():
            own, change, records = self._train(client, public, vault, streams)
            private.append(own)
            changes.append(change)
            released.append(change if self._release is None else self._release(change))
            weights.append(self._weights(released[-1], records, public))
        blocks = {_WEIGHTS: FlatBlock(values=np.stack(weights))}
        for number, (name, moves) in enumerate(self.layers(np.stack(released)).items()):
            weighted = moves * blocks[_WEIGHTS].values[:, [number]]
            blocks[name] = FlatBlock(values=np.ascontiguousarray(weighted))

        def commit(vault: Vault) -> None:
            for client, own in zip(clients.tolist(), private, strict=True):
                vault.write_ragged(_PRIVATE, client, own)

        upload = Upload(clients=clients, blocks=blocks)
        return FederatedAveragingStep(
            clients=clients, upload=upload, commit=commit, changes=changes
        )

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """Weighted mean of the changes, layer by layer; without any weight a layer stays."""
        weights = aggregate.vector(_WEIGHTS)
        counted = weights > 0
        totals = np.repeat(weights, [*self.sizes.values()])
        sums = np.concatenate([aggregate.vector(name) for name in self.sizes])
        means = np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)
        table = public.table + self.config.server_step * means
        extras = dict(public.extras)
        if _OFFSETS in extras:
            present = aggregate.of(_WEIGHTS).counts[0] * counted
            mean = weights / np.maximum(present, 1)
            extras[_OFFSETS] = extras[_OFFSETS] + np.log(np.where(present > 0, mean, 1.0))
        return PublicState(round=public.round + 1, table=table, extras=extras)

    def parameters(self, public: PublicState, vault: Vault, client: int) -> FloatArray:
        """A client's present model, its own embeddings with the shared layers: float64[P]."""
        private = vault.read_ragged(_PRIVATE, client)
        return np.concatenate([private, public.table])

    def layers(self, vectors: FloatArray) -> dict[str, FloatArray]:
        """The layers of float64[..., P] by name (views)."""
        parts = np.split(vectors, np.cumsum([*self.sizes.values()])[:-1], axis=-1)
        return dict(zip(self.sizes, parts, strict=True))

    def public_knowledge(self) -> dict[str, Any]:
        """All hyper-parameters, and the sizes of the layers."""
        known = {"name": "federated-averaging", **asdict(self.config), "layers": self.sizes}
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
        generator = streams.private("gum-batches").generator(public.round + 1, client)
        trained = train(gum, start, training, validation, config.training, generator, pull=pull)
        own, change = trained.parameters[gum.layout.private], trained.parameters - start
        return own, change[shared], len(training.scores)

    def _weights(self, change: FloatArray, records: int, public: PublicState) -> FloatArray:
        """a_il of every layer: float64[layers]."""
        if self.config.weighting == "records":
            return np.full(len(self.sizes), records / self.config.weight_unit)
        distances = np.array([np.linalg.norm(layer) for layer in self.layers(change).values()])
        return np.asarray(np.exp(distances - public.extras[_OFFSETS]))


def common_start(config: GUMConfig, n_attributes: int, streams: Streams) -> FloatArray:
    """Initial values of the shared layers, which do not depend on clients: float64[P]."""
    attributes = np.ones((1, n_attributes), dtype=np.bool_)
    gum = GUM(config, n_users=1, attributes=attributes)
    return gum.start(streams.stream(_START).generator())[gum.layout.private.stop :]
