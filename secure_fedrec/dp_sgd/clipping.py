"""The clipped sum of a batch's gradients.

Opacus takes the norm of an example's gradient from hooks on the calls of layers (ghost norms; Li,
Tramer, Liang and Hashimoto 2022). It knows nothing of what a weight does outside such a call, and
of what hooks or a function's own backward do to a gradient, and does not say so; the checks here
turn all of that into refusals, before any gradient is used.
"""

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.dp_sgd.layers import (
    TensorHooksRefused,
    refused,
    require_no_own_backward,
    require_no_weight_hooks,
    require_precise,
)
from secure_fedrec.dp_sgd.norms import GhostNorms
from secure_fedrec.errors import ConfigError
from secure_fedrec.models.graph import graph_nodes
from secure_fedrec.protection.dp.sampler import secret_words

ExampleLosses: TypeAlias = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]
"""Given the model and a batch of n examples, their n losses."""

_FACTOR = 2.0**-3
"""A factor such as clipping gives an example; what is not linear in it is found."""

_TOLERANCE = 2.0**-10
"""Relative difference that floating-point error may make; so much of the clip is set aside."""


class ClippedGradients:
    """Sums of clipped gradients of one model; a context, which takes Opacus' hooks off at its end.

    Args:
        model: has passed ``require_layers``.
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ghost.to_standard_module()
        for layer in self._model.modules():  # what Opacus leaves there after a refusal
            vars(layer).pop("activations", None)
            vars(layer).pop("max_batch_len", None)

    def leave(self, batch: tuple[Tensor, ...]) -> None:
        """Leave the batch's sum of clipped gradients in the parameters.

        Raises:
            ConfigError: the losses are not one per example, use a parameter otherwise than by one
                call of its layer, or mix examples.
        """
        if not self._separate and len(batch[0]) > 1:
            self._require_separate(batch)
            self._separate = True
        if not self._bounded:
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
        """Refuse gradients that are not what Opacus takes the norm of, times the example's factor.

        The gradient of one example's loss, scaled as clipping scales, must have its norm scaled as
        much. This finds whatever alters gradients on their way, or outputs of layers behind their
        hooks, however it does so.
        """
        with self._same_random():
            found = self._find_losses(batch)
            norms = self._find_norms(found, torch.ones_like(found, dtype=torch.bool))
        one = int(secret_words(1)[0] % np.uint64(len(found)))
        whole = float(torch.stack([norm[one] for norm in norms.values()]).norm())
        self._leave_gradient(_FACTOR * found[one])
        for name, weight in self._weights.items():
            left = 0.0 if weight.grad is None else float(weight.grad.norm())
            if abs(left - _FACTOR * float(norms[name][one])) > _FACTOR * whole * _TOLERANCE:
                problem = (
                    "an example's gradient is not the one whose norm is clipped: something alters "
                    "gradients in the backward pass (hooks on tensors, functions with a backward "
                    "of their own); leave it out"
                )
                raise refused(name, problem)

    def _require_separate(self, batch: tuple[Tensor, ...]) -> None:
        """Refuse losses, or inputs of layers, whose rows are not one example each.

        The losses of a random half of the batch must have no gradient in the rows of the other, nor
        the other's in its: a maximum is moved by one of them at least. This finds negatives from
        the batch, and first dimensions that count something else and happen to be as long as the
        batch. And they must be the same, with their gradients, beside other examples: this finds
        what autograd does not see, as statistics of the batch that are detached.
        """
        half = np.argsort(secret_words(len(batch[0])))[: len(batch[0]) // 2]
        chosen = torch.zeros(len(batch[0]), dtype=torch.bool)
        chosen[half] = True
        for each in (chosen, ~chosen):
            self._require_separate_from_others(batch, each)

    def _require_separate_from_others(self, batch: tuple[Tensor, ...], chosen: Tensor) -> None:
        alone = self._learn(batch, chosen)
        for name, norm in alone.norms.items():
            if bool((norm.cpu()[~chosen] > 0).any()):  # NaN is divergence, and found by the noise
                raise refused(name, "the losses of some examples depend on others' rows")
        rows = torch.arange(len(chosen))
        rows[~chosen] = int(chosen.nonzero()[0])
        if _differ(alone, self._learn(tuple(column[rows] for column in batch), chosen)):
            problem = (
                "an example's loss or gradient depends on the other examples of its batch: "
                "statistics of a batch, detached or not, mix examples; use layer or group "
                "normalisation"
            )
            if _differ(alone, self._learn(batch, chosen)):
                problem = (
                    "draws random numbers that are not of torch's default generator, so what an "
                    "example depends on cannot be told; draw them from it, or before training"
                )
            raise refused(type(self._model).__name__, problem)

    def _learn(self, batch: tuple[Tensor, ...], chosen: Tensor) -> "_Learned":
        """The chosen rows' losses, norms and gradient, with random numbers that do not move on."""
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
        return _Learned(found.detach().cpu()[chosen], norms, torch.cat(gradients))

    def _same_random(self) -> Any:
        """A context after which torch's default generators are as before it."""
        used = {weight.device.index for weight in self._weights.values() if weight.is_cuda}
        return torch.random.fork_rng(devices=sorted(each for each in used if each is not None))

    def _find_losses(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Losses whose graph uses every parameter once: float[n]."""
        try:
            with TensorHooksRefused():
                found = self._losses(self._ghost, batch)
        except NotImplementedError:
            # Opacus' word for a layer's second call; it counts the calls on the parameters.
            for name, weight in self._weights.items():
                if vars(weight)["_forward_counter"] > 1:
                    problem = "is used by a second call of a layer; stack the inputs and call once"
                    raise refused(name, problem) from None
            raise
        count = len(batch[0])
        if found.shape != (count,):
            raise ConfigError(
                "dp_sgd.losses", tuple(found.shape), f"{count} losses were due, one per example"
            )
        require_precise(graph_nodes(found))
        require_no_own_backward(graph_nodes(found))
        require_no_weight_hooks(self._weights)
        uses = _count_uses(found)
        for name, weight in self._weights.items():
            if uses[id(weight)] != 1:
                problem = (
                    f"is used {uses[id(weight)]} times by the losses and must be used once, by a "
                    "call of its layer; freeze what is not used"
                )
                raise refused(name, problem)
        return found

    def _find_norms(self, found: Tensor, chosen: Tensor) -> dict[str, Tensor]:
        """Norms, by Opacus' hooks, of the gradients of the chosen losses: each float[n].

        A parameter without one norm per example was used outside its layer's call, or its layer was
        called on something else than one row per example.
        """
        for name, layer in self._model.named_modules():
            if [] in vars(layer).get("activations", []):
                raise refused(name, "must be given its input by position")
        for weight in self._weights.values():
            vars(weight).pop("_norm_sample", None)  # of the step before
        _backward(found[chosen].sum(), again=True)
        norms = {}
        for name, weight in self._weights.items():
            norm = vars(weight).get("_norm_sample")
            if norm is None or norm.shape != found.shape:
                raise refused(name, "must be used by a call of its layer, on one row per example")
            norms[name] = norm
        return norms


class _Learned(NamedTuple):
    """What some rows of a batch give: losses, norms by weight (of all rows), summed gradient."""

    losses: Tensor
    norms: dict[str, Tensor]
    gradient: Tensor


def _differ(one: _Learned, other: _Learned) -> bool:
    """Whether the same rows gave something else, beyond floating-point error; not where NaN is."""
    pairs = [(one.losses, other.losses), (one.gradient, other.gradient)]
    pairs += [(one.norms[name].cpu(), other.norms[name].cpu()) for name in one.norms]
    return any(
        bool((first - second).norm() > _TOLERANCE * torch.maximum(first.norm(), second.norm()))
        for first, second in pairs
    )


def _count_uses(found: Tensor) -> Counter[int]:
    """Edges into each leaf of the graph behind a tensor, by the leaf's ``id``."""
    return Counter(
        id(after.variable)
        for node in graph_nodes(found)
        for after, _ in node.next_functions
        if hasattr(after, "variable")
    )


def _backward(total: Tensor, *, again: bool = False) -> None:
    with warnings.catch_warnings():
        # An embedding's input are positions: Opacus' hooks need no gradient with respect to them.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        total.backward(retain_graph=again)  # type: ignore[no-untyped-call]
