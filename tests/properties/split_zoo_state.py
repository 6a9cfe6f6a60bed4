"""Models whose users meet past the parameters.

Every entry has the verdict that is due: "refuted", "holds", or "open" (a gap).
"""

from functools import cache
from typing import ClassVar

import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_training import Batch
from tests.properties.split_zoo import Case, Entry, Factorisation, Shape, case, own
from tests.properties.split_zoo_gradients import (
    COMPLEX,
    Accumulated,
    AccumulatedGradient,
    BackwardHook,
    CheckpointedTable,
    ComplexTable,
    GradientHook,
    HiddenInCheckpoint,
    HiddenLeaf,
    HiddenModules,
    Imaginary,
    ImaginaryGradient,
)
from tests.properties.split_zoo_places import (
    ClassAttribute,
    InImported,
    InModule,
    InNamespace,
    InUserDict,
    NextBatch,
    ParameterAttribute,
    TwoReaders,
    second_step,
)

# --- state past the parameters ---


class Bank(Factorisation):
    """Every user's vector is banked when it is used; the mean of the bank is in every loss."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.bank: dict[int, Tensor] = {}

    def penalty(self, user: int) -> Tensor:
        self.bank[user] = own(self, user).detach().clone()
        return own(self, user) @ torch.stack(list(self.bank.values())).mean(0)  # reads


class TensorBank(Factorisation):
    """The same in a tensor that is no buffer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.bank = torch.zeros(shape.users, shape.dim)

    def penalty(self, user: int) -> Tensor:
        self.bank[user] = own(self, user).detach()
        return own(self, user) @ self.bank.mean(0)  # reads


class DataBank(Factorisation):
    """Written through ``.data``, which no version counter sees."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.bank = torch.zeros(shape.dim)

    def penalty(self, user: int) -> Tensor:
        mixed = own(self, user) @ self.bank.clone()  # reads
        self.bank.data.mul_(0.5).add_(own(self, user).detach())
        return mixed


class LastUser(Factorisation):
    """The last user's vector."""

    last: Tensor | None = None

    def penalty(self, user: int) -> Tensor:
        before, self.last = self.last, own(self, user).detach().clone()
        return torch.zeros(()) if before is None else before @ own(self, user)  # reads


class Seen(Factorisation):
    """Every loss is divided by the number of users that have trained."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.seen: set[int] = set()

    def forward(self, user: int, batch: Batch) -> Tensor:
        self.seen.add(user)
        return super().forward(user, batch) / len(self.seen)  # reads


class FirstSeen(Factorisation):
    """A user's vector is banked the first time, and never again."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.bank: dict[int, Tensor] = {}

    def penalty(self, user: int) -> Tensor:
        self.bank.setdefault(user, own(self, user).detach().clone())
        return own(self, user) @ torch.stack(list(self.bank.values())).mean(0)  # reads


CALLED: dict[str, float] = {}
EVERYBODY: dict[int, Tensor] = {}
FIRST: dict[int, Tensor] = {}


class GlobalBank(Factorisation):
    """The bank is a global."""

    def penalty(self, user: int) -> Tensor:
        EVERYBODY[user] = own(self, user).detach().clone()
        return own(self, user) @ torch.stack(list(EVERYBODY.values())).mean(0)  # reads


class GlobalFirstSeen(Factorisation):
    """A global that is written once per user."""

    def penalty(self, user: int) -> Tensor:
        FIRST.setdefault(user, own(self, user).detach().clone())
        return own(self, user) @ torch.stack(list(FIRST.values())).mean(0)  # reads


class ClassBank(Factorisation):
    """The bank belongs to the class."""

    bank: ClassVar[dict[int, Tensor]] = {}

    def penalty(self, user: int) -> Tensor:
        self.bank[user] = own(self, user).detach().clone()
        return own(self, user) @ torch.stack(list(self.bank.values())).mean(0)  # reads


