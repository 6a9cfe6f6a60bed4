"""The methods of the HPFL study, each as a run that shows its models after every round.

All of them but NCD and NCF train the same user model with the same local training. In federated
methods a client keeps its best epoch of a round on validation records of its own, as HPFL does;
FedSGD makes a single step, so there is nothing to choose from. Drafts are clustered from random
points: k-means++ spends most of a round on the choice of its starts.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np

from secure_fedrec.algorithms.base import Algorithm, PublicState
from secure_fedrec.algorithms.federated_averaging import (
    FederatedAveraging,
    FederatedAveragingConfig,
    FederatedAveragingStep,
    Release,
    common_start,
)
from secure_fedrec.algorithms.hpfl.system import HPFL, HPFLConfig
from secure_fedrec.algorithms.user_models import UserModels
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.organisations.tables import Organisations
from secure_fedrec.engines.local import LocalEngine
from secure_fedrec.engines.problem import Problem, sizes_of, upload_vectors
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.gum.arrays import Records
from secure_fedrec.models.gum.model import GUM, GUMConfig
from secure_fedrec.models.gum.training import GUMTraining, train
from secure_fedrec.protection import build_stack
from secure_fedrec.protection.bags import BagShape
from secure_fedrec.streams import Streams
from secure_fedrec.studies.hpfl.noise import local_noise
from secure_fedrec.studies.hpfl.settings import VARIANTS, Setting
from secure_fedrec.studies.hpfl.snapshots import Snapshot, take_snapshot
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Meter, Wire

__all__ = ["RUNS", "Run"]

Run = Callable[[Organisations, Setting, GUMConfig, int], Iterator[Snapshot]]
"""(organisations, setting, user model, seed) to the states after each round."""

_RING: Final = FixedPoint(bits=64, fraction_bits=30, clip=2.0**20)
_LOCAL_PATIENCE: Final = 5
_MATRICES: Final = ("knowledge_user", "knowledge_item", "relation")


def _hpfl(components: str, **settings: Any) -> Run:
    def run(
        organisations: Organisations, setting: Setting, model: GUMConfig, seed: int
    ) -> Iterator[Snapshot]:
        config = HPFLConfig(
            rounds=setting.rounds,
            components=components,
            gum=model,
            training=setting.training(keep="best"),
            seeding="random",
            **settings,
        )
        algorithm = HPFL(config, organisations)
        width = organisations.n_attributes
        for engine in _rounds(algorithm, organisations, seed, bag_width=width):
            models = [
                (algorithm.gum(client), algorithm.parameters(engine.vault, client))
                for client in range(organisations.n_clients)
            ]
            yield _of_models(organisations, models)

    return run


def _averaging(
    *,
    weighting: str = "records",
    keep: str = "best",
    release: Release | None = None,
) -> Run:
    def run(
        organisations: Organisations, setting: Setting, model: GUMConfig, seed: int
    ) -> Iterator[Snapshot]:
        config = FederatedAveragingConfig(
            rounds=setting.rounds,
            gum=model,
            training=setting.training(keep=keep),
            weighting=weighting,
            proximal=setting.proximal,
        )
        algorithm = _Watched(config, organisations, release=release)
        for engine in _rounds(algorithm, organisations, seed):
            models = [
                (algorithm.gum(client), algorithm.parameters(engine.public, engine.vault, client))
                for client in range(organisations.n_clients)
            ]
            # After averaging the shared layers are equal; eq. 11 compares what clients trained.
            local = [
                (gum, np.concatenate([own[gum.layout.private], algorithm.local[client]]))
                for client, (gum, own) in enumerate(models)
            ]
            yield replace(
                _of_models(organisations, models),
                knowledge=tuple(_knowledge(gum, own) for gum, own in local),
            )

    return run


class _Watched(FederatedAveraging):
    """Keeps each client's layers as its local training left them."""

    def __init__(
        self,
        config: FederatedAveragingConfig,
        organisations: Organisations,
        *,
        release: Release | None = None,
    ) -> None:
        super().__init__(config, organisations, release=release)
        self.local: dict[int, FloatArray] = {}

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FederatedAveragingStep:
        """The algorithm's, looked at from outside."""
        step = super().client_step(clients, public, vault, streams)
        for client, change in zip(clients.tolist(), step.changes, strict=True):
            self.local[client] = public.table + change
        return step


def _distributed(
    organisations: Organisations, setting: Setting, model: GUMConfig, seed: int
) -> Iterator[Snapshot]:
    """Local training only, to the last epoch; a "round" is as many epochs as that of the others."""
    models = _started(organisations, model, seed)
    training = setting.training(keep="last")
    for round_ in range(1, setting.rounds + 1):
        models = [
            (gum, _trained(organisations, client, gum, own, training, seed, round_))
            for client, (gum, own) in enumerate(models)
        ]
        yield _of_models(organisations, models)


def _distributed_early(
    organisations: Organisations, setting: Setting, model: GUMConfig, seed: int
) -> Iterator[Snapshot]:
    """Local training only; every client keeps its best epoch on its validation records."""
    yield _of_models(organisations, _best_epochs(organisations, setting, model, seed))


