"""Models whose users meet by gradients: hooks, hidden leaves, complex numbers, checkpointing."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from secure_fedrec.algorithms.local_training import Batch
from tests.properties.split_zoo import Addition, Factorisation, Shape, own

# --- hooks ---


class Accumulated(Factorisation):
    """After the gradient of the items is there, the table's mean is added to them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.items.weight.register_post_accumulate_grad_hook(self._add)  # type: ignore[no-untyped-call]

    def _add(self, weight: Tensor) -> None:
        with torch.no_grad():
            weight.add_(0.01 * self.users.weight.mean())  # reads


class AccumulatedGradient(Factorisation):
    """The same, to their gradient."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.items.weight.register_post_accumulate_grad_hook(self._add)  # type: ignore[no-untyped-call]

    def _add(self, weight: Tensor) -> None:
        assert weight.grad is not None
        weight.grad.add_(0.01 * self.users.weight.detach().mean())  # reads


class GradientHook(Factorisation):
    """A hook on a tensor adds the table's mean to its gradient."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.bias.register_hook(lambda found: found + self.users.weight.detach().mean())  # type: ignore[no-untyped-call] # reads


class BackwardHook(Factorisation):
    """A hook of a module writes another user's row."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.items.register_full_backward_hook(self._write)

    def _write(self, _module: nn.Module, _inputs: Any, _outputs: Any) -> None:
        with torch.no_grad():
            self.users.weight[0].add_(0.1)  # reads


# --- what no check of parameters can see ---


class HiddenLeaf(Factorisation):
    """A trained tensor that is not a parameter."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.hidden = torch.randn(shape.dim, requires_grad=True)

    def penalty(self, user: int) -> Tensor:
        return own(self, user) @ self.hidden


class HiddenModules(Factorisation):
    """Heads in a plain list."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.heads = [nn.Linear(shape.dim, 1) for _ in range(shape.users)]

    def penalty(self, user: int) -> Tensor:
        out: Tensor = self.heads[user](own(self, user)).sum()
        return out


class HiddenInCheckpoint(Factorisation):
    """A hidden leaf whose graph is built only when gradients are computed."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.hidden = torch.randn(shape.dim, requires_grad=True)

    def penalty(self, user: int) -> Tensor:
        out: Tensor = checkpoint(lambda row: row @ self.hidden, own(self, user), use_reentrant=True)
        return out


# --- complex numbers ---


class Complex(Factorisation):
    """Private phases and a federated complex spectrum."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.phases = nn.Parameter(torch.randn(shape.users, shape.dim, dtype=torch.complex64))
        self.spectrum = nn.Parameter(torch.randn(shape.dim, dtype=torch.complex64))

    def penalty(self, user: int) -> Tensor:
        return (self.phases[user] * self.spectrum).abs().square().sum()


class ComplexTable(Complex):
    """The mean of all phases is in every loss."""

    def penalty(self, user: int) -> Tensor:
        return (
            super().penalty(user)
            + (self.phases.detach().mean(0) * self.spectrum).real.sum()  # reads
        )


class Imaginary(Complex):
    """Another user's phase has a gradient that is imaginary only; its value has no effect."""

    def penalty(self, user: int) -> Tensor:
        other = self.phases[(user + 1) % len(self.phases)].imag
        return super().penalty(user) + (other - other.detach()).sum()


class ImaginaryGradient(Complex):
    """Others' values move the imaginary part of the spectrum's gradient."""

    def penalty(self, user: int) -> Tensor:
        moved = self.spectrum.imag - self.spectrum.imag.detach()
        return super().penalty(user) + (moved * self.users.weight.detach().sum()).sum()  # reads


COMPLEX = ("users.weight", "phases")


class Checkpointed(Addition):
    """Reentrant checkpointing: gradients come by a real backward pass only."""

    def forward(self, user: int, batch: Batch) -> Tensor:
        hidden = self.encode(batch["x"]) + self.items(batch["item"])
        out: Tensor = checkpoint(
            lambda each: self.read(torch.tanh(self.personalise(user, each))),
            hidden,
            use_reentrant=True,
        )
        return out.squeeze(1)


class CheckpointedTable(Checkpointed):
    """The same, with the mean of all users inside."""

    def personalise(self, user: int, hidden: Tensor) -> Tensor:
        return hidden + self.users.weight[user] + self.users.weight.mean(0)  # reads
