"""Client steps that keep at home what is private, and are nobody else's business."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.properties.client_zoo import (
    DIM,
    ITEM_TABLE,
    ITEMS,
    USERS,
    Arguments,
    Engine,
    Entry,
    Factors,
    Personal,
    Scores,
    batches,
    data,
    descend,
    engine,
    factors,
    first_items,
    items_of,
    seeded,
    sending,
    table,
)
from tests.properties.client_zoo_engines import (
    Adapters,
    FedBN,
    FedRAP,
    FedRep,
    GPFedRec,
    OwnLoaders,
    OwnMoments,
    PFedRec,
    Ranked,
    Reused,
    Sampled,
)


class Client:
    """A client that is an object, with its model and optimiser."""

    def __init__(self, seed: int) -> None:
        self.model: Any = seeded(Scores, seed)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)


def objects() -> Arguments:
    clients = [Client(user) for user in range(USERS)]
    items = first_items()

    def train(user: int) -> object:
        client = clients[user]
        client.model.embedding_item.weight.data.copy_(items)
        for places, ratings in batches(user):
            descend(client.model, client.optimizer, places, ratings)
        return [("embedding_item.weight", client.model.embedding_item.weight.detach())]

    return {
        "train": train,
        "clients": lambda user: clients[user],
        "private": ("model.affine_output.*",),
        "uploads": ("embedding_item.weight",),
    }


def in_numpy() -> Arguments:
    """Ridge regressions in NumPy; a bias that is a Python float; sums are sent."""
    own: dict[int, dict[str, Any]] = {
        user: {"vector": np.ones(DIM), "bias": 0.5} for user in range(USERS)
    }
    items = np.random.default_rng(1).normal(size=(ITEMS, DIM))

    def train(user: int) -> object:
        places, ratings = (each.numpy() for each in data(user))
        seen, state = items[places], own[user]
        fitted = np.linalg.solve(seen.T @ seen + np.eye(DIM), seen.T @ (ratings - state["bias"]))
        state["vector"] = 0.5 * state["vector"] + 0.5 * fitted
        state["bias"] = 0.9 * state["bias"] + 0.1 * float(np.mean(ratings - seen @ state["vector"]))
        gradient = np.zeros_like(items)
        np.add.at(
            gradient,
            places,
            np.outer(seen @ state["vector"] + state["bias"] - ratings, state["vector"]),
        )
        return {"gradient": gradient.astype(np.float32), "examples": len(places)}

    return {
        "train": train,
        "clients": lambda user: own[user],
        "private": ("vector", "bias"),
        "uploads": ("gradient", "examples"),
    }


def by_hand(model: Any, user: int) -> object:
    """Plain gradients on the own row of the table of all users."""
    for places, ratings in batches(user):
        row = model.users.weight[user].detach().requires_grad_()
        loss = nn.functional.mse_loss(model.items(places) @ row, ratings)
        gradients = torch.autograd.grad(loss, [row, model.items.weight])
        with torch.no_grad():
            model.users.weight[user] -= 0.1 * gradients[0]
            model.items.weight -= 0.1 * gradients[1]
    return items_of(model)


def by_sgd(model: Any, user: int) -> object:
    """Plain SGD leaves rows without a gradient as they are."""
    optimizer = torch.optim.SGD([model.users.weight, model.items.weight], lr=0.1)
    for places, ratings in batches(user):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.mse_loss(model.score(user, places), ratings))
        optimizer.step()
    return items_of(model)


def normalised(model: Any, user: int) -> object:
    """A normalisation of all, averaged with its statistics."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for places, ratings in batches(user):
        optimizer.zero_grad()
        scores = model.norm(model.items(places)) @ model.users(torch.tensor(user))
        torch.autograd.backward(nn.functional.mse_loss(scores, ratings))
        optimizer.step()
    norm = {f"norm.{name}": each.clone() for name, each in model.norm.state_dict().items()}
    return {**items_of(model), **norm}


