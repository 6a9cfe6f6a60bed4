"""The methods of the FedDMF study, each as a run that gives scores after every epoch."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from secure_fedrec.algorithms.feddmf.config import FedDMFConfig
from secure_fedrec.algorithms.feddmf.exchanged import ExchangedFedDMF
from secure_fedrec.algorithms.feddmf.summed import AveragedDMF, SummedFedDMF
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.organisations.common_items import CommonItems
from secure_fedrec.engines.federated_problem import Problem
from secure_fedrec.engines.local_engine import LocalEngine
from secure_fedrec.errors import DivergedError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.dmf.arrays import Targets
from secure_fedrec.models.dmf.model import DMF, start_layers, start_vectors
from secure_fedrec.models.dmf.training import (
    Interactions,
    TrainingState,
    examples_of,
    train_epoch,
)
from secure_fedrec.streams import Streams
from secure_fedrec.studies.engine import unprotected

Scores: TypeAlias = Callable[[int, IntArray], FloatArray]
"""Of all users of an organisation for items, own or others': float64[U, k]."""

State: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Everything that training resumes from, by name."""

_RING: Final = FixedPoint(bits=64, fraction_bits=32, clip=4096.0)
_KEY: Final = 0x5EED


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """The task of a method.

    Args:
        data: the organisations.
        config: of FedDMF; other methods use those settings that apply.
        seed: of start values and of all draws.
        resumed: what ``Epoch.state`` was after the last epoch that was made; None to begin.
    """

    data: CommonItems
    config: FedDMFConfig
    seed: int
    resumed: State | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Epoch:
    """A method after an epoch.

    Args:
        epoch: its number, from 1.
        scores: what it predicts.
        state: for ``Task.resumed``; read before the next epoch.
        cosine: mean cosine of the vectors of a common item at its organisations; None where they
            are one.
    """

    epoch: int
    scores: Scores
    state: Callable[[], State] = dict
    cosine: Callable[[], float] | None = None


_Federated: TypeAlias = ExchangedFedDMF | SummedFedDMF | AveragedDMF


def _federation(kind: type[_Federated], **changes: Any) -> Callable[[Task], Iterator[Epoch]]:
    """A federated method; ``changes`` are its own settings."""

    def run(task: Task) -> Iterator[Epoch]:
        config = replace(task.config, **changes)
        algorithm = kind(config, task.data)
        problem = Problem(vault=task.data.vault(), n_rows=task.data.n_items)
        engine = unprotected(algorithm, problem, Streams.from_seed(task.seed), codec=_RING)
        if task.resumed is not None:
            engine.restore(task.resumed)
        while engine.public.round < algorithm.rounds:
            for _ in range(config.exchanges):
                engine.run_round()
            if isinstance(algorithm, AveragedDMF):
                algorithm.adopt(engine.public, engine.vault)
            yield Epoch(
                epoch=engine.public.round // config.exchanges,
                scores=partial(algorithm.across, engine.vault),
                state=engine.state,
                cosine=partial(_cosine, algorithm, engine),
            )

    return run


def _cosine(algorithm: _Federated, engine: LocalEngine) -> float:
    """Of every pair of organisations that have an item, the mean over all items and pairs."""
    data = algorithm.data
    total, pairs = 0.0, 0
    for one in range(data.n_organisations):
        for other in range(one):
            shared = np.flatnonzero(data.listed[one] & data.listed[other])
            found = [
                algorithm.hand_over(engine.vault, place, shared).values for place in (one, other)
            ]
            left, right = (np.asarray(vectors) for vectors in found)
            lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
            total += float(((left * right).sum(axis=1) / np.maximum(lengths, 1e-300)).sum())
            pairs += len(shared)
    return total / pairs


def _central(task: Task) -> Iterator[Epoch]:
    """DMF: one model of all organisations' data, with all users and items.

    A user's negatives are among the items of its organisation; the others are unknown.
    """
    data, config = task.data, task.config
    first_users = np.cumsum([0, *data.n_users.tolist()], dtype=np.int64)
    dmf = DMF(config=config.model, users=int(first_users[-1]), items=data.n_items)
    interactions, streams = _pooled(data, first_users), Streams.from_seed(task.seed)
    stream = streams.stream("dmf-start")
    parameters = np.concatenate(
        [
            start_vectors(config.model, dmf.users, stream.generator(lane=1)).reshape(-1),
            start_vectors(config.model, dmf.items, stream.generator()).reshape(-1),
            start_layers(config.model, stream.generator(1)),
        ]
    )
    begun: State = {
        "epoch": np.array(0),
        "parameters": parameters,
        "first": np.zeros_like(parameters),
        "second": np.zeros_like(parameters),
        "powers": np.ones(2),
    }
    held = {name: np.array(part) for name, part in (task.resumed or begun).items()}
    state = TrainingState(**{name: held[name] for name in begun if name != "epoch"})
    free = Targets(
        np.zeros(dmf.items + 1, dtype=np.int64), np.zeros((0, config.model.width)), 0.0, 0.0
    )

    def scores(client: int, items: IntArray) -> FloatArray:
        users = np.arange(first_users[client], first_users[client + 1])
        return dmf.scores(state.parameters, users, dmf.items_of(state.parameters)[items])

    for epoch in range(int(held["epoch"]) + 1, config.epochs + 1):
        held["epoch"] = np.array(epoch)
        examples = examples_of(interactions, config.training, streams, epoch=epoch - 1, client=0)
        losses = train_epoch(
            dmf, state, examples, free, config.training, key=_KEY * (task.seed + 1) + epoch
        )
        if not (np.isfinite(losses).all() and np.isfinite(state.parameters).all()):
            rate, problem = (
                config.training.learning_rate,
                f"the loss is not a number in epoch {epoch}",
            )
            raise DivergedError("algorithm.training.learning_rate", rate, problem)
        yield Epoch(epoch=epoch, scores=scores, state=held.copy)


def _pooled(data: CommonItems, first_users: IntArray) -> Interactions:
    """All organisations' interactions, with global user and item numbers."""
    users, items = [], []
    for place in range(data.n_organisations):
        own_users, own_items = data.known(place)
        users.append(own_users + first_users[place])
        items.append(data.items_of(place)[own_items])
    indptr = np.searchsorted(np.concatenate(users), np.arange(first_users[-1] + 1))
    return Interactions(
        indptr=indptr.astype(np.int64),
        items=np.concatenate(items),
        pools=tuple(data.items_of(place) for place in range(data.n_organisations)),
        kinds=np.repeat(np.arange(data.n_organisations), data.n_users),
    )


