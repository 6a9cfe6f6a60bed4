"""Losses that know where local training started."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.split.evaluation import Loss
from secure_fedrec.properties.split.model import matches


class FedProx:
    """A loss with FedProx' proximal term: ``loss + strength / 2 * |w - w_0|^2``.

    w_0 are the parameters at the start of the user's local training. The term is over federated
    parameters. Over all parameters (``private=()``) no constraint is violated either, since another
    user's private values stay at their start.

    Args:
        loss: without the term.
        strength: mu, at least 0.
        private: patterns of the parameters that are left out.

    Raises:
        ConfigError: the strength is negative or not finite.
    """

    def __init__(self, loss: Loss, *, strength: float, private: Sequence[str]) -> None:
        if not 0 <= strength < float("inf"):
            raise ConfigError("strength", strength, "must be at least 0 and finite")
        self._loss = loss
        self._strength = strength
        self._private = tuple(private)
        self._start: dict[str, Tensor] = {}

    def begin(self, model: nn.Module) -> None:
        """Note w_0."""
        self._start = {
            name: weight.detach().clone()
            for name, weight in model.named_parameters()
            if weight.requires_grad and not matches(name, self._private)
        }

    def __call__(self, model: nn.Module, user: int, batch: Batch) -> Tensor:
        """The loss of a user, with the term."""
        value = self._loss(model, user, batch)
        weights = dict(model.named_parameters())
        for name, start in self._start.items():
            value = value + self._strength / 2 * torch.sum((weights[name] - start) ** 2)
        return value
