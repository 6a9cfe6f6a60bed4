"""Client steps that send what is private, and steps of which nothing can be told."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.properties.client_zoo import (
    DIM,
    ITEM_TABLE,
    Arguments,
    Engine,
    Entry,
    Factors,
    Personal,
    batches,
    descend,
    engine,
    factors,
    sending,
)
from tests.properties.client_zoo_engines import GPFedRec
from tests.properties.client_zoo_honest import Solved, solved, to_bytes
from tests.properties.client_zoo_others import own

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


# --- what cannot be told ---

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


SENT: dict[str, Entry] = {
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
}

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