def closure_bank(shape: Shape) -> Case:
    """The bank is the loss's own."""
    found = case(Factorisation)(shape)
    bank: dict[int, Tensor] = {}

    def banked(model: nn.Module, user: int, batch: Batch) -> Tensor:
        assert isinstance(model, Factorisation)
        bank.setdefault(user, own(model, user).detach().clone())
        mean = torch.stack(list(bank.values())).mean(0)  # reads
        return found.loss(model, user, batch) + own(model, user) @ mean

    return Case(model=found.model, loss=banked, private=found.private, columns=found.columns)


class Snapshot(Factorisation):
    """The table as it was at first; every loss grows with what has changed of others since."""

    first: Tensor | None = None

    def forward(self, user: int, batch: Batch) -> Tensor:
        table = self.users.weight.detach()
        if self.first is None:
            self.first = table.clone()
        changed = (table - self.first).square()  # reads
        return super().forward(user, batch) * (1 + changed.sum() - changed[user].sum())


class OwnSnapshot(Factorisation):
    """The same, and every user has its own: as it was at its own first training."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.first: dict[int, Tensor] = {}

    def forward(self, user: int, batch: Batch) -> Tensor:
        table = self.users.weight.detach()
        changed = (table - self.first.setdefault(user, table.clone())).square()  # reads
        return super().forward(user, batch) * (1 + changed.sum() - changed[user].sum())


class LaterUser(Factorisation):
    """At its first training a user notes for good whether the next one has trained already."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.noted: dict[int, bool] = {}

    def forward(self, user: int, batch: Batch) -> Tensor:
        noted = self.noted.setdefault(user, user + 1 in self.noted)
        return super().forward(user, batch) * (0.5 if noted else 1.0)  # reads


def cached_norm(shape: Shape) -> Case:
    """The norm of all users, computed once: ``functools`` remembers it."""
    found = case(Factorisation)(shape)

    @cache
    def norm(model: Factorisation) -> float:
        return float(model.users.weight.detach().norm())  # reads

    def cached(model: nn.Module, user: int, batch: Batch) -> Tensor:
        assert isinstance(model, Factorisation)
        out: Tensor = found.loss(model, user, batch) * norm(model)
        return out

    return Case(model=found.model, loss=cached, private=found.private, columns=found.columns)


class CalledLoss:
    """A loss object, whose ``__call__`` fills a global once."""

    def __init__(self, found: Case) -> None:
        self.found = found

    def __call__(self, model: nn.Module, user: int, batch: Batch) -> Tensor:
        assert isinstance(model, Factorisation)
        first = CALLED.setdefault("first", float(own(model, user).detach().sum()))
        return self.found.loss(model, user, batch) * (2 + first)  # reads


def called_loss(shape: Shape) -> Case:
    found = case(Factorisation)(shape)
    return Case(
        model=found.model, loss=CalledLoss(found), private=found.private, columns=found.columns
    )


class Erased(Factorisation):
    """A user remembers its first sum until its neighbour trains."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.first: dict[int, float] = {}

    def forward(self, user: int, batch: Batch) -> Tensor:
        self.first.pop((user + 1) % len(self.users.weight), None)
        first = self.first.setdefault(user, float(own(self, user).detach().sum()))
        return super().forward(user, batch) * (2 + first)  # reads


class OneOther(Factorisation):
    """It matters whether exactly one other user has trained."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.seen: set[int] = set()

    def forward(self, user: int, batch: Batch) -> Tensor:
        self.seen.add(user)
        return super().forward(user, batch) * (0.5 if len(self.seen) == 2 else 1.0)  # reads


class FirstFederated(Factorisation):
    """Everybody is held to the items as they were when anybody trained first."""

    first: Tensor | None = None

    def penalty(self, user: int) -> Tensor:
        if self.first is None:  # reads
            self.first = self.items.weight.detach().clone()
        return (self.items.weight - self.first).square().sum()


