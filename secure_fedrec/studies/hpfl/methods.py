"""The methods of the HPFL study, each as a run that shows its models after every round.

All of them but NCD and NCF train the same user model with the same local training. In federated
methods a client keeps its best epoch of a round on validation records of its own, as HPFL does;
FedSGD makes a single step, so there is nothing to choose from. Drafts are clustered from random
points: k-means++ spends most of a round on the choice of its starts.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from secure_fedrec.algorithms.base import Algorithm, PublicState
from secure_fedrec.algorithms.federated_averaging import (
    FederatedAveraging,
    FederatedAveragingConfig,
    FederatedAveragingStep,
    Release,
    common_start,
)
from secure_fedrec.algorithms.hpfl.config import HPFLConfig
from secure_fedrec.algorithms.hpfl.system import HPFL
from secure_fedrec.algorithms.user_models import UserModels
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.organisations.tables import Organisations
from secure_fedrec.engines.federated_problem import Problem, upload_vectors
from secure_fedrec.engines.local_engine import LocalEngine
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.gum.arrays import Records
from secure_fedrec.models.gum.model import GUM, GUMConfig
from secure_fedrec.models.gum.training import GUMTraining, train
from secure_fedrec.protection.bags import BagShape
from secure_fedrec.streams import Streams
from secure_fedrec.studies.engine import unprotected
from secure_fedrec.studies.hpfl.noise import local_noise
from secure_fedrec.studies.hpfl.settings import VARIANTS, Setting
from secure_fedrec.studies.hpfl.snapshots import Snapshot, take_snapshot
from secure_fedrec.vault import Vault


class Task(NamedTuple):
    """The task of a method.

    Attributes:
        organisations: the data.
        setting: of the method.
        model: the user model.
        seed: of start values and of all draws.
    """

    organisations: Organisations
    setting: Setting
    model: GUMConfig
    seed: int

    @property
    def clients(self) -> range:
        """Numbers of the clients."""
        return range(self.organisations.n_clients)


Run = Callable[[Task], Iterator[Snapshot]]
"""From a method's input to its states after each round."""

_RING: Final = FixedPoint(bits=64, fraction_bits=30, clip=2.0**20)
_LOCAL_PATIENCE: Final = 5
_MATRICES: Final = ("knowledge_user", "knowledge_item", "relation")

_Models: TypeAlias = list[tuple[GUM, FloatArray]]
"""The clients' models, with their parameters."""


def _hpfl(components: str, **settings: Any) -> Run:
    def run(task: Task) -> Iterator[Snapshot]:
        config = HPFLConfig(
            rounds=task.setting.rounds,
            components=components,
            gum=task.model,
            training=task.setting.training(keep="best"),
            seeding="random",
            **settings,
        )
        algorithm = HPFL(config, task.organisations)
        for engine in _rounds(algorithm, task):
            models = [
                (algorithm.gum(client), algorithm.parameters(engine.vault, client))
                for client in task.clients
            ]
            yield _of_models(task, models)

    return run


def _averaging(
    *,
    weighting: str = "records",
    keep: str = "best",
    release: Release | None = None,
) -> Run:
    def run(task: Task) -> Iterator[Snapshot]:
        config = FederatedAveragingConfig(
            rounds=task.setting.rounds,
            gum=task.model,
            training=task.setting.training(keep=keep),
            weighting=weighting,
            proximal=task.setting.proximal,
        )
        algorithm = _Watched(config, task.organisations, release=release)
        for engine in _rounds(algorithm, task):
            models = [
                (algorithm.gum(client), algorithm.parameters(engine.public, engine.vault, client))
                for client in task.clients
            ]
            # After averaging the shared layers are equal; eq. 11 compares what clients trained.
            local = [
                (gum, np.concatenate([own[gum.layout.private], algorithm.local[client]]))
                for client, (gum, own) in enumerate(models)
            ]
            yield replace(
                _of_models(task, models),
                knowledge=tuple(_knowledge(gum, own) for gum, own in local),
            )

    return run


