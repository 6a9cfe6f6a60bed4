"""Checks that each row of losses depends on one example only, not on others or on the batch size.

A gradient that is clipped must be of one example. So the losses of some rows must be the same, with
their gradients, beside other examples and in a larger batch. This is tried on the first batch.
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
"""Relative difference that floating-point error may make; so much of the clip is set aside."""

_FEWER, _MORE = 1.5, 2.5
"""Between these, twice the examples have as many times the losses, if these are random."""

_REPEATED = 4
"""Losses that are the same so often are not random."""

_DRAWN = 1024
"""Random losses over which a mean is taken, at least."""


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

    The losses of a random half of the batch must have no gradient in the rows of the other, nor the
    other's in its: a maximum is moved by one of them at least. This finds negatives from the batch,
    and first dimensions that count something else and happen to be as long as the batch. And they
    must be the same, with their gradients, beside other examples: this finds what autograd does not
    see, as statistics of the batch that are detached.

    Args:
        name: name of the model.
        batch: batch of two examples or more.
        learn: losses and gradients of the chosen rows (bool[n]) of a batch, always with the same
            random numbers.

    Raises:
        ConfigError: they are not.
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
    """Refuse losses that depend on how many examples are in the batch, as those divided by it.

    One example more would move the others' gradients, each by less than its clip and all together
    by more. Random numbers of the layers are switched off where that is enough; where the losses
    still draw some, only a factor of about two between a batch and its double is found.

    Args:
        model: whose training mode is kept.
        batch: batch of one example or more.
        find: the losses of a batch.

    Raises:
        ConfigError: they do.
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
