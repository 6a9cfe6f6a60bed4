"""Client steps that send what is private in a form to be undone, and honest ones near them.

The server can take off what it gave, look at its own arrays afterwards, and read a row wherever it
stands.
"""

import copy
from collections.abc import Callable
from typing import Any

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
    batches,
    engine,
    first_items,
)

Hide = Callable[["Served", int, Tensor], object]


class Served(Factors):
    """Factorization beside a table of one's own; the server gives the items, and a spare row."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(3)
        for user, own in self.own.items():
            own["table"] = torch.randn(ITEMS, DIM, generator=draw)
            own["seen"] = torch.randint(ITEMS, (6,), generator=draw) + user
            own["rated"] = torch.rand(ITEMS, generator=draw) > 0.5
            own["run"] = torch.arange(4) + user
            own["group"] = torch.arange(5) == user
        self.given = {
            "items": first_items(),
            "spare": torch.zeros(DIM),
            "ids": torch.arange(200),
        }

    def fit(self, user: int) -> Tensor:
        self.items = self.given["items"]
        table = self.own[user]["table"]
        table -= 0.01 * torch.tanh(table + self.items.mean())
        return super().fit(user)


def served(
    hide: Hide, kind: "Callable[[], Served] | None" = None, **changes: Any
) -> Callable[[], Arguments]:
    """Sends the items and ``extra``, which hides something."""

    def build() -> Arguments:
        made = (kind or Served)()
        given: Arguments = {
            "train": lambda user: {
                "items": (items := made.fit(user)),
                "extra": hide(made, user, items),
            },
            "clients": lambda user: made.own[user],
            "private": ("vector", "bias", "table", "seen", "rated", "group", "run"),
            "uploads": ("items", "extra"),
            "downloads": lambda: made.given,
        }
        return {**given, **changes}

    return build


def written(made: Served, user: int, _items: Tensor) -> object:
    made.given["spare"].copy_(made.own[user]["vector"])
    return torch.zeros(2)


def in_a_row(made: Served, user: int, items: Tensor) -> object:
    own, sent = made.own[user]["vector"], items.clone()
    sent[int(1000 * own[0].abs()) % ITEMS] = own
    return sent


def at_times(made: Served, user: int, _items: Tensor) -> object:
    own = made.own[user]["vector"]
    return own if own[0] > own[1] else torch.zeros(DIM)


def a_part(factor: float) -> Hide:
    return lambda made, user, _items: (
        (1 - factor) * made.given["items"] + factor * made.own[user]["table"]
    )


def on_top(made: Served, user: int, _items: Tensor) -> object:
    sent = made.given["items"].clone()
    sent[7] += made.own[user]["vector"]
    return sent


def in_order(made: Served, user: int, _items: Tensor) -> object:
    own = made.own[user]["vector"]
    names = ("a", "b") if own[0] > own[1] else ("b", "a")
    return dict.fromkeys(names, torch.ones(2))


def quantized(made: Served, user: int, _items: Tensor) -> object:
    own = made.own[user]["table"]
    return ((own - own.min()) / (own.max() - own.min()) * 255).round().to(torch.uint8)


class Refreshed(Served):
    """A private copy of what was given, sent by nobody."""

    def fit(self, user: int) -> Tensor:
        items = super().fit(user)
        self.own[user]["table"].copy_(0.9 * self.given["items"])
        self.own[user]["table"][0] += torch.tanh(self.own[user]["vector"])
        return items


def sparse(made: Served, _user: int, items: Tensor) -> object:
    """A number of its own for one item, as a change of biases has."""
    change = torch.zeros(3 * ITEMS)
    change[5] = items.sum()
    return change


class Frozen(Engine):
    """FedBN whose normalisation is frozen: a variance below zero would have no root."""

    def loaded(self, user: int) -> Any:
        return super().loaded(user).eval()


class Tied(nn.Module):
    """One layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding_item = nn.Embedding(ITEMS, DIM)
        self.head = nn.Linear(DIM, 1)
        self.again = self.head

    def forward(self, items: Tensor) -> Tensor:
        out: Tensor = self.again(self.embedding_item(items)).view(-1)
        return out


