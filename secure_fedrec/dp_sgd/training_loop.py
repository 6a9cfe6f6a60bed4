"""The training loop: batches, clipped sums, noise, steps, and what they release."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.dp_sgd.clipping import ClippedGradients, ExampleLosses
from secure_fedrec.dp_sgd.lattice import LatticeNoise
from secure_fedrec.dp_sgd.layers import require_layers
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.base.events import Event, GaussianNoise, Sampling
from secure_fedrec.protection.dp.sampler import secret_words
from secure_fedrec.protection.dp.tables import NoiseTable
from secure_fedrec.settings import Count, Positive, Rate, Settings

_MARGIN = 1 - 2.0**-10


class DpSgdConfig(Settings, section="dp_sgd"):
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

    steps: Count
    rate: Rate
    clip: Positive
    noise_multiplier: Positive
    expected_batch: Positive


def train_privately(
    model: nn.Module,
    data: tuple[Tensor, ...],
    losses: ExampleLosses,
    optimizer: torch.optim.Optimizer,
    config: DpSgdConfig,
) -> tuple[Event, ...]:
    """Train a model in place.

    Args:
        model: layers whose gradients' norms Opacus has a formula for (embedding, linear,
            convolution, layer and group normalisation); no batch or instance normalisation, no
            buffers. Every trainable parameter is used once per forward pass, by a call of its own
            layer on a tensor whose first dimension counts the examples: an unused one is refused,
            and so are tied weights, ``h @ table.weight.T`` and penalties on weights within the
            losses (weight decay belongs in the optimiser). An item table that scores positives and
            negatives is called once, on both stacked along a later dimension. float32 or float64
            throughout, without autocast; no hooks on modules or parameters.
        data: tensors of equal first dimension, one row per example.
        losses: per-example losses, float[n]; it must call the model it is given, and each loss must
            depend on its own example only (no negatives from the batch, no statistics of it,
            detached or not, in any batch: only the first is searched for them), without backward
            passes of its own or hooks on tensors; random numbers come from torch's default
            generator.
        optimizer: over the model's trainable parameters.
        config: settings.

    Returns:
        What the trained parameters release, to be priced by ``secure_fedrec.accounting``.

    Raises:
        ConfigError: the data are empty or of unequal lengths, the model is not as above, the
            optimiser holds other parameters, or the losses are not one per example or mix the
            examples. What the losses do shows at the first batch that is not empty; the parameters
            are then as after the last good step.
        EncodingError: training diverged; the parameters are as after the last good step.
    """
    training = model.training
    try:
        # Opacus judges and hooks a model in training mode only.
        size = _require_fit(model.train(), data, optimizer)
        named = model.named_parameters()
        weights = {name: weight for name, weight in named if weight.requires_grad}
        dimension = sum(weight.numel() for weight in weights.values())
        noise = LatticeNoise(
            size=dimension, sensitivity=config.clip, multiplier=config.noise_multiplier
        )
        with ClippedGradients(model, weights, losses, config.clip * _MARGIN) as gradients:
            for _ in range(config.steps):
                optimizer.zero_grad()
                chosen = _poisson_batch(size, config.rate)
                if len(chosen):
                    gradients.leave(tuple(column[chosen] for column in data))
                _noise_gradients(list(weights.values()), noise, config.expected_batch)
                optimizer.step()
        return _events(config, dimension, noise.table)
    finally:
        optimizer.zero_grad()
        model.train(training)


def _require_fit(
    model: nn.Module, data: tuple[Tensor, ...], optimizer: torch.optim.Optimizer
) -> int:
    sizes = {len(column) for column in data}
    if len(sizes) != 1 or sizes == {0}:
        raise ConfigError("dp_sgd.data", sorted(sizes), "columns need one common length above 0")
    require_layers(model)
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


def _noise_gradients(parameters: list[nn.Parameter], noise: LatticeNoise, divisor: float) -> None:
    sizes = [weight.numel() for weight in parameters]
    found = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
    flat = torch.cat([each.detach().to("cpu", torch.float64).reshape(-1) for each in found])
    noisy = torch.from_numpy(noise.add(flat.numpy()) / divisor)
    for weight, part in zip(parameters, torch.split(noisy, sizes), strict=True):
        weight.grad = part.reshape(weight.shape).to(weight.device, weight.dtype)


def _events(config: DpSgdConfig, size: int, table: NoiseTable) -> tuple[Event, ...]:
    return (
        Event(
            mechanism=GaussianNoise(multiplier=config.noise_multiplier, form="rounded"),
            covers="one training example of one client",
            adjacency="add-or-remove",
            noised_against=("server", "release"),
            rounds=config.steps,
            sampling=Sampling(rate=config.rate, secret_from=("server", "release")),
            participation="hidden",  # one draw a step, over a constant, for an empty batch too
            distance=min(1.0, size * table.distance),
            assumes=(
                "floating-point error in gradients stays within 2^-10 of the clip",
                "nothing but the trained parameters leaves the client",
            ),
        ),
    )
