"""Client steps that send what is private, or meet other clients'; and what cannot be told."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.properties.client_zoo import (
    DIM,
    ITEM_TABLE,
    USERS,
    Arguments,
    Engine,
    Entry,
    Factors,
    Personal,
    batches,
    descend,
    engine,
    factors,
    items_of,
    sending,
    table,
)
from tests.properties.client_zoo_honest import GPFedRec, Reused, Solved, solved, to_bytes

BIAS, WEIGHT = "affine_output.bias", "affine_output.weight"
STRAY = "local training"

# --- what is sent ---


def uploads_all_but(*dropped: str) -> Callable[[], Any]:
    class Leaky(Engine):
        def train(self, user: int) -> object:
            client = self.loaded(user)
            self.fit(client, user)
            sent = self.keep(client, user)
            for name in dropped:
                del sent[name]
            return sent

    return Leaky


class WithOptimizer(Engine):
    """A checkpoint, with the moments of its own layer."""

    def train(self, user: int) -> object:
        client = self.loaded(user)
        optimizer = torch.optim.Adam(client.parameters(), lr=0.05)
        for items, ratings in batches(user):
            descend(client, optimizer, items, ratings)
        state = {"exp_avg": [each["exp_avg"] for each in optimizer.state.values()]}
        return {ITEM_TABLE: self.keep(client, user)[ITEM_TABLE], "optimizer": state}


class UploadsUser(GPFedRec):
    """As the published code: the graph of users is made of their embeddings."""

    def train(self, user: int) -> object:
        client = self.loaded(user)
        self.fit(client, user)
        sent = self.keep(client, user)
        return {name: sent[name] for name in (ITEM_TABLE, "embedding_user.weight")}


class Changing(Factors):
    """The change of one's own vector, added as a row."""

    def train(self, user: int) -> object:
        before = self.own[user]["vector"].clone()
        items = self.fit(user)
        return {"items": torch.cat([items, (self.own[user]["vector"] - before)[None]])}


def own(made: Factors, user: int) -> Tensor:
    return made.own[user]["vector"]


def beside(hide: Callable[[Tensor], Tensor]) -> Callable[[], Arguments]:
    """The own vector beside the items, in some form."""
    return sending(
        lambda made, user, items: {"items": {"a": items, "b": hide(own(made, user))}},
        uploads=("items.*",),
    )


def appended(made: Factors, user: int, items: Tensor) -> object:
    return {"items": torch.cat([items.flatten(), own(made, user), torch.ones(3)])}


def transposed(made: Factors, user: int, items: Tensor) -> object:
    return {"items": torch.cat([items, own(made, user)[None]]).T}


def as_numbers(made: Factors, user: int, items: Tensor) -> object:
    return {"items": items, "figures": {"b": own(made, user).tolist()}}


def bias_as_loss(made: Factors, user: int, items: Tensor) -> object:
    return {"items": items, "loss": 7 * float(made.own[user]["bias"])}


def vector_found() -> set[tuple[str, str]]:
    return {("value", "vector")}


# --- what meets other clients ---


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


COUNT = itertools.count()


class Counted(Factors):
    """A counter of all calls that no one can put back."""

    def fit(self, user: int) -> Tensor:
        self.rate = 0.05 / (1 + next(COUNT))
        return super().fit(user)


class Unread(Factors):
    """The bias is in no score."""

    def fit(self, user: int) -> Tensor:
        bias = self.own[user]["bias"].clone()
        self.own[user]["bias"].zero_()
        items = super().fit(user)
        self.own[user]["bias"].copy_(bias)
        return items


class Diverging(Factors):
    def error(self, residual: Tensor) -> Tensor:
        return residual * 1e30


class SolvedAndSent(Solved):
    def sent(self, user: int, items: Tensor) -> object:
        return {"items": torch.cat([items, own(self, user)[None]])}


class SendsLast(Factors):
    """What is sent is right, but for the vector that the last training ended with."""

    def sent(self, user: int, items: Tensor) -> object:
        last = self.__dict__.setdefault("last", {})
        sent = {"items": torch.cat([items, last.get(user, torch.zeros(DIM))[None]])}
        last[user] = own(self, user).clone()
        return sent


def chosen(made: Factors, user: int, items: Tensor) -> object:
    return {"items": items[(items @ own(made, user)) > 0]}


READS_VECTOR = {("reads", "vector")}

