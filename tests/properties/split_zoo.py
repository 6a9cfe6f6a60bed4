"""Families of personalised models that split personalization covers.

Every entry is a small model of all users, its loss, its private names and columns of data that fit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.algorithms.local_training import Batch, seeded_torch
from secure_fedrec.models.document import DocumentModel
from secure_fedrec.models.settings import DocumentConfig
from secure_fedrec.properties import SplitComparison, compare_split
from secure_fedrec.properties.split.aggregation import (
    AggregationInput,
    Aggregator,
    federated_averaging,
    keep_local,
)
from secure_fedrec.properties.split.evaluation import Loss
from secure_fedrec.properties.split.losses import FedProx
from secure_fedrec.properties.split.model import Values
from secure_fedrec.properties.split.random import Batches, Column, integers, normals, random_batches

FEATURES = 3
ADAM = LocalTrainingConfig(
    optimizer="adam", learning_rate=0.05, epochs=2, batch_size=2, keep_state=True
)
SIZES = (3, 4, 5)
COHORTS = ((0, 2), (1, 2, 0), (1,))


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a model."""

    users: int = 3
    items: int = 5
    dim: int = 2
    hidden: int = 3
    dropout: float = 0.5
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model under test."""

    model: nn.Module
    loss: Loss
    private: tuple[str, ...]
    columns: Mapping[str, Column]
    aggregate: Aggregator = federated_averaging

    def batches(self, size: int = 6) -> Batches:
        return random_batches(size, **self.columns)

    def data(self, sizes: tuple[int, ...], seed: int) -> list[dict[str, np.ndarray[Any, Any]]]:
        """The examples of every user."""
        generator = torch.Generator().manual_seed(seed)
        return [
            {name: column(size, generator).numpy() for name, column in self.columns.items()}
            for size in sizes
        ]


class Personal(nn.Module):
    """Predicts a number from features, an item and the user; one way to be personal each."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.users = nn.Embedding(shape.users, shape.dim)
        self.items = nn.Embedding(shape.items, shape.dim)

    def penalty(self, user: int) -> Tensor:
        return torch.zeros(())

    def forward(self, user: int, batch: Batch) -> Tensor:
        raise NotImplementedError


def loss(model: nn.Module, user: int, batch: Batch) -> Tensor:
    assert isinstance(model, Personal)
    return nn.functional.mse_loss(model(user, batch), batch["y"]) + model.penalty(user)


def case(kind: type[Personal], *private: str, **changes: Any) -> Callable[[Shape], Case]:
    def build(shape: Shape) -> Case:
        with seeded_torch(shape.seed):
            model = kind(shape)
        columns = {"x": normals(FEATURES), "item": integers(shape.items), "y": normals()}
        return Case(
            model=model, loss=loss, private=private or ("users.weight",), columns=columns, **changes
        )

    return build


class Factorisation(Personal):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.bias = nn.Parameter(torch.zeros(shape.items))

    def forward(self, user: int, batch: Batch) -> Tensor:
        item = batch["item"]
        out: Tensor = self.items(item) @ self.users.weight[user] + self.bias[item]
        return out


class Concatenation(Personal):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.mlp = nn.Sequential(
            nn.Linear(FEATURES + 2 * shape.dim, shape.hidden),
            nn.Tanh(),
            nn.Dropout(shape.dropout if isinstance(self, Dropped) else 0.0),
            nn.Linear(shape.hidden, 1),
        )

    def forward(self, user: int, batch: Batch) -> Tensor:
        item = self.items(batch["item"])
        personal = self.users(torch.full_like(batch["item"], user))
        out: Tensor = self.mlp(torch.cat([batch["x"], item, personal], dim=1))
        return out.squeeze(1)


class Dropped(Concatenation):
    """Concatenation, with dropout."""


class Addition(Personal):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.encode = nn.Linear(FEATURES, shape.dim)
        self.read = nn.Linear(shape.dim, 1)

    def personalise(self, user: int, hidden: Tensor) -> Tensor:
        return hidden + self.users.weight[user]

    def forward(self, user: int, batch: Batch) -> Tensor:
        hidden = self.encode(batch["x"]) + self.items(batch["item"])
        out: Tensor = self.read(torch.tanh(self.personalise(user, hidden)))
        return out.squeeze(1)


class Gating(Addition):
    def personalise(self, user: int, hidden: Tensor) -> Tensor:
        return hidden * torch.sigmoid(self.users.weight[user])


class OwnWeights(Addition):
    """A matrix per user: a table of three dimensions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.users = nn.Embedding(shape.users, 1)
        self.matrices = nn.Parameter(torch.randn(shape.users, shape.dim, shape.dim))

    def personalise(self, user: int, hidden: Tensor) -> Tensor:
        return hidden @ self.matrices[user] + self.users.weight[user]


class OwnHeads(Addition):
    """A last layer per user."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        del self.users, self.read
        self.heads = nn.ModuleList(nn.Linear(shape.dim, 1) for _ in range(shape.users))

    def forward(self, user: int, batch: Batch) -> Tensor:
        hidden = self.encode(batch["x"]) + self.items(batch["item"])
        out: Tensor = self.heads[user](hidden)
        return out.squeeze(1)


