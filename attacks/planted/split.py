"""A planted federation for attacks on split personalization, small enough to work without torch.

A client has examples (item, class). Its private vector u and the item's vector e go through a dense
layer with ReLU to a score per class:

    h = relu(W [u; e] + b),    scores = V h + a,    loss = mean cross-entropy

A round is one step of gradient descent on all parameters; those but u are federated with example
weights, in the layout of ``secure_fedrec.algorithms.furl.system``. Gradients are written out below,
so the control does not rest on the code under audit.
"""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from math import prod
from typing import Any, Final

import numpy as np

from attacks.planted.recording import planted_secrets, protected, recorded
from attacks.scoring.truth import GroundTruth
from secure_fedrec.algorithms.base import FinishedStep, PublicState
from secure_fedrec.blocks import TABLE, BlockKind, BlockLayout, BlockShape
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.core.kernels import bounds_of
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import Problem, RecordedRun
from secure_fedrec.streams import Streams
from secure_fedrec.traits import OTHER_ROWS
from secure_fedrec.uploads import Aggregate, FlatBlock, Upload
from secure_fedrec.vault import Vault

ITEM_TABLE: Final = "item_embedding.weight"
"""The parameter whose rows are the items."""

_PRIVATE: Final = "private_parameters"


_DIM, _UNITS, _STEP = 6, 24, 0.5
"""Length of a vector, units of the dense layer, size of a step."""

_ROUNDS, _CLIENTS, _ITEMS, _CLASSES = 3, 80, 120, 6
_POSITIVES, _NEGATIVES = 12, 4
_MAJORITY_SHARE = 0.8
_OWN_HALF = 0.9


class PlantedSplit:
    """The algorithm; see the module docstring.

    Args:
        items: m.
        classes: number of classes.
        rounds: rounds of a run.
    """

    def __init__(self, *, items: int, classes: int, rounds: int) -> None:
        self.rounds = rounds
        self._shapes = {
            ITEM_TABLE: (items, _DIM),
            "hidden.weight": (_UNITS, 2 * _DIM),
            "hidden.bias": (_UNITS,),
            "output.weight": (classes, _UNITS),
            "output.bias": (classes,),
        }
        self._ends = bounds_of([prod(shape) for shape in self._shapes.values()])
        self.width = 32
        self.rows = BlockLayout(self.blocks()).rows

    def blocks(self, n_rows: int = 0) -> tuple[BlockShape, ...]:
        """One flat block, the client's weight in the last place."""
        size = int(self._ends[-1]) + 1
        return (BlockShape(name=TABLE, kind=BlockKind.FLAT, size=size, width=self.width),)

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """Random parameters, zero biases."""
        draws = streams.stream("planted-start").generator()
        values = [
            draws.normal(scale=0.5, size=shape) if len(shape) > 1 else np.zeros(shape)
            for shape in self._shapes.values()
        ]
        return PublicState(round=0, table=np.concatenate([each.reshape(-1) for each in values]))

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Every private vector starts at zero."""
        vault.create(_PRIVATE, np.zeros((vault.n_clients, _DIM)))

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FinishedStep:
        """One gradient step of some clients."""
        vectors, tables = vault.read(_PRIVATE, clients), []
        for position, client in enumerate(clients.tolist()):
            examples = vault.examples(client)
            own, shared = self._gradients(self._values(public), vectors[position], examples)
            vectors[position] -= _STEP * own
            weight = len(examples["items"])
            changes = [-_STEP * weight * each.reshape(-1) for each in shared]
            tables.append(np.concatenate([*changes, [weight]]))
        upload = Upload(clients=clients, blocks={TABLE: FlatBlock(values=np.stack(tables))})

        def commit(vault: Vault) -> None:
            vault.write(_PRIVATE, clients, vectors)

        return FinishedStep(clients=clients, upload=upload, commit=commit)

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """The weighted mean of the changes."""
        sums = aggregate.vector(TABLE)
        return PublicState(round=public.round + 1, table=public.table + sums[:-1] / sums[-1])

    def public_knowledge(self) -> dict[str, Any]:
        """Names, shapes and places."""
        ends, shapes = self._ends.tolist(), self._shapes.items()
        federated = [
            {"name": name, "shape": list(shape), "start": start, "stop": stop}
            for (name, shape), (start, stop) in zip(shapes, pairwise(ends), strict=True)
        ]
        private = [{"name": "user", "shape": [1, _DIM], "start": 0, "stop": _DIM}]
        return {
            "name": "planted-split",
            "local": {"optimizer": "sgd", "learning_rate": _STEP, "epochs": 1, "batch_size": None},
            "federated": federated,
            "private": private,
            "weight_position": ends[-1],
            "traits": asdict(OTHER_ROWS),
        }

    def _gradients(
        self, values: list[FloatArray], user: FloatArray, examples: Mapping[str, Any]
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Gradients of the mean loss: at u, and at the federated parameters in order."""
        table, weight, bias, out_weight, out_bias = values
        items, classes, size = examples["items"], examples["classes"], len(examples["items"])
        inputs = np.hstack([np.tile(user, (size, 1)), table[items]])
        hidden = np.maximum(inputs @ weight.T + bias, 0.0)
        scores = hidden @ out_weight.T + out_bias
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        at_scores = odds / odds.sum(axis=1, keepdims=True)
        at_scores[np.arange(size), classes] -= 1.0
        at_scores /= size
        at_hidden = (at_scores @ out_weight) * (hidden > 0)
        at_inputs = at_hidden @ weight
        at_table = np.zeros_like(table)
        np.add.at(at_table, items, at_inputs[:, _DIM:])
        shared = [
            at_table,
            at_hidden.T @ inputs,
            at_hidden.sum(axis=0),
            at_scores.T @ hidden,
            at_scores.sum(axis=0),
        ]
        return at_inputs[:, :_DIM].sum(axis=0), shared

    def _values(self, public: PublicState) -> list[FloatArray]:
        parts = np.split(public.table, self._ends[1:-1])
        return [part.reshape(of) for part, of in zip(parts, self._shapes.values(), strict=True)]