def _random(task: Task) -> Iterator[Epoch]:
    """Uniform scores."""

    def scores(client: int, items: IntArray) -> FloatArray:
        generator = Streams.from_seed(task.seed).stream("random-scores").generator(lane=client)
        found = generator.random((int(task.data.n_users[client]), task.data.n_items))
        return np.asarray(found[:, items])

    yield Epoch(epoch=1, scores=scores)


def _popularity(task: Task) -> Iterator[Epoch]:
    """How often an item was interacted with, per user of the organisations that have it.

    A rule without knowledge of users. Counts of others' items are those that their owners know.
    """
    shares = _shares(task.data)

    def scores(client: int, items: IntArray) -> FloatArray:
        return np.tile(shares[items], (int(task.data.n_users[client]), 1))

    yield Epoch(epoch=1, scores=scores)


def _popularity_by_activity(task: Task) -> Iterator[Epoch]:
    """Popularity times how many of its items a user has interacted with at its own organisation.

    A rule that knows how many items a user chooses, but not which. If negatives are sampled for
    each user, it cannot gain from that; among all pairs, it helps, since all users have one
    threshold.
    """
    data, shares = task.data, _shares(task.data)

    def scores(client: int, items: IntArray) -> FloatArray:
        active = np.bincount(data.known(client)[0], minlength=int(data.n_users[client]))
        return np.outer(active / len(data.items_of(client)), shares[items])

    yield Epoch(epoch=1, scores=scores)


def _shares(data: CommonItems) -> FloatArray:
    """Interactions with an item per user of the organisations that have it: float64[m]."""
    counts = np.zeros(data.n_items)
    for place in range(data.n_organisations):
        _, items = data.known(place)
        own = data.items_of(place)
        counts[own] += np.bincount(items, minlength=len(own))
    return np.asarray(counts / np.maximum(data.listed.T @ data.n_users, 1))


RUNS: Final[Mapping[str, Callable[[Task], Iterator[Epoch]]]] = MappingProxyType(
    {
        "dmf": _central,
        "fedavg": _federation(AveragedDMF, exchanges=1),  # after each epoch, as in the paper
        "feddmf-exchanged": _federation(ExchangedFedDMF),
        "feddmf-summed": _federation(SummedFedDMF),
        # Without FedDMF's loss: shows how far a common start alone keeps the spaces aligned.
        "alone": _federation(SummedFedDMF, beta=0.0),
        "popularity": _popularity,
        "popularity-by-activity": _popularity_by_activity,
        "random": _random,
    }
)
"""Methods by name."""

UNTRAINED: Final = ("popularity", "popularity-by-activity", "random")
"""Methods that are rules: they do not train, and are not compared with others."""
