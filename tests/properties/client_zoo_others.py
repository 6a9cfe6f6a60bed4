"""Client steps that meet other clients."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.properties.client_zoo import (
    ITEM_TABLE,
    USERS,
    Arguments,
    Engine,
    Entry,
    Factors,
    batches,
    descend,
    engine,
    factors,
    items_of,
    table,
)
from tests.properties.client_zoo_engines import Reused

BIAS, WEIGHT = "affine_output.bias", "affine_output.weight"
STRAY = "local training"


def own(made: Factors, user: int) -> Tensor:
    return made.own[user]["vector"]


def decayed(model: Any, user: int) -> object:
    """Weight decay shrinks all rows of the table."""
    optimizer = torch.optim.SGD([model.users.weight, model.items.weight], lr=0.1, weight_decay=0.1)
    for places, ratings in batches(user):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.mse_loss(model.score(user, places), ratings))
        optimizer.step()
    return items_of(model)


def one_adam() -> Arguments:
    """One Adam for all: its moments go on moving the rows of those who trained before."""
    given = table(lambda model, user: None)()
    model: Any = given["clients"]
    optimizer = torch.optim.Adam([model.users.weight], lr=0.05)
    items = torch.optim.SGD([model.items.weight], lr=0.05)

    def train(user: int) -> object:
        for places, ratings in batches(user):
            optimizer.zero_grad()
            items.zero_grad()
            torch.autograd.backward(nn.functional.mse_loss(model.score(user, places), ratings))
            optimizer.step()
            items.step()
        return items_of(model)

    return {**given, "train": train}


def batch_norm_of_all(model: Any, user: int) -> object:
    """Statistics that nobody averages go from user to user."""
    places, ratings = batches(user)[0]
    optimizer = torch.optim.SGD([model.users.weight, model.items.weight], lr=0.1)
    optimizer.zero_grad()
    scores = model.norm(model.items(places) * model.users(torch.tensor(user)).detach())
    torch.autograd.backward(
        nn.functional.mse_loss(scores.sum(1) + model.score(user, places), ratings)
    )
    optimizer.step()
    return items_of(model)


def norm_of_all(model: Any, user: int) -> object:
    optimizer = torch.optim.SGD([model.users.weight, model.items.weight], lr=0.1)
    places, ratings = batches(user)[0]
    rate = 0.1 / (1 + float(model.users.weight.norm().detach()))
    optimizer.param_groups[0]["lr"] = rate
    optimizer.zero_grad()
    torch.autograd.backward(nn.functional.mse_loss(model.score(user, places), ratings))
    optimizer.step()
    return items_of(model)


class Aliased(Engine):
    """One copy of the state for all clients."""

    def __init__(self) -> None:
        super().__init__()
        shared = copy.deepcopy(self.model.state_dict())
        self.client_model_params = {user: dict(shared) for user in range(USERS)}


class NotCopied(Reused):
    """``state_dict()`` of the reused module is kept as it is: the next client trains in it."""

    def keep(self, client: nn.Module, user: int) -> dict[str, Tensor]:
        self.client_model_params[user] = client.state_dict()
        return copy.deepcopy(self.client_model_params[user])


class Leftover(Reused):
    """Into the reused module goes what the server sent; of one's own only the bias."""

    def loaded(self, user: int) -> Any:
        mine = self.client_model_params[user]
        self.model.load_state_dict({**self.server_model_param, BIAS: mine[BIAS]}, strict=False)
        weight: Any = self.model.affine_output.weight  # type: ignore[union-attr]
        with torch.no_grad():
            weight.copy_(0.9 * mine[WEIGHT] + 0.1 * weight)
        return self.model


class OneSchedule(Engine):
    """One schedule for all clients: who trains later trains less."""

    def __init__(self) -> None:
        super().__init__()
        self.optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda n: 1 / (1 + n))

    def fit(self, client: Any, user: int) -> None:
        optimizer = torch.optim.SGD(client.parameters(), lr=self.schedule.get_last_lr()[0])
        for items, ratings in batches(user):
            descend(client, optimizer, items, ratings)
        self.optimizer.step()
        self.schedule.step()


class OneMoments(Engine):
    """One Adam for all clients' copies: moments of others are in one's steps."""

    state: Any = None

    def fit(self, client: Any, user: int) -> None:
        optimizer = torch.optim.Adam(client.parameters(), lr=0.05)
        if self.state is not None:
            optimizer.load_state_dict(copy.deepcopy(self.state))
        for items, ratings in batches(user):
            descend(client, optimizer, items, ratings)
        self.state = copy.deepcopy(optimizer.state_dict())


