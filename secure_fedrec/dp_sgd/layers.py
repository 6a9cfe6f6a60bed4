"""Decides before training which models can be clipped, and which of them by Opacus."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.validators import ModuleValidator
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.nn.modules._functions import BackwardHookFunction
from torch.nn.modules.batchnorm import _NormBase
from torch.overrides import TorchFunctionMode

from secure_fedrec.errors import ConfigError

_PRECISE = (torch.float32, torch.float64)

_MODULE_HOOKS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}
_WEIGHT_HOOKS = {
    "_backward_hooks": "gradient hook",
    "_post_accumulate_grad_hooks": "post-accumulate hook",
}


class WithoutNormsError(ConfigError):
    """Opacus cannot compute the norms of examples' gradients, so each is computed separately."""


def refused(name: str, problem: str) -> ConfigError:
    """The refusal of a layer, parameter or buffer of the model."""
    return ConfigError("dp_sgd.model", name, problem)


def without_norms(name: str, problem: str) -> WithoutNormsError:
    """Why Opacus cannot compute the norms of a layer or parameter of the model."""
    return WithoutNormsError("dp_sgd.model", name, problem)


def require_clippable(model: nn.Module) -> None:
    """Refuse layers that mix the gradients of examples, or let data leave without noise.

    Args:
        model: in training mode.

    Raises:
        ConfigError: names the layer and what is wrong with it.
    """
    _require_precise_weights(model)
    require_no_weight_hooks(dict(model.named_parameters()))
    for name, _ in model.named_buffers():
        raise refused(name, "is a buffer: it could carry data out without noise")
    for name, layer in model.named_modules():
        problem = _hook_of(layer) or _problem_of(layer)
        if problem:
            raise refused(_named(name, layer), problem)


def require_norms(model: nn.Module) -> None:
    """Refuse layers for whose gradients' norms Opacus does not have a formula.

    Args:
        model: has passed ``require_clippable``; in training mode, in which Opacus judges it.

    Raises:
        WithoutNormsError: names the layer.
    """
    for name, layer in model.named_modules():
        if problem := _without_formula(layer):
            raise without_norms(_named(name, layer), problem)
    problems: Sequence[Any] = ModuleValidator.validate(model, strict=False)
    if problems:
        raise without_norms(type(model).__name__, "; ".join(map(str, problems)))


def _named(name: str, layer: nn.Module) -> str:
    return f"{name} ({type(layer).__name__})".lstrip()


def _problem_of(layer: nn.Module) -> str | None:
    if isinstance(layer, _NormBase):
        return "batch and instance normalisation are refused; use layer or group normalisation"
    return _problem_of_table(layer) if isinstance(layer, nn.Embedding | nn.EmbeddingBag) else None


def _without_formula(layer: nn.Module) -> str | None:
    if getattr(layer, "padding_mode", "zeros") != "zeros":
        return "Opacus' formula pads with zeros only"
    if isinstance(layer, nn.EmbeddingBag):
        return "is not a layer that Opacus has a formula of norms for"
    trainable = any(weight.requires_grad for weight in layer.parameters(recurse=False))
    # Opacus calls other layers again with their first argument only, which gives the norm of
    # another gradient.
    if trainable and type(layer) not in GradSampleModuleFastGradientClipping.GRAD_SAMPLERS:
        return "holds parameters and is not a layer that Opacus has a formula for"
    return None


def _problem_of_table(layer: nn.Embedding | nn.EmbeddingBag) -> str | None:
    if layer.max_norm is not None:
        return "max_norm changes the table by what is looked up, without noise"
    if layer.sparse or layer.scale_grad_by_freq:
        return "gradients must be dense, and not scaled by frequencies in the batch"
    return None


def _hook_of(layer: nn.Module) -> str | None:
    """What is wrong with a layer's hooks, if it has any.

    They change a layer's input, output or gradient without Opacus' hooks seeing it. The old
    ``weight_norm`` and ``spectral_norm`` are such hooks.
    """
    for held, name in _MODULE_HOOKS.items():
        for hook in getattr(layer, held).values():
            kind = getattr(hook, "__name__", type(hook).__name__)
            return (
                f"has a {name} ({kind}), which may change gradients unseen; put what it does into "
                "the model's forward, and take reparametrisations off (remove_weight_norm)"
            )
    return None


def require_no_weight_hooks(weights: Mapping[str, nn.Parameter]) -> None:
    """Refuse hooks on parameters: they change the gradient after it was clipped.

    Raises:
        ConfigError: names the parameter and the kind of hook.
    """
    for name, weight in weights.items():
        for held, kind in _WEIGHT_HOOKS.items():
            if getattr(weight, held, None):
                problem = (
                    f"has a {kind}, which changes its gradient after the clipping; remove it, and "
                    "change gradients in the optimiser, after the noise"
                )
                raise refused(name, problem)


def _require_precise_weights(model: nn.Module) -> None:
    for name, weight in model.named_parameters():
        if weight.dtype not in _PRECISE:
            advice = "train in float32 (model.float()), and round what leaves the client afterwards"
            raise _too_coarse("dp_sgd.model", f"{name} ({weight.dtype})", advice)
    chosen = torch.get_float32_matmul_precision()
    if chosen != "highest":
        raise ConfigError(
            "torch.set_float32_matmul_precision",
            chosen,
            "multiplies float32 matrices in shorter numbers",
            ["highest"],
        )


def require_precise(nodes: Iterable[Any]) -> None:
    """Refuse losses any part of which was computed in less than float32, by autocast or a cast.

    Args:
        nodes: nodes of the autograd graph behind the losses.

    Raises:
        ConfigError: names the operation.
    """
    for node in nodes:
        for output in node._input_metadata:  # torch has no public name for a node's dtypes
            if output.dtype not in _PRECISE:
                named = f"{node.name()} ({output.dtype})"
                raise _too_coarse("dp_sgd.losses", named, "leave autocast and casts out")


def _too_coarse(key: str, named: str, advice: str) -> ConfigError:
    problem = f"is too coarse for norms that are to hold; {advice}"
    return ConfigError(key, named, problem, [str(each) for each in _PRECISE])


def require_no_own_backward(nodes: Iterable[Any]) -> None:
    """Report functions with a backward pass written by hand, except Opacus' own hooks.

    Their effect on a gradient may depend on its size, so a test on one batch does not cover the
    next.

    Args:
        nodes: nodes of the autograd graph behind the losses.

    Raises:
        WithoutNormsError: names the function.
    """
    for node in nodes:
        made_by = getattr(type(node), "_forward_cls", None)
        if isinstance(node, BackwardCFunction) and made_by is not BackwardHookFunction:
            raise WithoutNormsError(
                "dp_sgd.losses",
                getattr(made_by, "__name__", type(node).__name__),
                "is a function with a backward of its own, which may change gradients unseen",
            )


class TensorHooksTold(TorchFunctionMode):
    """A context that reports hooks on tensors; those on parameters are checked elsewhere."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call ``func``, unless it registers a hook.

        Raises:
            WithoutNormsError: a gradient is altered.
        """
        if func is Tensor.register_hook and not isinstance(args[0], nn.Parameter):
            raise WithoutNormsError(
                "dp_sgd.losses",
                "register_hook",
                "puts a hook on a tensor, which may change gradients unseen",
            )
        return func(*args, **(kwargs or {}))
