"""How large other users' private values are drawn.

Draws of one size do not show what a model or a rule does beyond a threshold: a norm that is
clipped, a user without training, two users with large values. So private values come in several
kinds.
"""

from typing import Final, NamedTuple

import torch
from torch import Tensor

from secure_fedrec.properties.split.model import Values
from secure_fedrec.properties.split.random import is_exact, noise_like

NORMAL: Final = "normal"
UNCHANGED: Final = "unchanged"
MIXED: Final = "mixed"
LOG_UNIFORM: Final = "log-uniform"
MISSING: Final = "missing"
"""A missing value: NaN."""

KINDS: Final = (NORMAL, "thousandfold", "zero", UNCHANGED, MIXED, LOG_UNIFORM)
"""Other normal values; a thousand times as large; zeros; unchanged values; any of these, user by
user; from a millionth to a million times as large, user by user."""

_FACTOR: Final = {
    "zero": 0.0,
    NORMAL: 1.0,
    "thousandfold": 1000.0,
    UNCHANGED: float("nan"),
    MISSING: 1.0,
}
_MIXED: Final = ("zero", NORMAL, "thousandfold", UNCHANGED)
_DECADES = 6


class Drawn(NamedTuple):
    """How large the values of every user are.

    Args:
        factors: float64[n_users], of the standard deviation; NaN for values that stay.
        kinds: kinds of every user's values, but for those that are mixed.
        missing: whether values are NaN instead.
        sign: sign of all values; 0 for any.
    """

    factors: Tensor
    kinds: tuple[str, ...]
    missing: bool = False
    sign: int = 0

    def resized(self, user: int, values: Values, old: Values) -> dict[str, Tensor]:
        """One user's drawn values, made as large as this kind is."""
        factor = self.factors[user]
        return {name: self._resized(value, old[name], factor) for name, value in values.items()}

    def values(
        self, old: Tensor, scale: float, generator: torch.Generator, user: int | None = None
    ) -> Tensor:
        """New values of a tensor: one user's, or a table of all users' (``user`` is None)."""
        factors = self.factors if user is None else self.factors[user]
        factors = factors.reshape(factors.shape + (1,) * (old.dim() - factors.dim()))
        return self._resized(noise_like(old, scale, generator), old, factors)

    def _resized(self, drawn: Tensor, old: Tensor, factors: Tensor) -> Tensor:
        if self.sign and drawn.is_floating_point():
            drawn = self.sign * drawn.abs()
        if is_exact(old):
            drawn = drawn * (factors != 0).to(drawn.dtype)
        elif self.missing:
            drawn = torch.full_like(drawn, float("nan"))
        else:
            drawn = _fitting(drawn, factors.nan_to_num(1.0))
        return torch.where(factors.isnan(), old, drawn)


def kinds_of(seed: int) -> tuple[str, str]:
    """The two kinds of a trial. Nine trials in a row meet each kind three times, at every scale."""
    first = 2 * (seed + seed // 3)
    return KINDS[first % len(KINDS)], KINDS[(first + 1) % len(KINDS)]


def sign_of(seed: int) -> int:
    """The sign of all normal values of a trial; 0 for any.

    In nine successive trials, normal values occur once with any sign, once with each sign.
    """
    turn = seed // 3
    return 1 if turn % 2 else -1 if turn % 4 else 0


def drawn(
    kind: str, users: int, generator: torch.Generator, *, sign: int = 0, variant: bool = False
) -> Drawn:
    """How large the private values of all users are, of one kind.

    Args:
        kind: one of ``KINDS``.
        users: how many.
        generator: of what is drawn user by user.
        sign: sign of normal values; 0 for any.
        variant: whether one user's values change where the others' stay.
    """
    if kind == MIXED:
        places = torch.randint(len(_MIXED), (users,), generator=generator).tolist()
        kinds = tuple(_MIXED[place] for place in places)
        return Drawn(torch.tensor([_FACTOR[each] for each in kinds], dtype=torch.float64), kinds)
    if kind == LOG_UNIFORM:
        uniform = torch.rand(users, generator=generator, dtype=torch.float64)
        return Drawn(10 ** (_DECADES * (2 * uniform - 1)), (kind,) * users)
    each = [kind] * users
    if variant and kind == UNCHANGED:
        each[int(torch.randint(users, (), generator=generator))] = NORMAL
    factors = torch.tensor([_FACTOR[one] for one in each], dtype=torch.float64)
    return Drawn(factors, tuple(each), missing=kind == MISSING, sign=sign if kind == NORMAL else 0)


def _fitting(values: Tensor, factors: Tensor) -> Tensor:
    """The product in the type of the values, limited to avoid overflow: float16 ends at 65504."""
    if values.is_complex():
        return (values.to(torch.complex128) * factors).to(values.dtype)
    bound = torch.finfo(values.dtype).max / 16
    return (values.to(torch.float64) * factors).clamp(-bound, bound).to(values.dtype)