def plant_split(
    *,
    implicit: bool = False,
    layers: Mapping[str, Any] | None = None,
    payload_rounds: tuple[int, ...] = (2,),
    rounds: int = _ROUNDS,
    seed: int = 20190927,
) -> tuple[RecordedRun, GroundTruth]:
    """Train and record a planted federation.

    Clients belong to one of two groups, an attribute; a group prefers one half of the items. Each
    client has a favourite class, and four of five of its examples are of that class.

    Args:
        implicit: instead of that, examples are positives (class 1) and four times as many sampled
            negatives (class 0).
        layers: settings by layer name; none leaves uploads in the clear.
        payload_rounds: rounds to record; in the first, all private vectors are zero.
        rounds: rounds of training.
        seed: seed of data and training.
    """
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 2, _CLIENTS)
    rated = _rated_sets(groups, rng)
    indptr, items, classes = _examples(rated, rng, implicit=implicit)
    kinds = 2 if implicit else _CLASSES
    algorithm = PlantedSplit(items=_ITEMS, classes=kinds, rounds=rounds)
    vault = Vault.of_examples(indptr, {"items": items, "classes": classes})
    known = {"item_table": ITEM_TABLE, "negatives": _NEGATIVES if implicit else 0}
    problem = Problem(vault=vault, knowledge=known)
    streams = Streams.from_seed(seed)
    stack = protected(algorithm, problem, streams, layers or {})
    run = recorded(algorithm, problem, stack, streams, payload_rounds)
    counts = np.zeros((_CLIENTS, kinds))
    np.add.at(counts, (np.repeat(np.arange(_CLIENTS), np.diff(indptr)), classes), 1.0)
    secrets = planted_secrets({"classes": counts, "groups": groups}, "split", "implicit")
    return run, GroundTruth(recorded=run.truth, train=_table(rated), secrets=secrets)


def _rated_sets(groups: IntArray, rng: np.random.Generator) -> BoolArray:
    """bool[clients, items]: twelve items each, nine of ten from the group's half."""
    rated = np.zeros((_CLIENTS, _ITEMS), dtype=bool)
    for client, group in enumerate(groups.tolist()):
        own = np.arange(_ITEMS) // (_ITEMS // 2) == group
        odds = np.where(own, _OWN_HALF, 1.0 - _OWN_HALF)
        rated[client, rng.choice(_ITEMS, _POSITIVES, replace=False, p=odds / odds.sum())] = True
    return rated


def _examples(
    rated: BoolArray, rng: np.random.Generator, *, implicit: bool
) -> tuple[IntArray, IntArray, IntArray]:
    """Rows of the clients, item and class of each example."""
    items, classes = [], []
    for client, own in enumerate(rated):
        positives = np.flatnonzero(own)
        if implicit:
            drawn = rng.choice(np.flatnonzero(~own), _NEGATIVES * len(positives), replace=False)
            items.append(np.concatenate([positives, drawn]))
            classes.append(np.repeat([1, 0], [len(positives), len(drawn)]))
            continue
        others = rng.integers(0, _CLASSES, len(positives))
        mine = rng.random(len(positives)) < _MAJORITY_SHARE
        items.append(positives)
        classes.append(np.where(mine, client % _CLASSES, others))
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in items])])
    return indptr, np.concatenate(items), np.concatenate(classes)


def _table(rated: BoolArray) -> RatingTable:
    clients, items = np.nonzero(rated)
    n_clients, n_items = rated.shape
    return RatingTable.from_columns(
        name="planted",
        n_clients=n_clients,
        n_items=n_items,
        clients=clients,
        items=items,
        ratings=np.ones(len(items)),
        scale=RatingScale(0.0, 1.0, 1.0),
        client_labels=np.arange(n_clients),
        item_labels=np.arange(n_items),
    )
