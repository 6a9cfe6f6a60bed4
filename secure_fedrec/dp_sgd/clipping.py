"""Which models Opacus can clip, and the clipped sum of a batch's gradients.

Opacus takes the norm of an example's gradient from hooks on the calls of layers (ghost norms; Li,
Tramer, Liang and Hashimoto 2022). It knows nothing of what a weight does outside such a call and
does not say so; the checks here turn all of that into refusals, before any gradient is used.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.validators import ModuleValidator
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.dp.sampler import secret_words

__all__ = ["ClippedGradients", "ExampleLosses", "require_layers"]

ExampleLosses: TypeAlias = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]
"""Given the model and a batch of n examples, their n losses."""


def require_layers(model: nn.Module) -> None:
    """Refuse layers whose gradients' norms per example are not known.

    Args:
        model: in training mode, in which Opacus judges it.

    Raises:
        ConfigError: names the layer and what is wrong with it.
    """
    for name, _ in model.named_buffers():
        raise ConfigError(
            "dp_sgd.model", name, "is a buffer: it could carry data out without noise"
        )
    for name, layer in model.named_modules():
        problem = _problem_of(layer)
        if problem:
            raise ConfigError("dp_sgd.model", f"{name} ({type(layer).__name__})".lstrip(), problem)
    problems: Sequence[Any] = ModuleValidator.validate(model, strict=False)
    if problems:
        raise ConfigError(
            "dp_sgd.model", type(model).__name__, "; ".join(str(problem) for problem in problems)
        )


def _problem_of(layer: nn.Module) -> str | None:
    if isinstance(layer, _NormBase):
        return "batch and instance normalisation are refused; use layer or group normalisation"
    if isinstance(layer, nn.EmbeddingBag):
        return "has no gradients per example; use an embedding and sum its rows"
    if isinstance(layer, nn.Embedding):
        if layer.max_norm is not None:
            return "max_norm changes the table by what is looked up, without noise"
        if layer.sparse or layer.scale_grad_by_freq:
            return "gradients must be dense, and not scaled by frequencies in the batch"
    trainable = any(weight.requires_grad for weight in layer.parameters(recurse=False))
    # Opacus would call other layers again, on their first argument only: another gradient's norm.
    if trainable and type(layer) not in GradSampleModuleFastGradientClipping.GRAD_SAMPLERS:
        return "holds parameters and is no layer that Opacus has a formula for"
    return None


class ClippedGradients:
    """Sums of clipped gradients of one model; a context, which takes Opacus' hooks off at its end.

    Args:
        model: has passed ``require_layers``.
        weights: its trainable parameters by name.
        losses: per-example losses.
        clip: largest L2 norm of one example's gradient over all parameters.
    """

    __slots__ = ("_ghost", "_losses", "_model", "_separate", "_weights")

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
        self._separate = False
        self._ghost: Any = GradSampleModuleFastGradientClipping(
            model, loss_reduction="sum", max_grad_norm=clip
        )

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
        found = self._find_losses(batch)
        self._find_norms(found, torch.ones_like(found, dtype=torch.bool))
        factors = self._ghost.get_clipping_coef().detach().to(found.device)
        for weight in self._weights.values():
            weight.grad = None
        self._ghost.disable_hooks()
        _backward((factors * found).sum())
        self._ghost.enable_hooks()

    def _require_separate(self, batch: tuple[Tensor, ...]) -> None:
        """Refuse losses, or inputs of layers, whose rows are not one example each.

        The losses of a random half of the batch must have no gradient in the rows of the other.
        This finds negatives from the batch, and first dimensions that count something else and
        happen to be as long as the batch.
        """
        found = self._find_losses(batch)
        chosen = torch.zeros(len(found), dtype=torch.bool)
        chosen[np.argsort(secret_words(len(found)))[: len(found) // 2]] = True
        norms = self._find_norms(found, chosen.to(found.device))
        for name, norm in norms.items():
            if bool((norm.cpu()[~chosen] > 0).any()):  # NaN is divergence, and found by the noise
                raise ConfigError(
                    "dp_sgd.model", name, "the losses of some examples depend on others' rows"
                )

    def _find_losses(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Losses whose graph uses every parameter once: float[n]."""
        try:
            found = self._losses(self._ghost, batch)
        except NotImplementedError:
            # Opacus' word for a layer's second call; it counts the calls on the parameters.
            for name, weight in self._weights.items():
                if vars(weight)["_forward_counter"] > 1:
                    raise ConfigError(
                        "dp_sgd.model",
                        name,
                        "is used by a second call of a layer; stack the inputs and call once",
                    ) from None
            raise
        count = len(batch[0])
        if found.shape != (count,):
            raise ConfigError(
                "dp_sgd.losses", tuple(found.shape), f"{count} losses were due, one per example"
            )
        uses = _count_uses(found)
        for name, weight in self._weights.items():
            if uses[id(weight)] != 1:
                raise ConfigError(
                    "dp_sgd.model",
                    name,
                    f"is used {uses[id(weight)]} times by the losses and must be used once, by a "
                    "call of its layer; freeze what is not used",
                )
        return found

    def _find_norms(self, found: Tensor, chosen: Tensor) -> dict[str, Tensor]:
        """Norms, by Opacus' hooks, of the gradients of the chosen losses: each float[n].

        A parameter without one norm per example was used outside its layer's call, or its layer was
        called on something else than one row per example.
        """
        for name, layer in self._model.named_modules():
            if [] in vars(layer).get("activations", []):
                raise ConfigError("dp_sgd.model", name, "must be given its input by position")
        for weight in self._weights.values():
            vars(weight).pop("_norm_sample", None)  # of the step before
        _backward(found[chosen].sum(), again=True)
        norms = {}
        for name, weight in self._weights.items():
            norm = vars(weight).get("_norm_sample")
            if norm is None or norm.shape != found.shape:
                raise ConfigError(
                    "dp_sgd.model",
                    name,
                    "must be used by a call of its layer, on one row per example",
                )
            norms[name] = norm
        return norms


def _count_uses(found: Tensor) -> Counter[int]:
    """Edges into each leaf of the graph behind a tensor, by the leaf's ``id``."""
    uses: Counter[int] = Counter()
    seen: set[Any] = set()
    stack: list[Any] = [found.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for after, _ in node.next_functions:
            if hasattr(after, "variable"):
                uses[id(after.variable)] += 1
            else:
                stack.append(after)
    return uses


def _backward(total: Tensor, *, again: bool = False) -> None:
    with warnings.catch_warnings():
        # An embedding's input are positions: Opacus' hooks need no gradient with respect to them.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        total.backward(retain_graph=again)  # type: ignore[no-untyped-call]
