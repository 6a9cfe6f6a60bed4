"""The training loop: batches, clipped sums, noise, steps, and the released events."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.dp_sgd.clipping import ExampleLosses, count_uses
from secure_fedrec.dp_sgd.gradients import ExampleGradients
from secure_fedrec.dp_sgd.lattice import LatticeNoise
from secure_fedrec.dp_sgd.layers import refused, require_clippable
from secure_fedrec.dp_sgd.separate import Batch
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.base.events import Event, GaussianNoise, Sampling
from secure_fedrec.protection.dp.sampler import secret_words
from secure_fedrec.protection.dp.tables import NoiseTable
from secure_fedrec.settings import Count, Positive, Rate, Settings

_MARGIN = 1 - 2.0**-10
_AT_ONCE = 64  # examples whose losses are looked at together


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
        model: any layers but batch and instance normalisation, without buffers, in float32 or
            float64 throughout, without autocast, without hooks on modules or parameters. It is fast
            where Opacus has a formula for the layers' norms (embedding, linear, convolution, layer
            and group normalisation) and every trainable parameter is used once per forward pass, by
            a call of its own layer on a tensor whose first dimension counts the examples: an item
            table that scores positives and negatives is called once, on both stacked along a later
            dimension. Everything else (recurrent layers, attention, bags of embeddings, tied
            weights) is trained example by example, with one backward pass each. Rows of
            ``padding_idx`` stay.
        data: tensors of equal first dimension, one row per example.
        losses: per-example losses, float[n]; it must call the model it is given, and each loss must
            depend on its own example only (no negatives from the batch, no statistics of it,
            detached or not, no division by its size; only the first batch is checked); random
            numbers come from torch's default generator.
        optimizer: over the model's trainable parameters.
        config: settings.

    Returns:
        The events that the trained parameters release, to be priced by
        ``secure_fedrec.accounting``.

    Raises:
        ConfigError: the data are empty or of unequal lengths, the model is not as above, the
            optimiser holds other parameters, or ones that no example's loss uses, or the losses are
            not one per example or mix the examples. Losses are checked at the first batch that is
            not empty; the parameters then have the values of the last good step.
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
        _require_used(model, weights, losses, data)
        padding = _padding_rows(model)
        with ExampleGradients(model, weights, losses, config.clip * _MARGIN) as gradients:
            for _ in range(config.steps):
                optimizer.zero_grad()
                chosen = _poisson_batch(size, config.rate)
                if len(chosen):
                    gradients.leave(tuple(column[chosen] for column in data))
                _noise_gradients(list(weights.values()), noise, config.expected_batch)
                optimizer.step()
                for row, kept in padding:  # padding rows depend on no example: restored
                    row.copy_(kept)
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
    require_clippable(model)
    held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    if held != {id(weight) for weight in model.parameters() if weight.requires_grad}:
        raise ConfigError(
            "dp_sgd.optimizer", type(optimizer).__name__, "must hold the model's parameters"
        )
    return sizes.pop()


def _require_used(
    model: nn.Module, weights: dict[str, nn.Parameter], losses: ExampleLosses, data: Batch
) -> None:
    """Refuse parameters that no loss uses: noise alone would move them."""
    left = dict(weights)
    devices = {each.device.index for each in weights.values() if each.is_cuda}
    with torch.random.fork_rng(devices=sorted(each for each in devices if each is not None)):
        for start in range(0, len(data[0]), _AT_ONCE):
            uses = count_uses(losses(model, tuple(each[start : start + _AT_ONCE] for each in data)))
            left = {name: weight for name, weight in left.items() if not uses[id(weight)]}
            if not left:
                return
    raise refused(next(iter(left)), "is not used by the losses; freeze it")


def _padding_rows(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Padding rows of tables, and their values."""
    rows = [
        layer.weight.detach()[layer.padding_idx]
        for layer in model.modules()
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.padding_idx is not None
    ]
    return [(row, row.clone()) for row in rows]


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
            participation="hidden",  # one draw per step, also for an empty batch
            distance=min(1.0, size * table.distance),
            assumes=(
                "floating-point error in gradients stays within 2^-10 of the clip",
                "nothing but the trained parameters leaves the client",
            ),
        ),
    )
