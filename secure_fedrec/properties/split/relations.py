"""How other users' values are related to the reader's.

Independent draws do not show how a model or a rule behaves if another user's values equal one's
own, are near them, or are multiples of them. So others' values are drawn from the reader's, too.
If only one user's values are related, the others' are drawn from other tensors of the same shape:
the reader's other private values, and federated ones or rows of them.
"""

from collections.abc import Callable, Mapping, Sequence
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
ACROSS: Final = "like another tensor"

RELATIONS: Final = (COPY, MULTIPLE, ALIKE, NEAR, PERMUTED)

Related: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(the reader's values, this user's as they are) -> this user's, related to the reader's."""

_ACROSS: Final = (COPY, MULTIPLE, NEAR)

# Range of the offset e: powers of ten, relative to the reader's values.
_SMALLEST, _LARGEST = -6.0, -1.0
_DECADES = 2  # range of the factor c, and of its inverse


def relations_of(seed: int, users: int, *, each: bool = False) -> tuple[str, ...]:
    """The relation of every user's values to the reader's in a trial.

    Of three trials one has another relation for each user, one the same for all, and in one a
    single user's values are related. All take turns.

    Args:
        seed: seed of the trial.
        users: how many there are.
        each: another relation for each user, whatever the seed.
    """
    turn, mode = divmod(seed, 3)
    if each or mode == 0:
        return tuple(RELATIONS[(user + 2 * turn) % len(RELATIONS)] for user in range(users))
    if mode == 1:
        return (RELATIONS[turn % len(RELATIONS)],) * users
    kind = RELATIONS[(turn + 3) % len(RELATIONS)]  # differs from the trial before
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


class Across:
    """Values made from other tensors, such as keys from a query, or users from items.

    Args:
        mine: the reader's private values.
        federated: those of all.
        seed: seed of the trial; which tensor and which relation a user gets takes turns.
    """

    def __init__(
        self, mine: Mapping[str, Tensor], federated: Mapping[str, Tensor], seed: int
    ) -> None:
        self._turn = seed // 3
        self._tables = {
            name: [
                *(each[None] for key, each in mine.items() if key != name and _fits(each, value)),
                *(each[None] for each in federated.values() if _fits(each, value)),
                *(each for each in federated.values() if _has(each, value)),
            ]
            for name, value in mine.items()
        }

    def values(
        self, user: int, now: Mapping[str, Tensor], draw: torch.Generator
    ) -> dict[str, Tensor]:
        """A user's values, some of them made from others; ``now`` are the present ones."""
        found = dict(now)
        for name, tables in self._tables.items():
            if tables:
                turn, place = divmod(user + self._turn, len(tables))
                table = tables[place]
                row = table[int(torch.randint(len(table), (), generator=draw))]
                make = related(_ACROSS[(turn + self._turn) % len(_ACROSS)], 0.0, draw, 0)
                found[name] = make(row, now[name])
        return found

    def kinds(self, relations: Sequence[str]) -> list[str]:
        """The kinds of all users' values, without draws for those that stay."""
        kind = ACROSS if any(self._tables.values()) else NORMAL
        return [kind if each == NORMAL else each for each in relations]


def _fits(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _has(table: Tensor, row: Tensor) -> bool:
    rows = table.dim() > 0 and len(table) > 0 and table.shape[1:] == row.shape
    return rows and table.dtype == row.dtype
