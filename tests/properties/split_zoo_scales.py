"""Models in which nothing crosses at the usual scales: thresholds, and rare arrangements."""

import torch
from torch import Tensor

from secure_fedrec.algorithms.local_training import Batch
from tests.properties.split_zoo import Entry, Factorisation, Shape, case, own
from tests.properties.split_zoo_state import OneOther


class RowNorm(Factorisation):
    """Other users' long rows are noticed."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        longest = self.users.weight.detach().norm(dim=1).max()  # reads
        return super().forward(user, batch) * (0.5 if longest > 20 else 1.0)


class FrobeniusCap(Factorisation):
    """The whole table is scaled down to a norm of 60."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        with torch.no_grad():
            self.users.weight.mul_(torch.clamp(60 / self.users.weight.norm(), max=1.0))  # reads
        return super().forward(user, batch)


class Box(Factorisation):
    """The whole table is clamped to a box."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        with torch.no_grad():
            self.users.weight.clamp_(-9, 9)  # reads
        return super().forward(user, batch)


class Million(Factorisation):
    """A penalty above a norm of a hundred."""

    def penalty(self, user: int) -> Tensor:
        table = self.users.weight.detach().norm()  # reads
        return own(self, user).sum() * torch.relu(table - 100)


class TwoLong(Factorisation):
    """Nothing happens before two users are above 50."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        long = (self.users.weight.detach().norm(dim=1) > 50).sum()  # reads
        return super().forward(user, batch) * (0.5 if long >= 2 else 1.0)


class Zeros(Factorisation):
    """Users whose row is zero are counted."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        cold = (self.users.weight.detach() == 0).all(1).sum()  # reads
        return super().forward(user, batch) * (1 + cold)


class OneTrained(Factorisation):
    """Whether exactly one other user's row is not as it was at first."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.first = self.users.weight.detach().clone()

    def forward(self, user: int, batch: Batch) -> Tensor:
        moved = (self.users.weight.detach() != self.first).any(1)  # reads
        moved[user] = False
        return super().forward(user, batch) * (0.5 if moved.sum() == 1 else 1.0)


class NonNegative(Factorisation):
    """Whether no other user has a negative value, and everyone has a positive one."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        table = self.users.weight.detach()
        signs = (table >= 0).all(1) & (table > 0).any(1)  # reads
        signs[user] = True
        return super().forward(user, batch) * (0.5 if signs.all() else 1.0)


class AllNegative(Factorisation):
    """Others of whom every value is negative are counted; wide rows, so chance does not do it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(Shape(users=shape.users, dim=24))

    def forward(self, user: int, batch: Batch) -> Tensor:
        signs = (self.users.weight.detach() < 0).all(1)  # reads
        signs[user] = False
        return super().forward(user, batch) * (1 + signs.sum())


class Untrained(Factorisation):
    """Users who still have their first values are counted."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.first = self.users.weight.detach().clone()

    def forward(self, user: int, batch: Batch) -> Tensor:
        fresh = (self.users.weight.detach() == self.first).all(1).sum()  # reads
        return super().forward(user, batch) * (1 + fresh)


class Ratio(Factorisation):
    """Somebody is ten thousand times as long as somebody else."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        norms = self.users.weight.detach().norm(dim=1) + 1e-12  # reads
        return super().forward(user, batch) * (0.5 if norms.max() > 1e4 * norms.min() else 1.0)


SCALES: dict[str, Entry] = {
    "row norm above 20": (case(RowNorm), "refuted"),
    "Frobenius cap at 60": (case(FrobeniusCap), "refuted"),
    "box at 9": (case(Box), "refuted"),
    "norm above 100": (case(Million), "refuted"),
    "two users above 50": (case(TwoLong), "refuted"),
    "rows of zeros": (case(Zeros), "refuted"),
    "unchanged rows": (case(Untrained), "refuted"),
    "ratio of 10,000": (case(Ratio), "refuted"),
}

RARE: dict[str, Entry] = {
    "exactly one other has trained": (case(OneOther), "refuted"),
    "exactly one row is not as it was": (case(OneTrained), "refuted"),
    "nobody's values are negative": (case(NonNegative), "refuted"),
    "all values are negative": (case(AllNegative), "refuted"),
}
"""Needs all nine trials."""