class SharedLosses(Engine):
    """Training ends early by the losses of all."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def fit(self, client: Any, user: int) -> None:
        optimizer = torch.optim.SGD(client.parameters(), lr=0.1)
        for items, ratings in batches(user):
            self.losses.append(descend(client, optimizer, items, ratings))
            if self.losses[-1] > min(self.losses):
                break


class MeanOfItems(Engine):
    """Every client begins with the mean of what all clients keep."""

    def loaded(self, user: int) -> Any:
        client = super().loaded(user)
        kept = [state[ITEM_TABLE] for state in self.client_model_params.values()]
        client.embedding_item.weight.data.copy_(torch.stack(kept).mean(0))
        return client


class OneOptimizer(Reused):
    """The module is loaded whole, and its Adam is not."""

    def __init__(self) -> None:
        super().__init__()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def fit(self, client: Any, user: int) -> None:
        for items, ratings in batches(user):
            descend(client, self.optimizer, items, ratings)


class Snapshot(Factors):
    """A client notes others' vectors when it first trains, and trains less once they differ."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[int, list[Tensor]] = {}

    def fit(self, user: int) -> Tensor:
        others = [own(self, other).clone() for other in self.own if other != user]
        same = all(map(torch.equal, self.first.setdefault(user, others), others))
        self.rate = 0.05 if same else 0.01
        return super().fit(user)


class Since(Factors):
    """A client trains less if others have trained since it has."""

    last: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.trained: set[int] = set()

    def fit(self, user: int) -> Tensor:
        self.rate = 0.01 if user in self.trained and user != self.last else 0.05
        self.trained.add(user)
        self.last = user
        return super().fit(user)


class FirstSeen(Factors):
    """All vectors are drawn to the first one that trained."""

    def fit(self, user: int) -> Tensor:
        self.__dict__.setdefault("first", own(self, user).clone())
        items = super().fit(user)
        own(self, user).sub_(0.01 * (own(self, user) - self.__dict__["first"]))
        return items


def looking(trait: Callable[[Tensor, list[Tensor]], bool]) -> Callable[[], Arguments]:
    """Who sees something in others' vectors trains less."""

    class Looking(Factors):
        def fit(self, user: int) -> Tensor:
            others = [self.own[other]["vector"] for other in self.own if other != user]
            self.rate = 0.01 if trait(own(self, user), others) else 0.05
            return super().fit(user)

    return factors(Looking)


class Neighbour(Factors):
    """The next client's bias is moved, too."""

    def fit(self, user: int) -> Tensor:
        self.own[(user + 1) % USERS]["bias"] += 0.01
        return super().fit(user)


READS_VECTOR = {("reads", "vector")}

OTHERS: dict[str, Entry] = {
    "weight decay over all rows": Entry(table(decayed), "refuted", {("writes", "users.weight")}),
    "one Adam over all rows": Entry(
        one_adam, "refuted", {("writes", "users.weight"), ("reads", STRAY)}
    ),
    "statistics of all users": Entry(
        table(batch_norm_of_all, uploads=("items.*",)), "refuted", {("reads", "users.weight")}
    ),
    "a norm of all users": Entry(table(norm_of_all), "refuted", {("reads", "users.weight")}),
    "one copy for all clients": Entry(
        engine(Aliased), "refuted", {("writes", BIAS), ("writes", WEIGHT)}
    ),
    "a state that is not copied": Entry(
        engine(NotCopied), "refuted", {("writes", BIAS), ("writes", WEIGHT), ("reads", STRAY)}
    ),
    "left in a reused module": Entry(engine(Leftover), "refuted", {("reads", WEIGHT)}),
    "one schedule of all": Entry(engine(OneSchedule), "refuted", {("reads", STRAY)}),
    "moments of all": Entry(engine(OneMoments), "refuted", {("reads", WEIGHT)}),
    "others' items": Entry(engine(MeanOfItems), "refuted", {("reads", WEIGHT)}),
    "one optimiser for a reused module": Entry(
        engine(OneOptimizer), "refuted", {("reads", WEIGHT)}
    ),
    "others changed since": Entry(factors(Snapshot), "refuted", READS_VECTOR),
    "who has trained since": Entry(factors(Since), "refuted", {("reads", STRAY)}),
    "losses of all": Entry(engine(SharedLosses), "refuted", {("reads", STRAY)}),
    "the first that trained": Entry(factors(FirstSeen), "refuted", READS_VECTOR),
    "the next one's bias": Entry(factors(Neighbour), "refuted", {("writes", "bias")}),
    "who is equal": Entry(
        looking(lambda mine, others: any(torch.equal(mine, each) for each in others)),
        "refuted",
        READS_VECTOR,
    ),
    "who is near": Entry(
        looking(lambda mine, others: any(0 < (mine - each).norm() < 1e-3 for each in others)),
        "refuted",
        READS_VECTOR,
    ),
    "who is opposite": Entry(
        looking(
            lambda mine, others: any(
                torch.cosine_similarity(mine, each, 0) < -0.99 for each in others
            )
        ),
        "refuted",
        READS_VECTOR,
    ),
    "who is large": Entry(
        looking(lambda mine, others: any(each.norm() > 50 for each in others)),
        "refuted",
        READS_VECTOR,
    ),
    "who is zero": Entry(
        looking(lambda mine, others: not any(each.any() for each in others)),
        "refuted",
        READS_VECTOR,
    ),
}
