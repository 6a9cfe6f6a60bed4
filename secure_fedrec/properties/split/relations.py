"""How other users' values are related to the reader's.

What a model or a rule does where somebody else's values are equal to one's own, near them or
multiples of them, no independent draw finds. So others' values are drawn from the reader's, too.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import torch
from torch import Tensor

from secure_fedrec.properties.split.random import noise_like
from secure_fedrec.properties.split.scales import NORMAL

COPY: Final = "copy of the reader"
MULTIPLE: Final = "reader x c"
ALIKE: Final = "all others alike"
NEAR: Final = "reader + e"
PERMUTED: Final = "permutation of the reader"

RELATIONS: Final = (COPY, MULTIPLE, ALIKE, NEAR, PERMUTED)

Related: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(the reader's values, this user's as they are) -> this user's, related to the reader's."""

_SMALLEST, _LARGEST = -6.0, -1.0  # decades of e, relative to the reader's values
_DECADES = 2  # of c, up and down


def relations_of(seed: int, users: int, *, each: bool = False) -> tuple[str, ...]:
    """What every user's values are to the reader's in a trial.

    Of three trials one has another relation for each user, one the same for all, and in one a
    single user's values are related. All take turns.

    Args:
        seed: of the trial.
        users: how many there are.
        each: another relation for each user, whatever the seed.
    """
    turn, mode = divmod(seed, 3)
    if each or mode == 0:
        return tuple(RELATIONS[(user + 2 * turn) % len(RELATIONS)] for user in range(users))
    if mode == 1:
        return (RELATIONS[turn % len(RELATIONS)],) * users
    kind = RELATIONS[(turn + 3) % len(RELATIONS)]  # not the one that all had in the trial before
    one = (turn + turn // len(RELATIONS)) % users
    return tuple(kind if user == one else NORMAL for user in range(users))


def related(kind: str, scale: float, generator: torch.Generator, shared: int) -> Related:
    """How one user's values of any tensor are made from the reader's.

    Args:
        kind: one of ``RELATIONS``, or ``NORMAL`` for values that stay as they are.
        scale: standard deviation of values that are alike among users and not the reader's.
        generator: of what differs from user to user.
        shared: seed of what all users of a kind have in common.
    """
    if kind == NORMAL:
        return lambda _mine, other: other
    if kind == COPY:
        return lambda mine, _other: mine
    if kind == ALIKE:
        common = torch.Generator().manual_seed(shared)
        return lambda mine, _other: noise_like(mine, scale, common)
    if kind == PERMUTED:
        return lambda mine, _other: mine.reshape(-1)[
            torch.randperm(mine.numel(), generator=generator)
        ].reshape(mine.shape)
    uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
    if kind == MULTIPLE:
        factor = 10 ** (_DECADES * (2 * uniform - 1))
        if torch.rand((), generator=generator) < 0.25:
            factor = -factor
        return lambda mine, _other: (mine * factor).to(mine.dtype)
    near = 10 ** (_SMALLEST + (_LARGEST - _SMALLEST) * uniform)

    def moved(mine: Tensor, _other: Tensor) -> Tensor:
        size = float(mine.abs().to(torch.float64).square().mean().sqrt()) if mine.numel() else 0.0
        return mine + noise_like(mine, near * size, generator)

    return moved
