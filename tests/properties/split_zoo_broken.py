"""Personalised models and rules that break split personalization, each with what must be named."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.properties.split.aggregation import AggregationInput, keep_local
from secure_fedrec.properties.split.model import Values
from tests.properties.split_zoo import Addition, Case, Factorisation, Shape, case


@dataclass(frozen=True, kw_only=True)
class Broken:
    """What breaks a constraint, and how it must be reported for three users.

    Args:
        build: makes it.
        constraint: that it breaks.
        parameter: whose value crosses.
        users: all pairs (owner, reader) between which it does.
        also: further constraints that it breaks.
        round: of the comparison of two runs, in which it shows.
    """

    build: Callable[[Shape], Case]
    constraint: int
    parameter: str
    users: frozenset[tuple[int | None, int]]
    also: frozenset[int] = frozenset()
    round: int = 1


# --- models that break constraint (1) ---


class MatrixNorm(Factorisation):
    """The norm of the whole user matrix is in every user's loss."""

    def penalty(self, user: int) -> Tensor:
        out: Tensor = 0.1 * torch.linalg.vector_norm(self.users.weight)  # reads
        return out


class MatrixDecay(Factorisation):
    """Its square: weight decay of the whole table."""

    def penalty(self, user: int) -> Tensor:
        return 0.1 * torch.sum(self.users.weight**2)  # reads


class DetachedNorm(Factorisation):
    """The norm again, as a scale without gradient."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        out: Tensor = super().forward(user, batch) / (
            1 + self.users.weight.detach().norm()  # reads
        )
        return out


class BatchStatistics(Factorisation):
    """User vectors are normalised over all users."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.norm = nn.BatchNorm1d(shape.dim, track_running_stats=False)

    def forward(self, user: int, batch: Batch) -> Tensor:
        item = batch["item"]
        out: Tensor = (
            self.items(item) @ self.norm(self.users.weight)[user] + self.bias[item]  # reads
        )
        return out


class RunningStatistics(Addition):
    """One batch normalisation, with running statistics, sees the hidden units of everybody."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.norm = nn.BatchNorm1d(shape.dim)

    def personalise(self, user: int, hidden: Tensor) -> Tensor:
        personal = hidden + self.users.weight[user]
        out: Tensor = self.norm(personal) if len(hidden) > 1 else personal  # reads
        return out


class Orthogonality(Factorisation):
    """The vectors of users 0 and 2 shall be orthogonal."""

    def penalty(self, user: int) -> Tensor:
        if user not in (0, 2):
            return torch.zeros(())
        return 0.5 * (self.users.weight[0] @ self.users.weight[2]) ** 2  # reads


class Tied(Factorisation):
    """The item table is the user table."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.items.weight = self.users.weight


class Renormalised(Factorisation):
    """Every forward pass scales the whole user table to norm 1, in place."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        with torch.no_grad():
            self.users.weight.div_(self.users.weight.norm())  # reads
        return super().forward(user, batch)


class Prototype(Factorisation):
    """The running mean of all user vectors: federated, frozen, and updated after its use."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.proto = nn.Parameter(torch.zeros(shape.dim), requires_grad=False)

    def forward(self, user: int, batch: Batch) -> Tensor:
        item = batch["item"]
        personal = self.users.weight[user] + self.proto.clone()
        out: Tensor = self.items(item) @ personal + self.bias[item]
        with torch.no_grad():
            self.proto.mul_(0.9).add_(0.1 * self.users.weight.mean(0))  # reads
        return out