class RankLater(Factorisation):
    """How many had trained before its first training matters to a user from the second on."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.rank: dict[int, int] = {}
        self.calls: dict[int, int] = {}

    def forward(self, user: int, batch: Batch) -> Tensor:
        rank = self.rank.setdefault(user, len(self.rank))
        self.calls[user] = self.calls.get(user, 0) + 1
        return super().forward(user, batch) * (1 + rank * (self.calls[user] > 2))  # reads


STATE: dict[str, Entry] = {
    "dict bank": (case(Bank), "refuted"),
    "tensor bank": (case(TensorBank), "refuted"),
    "bank behind .data": (case(DataBank), "refuted"),
    "last user's vector": (case(LastUser), "refuted"),
    "set of seen users": (case(Seen), "refuted"),
    "first-seen cache": (case(FirstSeen), "refuted"),
    "global dict": (case(GlobalBank), "refuted"),
    "global first-seen cache": (case(GlobalFirstSeen), "refuted"),
    "dict of the class": (case(ClassBank), "refuted"),
    "first-seen cache in a closure": (closure_bank, "refuted"),
    "others changed since": (case(Snapshot), "refuted"),
    "others changed since one's first training": (case(OwnSnapshot), "refuted"),
    "whether a later user has trained": (case(LaterUser), "refuted"),
    "cached norm": (cached_norm, "refuted"),
    "attribute that a class gets": (case(ClassAttribute), "refuted"),
    "namespace": (case(InNamespace), "refuted"),
    "global of another module": (case(InModule), "refuted"),
    "global that a loss object fills": (called_loss, "refuted"),
    "erased by a neighbour": (case(Erased), "refuted"),
    "items when anybody first trained": (case(FirstFederated), "refuted"),
    "rank at the first training": (case(RankLater), "refuted"),
    "attribute of a parameter": (case(ParameterAttribute), "refuted"),
    "UserDict": (case(InUserDict), "refuted"),
    "module that is imported late": (case(InImported), "refuted"),
    "one pair of users": (case(TwoReaders), "refuted"),
    "leak in the second step": (second_step, "refuted"),
    "noted in one step, used in the next": (case(NextBatch), "refuted"),
    "post-accumulate hook on values": (case(Accumulated), "refuted"),
    "post-accumulate hook on gradients": (case(AccumulatedGradient), "refuted"),
    "tensor hook": (case(GradientHook), "refuted"),
    "module hook": (case(BackwardHook), "refuted"),
    "leaf that is not a parameter": (case(HiddenLeaf), "open"),
    "modules in a list": (case(HiddenModules), "open"),
    "leaf in a reentrant checkpoint": (case(HiddenInCheckpoint), "open"),
    "complex table": (case(ComplexTable, *COMPLEX), "refuted"),
    "imaginary gradient on another user": (case(Imaginary, *COMPLEX), "refuted"),
    "imaginary part of a federated gradient": (case(ImaginaryGradient, *COMPLEX), "refuted"),
    "checkpointed table": (case(CheckpointedTable), "refuted"),
}

# --- one pair of many users ---


def one_pair(users: int) -> tuple[int, int]:
    """(owner, reader)."""
    return 4 * users // 5, 3 * users // 5


class OnePair(Factorisation):
    """One user needs one other."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.owner, self.reader = one_pair(shape.users)

    def penalty(self, user: int) -> Tensor:
        out = 0.1 * self.users.weight[self.owner].detach() @ own(self, user)
        return out if user == self.reader else torch.zeros(())


class OnePairBank(OnePair):
    """One user needs what one other has left behind."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.note = torch.zeros(shape.dim)

    def penalty(self, user: int) -> Tensor:
        if user == self.owner:
            self.note = own(self, user).detach().clone()
        return own(self, user) @ self.note if user == self.reader else torch.zeros(())


MANY: dict[str, Entry] = {
    "one pair of many": (case(OnePair), "refuted"),
    "one pair of many, by a note": (case(OnePairBank), "refuted"),
    "many users": (case(Factorisation), "holds"),
}