class OwnBiases(Factorisation):
    """Users differ in a number only."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.users = nn.Embedding(shape.users, 1)
        self.taste = nn.Parameter(torch.randn(shape.dim))

    def forward(self, user: int, batch: Batch) -> Tensor:
        item = batch["item"]
        out: Tensor = self.items(item) @ self.taste + self.bias[item] + self.users.weight[user]
        return out


class OwnNorms(Addition):
    """A batch normalisation per user, its running statistics included."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.norms = nn.ModuleList(nn.BatchNorm1d(shape.dim) for _ in range(shape.users))

    def personalise(self, user: int, hidden: Tensor) -> Tensor:
        if len(hidden) > 1:  # one example has no variance
            hidden = self.norms[user](hidden)
        return hidden + self.users.weight[user]


class NormPenalty(Factorisation):
    """Every user representation's own norm is in its loss."""

    def penalty(self, user: int) -> Tensor:
        out: Tensor = 0.1 * torch.linalg.vector_norm(self.users.weight[user])
        return out


def proximal(shape: Shape) -> Case:
    plain = case(Factorisation)(shape)
    return Case(
        model=plain.model,
        loss=FedProx(loss, strength=0.5, private=plain.private),
        private=plain.private,
        columns=plain.columns,
    )


def document(shape: Shape) -> Case:
    """FURL's document model."""
    characters, length = 6, 4
    config = DocumentConfig(
        characters=characters,
        classes=3,
        user_dim=shape.dim,
        users=shape.users,
        character_dim=2,
        hidden=shape.hidden,
        mlp=4,
        dropout=shape.dropout,
    )
    with seeded_torch(shape.seed):
        model = DocumentModel(config)

    def document_loss(model: nn.Module, user: int, batch: Batch) -> Tensor:
        users = torch.full_like(batch["label"], user)
        scores = model(batch["text"] + 1, batch["length"] + 1, users)
        return nn.functional.cross_entropy(scores, batch["label"])

    return Case(
        model=model,
        loss=document_loss,
        private=("user_embedding.*",),
        columns={
            "text": integers(characters - 1, length),
            "length": integers(length),
            "label": integers(3),
        },
    )


FAMILIES: dict[str, Callable[[Shape], Case]] = {
    "concatenation": case(Concatenation),
    "addition": case(Addition),
    "gating": case(Gating),
    "own weights": case(OwnWeights, "users.weight", "matrices"),
    "own heads": case(OwnHeads, "heads.{user}.*"),
    "own biases": case(OwnBiases),
    "own norms": case(OwnNorms, "users.*", "norms.{user}.*"),
    "matrix factorisation": case(Factorisation),
    "dropout": case(Dropped),
    "norm penalty": case(NormPenalty),
    "FedProx": proximal,
    "document model": document,
}


class ServerMomentum:
    """Federated Averaging with momentum at the server: a rule with state of its own."""

    def __init__(self) -> None:
        self.speed: dict[str, Tensor] = {}

    def __call__(self, given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
        federated, private = keep_local(given)
        moved = {}
        for name, old in given.federated.items():
            step = federated[name] - old
            self.speed[name] = 0.9 * self.speed.get(name, torch.zeros_like(old)) + step
            moved[name] = old + self.speed[name]
        return moved, private


class OwnMomentum:
    """Every user's private parameters have momentum, whose decay all users share by the round."""

    def __init__(self) -> None:
        self.rounds = 0
        self.speed: dict[tuple[int, str], Tensor] = {}

    def __call__(self, given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
        self.rounds += 1
        federated, local = keep_local(given)
        private: dict[int, dict[str, Tensor]] = {user: {} for user in local}
        for user, values in local.items():
            for name, value in values.items():
                old = given.private[user][name]
                speed = self.speed.get((user, name), torch.zeros_like(old)) / self.rounds
                self.speed[user, name] = speed + (value - old)
                private[user][name] = old + self.speed[user, name]
        return federated, private


STATEFUL: dict[str, Callable[[], Aggregator]] = {
    "server momentum": ServerMomentum,
    "own momentum": OwnMomentum,
}


def compare(found: Case, **changes: Any) -> SplitComparison:
    """A comparison of three rounds, with momentum that is kept on devices."""
    arguments: dict[str, Any] = {
        "private": found.private,
        "data": found.data(SIZES, seed=3),
        "cohorts": COHORTS,
        "training": ADAM,
        "aggregate": found.aggregate,
    }
    return compare_split(found.model, found.loss, **(arguments | changes))


Entry = tuple[Callable[[Shape], Case], str]
"""A case, and the verdict that is due."""


def own(model: Factorisation, user: int) -> Tensor:
    return model.users.weight[user]
