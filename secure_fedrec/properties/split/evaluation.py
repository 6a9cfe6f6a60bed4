"""What local training needs to know of a loss."""

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, runtime_checkable

from torch import Tensor, nn

from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.split.model import PrivateSlot

__all__ = ["LOSS", "Anchored", "Loss", "Part", "begin_training", "require_scalar"]

LOSS: Final = "loss"

Loss: TypeAlias = Callable[[nn.Module, int, Batch], Tensor]
"""(model, user, batch) -> the scalar that this user's local training minimises."""

Part: TypeAlias = tuple[PrivateSlot, int]
"""A private slot of one user."""


@runtime_checkable
class Anchored(Protocol):
    """A loss that must know where local training starts, as FedProx does."""

    def begin(self, model: nn.Module) -> None:
        """Called once when a user's local training begins, its start values loaded."""
        ...


def begin_training(loss: object, model: nn.Module) -> None:
    """Tell a loss that wants to know it that local training starts here."""
    if isinstance(loss, Anchored):
        loss.begin(model)


def require_scalar(value: object) -> None:
    """Refuse what no gradient can be taken of.

    Raises:
        ConfigError: the loss is no scalar that depends on a trainable tensor.
    """
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        raise ConfigError(
            "loss", value, "must return a scalar tensor that depends on a trainable parameter"
        )