class _Watched(FederatedAveraging):
    """Keeps each client's layers as its local training left them."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.local: dict[int, FloatArray] = {}

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FederatedAveragingStep:
        """The clients' models, read from the algorithm's state."""
        step = super().client_step(clients, public, vault, streams)
        for client, change in zip(clients.tolist(), step.changes, strict=True):
            self.local[client] = public.table + change
        return step


def _distributed(task: Task) -> Iterator[Snapshot]:
    """Local training only, to the last epoch; a "round" is as many epochs as that of the others."""
    models = _started(task)
    training = task.setting.training(keep="last")
    for round_ in range(1, task.setting.rounds + 1):
        models = _trained(task, models, training, round_)
        yield _of_models(task, models)


def _distributed_early(task: Task) -> Iterator[Snapshot]:
    """Local training only; every client keeps its best epoch on its validation records."""
    yield _of_models(task, _best_epochs(task))


def _central(task: Task) -> Iterator[Snapshot]:
    """The user model trained on all records together, best epoch on the validation records."""
    pooled = task.organisations.pooled()
    ((gum, parameters),) = _best_epochs(task._replace(organisations=pooled))
    predict = partial(gum.predict, parameters)
    yield _of_one_model(task, pooled, predict, gum.characteristics(parameters))


def _network(method: str) -> Run:
    def run(task: Task) -> Iterator[Snapshot]:
        from secure_fedrec.studies.hpfl.networks import train_network  # noqa: PLC0415  torch

        pooled = task.organisations.pooled()
        predict, characteristics = train_network(method, pooled, task.setting, task.seed)
        yield _of_one_model(task, pooled, predict, characteristics)

    return run


class _Shared(Algorithm, Protocol):
    """An algorithm that says how many rows its table has."""

    @property
    def rows(self) -> int: ...


def _rounds(algorithm: _Shared, task: Task) -> Iterator[LocalEngine]:
    """The engine after every round, uploads unprotected: no protection changes a sum or a bag."""
    problem = Problem(vault=task.organisations.vault(), n_rows=algorithm.rows)
    bags = {
        name: BagShape(width=task.organisations.n_attributes, most=int(counts.max()))
        for name, counts in upload_vectors(algorithm, problem.vault).items()
    }
    streams = Streams.from_seed(task.seed)
    engine = unprotected(algorithm, problem, streams, codec=_RING, bags=bags)
    for _ in range(algorithm.rounds):
        engine.run_round()
        yield engine


def _started(task: Task) -> _Models:
    """Every client's model before training; parts that others share start at equal values."""
    streams = Streams.from_seed(task.seed)
    stream = streams.stream("gum-start")
    common = common_start(task.model, task.organisations.n_attributes, streams)
    models = []
    for client, gum in enumerate(UserModels(task.model, task.organisations)):
        own = gum.start(stream.generator(lane=1 + client))
        models.append((gum, np.concatenate([own[gum.layout.private], common])))
    return models


def _trained(task: Task, models: _Models, training: GUMTraining, round_: int) -> _Models:
    """Every client's model after further local training."""
    stream, data = Streams.from_seed(task.seed).stream("gum-batches"), task.organisations
    found = []
    for client, (gum, own) in enumerate(models):
        records, held_out = (Records(*part.of(client)) for part in (data.train, data.validation))
        generator = stream.generator(round_, client)
        trained = train(gum, own, records, held_out, training, generator)
        found.append((gum, trained.parameters))
    return found


def _best_epochs(task: Task) -> _Models:
    """Every client's model at its best epoch of as many as a federation would make."""
    epochs = task.setting.rounds * task.setting.epochs
    training = replace(task.setting, epochs=epochs).training(keep="best", patience=_LOCAL_PATIENCE)
    return _trained(task, _started(task), training, 1)


def _of_models(task: Task, models: _Models) -> Snapshot:
    def predict(client: int, users: IntArray, items: IntArray) -> FloatArray:
        gum, parameters = models[client]
        return gum.predict(parameters, users, items)

    return take_snapshot(
        task.organisations,
        predict,
        [gum.characteristics(parameters) for gum, parameters in models],
        [_knowledge(gum, parameters) for gum, parameters in models],
    )


def _of_one_model(
    task: Task,
    pooled: Organisations,
    predict: Callable[[IntArray, IntArray], FloatArray],
    characteristics: FloatArray,
) -> Snapshot:
    """A model of all users and items, in the numbers of the whole data set."""
    users = [np.searchsorted(pooled.user_ids[0], own) for own in task.organisations.user_ids]
    items = [np.searchsorted(pooled.item_ids[0], own) for own in task.organisations.item_ids]
    return take_snapshot(
        task.organisations,
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