class PulledRow(Factorisation):
    """After its use, a user's own vector is pulled to the mean of all."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        item = batch["item"]
        out: Tensor = self.items(item) @ self.users.weight[user].clone() + self.bias[item]
        with torch.no_grad():
            self.users.weight[user].lerp_(self.users.weight.mean(0), 0.1)  # reads
        return out


# --- rules that break constraints (2) and (3) ---


def multi_task(given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
    """Multi-task aggregation: private parameters of participants are pulled to one another."""
    federated, private = keep_local(given)
    pulled = {
        user: {
            name: value + sum(0.1 * (private[other][name] - value) for other in private)  # reads
            for name, value in values.items()
        }
        for user, values in private.items()
    }
    return federated, pulled


def reads_private(given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
    """Users with long vectors weigh less."""
    lengths = {
        user: sum(float(value.norm()) for value in values.values())  # reads
        for user, values in given.local_private.items()
    }
    federated = {}
    for name, old in given.federated.items():
        local = given.local_federated
        change = sum((local[user][name] - old) / (1 + lengths[user]) for user in local)
        federated[name] = old + change / len(local)
    return federated, given.local_private


def joint_clipping(given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
    """The whole change of a user is clipped by its norm, private parameters included."""
    federated = {name: old.clone() for name, old in given.federated.items()}
    private = {}
    for user, local in given.local_federated.items():
        own, old = given.local_private[user], given.private[user]
        changes = [local[name] - given.federated[name] for name in federated]  # reads
        changes += [own[name] - old[name] for name in own]  # reads
        norm = torch.stack([change.norm() for change in changes]).norm()
        factor = torch.clamp(0.1 / norm, max=1.0)
        for name, value in federated.items():
            change = factor * (local[name] - given.federated[name])
            federated[name] = value + change / len(given.local_federated)
        private[user] = {name: old[name] + factor * (own[name] - old[name]) for name in own}
    return federated, private


def pull_to_model(given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
    """Private parameters are moved by the mean of a federated one."""
    federated, private = keep_local(given)
    shift = given.federated["bias"].mean()  # reads
    return federated, {
        user: {name: value + 0.1 * shift for name, value in values.items()}
        for user, values in private.items()
    }


class MultiTaskMemory:
    """Alternating multi-task learning: pull private parameters to what earlier rounds taught.

    Args:
        lag: how many rounds later the relations are used.
        federated: whether they move the federated parameters, too.
    """

    def __init__(self, lag: int = 1, *, federated: bool = False) -> None:
        self.lag = lag
        self.federated = federated
        self.means: list[Values] = []

    def __call__(self, given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
        federated, private = keep_local(given)
        if len(self.means) >= self.lag:
            mean = self.means[-self.lag]
            private = {
                user: {name: value.lerp(mean[name], 0.5) for name, value in values.items()}
                for user, values in private.items()
            }
            if self.federated:
                shift = 1e-3 * sum(float(value.sum()) for value in mean.values())
                federated = {name: value + shift for name, value in federated.items()}
        local = given.local_private
        self.means.append(
            {
                name: torch.stack([values[name] for values in local.values()]).mean(0)  # reads
                for name in next(iter(local.values()))
            }
        )
        return federated, private


class RememberedLengths:
    """Steps are as long as the private vectors of the last round allow."""

    length = 0.0

    def __call__(self, given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
        federated, private = keep_local(given)
        moved = {
            name: old + (federated[name] - old) / (1 + self.length)
            for name, old in given.federated.items()
        }
        own = given.local_private.values()
        self.length = sum(
            float(value.norm())
            for values in own
            for value in values.values()  # reads
        )
        return moved, private


def tied(shape: Shape) -> Case:
    return case(Tied)(replace(shape, items=shape.users))


def pairs(*found: tuple[int | None, int]) -> frozenset[tuple[int | None, int]]:
    return frozenset(found)


ALL = pairs((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1))
# What reaches everybody is reported with the first other user as its reader.
ANYBODY = pairs((0, 1), (1, 0), (2, 0))

BROKEN: dict[str, Broken] = {
    "matrix norm": Broken(
        build=case(MatrixNorm), constraint=1, parameter="users.weight", users=ALL
    ),
    "matrix decay": Broken(
        build=case(MatrixDecay), constraint=1, parameter="users.weight", users=ALL
    ),
    # No gradient betrays it. The search by values stops at the first owner it finds per reader.
    "detached norm": Broken(
        build=case(DetachedNorm),
        constraint=1,
        parameter="users.weight",
        users=pairs((1, 0), (0, 1), (0, 2)),
    ),
    "batch statistics": Broken(
        build=case(BatchStatistics), constraint=1, parameter="users.weight", users=ALL
    ),
    "running statistics": Broken(
        build=case(RunningStatistics), constraint=1, parameter="users.weight", users=ANYBODY
    ),
    "orthogonality": Broken(
        build=case(Orthogonality),
        constraint=1,
        parameter="users.weight",
        users=pairs((0, 2), (2, 0)),
    ),
    "tied tables": Broken(build=tied, constraint=1, parameter="users.weight", users=ALL),
    "table renormalised": Broken(
        build=case(Renormalised), constraint=1, parameter="users.weight", users=ALL
    ),
    # Nor does any gradient betray these: what they write differs.
    "prototype written": Broken(
        build=case(Prototype),
        constraint=1,
        parameter="users.weight",
        users=pairs((1, 0), (0, 1), (0, 2)),
    ),
    "own row written": Broken(
        build=case(PulledRow),
        constraint=1,
        parameter="users.weight",
        users=pairs((1, 0), (0, 1), (0, 2)),
    ),
    "reads private": Broken(
        build=case(Factorisation, aggregate=reads_private),
        constraint=2,
        parameter="users.weight",
        users=ANYBODY,
    ),
    # Its private updates depend on the norm of the federated change, too.
    "joint clipping": Broken(
        build=case(Factorisation, aggregate=joint_clipping),
        constraint=2,
        parameter="users.weight",
        users=ANYBODY,
        also=frozenset({3}),
    ),
    # No pairwise term touches w_f: only private updates depend on other users' private values.
    "multi-task": Broken(
        build=case(Factorisation, aggregate=multi_task),
        constraint=3,
        parameter="users.weight",
        users=ALL,
    ),
    # The same with state: what was learnt in one round is used in a later one.
    "multi-task with memory": Broken(
        build=case(Factorisation, aggregate=MultiTaskMemory()),
        constraint=3,
        parameter="users.weight",
        users=ALL,
        round=2,
    ),
    "multi-task with a long memory": Broken(
        build=case(Factorisation, aggregate=MultiTaskMemory(lag=2)),
        constraint=3,
        parameter="users.weight",
        users=ALL,
        round=3,
    ),
    "multi-task with memory, federated": Broken(
        build=case(Factorisation, aggregate=MultiTaskMemory(federated=True)),
        constraint=2,
        parameter="users.weight",
        users=ANYBODY,
        also=frozenset({3}),
        round=2,
    ),
    "remembers private": Broken(
        build=case(Factorisation, aggregate=RememberedLengths()),
        constraint=2,
        parameter="users.weight",
        users=ANYBODY,
        round=2,
    ),
    "pull to the model": Broken(
        build=case(Factorisation, aggregate=pull_to_model),
        constraint=3,
        parameter="bias",
        users=pairs((None, 0), (None, 1), (None, 2)),
    ),
}
