"""Random data for tests: every draw is a function of a seed, a name, a round and a user."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.errors import ConfigError
from secure_fedrec.streams import Streams

Batches: TypeAlias = Callable[[int, torch.Generator], Batch]
"""Draws a user's batch: (user, generator) -> columns by name."""

Column: TypeAlias = Callable[[int, torch.Generator], Tensor]
"""Draws one column of a batch: (examples, generator) -> tensor[examples, ...]."""


def random_batches(size: int, **columns: Column) -> Batches:
    """Batches of random columns with the same distribution for all users.

    Example::

        batches = random_batches(8, item=integers(50), rating=normals())

    Args:
        size: examples per batch.
        columns: from ``integers``, ``normals``, or your own.

    Raises:
        ConfigError: batches would be empty.
    """
    if size < 1 or not columns:
        raise ConfigError("random_batches", (size, *columns), "need an example and a column")

    def draw(_user: int, generator: torch.Generator) -> Batch:
        return {name: column(size, generator) for name, column in columns.items()}

    return draw


def integers(below: int, *shape: int) -> Column:
    """A column of int64 from 0 to ``below - 1``: item numbers, characters, classes.

    Raises:
        ConfigError: the integer is out of range.
    """
    if below < 1:
        raise ConfigError("integers", below, "must be at least 1")
    return lambda size, generator: torch.randint(below, (size, *shape), generator=generator)


def normals(*shape: int) -> Column:
    """A column of float32 from the standard normal distribution."""
    return lambda size, generator: torch.randn((size, *shape), generator=generator)


def seeds_of(streams: Streams, name: str, users: Sequence[int], round_: int = 0) -> dict[int, int]:
    """A 63-bit seed for torch by user."""
    places = np.zeros(len(users), dtype=np.int64)
    words = streams.stream(name).words_at(round_, np.array(users), places, width=1)
    return dict(zip(users, (words[:, 0] >> np.uint64(1)).tolist(), strict=True))


def generator_of(streams: Streams, name: str, round_: int = 0, user: int = 0) -> torch.Generator:
    """A torch generator of its own; the global one is never drawn from."""
    return torch.Generator().manual_seed(seeds_of(streams, name, [user], round_)[user])


def is_exact(tensor: Tensor) -> bool:
    """Whether it holds integers or booleans, which cannot be averaged."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def noise_like(tensor: Tensor, scale: float, generator: torch.Generator) -> Tensor:
    """Normal noise of a tensor's shape, type and device; integers from 1 to 1000 for integers."""
    if not is_exact(tensor):
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        drawn = torch.randn(tensor.shape, generator=generator, dtype=wide) * scale
    else:
        drawn = torch.randint(1, 1001, tensor.shape, generator=generator)
    return drawn.to(tensor.device, tensor.dtype)
