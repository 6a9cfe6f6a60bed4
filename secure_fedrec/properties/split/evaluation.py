"""Properties of a loss that local training needs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.split.model import PrivateSlot

LOSS: Final = "loss"

Loss: TypeAlias = Callable[[nn.Module, int, Batch], Tensor]
"""(model, user, batch) -> the scalar that this user's local training minimises."""

Part: TypeAlias = tuple[PrivateSlot, int]
"""A private slot of one user."""


@runtime_checkable
class Anchored(Protocol):
    """A loss that must know the parameters at the start of local training, as in FedProx."""

    def begin(self, model: nn.Module) -> None:
        """Called once when a user's local training begins, its start values loaded."""


def begin_training(loss: object, model: nn.Module) -> None:
    """Notify a loss that supports it that local training starts."""
    if isinstance(loss, Anchored):
        loss.begin(model)


def require_columns(batch: Batch) -> Batch:
    """The batch, if it is one.

    Raises:
        ConfigError: the batch does not have named columns.
    """
    found: object = batch
    if not isinstance(found, Mapping):
        raise ConfigError("batches", type(found).__name__, "must return columns by name")
    return batch


def require_scalar(value: object) -> None:
    """Refuse a loss that has no gradient.

    Raises:
        ConfigError: the loss is not a scalar that depends on a trainable tensor.
    """
    usable = isinstance(value, Tensor) and value.numel() == 1 and value.requires_grad
    if not usable or (isinstance(value, Tensor) and value.is_complex()):
        raise ConfigError(
            "loss", value, "must return a real scalar tensor that depends on a trainable parameter"
        )


def require_callable(**given: object) -> None:
    """Check arguments that are functions, by name.

    Raises:
        ConfigError: an argument cannot be called.
    """
    for name, function in given.items():
        if not callable(function):
            raise ConfigError(name, function, "must be a function")


@contextmanager
def with_gradients() -> Iterator[None]:
    """A context with gradients enabled, even if the caller disabled them."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        yield
