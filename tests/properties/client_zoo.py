"""What the steps of the zoo are made of: data of a few clients, models, engines, and verdicts."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_training import seeded_torch
from secure_fedrec.properties import ClientReport, check_client_step

USERS, ITEMS, DIM, ROWS = 3, 10, 4, 8
ITEM_TABLE = "embedding_item.weight"

Arguments = dict[str, Any]
"""Of ``check_client_step``."""


@dataclass(frozen=True)
class Entry:
    """A step, the verdict that is due, and the kinds and parameters of what is found."""

    build: Callable[[], Arguments]
    due: str = "holds"
    found: set[tuple[str, str]] = field(default_factory=set)


def check(given: Arguments, trials: int = 3, **changes: Any) -> ClientReport:
    settings: Arguments = {"users": range(USERS), "trials": trials}
    return check_client_step(**{**settings, **given, **changes})


def verdict(report: ClientReport) -> str:
    return "refuted" if report.refuted else "holds" if report.holds else "open"


def data(user: int) -> tuple[Tensor, Tensor]:
    """Items that a user has rated, and ratings."""
    draw = torch.Generator().manual_seed(100 + user)
    return torch.randint(ITEMS, (ROWS,), generator=draw), torch.randn(ROWS, generator=draw)


def first_items() -> Tensor:
    return torch.randn(ITEMS, DIM, generator=torch.Generator().manual_seed(1))


class Scores(nn.Module):
    """PFedRec's model: items that all share, and one's own score function."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding_item = nn.Embedding(ITEMS, DIM)
        self.affine_output = nn.Linear(DIM, 1)

    def forward(self, items: Tensor) -> Tensor:
        out: Tensor = self.affine_output(self.embedding_item(items)).view(-1)
        return out


class Personal(nn.Module):
    """A user's vector, layers and a normalisation: FedRep's, FedPer's, FedBN's and GPFedRec's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding_user = nn.Embedding(1, DIM)
        self.embedding_item = nn.Embedding(ITEMS, DIM)
        self.body = nn.Linear(2 * DIM, DIM)
        self.norm = nn.BatchNorm1d(DIM)
        self.head = nn.Linear(DIM, 1)

    def forward(self, items: Tensor) -> Tensor:
        user = self.embedding_user(torch.zeros_like(items))
        hidden = self.body(torch.cat([user, self.embedding_item(items)], dim=1))
        out: Tensor = self.head(torch.relu(self.norm(hidden))).view(-1)
        return out


def seeded(build: Callable[[], nn.Module], seed: int = 1) -> nn.Module:
    with seeded_torch(seed):
        return build()


class Engine:
    """The shape of public engines: a model to copy, the server's arrays, a state dict per client.

    Args:
        build: the model.
        shared: names that the server gives out.
    """

    def __init__(
        self, build: Callable[[], nn.Module] = Scores, shared: tuple[str, ...] = (ITEM_TABLE,)
    ):
        self.model = seeded(build)
        self.server_model_param = {
            name: value.clone() for name, value in self.model.state_dict().items() if name in shared
        }
        self.client_model_params = {
            user: copy.deepcopy(self.model.state_dict()) for user in range(USERS)
        }

    def loaded(self, user: int) -> Any:
        client = copy.deepcopy(self.model)
        client.load_state_dict({**self.client_model_params[user], **self.server_model_param})
        client.train()
        return client

    def fit(self, client: Any, user: int) -> None:
        optimizer = torch.optim.SGD(client.parameters(), lr=0.1)
        for items, ratings in batches(user):
            descend(client, optimizer, items, ratings)

    def keep(self, client: nn.Module, user: int) -> dict[str, Tensor]:
        self.client_model_params[user] = copy.deepcopy(client.state_dict())
        return copy.deepcopy(self.client_model_params[user])

    def train(self, user: int) -> object:
        client = self.loaded(user)
        self.fit(client, user)
        sent = self.keep(client, user)
        return {name: sent[name] for name in self.server_model_param}


def batches(user: int, size: int = 4) -> list[tuple[Tensor, Tensor]]:
    items, ratings = data(user)
    return [(items[s : s + size], ratings[s : s + size]) for s in range(0, ROWS, size)]


def descend(client: Any, optimizer: Any, items: Tensor, ratings: Tensor) -> float:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(client(items), ratings)
    torch.autograd.backward(loss)
    optimizer.step()
    return float(loss.detach())


def engine(kind: Callable[[], Any] = Engine, **changes: Any) -> Callable[[], Arguments]:
    """Arguments for an engine with states by client."""

    def build() -> Arguments:
        made = kind()
        given: Arguments = {
            "train": made.train,
            "clients": lambda user: made.client_model_params[user],
            "private": ("affine_output.*",),
            "uploads": (ITEM_TABLE,),
            "downloads": lambda: made.server_model_param,
        }
        return {**given, **changes}

    return build


@dataclass
class Factors:
    """Matrix factorization by hand: a vector and a bias per client, items of all."""

    own: dict[int, dict[str, Tensor]] = field(
        default_factory=lambda: {
            user: {"vector": torch.ones(DIM), "bias": torch.ones(1)} for user in range(USERS)
        }
    )
    items: Tensor = field(default_factory=first_items)
    rate: float = 0.05
    epochs: int = 2

    def fit(self, user: int) -> Tensor:
        """The items after local training."""
        own, items = self.own[user], self.items.clone()
        for _ in range(self.epochs):
            for place, rating in zip(*data(user), strict=True):
                item = items[place].clone()
                error = self.error(item @ own["vector"] + own["bias"] - rating)
                items[place] -= self.rate * error * own["vector"]
                own["vector"] -= self.rate * error * item
                own["bias"] -= self.rate * error
        return items

    def error(self, residual: Tensor) -> Tensor:
        return residual

    def train(self, user: int) -> object:
        return self.sent(user, self.fit(user))

    def sent(self, user: int, items: Tensor) -> object:
        return {"items": items}


def factors(kind: Callable[[], Factors] = Factors, **changes: Any) -> Callable[[], Arguments]:
    def build() -> Arguments:
        made = kind()
        given: Arguments = {
            "train": made.train,
            "clients": lambda user: made.own[user],
            "private": ("vector", "bias"),
            "uploads": ("items",),
        }
        return {**given, **changes}

    return build


def sending(
    send: Callable[[Factors, int, Tensor], object], **changes: Any
) -> Callable[[], Arguments]:
    """Factorization that sends something else."""

    class Sending(Factors):
        def sent(self, user: int, items: Tensor) -> object:
            return send(self, user, items)

    return factors(Sending, **changes)


class Table(nn.Module):
    """One module of all users."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(USERS, DIM)
        self.items = nn.Embedding(ITEMS, DIM)
        self.norm = nn.BatchNorm1d(DIM)

    def score(self, user: int, items: Tensor) -> Tensor:
        out: Tensor = self.items(items) @ self.users(torch.tensor(user))
        return out


def table(train: Callable[[Any, int], object], **changes: Any) -> Callable[[], Arguments]:
    def build() -> Arguments:
        model = seeded(Table)
        given: Arguments = {
            "train": lambda user: train(model, user),
            "clients": model,
            "private": ("users.weight",),
            "uploads": ("items.*", "norm.*"),
        }
        return {**given, **changes}

    return build


def items_of(model: Table) -> Mapping[str, Tensor]:
    return {"items.weight": model.items.weight.detach().clone()}
