"""Models that look as if their users met, and do not: all of them hold."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_training import Batch
from tests.properties.split_zoo import (
    Addition,
    Case,
    Entry,
    Factorisation,
    OwnHeads,
    OwnNorms,
    Shape,
    case,
    own,
)
from tests.properties.split_zoo_gradients import COMPLEX, Checkpointed, Complex


class OwnMemory(Factorisation):
    """A running mean of a user's own vector, which its device remembers."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.means: dict[int, Tensor] = {}

    def penalty(self, user: int) -> Tensor:
        mean = self.means.get(user, torch.zeros(self.users.embedding_dim))
        self.means[user] = 0.9 * mean + 0.1 * own(self, user).detach()
        return own(self, user) @ mean


class OwnFirst(Factorisation):
    """Every device pulls to the first vector it has seen of its own."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.first: dict[int, Tensor] = {}

    def penalty(self, user: int) -> Tensor:
        first = self.first.setdefault(user, own(self, user).detach().clone())
        return (own(self, user) - first).square().sum()


class OwnMomentum(Factorisation):
    """Every user's own momentum, in a dict that only a hook's closure holds."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        speeds: dict[int, Tensor] = {}
        reader = [0]

        def add(found: Tensor) -> Tensor:
            speed = 0.5 * speeds.get(reader[0], torch.zeros(())) + found
            speeds[reader[0]] = speed
            return speed

        self.reader = reader
        self.items.weight.register_hook(add)  # type: ignore[no-untyped-call]

    def forward(self, user: int, batch: Batch) -> Tensor:
        self.reader[0] = user
        return super().forward(user, batch)


class TwoNames(OwnHeads):
    """A user's head holds one bias under two names."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        for head in self.heads:
            head.again = nn.Identity()
            head.again.register_parameter("bias", cast("nn.Linear", head).bias)


class Again(Factorisation):
    """The users' table goes by two names, and the loss takes the second."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.z_users = self.users

    def forward(self, user: int, batch: Batch) -> Tensor:
        item = batch["item"]
        out: Tensor = self.items(item) @ self.z_users.weight[user] + self.bias[item]
        return out


class OneHot(Factorisation):
    """A user's row by a product with the whole table: zeros times everybody else."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        chosen = torch.zeros(len(self.users.weight))
        chosen[user] = 1.0
        item = batch["item"]
        out: Tensor = self.items(item) @ (chosen @ self.users.weight) + self.bias[item]
        return out


class Lazy(Factorisation):
    """A constant that is made when it is first needed."""

    constant: Tensor | None = None

    def penalty(self, user: int) -> Tensor:
        if self.constant is None:
            self.constant = torch.linspace(0, 1, self.users.embedding_dim)
        return own(self, user) @ self.constant


class Logged(Factorisation):
    """Keeps a log of everything, and reads none of it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.log: list[Any] = []

    def penalty(self, user: int) -> Tensor:
        self.log.append((user, own(self, user).detach().clone(), self.users.weight.norm()))
        return torch.zeros(())


class ClippedByHook(Factorisation):
    """A hook clips the gradient of the items by its own norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.items.weight.register_hook(lambda found: found / (1 + found.norm()))  # type: ignore[no-untyped-call]


class Frozen(Addition):
    """A batch normalisation whose statistics are frozen: the layer is in eval()."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.norm = nn.BatchNorm1d(shape.dim)
        self.norm.eval()

    def personalise(self, user: int, hidden: Tensor) -> Tensor:
        out: Tensor = self.norm(hidden) + self.users.weight[user]
        return out


def evaluated(shape: Shape) -> Case:
    """The whole model is in eval() when it is handed over; training is not."""
    found = case(OwnNorms, "users.*", "norms.{user}.*")(shape)
    found.model.eval()
    return found


class Masked(Factorisation):
    """Zero times everybody else, at any finite value."""

    def penalty(self, user: int) -> Tensor:
        mask = (torch.arange(len(self.users.weight)) == user).float()
        return 0.1 * (mask[:, None] * self.users.weight).square().sum()


def halved(shape: Shape) -> Case:
    """float16, in which little is 0."""
    found = case(Factorisation)(shape)

    def half(model: nn.Module, user: int, batch: Batch) -> Tensor:
        return found.loss(model, user, {**batch, "y": batch["y"].half()})

    return Case(model=found.model.half(), loss=half, private=found.private, columns=found.columns)


class Taught(Factorisation):
    """A teacher whose parameters could be trained, and are not."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.teacher = [nn.Linear(shape.dim, 1)]

    def penalty(self, user: int) -> Tensor:
        with torch.no_grad():
            taught: Tensor = self.teacher[0](self.items.weight).mean()
        return (own(self, user).sum() - taught).square()


class TiedAgain(Factorisation):
    """Items and an output layer are one tensor, and so are the users and a second name of them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.out = nn.Linear(shape.dim, shape.items, bias=False)
        self.out.weight = self.items.weight
        self.again = self.users

    def penalty(self, user: int) -> Tensor:
        out: Tensor = self.out(torch.tanh(self.again.weight[user])).square().mean()
        return out


HONEST: dict[str, Entry] = {
    "complex": (case(Complex, *COMPLEX), "holds"),
    "own memory": (case(OwnMemory), "holds"),
    "own momentum in a hook": (case(OwnMomentum), "holds"),
    "one table under two names": (case(Again), "holds"),
    "items and users under two names each": (case(TiedAgain), "holds"),
    "one tensor under two names": (case(TwoNames, "heads.{user}.*"), "holds"),
    "own first value": (case(OwnFirst), "holds"),
    "half precision": (halved, "holds"),
    "one-hot": (case(OneHot), "holds"),
    "lazy constant": (case(Lazy), "holds"),
    "log": (case(Logged), "holds"),
    "clipped by a hook": (case(ClippedByHook), "holds"),
    "reentrant checkpoint": (case(Checkpointed), "holds"),
    "frozen normalisation": (case(Frozen), "holds"),
    "handed over in eval()": (evaluated, "holds"),
    "masked": (case(Masked), "holds"),
    "teacher": (case(Taught), "holds"),
}
