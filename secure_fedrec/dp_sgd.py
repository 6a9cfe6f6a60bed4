"""A client's local training with differential privacy for its single examples (DP-SGD).

Each step draws its batch by Poisson sampling, clips every example's gradient, sums, adds Gaussian
noise and hands the result to any torch optimiser (Abadi et al. 2016). Clipping is Opacus' ghost
clipping (Li, Tramer, Liang and Hashimoto 2022): per-example norms without per-example gradients,
which is what makes embedding tables bearable.

Two things differ from Opacus' own optimiser. Batches and noise come from AES-256-CTR keyed by the
operating system instead of torch's Mersenne twister. And the noise is added on a lattice: the
summed gradient is rounded to multiples of a step g, and integer noise from an exact table is added,
so no floating-point pattern of the result tells what was under the noise. Rounding adds at most
sqrt(d) g to the sensitivity; g is chosen so that the noise covers clip plus that, and the guarantee
is the Gaussian mechanism's at the stated multiplier.

Limits. The claim is about one example of one client (not about the client), against everybody who
sees what the client sends after training. Norms and sums of gradients are computed by torch in
floating point: a margin of 2^-10 of the clip is set aside for their error, which covers float32
sums of about 100 examples in the worst case and far more in practice; nothing is proved about the
kernels themselves. Time and memory of the training are not hidden, nor whether it was refused.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping
from opacus.validators import ModuleValidator
from torch import Tensor, nn

from secure_fedrec.arrays import FloatArray
from secure_fedrec.errors import ConfigError, EncodingError
from secure_fedrec.protection.dp.events import Event, GaussianNoise, Sampling
from secure_fedrec.protection.dp.sampler import draw_noise, secret_words
from secure_fedrec.protection.dp.tables import NoiseTable, noise_table

__all__ = ["DpSgdConfig", "LatticeNoise", "train_privately"]

ExampleLosses: TypeAlias = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]
"""Given the model and a batch of n examples, their n losses."""

_MARGIN = 1 - 2.0**-10
_ROUNDING_SHARE = 16  # noise at least 16 times what rounding can add: at most 6.7 % more noise
_MOST_SIGMA = 2**15


@dataclass(frozen=True, slots=True, kw_only=True)
class DpSgdConfig:
    """Settings of private local training; all are public.

    Args:
        steps: number of optimiser steps.
        rate: probability with which each example is in a step's batch.
        clip: largest L2 norm of one example's gradient.
        noise_multiplier: standard deviation of the noise over the clip (rounding included).
        expected_batch: number by which noisy sums are divided. A constant: the true size of the
            client's data or batch would be a release of its own.

    Raises:
        ConfigError: a field is out of range.
    """

    steps: int
    rate: float
    clip: float
    noise_multiplier: float
    expected_batch: float

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigError("dp_sgd.steps", self.steps, "must be at least 1")
        if not 0 < self.rate <= 1:
            raise ConfigError("dp_sgd.rate", self.rate, "must be above 0 and at most 1")
        for name in ("clip", "noise_multiplier", "expected_batch"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"dp_sgd.{name}", value, "must be positive and finite")


class LatticeNoise:
    """Gaussian noise on multiples of a step, added to vectors of bounded sensitivity.

    With step g, sensitivity C and d coordinates, rounded vectors of neighbours differ by at most
    C / g + sqrt(d) steps; the noise has ``multiplier`` times that as its standard deviation.

    Args:
        size: d.
        sensitivity: C, L2.
        multiplier: standard deviation over sensitivity.

    Raises:
        ConfigError: d is so large that the noise table would be too long.
    """

    __slots__ = ("size", "step", "table")

    size: int
    step: float
    table: NoiseTable

    def __init__(self, *, size: int, sensitivity: float, multiplier: float) -> None:
        root = math.sqrt(size)
        sigma = 2.0 ** max(6, math.ceil(math.log2(_ROUNDING_SHARE * multiplier * root)))
        if sigma > _MOST_SIGMA:
            raise ConfigError(
                "dp_sgd.noise_multiplier",
                multiplier,
                f"on {size} parameters the noise would span {sigma:g} lattice steps, above "
                f"{_MOST_SIGMA}; train fewer parameters or lower the multiplier",
            )
        self.size = size
        self.table = noise_table("rounded-gaussian", sigma)
        self.step = math.nextafter(sensitivity / (sigma / multiplier - root), math.inf)

    def add(self, values: FloatArray) -> FloatArray:
        """``values`` rounded to the lattice, plus noise: float64[size].

        Raises:
            EncodingError: a value is NaN, infinite, or beyond 2^52 steps.
        """
        scaled = values / self.step
        if not float(np.abs(scaled).max(initial=0.0)) < 2.0**52:  # NaN compares false
            raise EncodingError(
                "a summed gradient is NaN, infinite or too large: training diverged"
            )
        steps = np.rint(scaled).astype(np.int64) + draw_noise(self.table, self.size)
        return np.asarray(steps * self.step)


def train_privately(
    model: nn.Module,
    data: tuple[Tensor, ...],
    losses: ExampleLosses,
    optimizer: torch.optim.Optimizer,
    config: DpSgdConfig,
) -> tuple[Event, ...]:
    """Train a model in place.

    Args:
        model: layers that Opacus can clip by ghost norms (embeddings, linear, normalisation per
            example); no batch normalisation, no tied parameters.
        data: tensors of equal first dimension, one row per example.
        losses: per-example losses, float[n]; it must call the model it is given, and each loss must
            depend on its own example only (no negatives from the batch).
        optimizer: over the model's trainable parameters.
        config: settings.

    Returns:
        What the trained parameters release, to be priced by ``secure_fedrec.accounting``.

    Raises:
        ConfigError: the data are empty or of unequal lengths, Opacus cannot make the model private,
            the optimiser holds other parameters, or the losses are not one per example.
        EncodingError: training diverged; the parameters are as after the last good step.
    """
    training = model.training
    try:
        # Opacus judges and hooks a model in training mode only.
        size = _require_fit(model.train(), data, optimizer)
        return _train(model, size, data, losses, optimizer, config)
    finally:
        optimizer.zero_grad()
        model.train(training)


def _train(
    model: nn.Module,
    size: int,
    data: tuple[Tensor, ...],
    losses: ExampleLosses,
    optimizer: torch.optim.Optimizer,
    config: DpSgdConfig,
) -> tuple[Event, ...]:
    parameters = [weight for weight in model.parameters() if weight.requires_grad]
    dimension = sum(weight.numel() for weight in parameters)
    noise = LatticeNoise(
        size=dimension, sensitivity=config.clip, multiplier=config.noise_multiplier
    )
    ghost = GradSampleModuleFastGradientClipping(
        model, loss_reduction="sum", max_grad_norm=config.clip * _MARGIN
    )
    try:
        for _ in range(config.steps):
            optimizer.zero_grad()
            chosen = _poisson_batch(size, config.rate)
            if len(chosen):
                batch = tuple(column[chosen] for column in data)
                _clipped_backward(ghost, optimizer, losses, batch)
            _noise_gradients(parameters, noise, config.expected_batch)
            optimizer.step()
    finally:
        ghost.to_standard_module()
    return _events(config, dimension, noise.table)


def _require_fit(
    model: nn.Module, data: tuple[Tensor, ...], optimizer: torch.optim.Optimizer
) -> int:
    sizes = {len(column) for column in data}
    if len(sizes) != 1 or sizes == {0}:
        raise ConfigError("dp_sgd.data", sorted(sizes), "columns need one common length above 0")
    problems: Sequence[Any] = ModuleValidator.validate(model, strict=False)
    if problems:
        raise ConfigError(
            "dp_sgd.model", type(model).__name__, "; ".join(str(problem) for problem in problems)
        )
    for layer in model.modules():
        if getattr(layer, "sparse", False):
            raise ConfigError("dp_sgd.model", type(layer).__name__, "gradients must be dense")
    held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    if held != {id(weight) for weight in model.parameters() if weight.requires_grad}:
        raise ConfigError(
            "dp_sgd.optimizer", type(optimizer).__name__, "must hold the model's parameters"
        )
    return sizes.pop()


def _poisson_batch(size: int, rate: float) -> Tensor:
    """Positions chosen independently with probability ``rate``, rounded down to 2^-64."""
    words = secret_words(size)
    if rate == 1:
        return torch.arange(size)
    return torch.from_numpy(np.flatnonzero(words < np.uint64(math.floor(rate * 2.0**64))))


def _clipped_backward(
    ghost: Any,
    optimizer: torch.optim.Optimizer,
    losses: ExampleLosses,
    batch: tuple[Tensor, ...],
) -> None:
    """Leave the sum of the clipped gradients in the parameters."""
    found = losses(ghost, batch)
    if found.shape != (len(batch[0]),):
        raise ConfigError(
            "dp_sgd.losses", tuple(found.shape), f"{len(batch[0])} losses were due, one per example"
        )
    with warnings.catch_warnings():
        # An embedding's input are positions: Opacus' hooks need no gradient with respect to them.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        DPTensorFastGradientClipping(ghost, optimizer, found, "sum").backward()


def _noise_gradients(parameters: list[nn.Parameter], noise: LatticeNoise, divisor: float) -> None:
    flat = np.concatenate(
        [
            np.zeros(weight.numel())
            if weight.grad is None
            else weight.grad.detach().to("cpu", torch.float64).numpy().reshape(-1)
            for weight in parameters
        ]
    )
    noisy = torch.from_numpy(noise.add(flat) / divisor)
    start = 0
    for weight in parameters:
        part = noisy[start : start + weight.numel()].reshape(weight.shape)
        weight.grad = part.to(weight.device, weight.dtype)
        start += weight.numel()


def _events(config: DpSgdConfig, size: int, table: NoiseTable) -> tuple[Event, ...]:
    return (
        Event(
            mechanism=GaussianNoise(multiplier=config.noise_multiplier, form="rounded"),
            covers="one training example of one client",
            adjacency="add-or-remove",
            noised_against=("server", "release"),
            rounds=config.steps,
            sampling=Sampling(rate=config.rate, secret_from=("server", "release")),
            distance=min(1.0, size * table.distance),
            assumes=(
                "floating-point error in gradients stays within 2^-10 of the clip",
                "nothing but the trained parameters leaves the client",
            ),
        ),
    )