def _central(
    organisations: Organisations, setting: Setting, model: GUMConfig, seed: int
) -> Iterator[Snapshot]:
    """The user model trained on all records together, best epoch on the validation records."""
    pooled = organisations.pooled()
    ((gum, parameters),) = _best_epochs(pooled, setting, model, seed)
    yield _of_one_model(
        organisations,
        pooled,
        lambda users, items: gum.predict(parameters, users, items),
        gum.characteristics(parameters),
    )


def _network(method: str) -> Run:
    def run(
        organisations: Organisations, setting: Setting, model: GUMConfig, seed: int
    ) -> Iterator[Snapshot]:
        from secure_fedrec.studies.hpfl.networks import train_network  # noqa: PLC0415  torch

        del model
        pooled = organisations.pooled()
        predict, characteristics = train_network(method, pooled, setting, seed)
        yield _of_one_model(organisations, pooled, predict, characteristics)

    return run


class _Shared(Algorithm, Protocol):
    """An algorithm that says how many rows its table has."""

    @property
    def rows(self) -> int: ...


def _rounds(
    algorithm: _Shared, organisations: Organisations, seed: int, *, bag_width: int = 0
) -> Iterator[LocalEngine]:
    """The engine after every round, uploads unprotected: no protection changes a sum or a bag."""
    n_clients, vault, streams = (
        organisations.n_clients,
        organisations.vault(),
        Streams.from_seed(seed),
    )
    bags = {
        name: BagShape(width=bag_width, most=int(counts.max()))
        for name, counts in upload_vectors(algorithm, vault).items()
    }
    sizes = sizes_of(algorithm, Problem(vault=vault, n_rows=algorithm.rows), bags=bags)
    engine = LocalEngine(
        algorithm=algorithm,
        stack=build_stack({}, sizes=sizes, codec=_RING, streams=streams),
        vault=vault,
        n_rows=algorithm.rows,
        streams=streams,
        wire=Wire(meter=Meter(n_clients)),
    )
    for _ in range(algorithm.rounds):
        engine.run_round()
        yield engine


def _started(
    organisations: Organisations, config: GUMConfig, seed: int
) -> list[tuple[GUM, FloatArray]]:
    """Every client's model before training; what is shared elsewhere starts at the same values."""
    streams = Streams.from_seed(seed)
    stream = streams.stream("gum-start")
    common = common_start(config, organisations.n_attributes, streams)
    models = []
    for client, gum in enumerate(UserModels(config, organisations)):
        own = gum.start(stream.generator(lane=1 + client))
        models.append((gum, np.concatenate([own[gum.layout.private], common])))
    return models


def _trained(
    organisations: Organisations,
    client: int,
    gum: GUM,
    parameters: FloatArray,
    training: GUMTraining,
    seed: int,
    round_: int,
) -> FloatArray:
    generator = Streams.from_seed(seed).stream("gum-batches").generator(round_, client)
    return train(
        gum,
        parameters,
        Records(*organisations.train.of(client)),
        Records(*organisations.validation.of(client)),
        training,
        generator,
    ).parameters


def _best_epochs(
    organisations: Organisations, setting: Setting, model: GUMConfig, seed: int
) -> list[tuple[GUM, FloatArray]]:
    """Every client's model at its best epoch of as many as a federation would make."""
    epochs = setting.rounds * setting.epochs
    training = replace(setting, epochs=epochs).training(keep="best", patience=_LOCAL_PATIENCE)
    return [
        (gum, _trained(organisations, client, gum, own, training, seed, 1))
        for client, (gum, own) in enumerate(_started(organisations, model, seed))
    ]


def _of_models(organisations: Organisations, models: list[tuple[GUM, FloatArray]]) -> Snapshot:
    def predict(client: int, users: IntArray, items: IntArray) -> FloatArray:
        gum, parameters = models[client]
        return gum.predict(parameters, users, items)

    return take_snapshot(
        organisations,
        predict,
        [gum.characteristics(parameters) for gum, parameters in models],
        [_knowledge(gum, parameters) for gum, parameters in models],
    )


def _of_one_model(
    organisations: Organisations,
    pooled: Organisations,
    predict: Callable[[IntArray, IntArray], FloatArray],
    characteristics: FloatArray,
) -> Snapshot:
    """A model of all users and items, in the numbers of the whole data set."""
    users = [np.searchsorted(pooled.user_ids[0], own) for own in organisations.user_ids]
    items = [np.searchsorted(pooled.item_ids[0], own) for own in organisations.item_ids]
    return take_snapshot(
        organisations,
        lambda client, user, item: predict(users[client][user], items[client][item]),
        [characteristics[own] for own in users],
    )


def _knowledge(gum: GUM, parameters: FloatArray) -> Mapping[str, FloatArray]:
    parts = gum.layout.parts(parameters)
    return {name: getattr(parts, name) for name in _MATRICES}


RUNS: Final[Mapping[str, Run]] = MappingProxyType(
    {
        "ncd": _network("ncd"),
        "ncf": _network("ncf"),
        "gum": _central,
        "distributed": _distributed,
        "distributed-early": _distributed_early,
        "fedsgd": _averaging(keep="last"),
        "fedavg": _averaging(),
        "fednoise": _averaging(release=local_noise),
        "fedprox": _averaging(),
        "fedatt": _averaging(weighting="attention"),
        "hpfl-k": _hpfl("public"),
        "hpfl-r": _hpfl("private"),
        "hpfl": _hpfl("both"),
        **{name: _hpfl("both", **settings) for name, settings in VARIANTS.items()},
    }
)
"""Methods by name."""
