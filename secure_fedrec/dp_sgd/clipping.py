"""The clipped sum of a batch's gradients.

Opacus takes the norm of an example's gradient from hooks on the calls of layers (ghost norms; Li,
Tramer, Liang and Hashimoto 2022). It silently ignores other uses of a weight, hooks, and functions
with their own backward pass; the checks here detect all of these before any gradient is used. If
only Opacus' norms are missing, each example's gradient is computed separately (``one_by_one``).
"""

import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.dp_sgd.layers import (
    TensorHooksTold,
    require_no_own_backward,
    require_no_weight_hooks,
    require_precise,
    without_norms,
)
from secure_fedrec.dp_sgd.norms import GhostNorms
from secure_fedrec.dp_sgd.separate import (
    TOLERANCE,
    Learned,
    losses_of,
    require_no_batch_size,
    require_separate,
)
from secure_fedrec.models.graph import graph_nodes
from secure_fedrec.protection.dp.sampler import secret_words

ExampleLosses: TypeAlias = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]
"""Given the model and a batch of n examples, their n losses."""

_FACTOR = 2.0**-3
"""A factor on an example's loss, like that of clipping, which reveals nonlinear dependence."""


class ClippedGradients:
    """Sums of clipped gradients of one model, by Opacus' hooks, which ``close`` removes.

    Args:
        model: has passed ``require_clippable`` and ``require_norms``.
        weights: its trainable parameters by name.
        losses: per-example losses.
        clip: largest L2 norm of one example's gradient over all parameters.
    """

    __slots__ = ("_bounded", "_ghost", "_losses", "_model", "_separate", "_weights")

    def __init__(
        self,
        model: nn.Module,
        weights: dict[str, nn.Parameter],
        losses: ExampleLosses,
        clip: float,
    ) -> None:
        self._model = model
        self._weights = weights
        self._losses = losses
        self._bounded = self._separate = False
        self._ghost: Any = GhostNorms(model, loss_reduction="sum", max_grad_norm=clip)

    def close(self) -> None:
        """Remove Opacus' hooks from the model."""
        self._ghost.to_standard_module()
        for layer in self._model.modules():  # left there by Opacus if it raised
            vars(layer).pop("activations", None)
            vars(layer).pop("max_batch_len", None)

    def leave(self, batch: tuple[Tensor, ...]) -> None:
        """Leave the batch's sum of clipped gradients in the parameters.

        Raises:
            WithoutNormsError: they use a parameter otherwise than by one call of its layer.
            ConfigError: the losses are not one per example, or mix examples.
        """
        if not self._separate and len(batch[0]) > 1:
            require_separate(type(self._model).__name__, batch, self._learn)
            self._separate = True
        if not self._bounded:
            self._ghost.disable_hooks()
            require_no_batch_size(self._model, batch, partial(self._losses, self._ghost))
            self._ghost.enable_hooks()
            self._require_bounded(batch)
            self._bounded = True
        found = self._find_losses(batch)
        self._find_norms(found, torch.ones_like(found, dtype=torch.bool))
        factors = self._ghost.get_clipping_coef().detach().to(found.device)
        self._leave_gradient((factors * found).sum())

    def _leave_gradient(self, total: Tensor) -> None:
        """Leave the gradient of a total in the parameters, without Opacus' hooks."""
        for weight in self._weights.values():
            weight.grad = None
        self._ghost.disable_hooks()
        _backward(total)
        self._ghost.enable_hooks()

    def _require_bounded(self, batch: tuple[Tensor, ...]) -> None:
        """Refuse gradients other than those whose norms Opacus takes, times the example's factor.

        The gradient of one example's loss, scaled as clipping scales, must have its norm scaled as
        much. This detects anything that alters gradients, or outputs of layers after their hooks.
        """
        with self._same_random():
            found = self._find_losses(batch)
            norms = self._find_norms(found, torch.ones_like(found, dtype=torch.bool))
        one = int(secret_words(1)[0] % np.uint64(len(found)))
        whole = float(torch.stack([norm[one] for norm in norms.values()]).norm())
        self._leave_gradient(_FACTOR * found[one])
        for name, weight in self._weights.items():
            left = 0.0 if weight.grad is None else float(weight.grad.norm())
            if abs(left - _FACTOR * float(norms[name][one])) > _FACTOR * whole * TOLERANCE:
                problem = (
                    "an example's gradient is not the one whose norm is clipped: something alters "
                    "gradients in the backward pass"
                )
                raise without_norms(name, problem)

    def _learn(self, batch: tuple[Tensor, ...], chosen: Tensor) -> Learned:
        """The chosen rows' losses, norms and gradient, without advancing the random generators."""
        for weight in self._weights.values():
            weight.grad = None
        with self._same_random():
            found = self._find_losses(batch)
            norms = self._find_norms(found, chosen.to(found.device))
        gradients = [
            weight.grad.reshape(-1).cpu()
            for weight in self._weights.values()
            if weight.grad is not None
        ]
        return Learned(found.detach().cpu()[chosen], norms, torch.cat(gradients))

    def _same_random(self) -> Any:
        """A context that restores torch's default generators at its end."""
        used = {weight.device.index for weight in self._weights.values() if weight.is_cuda}
        return torch.random.fork_rng(devices=sorted(each for each in used if each is not None))

    def _find_losses(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Losses whose graph uses every parameter once: float[n]."""
        try:
            with TensorHooksTold():
                found = self._losses(self._ghost, batch)
        except NotImplementedError:
            # Opacus raises this at a layer's second call; it counts calls at the parameters.
            for name, weight in self._weights.items():
                if vars(weight)["_forward_counter"] > 1:
                    raise without_norms(name, "is used by a second call of a layer") from None
            raise
        losses_of(found, len(batch[0]))
        require_precise(graph_nodes(found))
        require_no_own_backward(graph_nodes(found))
        require_no_weight_hooks(self._weights)
        uses = count_uses(found)
        for name, weight in self._weights.items():
            if uses[id(weight)] != 1:
                raise without_norms(name, f"is used {uses[id(weight)]} times by the losses")
        return found

    def _find_norms(self, found: Tensor, chosen: Tensor) -> dict[str, Tensor]:
        """Norms, by Opacus' hooks, of the gradients of the chosen losses: each float[n].

        A parameter without one norm per example was used outside its layer's call, or its layer was
        not called on one row per example.
        """
        for name, layer in self._model.named_modules():
            if [] in vars(layer).get("activations", []):
                raise without_norms(name, "is given its input by name")
        for weight in self._weights.values():
            vars(weight).pop("_norm_sample", None)  # from the step before
        _backward(found[chosen].sum(), again=True)
        norms = {}
        for name, weight in self._weights.items():
            norm = vars(weight).get("_norm_sample")
            if norm is None or norm.shape != found.shape:
                problem = "is not used by a call of its layer on one row per example"
                raise without_norms(name, problem)
            norms[name] = norm
        return norms


def count_uses(found: Tensor) -> Counter[int]:
    """Edges into each leaf of the graph behind a tensor, by the leaf's ``id``."""
    return Counter(
        id(after.variable)
        for node in graph_nodes(found)
        for after, _ in node.next_functions
        if hasattr(after, "variable")
    )


def _backward(total: Tensor, *, again: bool = False) -> None:
    with warnings.catch_warnings():
        # The input of an embedding is indices: Opacus' hooks need no gradient with respect to them.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        total.backward(retain_graph=again)  # type: ignore[no-untyped-call]
