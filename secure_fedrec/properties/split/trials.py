"""Common parts of the trials of all three constraints: their seed, and how results are compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from secure_fedrec.properties.split.model import Values
from secure_fedrec.properties.split.random import generator_of, seeds_of
from secure_fedrec.streams import Streams

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One random trial.

    Args:
        seed: everything random in it is a function of this.
        scale: standard deviation of random parameters.
        users: whose local training, and whose influence, is tested.
        kinds: kinds of the other private values that everything is compared with.
        relations: relation of every user's values to the reader's, where they are drawn from those.
    """

    seed: int
    scale: float
    users: tuple[int, ...]
    kinds: tuple[str, ...]
    relations: tuple[str, ...] = ()

    def generator(self, name: str, user: int = 0) -> torch.Generator:
        """A separate generator for one purpose and user."""
        return generator_of(Streams.from_seed(self.seed), f"split.{name}", user=user)

    def torch_seeds(self, name: str, users: Sequence[int]) -> dict[int, int]:
        """A seed for each of some users."""
        return seeds_of(Streams.from_seed(self.seed), f"split.{name}", users)


def same_bits(left: Values, right: Values) -> bool:
    """Whether two sets of tensors are equal as bit patterns: NaN equals itself, -0.0 is not 0.0."""
    return left.keys() == right.keys() and all(equal_bits(left[name], right[name]) for name in left)


def same_numbers(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are equal as numbers: -0.0 is 0.0, and NaN equals itself."""
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def largest_change(left: Values, right: Values) -> tuple[str, float]:
    """The tensor with the largest absolute difference, and the difference; NaN is largest."""
    sizes = {name: _change(left[name], right[name]) for name in left if name in right}
    name = max(sizes, key=lambda each: (sizes[each] != sizes[each], sizes[each]))
    return name, sizes[name]


def first_change(steps: int, changed: Callable[[int], bool]) -> int:
    """The step of a sequence that changes a result, by bisection.

    Args:
        steps: length of the sequence, at least 1.
        changed: whether the result differs from the original after the first k steps; it does
            after all of them.

    Returns:
        A number k such that the result is the original after k steps and another after k + 1.
    """
    low, high = 0, steps
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if changed(middle) else (middle, high)
    return low


def raw_bytes(tensor: Tensor) -> Tensor:
    """The bytes of a tensor in their order: uint8[bytes]."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    # One number of a column counts as contiguous, and keeps the column's stride.
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)


def equal_bits(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors have one type, shape and bit pattern."""
    if left is right:
        return True
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(_as_integers(left), _as_integers(right))


def _as_integers(tensor: Tensor) -> Tensor:
    """The bits of every number as an integer of its size. Compared a million times, so no copy."""
    found = tensor.detach().resolve_neg()
    if found.is_complex():
        found = torch.view_as_real(found.resolve_conj())
    return found.view(_INTEGERS[found.element_size()])


def _change(left: Tensor, right: Tensor) -> float:
    if not left.numel():
        return 0.0
    if left.shape != right.shape:
        return float("nan")
    wide = torch.complex128 if left.is_complex() or right.is_complex() else torch.float64
    return float((left.detach().to(wide) - right.detach().to(wide)).abs().max())
