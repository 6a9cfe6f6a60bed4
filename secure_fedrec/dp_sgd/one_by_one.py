"""The clipped sum of a batch's gradients, example by example: for any model, and slower."""

from functools import partial

import torch
from torch import Tensor, nn

from secure_fedrec.dp_sgd.clipping import ExampleLosses
from secure_fedrec.dp_sgd.layers import require_no_weight_hooks, require_precise
from secure_fedrec.dp_sgd.separate import (
    Batch,
    Learned,
    losses_of,
    require_no_batch_size,
    require_separate,
)
from secure_fedrec.models.graph import graph_nodes


class SingleGradients:
    """Sums of clipped gradients of one model, each formed by a backward pass of its own.

    An example adds the autograd gradient of its own loss, for any model: with tied weights, weights
    used twice, recurrent layers or attention. That gradient is clipped directly.

    Args:
        model: has passed ``require_clippable``.
        weights: its trainable parameters by name.
        losses: per-example losses.
        clip: largest L2 norm of one example's gradient over all parameters.
    """

    __slots__ = ("_clip", "_losses", "_model", "_separate", "_sized", "_weights")

    def __init__(
        self,
        model: nn.Module,
        weights: dict[str, nn.Parameter],
        losses: ExampleLosses,
        clip: float,
    ) -> None:
        self._model, self._weights, self._losses, self._clip = model, weights, losses, clip
        self._separate = self._sized = False

    def leave(self, batch: Batch) -> None:
        """Leave the batch's sum of clipped gradients in the parameters.

        Raises:
            ConfigError: the losses are not one per example, or mix examples.
        """
        if not self._separate and len(batch[0]) > 1:
            require_separate(type(self._model).__name__, batch, self._learn)
            self._separate = True
        if not self._sized:
            require_no_batch_size(self._model, batch, partial(self._losses, self._model))
            self._sized = True
        for weight in self._weights.values():
            weight.grad = None
        for place in range(len(batch[0])):
            self._add(tuple(column[place : place + 1] for column in batch))

    def _add(self, example: Batch) -> None:
        """Add one example's clipped gradient to those in the parameters."""
        weights = list(self._weights.values())
        found = losses_of(self._losses(self._model, example), 1)
        require_precise(graph_nodes(found))
        require_no_weight_hooks(self._weights)
        if not found.requires_grad:
            return  # its gradient is 0 at every weight
        told = torch.autograd.grad(found.sum(), weights, allow_unused=True, materialize_grads=True)
        squares = [part.double().square().sum().cpu() for part in told]
        norm = float(torch.stack(squares).sum().sqrt())
        factor = 1.0 if norm <= self._clip else self._clip / norm
        for weight, part in zip(weights, told, strict=True):
            weight.grad = part * factor if weight.grad is None else weight.grad + part * factor

    def _learn(self, batch: Batch, chosen: Tensor) -> Learned:
        """The chosen rows' losses; other rows do not contribute to a sum."""
        used = {each.device.index for each in self._weights.values() if each.is_cuda}
        devices = sorted(index for index in used if index is not None)
        with torch.random.fork_rng(devices=devices):
            found = losses_of(self._losses(self._model, batch), len(chosen))
        return Learned(found.detach().cpu()[chosen], {}, torch.zeros(0))
