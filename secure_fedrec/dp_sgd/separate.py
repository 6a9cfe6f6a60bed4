"""Checks that each row of losses depends on one example only, not on others or on the batch size.

A clipped gradient must depend on one example. So losses of rows, and their gradients, must not
change with other examples or in a larger batch. This is tried on the first batch.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.dp_sgd.layers import refused
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.dp.sampler import secret_words

Batch: TypeAlias = tuple[Tensor, ...]

TOLERANCE = 2.0**-10
"""Largest relative floating-point error, and the share of the clip that is set aside for it."""

_FEWER, _MORE = 1.5, 2.5
"""If losses are random, doubling the batch must change them by a factor outside this range to be
refused."""

_REPEATED = 4
"""Number of equal repetitions after which losses count as not random."""

_DRAWN = 1024
"""Fewest random losses in a mean."""


class Learned(NamedTuple):
    """Losses and gradients of some rows of a batch.

    Attributes:
        losses: float[rows].
        norms: by parameter, float[n], of all rows; empty where they are not known.
        gradient: the summed one; empty where it is not known.
    """

    losses: Tensor
    norms: dict[str, Tensor]
    gradient: Tensor


def losses_of(found: Tensor, count: int) -> Tensor:
    """Losses, one per example.

    Raises:
        ConfigError: the loss does not return one value per example.
    """
    if found.shape != (count,):
        problem = f"{count} losses were due, one per example"
        raise ConfigError("dp_sgd.losses", tuple(found.shape), problem)
    return found


def require_separate(name: str, batch: Batch, learn: Callable[[Batch, Tensor], Learned]) -> None:
    """Refuse losses, or inputs of layers, whose rows are not one example each.

    The losses of a random half of the batch must not have gradients in the rows of the other half,
    and vice versa: a maximum depends on one of them at least. This detects negatives from the
    batch, and first dimensions that only happen to be as long as the batch. Losses and gradients
    must also be the same with other examples in the batch: this detects dependence that autograd
    does not show, such as detached statistics of the batch.

    Args:
        name: name of the model.
        batch: batch of two examples or more.
        learn: losses and gradients of the chosen rows (bool[n]) of a batch, always with the same
            random numbers.

    Raises:
        ConfigError: rows are not one example each.
    """
    half = np.argsort(secret_words(len(batch[0])))[: len(batch[0]) // 2]
    chosen = torch.zeros(len(batch[0]), dtype=torch.bool)
    chosen[half] = True
    for each in (chosen, ~chosen):
        _require_separate_from_others(name, batch, each, learn)


def _require_separate_from_others(
    model: str, batch: Batch, chosen: Tensor, learn: Callable[[Batch, Tensor], Learned]
) -> None:
    alone = learn(batch, chosen)
    for name, norm in alone.norms.items():
        # NaN means divergence, which adding noise reports.
        if bool((norm.cpu()[~chosen] > 0).any()):
            raise refused(name, "the losses of some examples depend on others' rows")
    rows = torch.arange(len(chosen))
    rows[~chosen] = int(chosen.nonzero()[0])
    if _differ(alone, learn(tuple(column[rows] for column in batch), chosen)):
        problem = (
            "an example's loss or gradient depends on the other examples of its batch: "
            "statistics of a batch, detached or not, mix examples; use layer or group "
            "normalisation"
        )
        if _differ(alone, learn(batch, chosen)):
            problem = (
                "draws random numbers that are not of torch's default generator, so what an "
                "example depends on cannot be told; draw them from it, or before training"
            )
        raise refused(model, problem)


def _differ(one: Learned, other: Learned) -> bool:
    """Whether results of the same rows differ by more than floating-point error; NaN is ignored."""
    pairs = [(one.losses, other.losses), (one.gradient, other.gradient)]
    pairs += [(one.norms[name].cpu(), other.norms[name].cpu()) for name in one.norms]
    return any(_apart(first, second) for first, second in pairs)


def _apart(first: Tensor, second: Tensor) -> bool:
    return bool((first - second).norm() > TOLERANCE * torch.maximum(first.norm(), second.norm()))


def require_no_batch_size(model: nn.Module, batch: Batch, find: Callable[[Batch], Tensor]) -> None:
    """Refuse losses that depend on the size of the batch, such as losses divided by it.

    One more example would then change the others' gradients, by more than the clip in total. Random
    numbers of layers are switched off; if losses still draw some, only a factor of about two
    between a batch and its double is detected.

    Args:
        model: whose training mode is kept.
        batch: batch of one example or more.
        find: the losses of a batch.

    Raises:
        ConfigError: the loss depends on the size of the batch.
    """
    count, training = len(batch[0]), model.training
    double = tuple(torch.cat([column, column]) for column in batch)
    used = {weight.device.index for weight in model.parameters() if weight.is_cuda}

    def total(of: Batch, draws: int) -> float:
        each = [find(of).detach().double().abs().sum() for _ in range(draws)]
        return float(torch.stack(each).mean())

    # With gradients enabled, since losses may put hooks on tensors.
    with torch.random.fork_rng(devices=sorted(i for i in used if i is not None)):
        for learning in (training, False):
            model.train(learning)
            once = losses_of(find(batch), count).detach()
            if not any(_apart(once, find(batch).detach()) for _ in range(_REPEATED)):
                differ = _apart(once, losses_of(find(double), 2 * count).detach()[:count])
                break
        else:
            draws = -(-_DRAWN // count)
            whole = total(batch, draws)
            differ = whole > 0 and not _FEWER <= total(double, draws) / whole <= _MORE
        model.train(training)
    if differ:
        problem = (
            "the losses depend on the number of examples in the batch; leave out what divides by "
            "it: noisy sums are divided by expected_batch"
        )
        raise ConfigError("dp_sgd.losses", count, problem)
