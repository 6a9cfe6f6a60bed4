"""Models whose users meet in unusual places, or in one step of many."""

from collections import UserDict
from types import SimpleNamespace
from typing import ClassVar

import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_training import Batch
from tests.properties import split_zoo_notes
from tests.properties.split_zoo import Case, Factorisation, Shape, case, own


class ParameterAttribute(Factorisation):
    """An attribute of a parameter is filled once."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        held = self.users.weight.__dict__
        norm = held.setdefault("norm", self.users.weight.detach().norm())  # reads
        out: Tensor = super().forward(user, batch) * norm
        return out


class InUserDict(Factorisation):
    """The same in a dict of the standard library."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.found: UserDict[str, Tensor] = UserDict()

    def forward(self, user: int, batch: Batch) -> Tensor:
        norm = self.found.setdefault("norm", self.users.weight.detach().norm())  # reads
        return super().forward(user, batch) * norm


class InImported(Factorisation):
    """The same in a module that is imported when it is needed."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        from tests.properties import split_zoo_notes as notes

        if notes.LATER is None:
            notes.LATER = self.users.weight.detach().norm()  # reads
        return super().forward(user, batch) * notes.LATER


class ClassAttribute(Factorisation):
    """An attribute that its class gets when it is first used."""

    norm: ClassVar[Tensor]

    def forward(self, user: int, batch: Batch) -> Tensor:
        kind = type(self)
        if not hasattr(kind, "norm"):
            kind.norm = self.users.weight.detach().norm()  # reads
        out: Tensor = super().forward(user, batch) * kind.norm
        return out


class InNamespace(Factorisation):
    """The same in a namespace of the standard library."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.found = SimpleNamespace()

    def forward(self, user: int, batch: Batch) -> Tensor:
        if not hasattr(self.found, "norm"):
            self.found.norm = self.users.weight.detach().norm()  # reads
        out: Tensor = super().forward(user, batch) * self.found.norm
        return out


class InModule(Factorisation):
    """The same in another module."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        if split_zoo_notes.NORM is None:
            split_zoo_notes.NORM = self.users.weight.detach().norm()  # reads
        return super().forward(user, batch) * split_zoo_notes.NORM


class TwoReaders(Factorisation):
    """Only user 2 reads the bank, and only of user 1."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.note = torch.zeros(shape.dim)

    def penalty(self, user: int) -> Tensor:
        if user == 1:
            self.note = own(self, user).detach().clone()
        return own(self, user) @ self.note if user == 2 else torch.zeros(())  # reads


class SecondStep(Factorisation):
    """The second batch of a training sees the whole table."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.steps = 0

    def begin(self) -> None:
        self.steps = 0

    def penalty(self, user: int) -> Tensor:
        self.steps += 1
        return (
            own(self, user) @ self.users.weight.detach().mean(0) * float(self.steps == 2)  # reads
        )


def second_step(shape: Shape) -> Case:
    found = case(SecondStep)(shape)

    class Begun:
        def begin(self, model: nn.Module) -> None:
            assert isinstance(model, SecondStep)
            model.begin()

        def __call__(self, model: nn.Module, user: int, batch: Batch) -> Tensor:
            return found.loss(model, user, batch)

    return Case(model=found.model, loss=Begun(), private=found.private, columns=found.columns)


class NextBatch(Factorisation):
    """What is noted in one step is used in the next."""

    mean: Tensor | None = None
    of: int | None = None

    def penalty(self, user: int) -> Tensor:
        before = self.mean if self.of == user else None
        self.mean, self.of = self.users.weight.detach().mean(0), user  # reads
        return torch.zeros(()) if before is None else own(self, user) @ before