BROKEN: dict[str, Entry] = {
    "PFedRec as published": Entry(
        engine(uploads_all_but(WEIGHT)), "refuted", {("name", BIAS), ("value", BIAS)}
    ),
    "the whole state dict": Entry(
        engine(uploads_all_but()),
        "refuted",
        {(kind, name) for kind in ("name", "value") for name in (BIAS, WEIGHT)},
    ),
    "all of it is allowed": Entry(
        engine(uploads_all_but(), uploads=("*",)),
        "refuted",
        {(kind, name) for kind in ("name", "value") for name in (BIAS, WEIGHT)},
    ),
    "moments of the own layer": Entry(
        engine(WithOptimizer),
        "refuted",
        {("name", f"optimizer.exp_avg.{number}") for number in range(3)},
    ),
    "GPFedRec as published": Entry(
        engine(UploadsUser, private=("embedding_user.*", "body.*", "norm.*", "head.*")),
        "refuted",
        {(kind, "embedding_user.weight") for kind in ("name", "value")},
    ),
    "FedPer without its normalisation": Entry(
        engine(
            lambda: Engine(Personal, (ITEM_TABLE, "norm.running_mean")),
            private=("head.*", "embedding_user.*", "body.*"),
            uploads=("embedding_item.*",),
        ),
        "refuted",
        {("name", "norm.running_mean")},
    ),
    "a figure that nobody named": Entry(
        sending(lambda _made, _user, items: {"items": items, "loss": 0.5}),
        "refuted",
        {("name", "loss")},
    ),
    "the vector under a name that may be sent": Entry(
        beside(lambda v: v), "refuted", vector_found()
    ),
    "the vector times -3": Entry(beside(lambda v: -3 * v), "refuted", vector_found()),
    "the vector in half precision": Entry(beside(lambda v: v.half()), "refuted", vector_found()),
    "the vector in bfloat16": Entry(beside(lambda v: v.bfloat16()), "refuted", vector_found()),
    "the vector over its norm": Entry(beside(lambda v: v / v.norm()), "refuted", vector_found()),
    "the vector in 8 bits": Entry(
        beside(lambda v: (25 * v).round().clamp(-127, 127).to(torch.int8)),
        "refuted",
        vector_found(),
    ),
    "the vector's bits": Entry(beside(lambda v: v.view(torch.int32)), "refuted", vector_found()),
    "the vector's bytes": Entry(beside(lambda v: v.view(torch.uint8)), "refuted", vector_found()),
    "the vector in a complex number": Entry(
        beside(lambda v: v.view(torch.complex64)), "refuted", vector_found()
    ),
    "most of the vector": Entry(
        beside(lambda v: torch.cat([torch.zeros(1), v[1:], v])), "refuted", vector_found()
    ),
    "appended to what is flat": Entry(sending(appended), "refuted", vector_found()),
    "a column of what is transposed": Entry(sending(transposed), "refuted", vector_found()),
    "a list of numbers": Entry(
        sending(as_numbers, uploads=("items", "figures.*")), "refuted", vector_found()
    ),
    "a bias as the loss": Entry(
        sending(bias_as_loss, uploads=("items", "loss")), "refuted", {("value", "bias")}
    ),
    "the change of the vector": Entry(factors(Changing), "refuted", vector_found()),
    "solved and sent": Entry(solved(SolvedAndSent), "refuted", vector_found()),
    "sent by the next training": Entry(factors(SendsLast), "refuted", vector_found()),
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

# --- what cannot be told ---

OPEN: dict[str, Entry] = {
    "solved from what nobody gave": Entry(solved(Solved, downloads=None), "open"),
    "bytes that nobody reads": Entry(sending(to_bytes), "open"),
    "nothing": Entry(sending(lambda *_: None, uploads=("",)), "open"),
    "empty arrays": Entry(sending(lambda *_: {"items": torch.zeros(0, DIM)}), "open"),
    "an unknown type": Entry(
        sending(lambda _made, _user, items: {"items": items, "more": {1, 2}}, uploads=("*",)),
        "open",
    ),
    "a counter of all calls": Entry(factors(Counted), "open"),
    "a whole module": Entry(sending(lambda *_: {"items": nn.Linear(2, 2)}), "open"),
    "a private value without use": Entry(factors(Unread), "open"),
    "divergence": Entry(factors(Diverging), "open"),
    "shapes that tell": Entry(sending(chosen), "open"),
    "a text that tells": Entry(
        sending(
            lambda made, user, items: {"items": items, "note": f"{own(made, user)[0]:.2f}"},
            uploads=("*",),
        ),
        "open",
    ),
}