class OwnModules(nn.Module):
    """A module per user in one model."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, DIM)
        self.heads = nn.ModuleList(nn.Linear(DIM, 1) for _ in range(USERS))


def heads() -> Arguments:
    model: Any = seeded(OwnModules)

    def train(user: int) -> object:
        mine = [*model.heads[user].parameters(), model.items.weight]
        optimizer = torch.optim.AdamW(mine, lr=0.05, weight_decay=0.1)
        for places, ratings in batches(user):
            optimizer.zero_grad()
            scores = model.heads[user](model.items(places)).view(-1)
            torch.autograd.backward(nn.functional.mse_loss(scores, ratings))
            optimizer.step()
        return items_of(model)

    return {
        "train": train,
        "clients": model,
        "private": ("heads.{user}.*",),
        "uploads": ("items.weight",),
    }


@dataclass
class Answer:
    """What a client sends, with its figures."""

    state: dict[str, Tensor]
    examples: int
    loss: float


def answer(made: Factors, user: int, items: Tensor) -> object:
    return Answer(state={"items": items}, examples=8, loss=float(items.square().mean()))


def to_bytes(_made: Factors, _user: int, items: Tensor) -> bytes:
    file = io.BytesIO()
    np.savez(file, items=items.numpy())
    return file.getvalue()


def from_bytes(sent: bytes) -> dict[str, Any]:
    return dict(np.load(io.BytesIO(sent)))


class Logistic(Factors):
    """Errors between -1 and 1, nearly alike where scores are small."""

    def error(self, residual: Tensor) -> Tensor:
        return torch.sigmoid(residual) - 0.3


def noised(made: Factors, _user: int, items: Tensor) -> object:
    change = items - made.items
    return {"items": change / change.norm().clamp_min(1.0) + 0.1 * torch.randn(items.shape)}


class LogisticChange(Logistic):
    def sent(self, user: int, items: Tensor) -> object:
        return {"items": items - self.items}


class Solved(Factors):
    """The vector is solved for, whatever it was."""

    def fit(self, user: int) -> Tensor:
        places, ratings = data(user)
        seen, own = self.items[places], self.own[user]["vector"]
        own.copy_(torch.linalg.solve(seen.T @ seen + torch.eye(DIM), seen.T @ ratings))
        items = self.items.clone()
        items[places] -= 0.1 * (seen @ own - ratings)[:, None] * own
        return items


def solved(kind: Callable[[], Factors], **changes: Any) -> Callable[[], Arguments]:
    def build() -> Arguments:
        made = kind()
        given = {**factors(lambda: made)(), "private": ("vector",)}
        return {**given, "downloads": lambda: {"items": made.items}, **changes}

    return build


HONEST: dict[str, Entry] = {
    "FedAvg of a factorization": Entry(factors()),
    "FedAvg of changes": Entry(sending(lambda made, _user, items: {"items": items - made.items})),
    "changes under a logistic loss": Entry(factors(LogisticChange)),
    "clipped changes with noise": Entry(sending(noised)),
    "solved from what the server gives": Entry(solved(Solved)),
    "one SGD of all": Entry(engine()),
    "PFedRec": Entry(engine(PFedRec)),
    "GPFedRec": Entry(engine(GPFedRec, private=("embedding_user.*", "body.*", "norm.*", "head.*"))),
    "FedRAP": Entry(
        engine(
            FedRAP,
            private=("item_personality.*", "affine_output.*"),
            uploads=("item_commonality.weight",),
        )
    ),
    "FedRep": Entry(
        engine(
            FedRep, private=("embedding_user.*", "norm.*", "head.*"), uploads=(ITEM_TABLE, "body.*")
        )
    ),
    "FedPer": Entry(
        engine(
            lambda: Engine(Personal, (ITEM_TABLE, "body.weight", "body.bias")),
            private=("head.*", "embedding_user.*", "norm.*"),
            uploads=("embedding_item.*", "body.*"),
        )
    ),
    "FedBN": Entry(engine(FedBN, private=("norm.*",), uploads=("embedding_*", "body.*", "head.*"))),
    "LoRA": Entry(engine(Adapters, uploads=("lora_*",))),
    "a reused module": Entry(engine(Reused)),
    "moments of its own": Entry(engine(OwnMoments)),
    "draws from everywhere": Entry(engine(Sampled)),
    "loaders of its own": Entry(engine(OwnLoaders)),
    "BPR": Entry(engine(Ranked)),
    "clients that are objects": Entry(objects),
    "NumPy": Entry(in_numpy),
    "own row by hand": Entry(table(by_hand)),
    "own row by SGD": Entry(table(by_sgd)),
    "normalisation that is averaged": Entry(table(normalised)),
    "weight decay on own parameters": Entry(heads),
    "a dataclass with figures": Entry(sending(answer, uploads=("items", "examples", "loss"))),
    "bytes that are read": Entry(sending(to_bytes, read=from_bytes)),
}