def tied() -> Arguments:
    models = {user: Tied() for user in range(USERS)}
    table = {ITEM_TABLE: models[0].embedding_item.weight.detach().clone()}

    def train(user: int) -> object:
        models[user].load_state_dict({**models[user].state_dict(), **table})
        Engine.fit(Engine(Tied), models[user], user)
        return {ITEM_TABLE: models[user].embedding_item.weight.detach().clone()}

    return {
        "train": train,
        "clients": lambda user: models[user],
        "private": ("head.*", "again.*"),
        "uploads": (ITEM_TABLE,),
        "downloads": table,
    }


class Slotted:
    """A client's state without a dict."""

    __slots__ = ("vector",)

    def __init__(self) -> None:
        self.vector = torch.ones(DIM)


def slotted() -> Arguments:
    clients = {user: Slotted() for user in range(USERS)}

    def train(user: int) -> object:
        clients[user].vector = torch.tanh(clients[user].vector + 0.1)
        return {"items": torch.ones(3) * len(batches(user)), "b": clients[user].vector}

    return {
        "train": train,
        "clients": lambda user: clients[user],
        "private": ("vector",),
        "uploads": ("items", "b"),
    }


def regressor(hide: bool, network: bool = False) -> Callable[[], Arguments]:
    """An estimator of scikit-learn, which counts its steps; a network has an optimiser as well."""

    def build() -> Arguments:
        from sklearn.linear_model import SGDRegressor
        from sklearn.neural_network import MLPRegressor

        def made() -> Any:
            if network:
                return MLPRegressor(hidden_layer_sizes=(3,), solver="adam", random_state=0)
            return SGDRegressor(random_state=0)

        draw = torch.Generator().manual_seed(2)
        features = torch.randn(8, DIM, generator=draw).numpy()
        clients = {user: made() for user in range(USERS)}
        for user, each in clients.items():
            each.partial_fit(features, features[:, 0] * (1 + user))

        def train(user: int) -> object:
            clients[user].partial_fit(features, features[:, 1] * (1 + user))
            mean = clients[user].predict(features).mean()
            return {"items": clients[user].coef_.copy() if hide else [float(mean), 1.0]}

        return {
            "train": train,
            "clients": copy.copy(clients),
            "private": ("coefs_.*", "intercepts_.*") if network else ("coef_", "intercept_"),
            "uploads": ("items",),
        }

    return build


def found(*names: str) -> set[tuple[str, str]]:
    return {("value", name) for name in names}


DISGUISED: dict[str, Entry] = {
    "a row on top of what was given": Entry(served(on_top), "refuted", found("vector")),
    "a mean with what was given": Entry(served(a_part(0.02)), "refuted", found("table")),
    "nothing but what was given": Entry(served(a_part(0.0))),
    "written at the server": Entry(served(written), "refuted", found("vector")),
    "at a row that it chooses": Entry(served(in_a_row), "refuted", found("vector")),
    "where it says so": Entry(served(at_times), "refuted", found("vector")),
    "a table turned and flat": Entry(
        served(lambda made, user, _: made.own[user]["table"].T.flatten()),
        "refuted",
        found("table"),
    ),
    "a table in 8 bits of its range": Entry(served(quantized), "refuted", found("table")),
    "items that were seen": Entry(
        served(lambda made, user, _: made.own[user]["seen"].clone()), "refuted", found("seen")
    ),
    "items that were seen, over 7": Entry(
        served(lambda made, user, _: torch.cat([torch.ones(3), made.own[user]["seen"] / 7])),
        "refuted",
        found("seen"),
    ),
    "who rated what": Entry(
        served(lambda made, user, _: made.own[user]["rated"].float()), "refuted", found("rated")
    ),
    "an order that tells": Entry(served(in_order, uploads=("items", "extra.*")), "open", found()),
    "a state without a dict": Entry(slotted, "refuted", found("vector")),
    "a copy of what was given, and nothing": Entry(
        served(lambda made, _user, _items: torch.zeros(ITEMS, DIM), Refreshed)
    ),
    "numbers in a row that everybody was given": Entry(
        served(lambda made, _user, _items: made.given["ids"].clone())
    ),
    "one number of many": Entry(served(sparse)),
    "an estimator": Entry(regressor(hide=False)),
    "an estimator with an optimiser": Entry(regressor(hide=False, network=True)),
    "an estimator that is sent": Entry(regressor(hide=True), "refuted", found("coef_")),
    "a frozen normalisation": Entry(
        engine(
            lambda: Frozen(Personal), private=("norm.*", "embedding_user.*"), uploads=(ITEM_TABLE,)
        )
    ),
    "a layer under two names": Entry(tied),
}
