"""Engines in the shape of published ones, whose clients keep at home what is private."""

import copy
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.properties.client_zoo import (
    DIM,
    ITEM_TABLE,
    ITEMS,
    USERS,
    Engine,
    Personal,
    batches,
    data,
    descend,
)


class PFedRec(Engine):
    """Two optimisers in turn on every batch of a shuffling loader."""

    def fit(self, client: Any, user: int) -> None:
        score = torch.optim.SGD(client.affine_output.parameters(), lr=0.1, weight_decay=0.01)
        items = torch.optim.SGD(client.embedding_item.parameters(), lr=1.0, weight_decay=0.01)
        for places, ratings in DataLoader(TensorDataset(*data(user)), batch_size=4, shuffle=True):
            descend(client, score, places, ratings)
            descend(client, items, places, ratings)


class GPFedRec(Engine):
    """Three optimisers at once, and items that are held to the server's."""

    def __init__(self) -> None:
        super().__init__(Personal)

    def fit(self, client: Any, user: int) -> None:
        parts = (
            [client.body, client.norm, client.head],
            [client.embedding_user],
            [client.embedding_item],
        )
        optimizers = [
            torch.optim.SGD([{"params": each.parameters()} for each in part], lr=rate)
            for part, rate in zip(parts, (0.1, 0.2, 0.3), strict=True)
        ]
        for items, ratings in batches(user):
            for each in optimizers:
                each.zero_grad()
            loss = nn.functional.mse_loss(client(items), ratings)
            loss += (
                (client.embedding_item.weight - self.server_model_param[ITEM_TABLE]).square().mean()
            )
            torch.autograd.backward(loss)
            for each in optimizers:
                each.step()


class TwoViews(nn.Module):
    """FedRAP's model: items of all, and one's own view of them."""

    def __init__(self) -> None:
        super().__init__()
        self.item_commonality = nn.Embedding(ITEMS, DIM)
        self.item_personality = nn.Embedding(ITEMS, DIM)
        self.affine_output = nn.Linear(DIM, 1)

    def forward(self, items: Tensor) -> Tensor:
        views = self.item_commonality(items) + self.item_personality(items)
        out: Tensor = self.affine_output(views).view(-1)
        return out


class FedRAP(Engine):
    """Groups of one optimiser, a schedule by the step, weight decay."""

    def __init__(self) -> None:
        super().__init__(TwoViews, ("item_commonality.weight",))

    def fit(self, client: Any, user: int) -> None:
        groups = [
            {"params": client.affine_output.parameters(), "lr": 0.1},
            {"params": client.item_personality.parameters(), "lr": 0.2},
            {"params": client.item_commonality.parameters(), "lr": 0.2},
        ]
        optimizer = torch.optim.SGD(groups, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
        for items, ratings in batches(user):
            descend(client, optimizer, items, ratings)
            schedule.step()


class FedRep(Engine):
    """The head first, then the body."""

    def __init__(self) -> None:
        super().__init__(Personal, (ITEM_TABLE, "body.weight", "body.bias"))

    def fit(self, client: Any, user: int) -> None:
        own = [
            *client.head.parameters(),
            *client.embedding_user.parameters(),
            *client.norm.parameters(),
        ]
        for part in (own, [*client.body.parameters(), *client.embedding_item.parameters()]):
            optimizer = torch.optim.Adam(part, lr=0.05)
            for items, ratings in batches(user):
                descend(client, optimizer, items, ratings)


class FedBN(Engine):
    """All is averaged but the normalisation, its running statistics included."""

    def __init__(self) -> None:
        names = (
            ITEM_TABLE,
            *(f"{part}.{kind}" for part in ("body", "head") for kind in ("weight", "bias")),
        )
        super().__init__(Personal, (*names, "embedding_user.weight"))


class LoRA(nn.Module):
    """A frozen layer and its adapter, which is all that is sent, and an own head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding_item = nn.Embedding(ITEMS, DIM).requires_grad_(False)
        self.base = nn.Linear(DIM, DIM).requires_grad_(False)
        self.lora_a = nn.Linear(DIM, 2, bias=False)
        self.lora_b = nn.Linear(2, DIM, bias=False)
        nn.init.zeros_(self.lora_b.weight)
        self.affine_output = nn.Linear(DIM, 1)

    def forward(self, items: Tensor) -> Tensor:
        x = self.embedding_item(items)
        out: Tensor = self.affine_output(self.base(x) + self.lora_b(self.lora_a(x))).view(-1)
        return out


class Adapters(Engine):
    def __init__(self) -> None:
        super().__init__(LoRA, ("lora_a.weight", "lora_b.weight"))


class Reused(Engine):
    """One module for all clients, loaded whole for each."""

    def loaded(self, user: int) -> Any:
        self.model.load_state_dict({**self.client_model_params[user], **self.server_model_param})
        return self.model


class OwnMoments(Engine):
    """Every client keeps its moments of Adam from round to round."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: dict[int, Any] = {}

    def fit(self, client: Any, user: int) -> None:
        optimizer = torch.optim.Adam(client.parameters(), lr=0.05)
        if user in self.moments:
            optimizer.load_state_dict(copy.deepcopy(self.moments[user]))
        for items, ratings in batches(user):
            descend(client, optimizer, items, ratings)
        self.moments[user] = copy.deepcopy(optimizer.state_dict())


class Sampled(Engine):
    """Draws of ``random``, of NumPy's and torch's generators, and of one of the engine's own."""

    def __init__(self) -> None:
        super().__init__()
        self.draw = np.random.default_rng(3)

    def fit(self, client: Any, user: int) -> None:
        optimizer = torch.optim.SGD(client.parameters(), lr=0.1)
        items, ratings = data(user)
        order = torch.from_numpy(np.random.permutation(len(items)))  # noqa: NPY002
        negatives = torch.tensor([random.randrange(ITEMS) for _ in items])
        negatives[0] = int(self.draw.integers(ITEMS))
        descend(client, optimizer, items[order], nn.functional.dropout(ratings[order], 0.2))
        descend(client, optimizer, negatives, torch.zeros(len(items)))


class OwnLoaders(Engine):
    """Every client has a loader, with a generator of its own, that lives from round to round."""

    def __init__(self) -> None:
        super().__init__()
        draws = [torch.Generator().manual_seed(user) for user in range(USERS)]
        self.loaders = [
            DataLoader(TensorDataset(*data(user)), batch_size=4, shuffle=True, generator=draw)
            for user, draw in enumerate(draws)
        ]

    def fit(self, client: Any, user: int) -> None:
        optimizer = torch.optim.SGD(client.parameters(), lr=0.1)
        for items, ratings in self.loaders[user]:
            descend(client, optimizer, items, ratings)


class Ranked(Engine):
    """BPR with sampled negatives."""

    def fit(self, client: Any, user: int) -> None:
        optimizer = torch.optim.AdamW(client.parameters(), lr=0.05, weight_decay=0.1)
        for items, _ in batches(user):
            optimizer.zero_grad()
            gap = client(items) - client(torch.randint(ITEMS, items.shape))
            loss = -nn.functional.logsigmoid(gap).mean()
            torch.autograd.backward(loss + client.affine_output.bias.square().sum())
            optimizer.step()
