"""Facts about organisations that a learner needs in addition to records, for all or one of them."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray


class Catalogues(Protocol):
    """Sizes and items of organisations, which a learner has to know beside their records."""

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each of the C clients."""

    @property
    def attributes(self) -> tuple[BoolArray, ...]:
        """bool[items of c, K] per client, attributes of its items."""

    @property
    def levels(self) -> FloatArray:
        """float64[L], values a score may take, ascending."""

    @property
    def n_attributes(self) -> int:
        """K."""

    @property
    def n_users(self) -> tuple[int, ...]:
        """Users per client."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OneCatalogue:
    """The sizes and items of one organisation; the others are of one user and one item each.

    Args:
        client: number of the organisation; None for none.
        n_clients: C.
        users: its users.
        items: bool[m, K], attributes of its items.
        levels: as of ``Organisations``.
    """

    client: int | None
    n_clients: int
    users: int
    items: BoolArray = field(repr=False)
    levels: FloatArray

    @property
    def names(self) -> tuple[str, ...]:
        """Names made of numbers."""
        return tuple(map(str, range(self.n_clients)))

    @property
    def attributes(self) -> tuple[BoolArray, ...]:
        """Attributes of its items, or one item with all attributes."""
        other: BoolArray = np.ones((1, self.n_attributes), dtype=np.bool_)
        return tuple(self.items if each == self.client else other for each in range(self.n_clients))

    @property
    def n_attributes(self) -> int:
        """K."""
        return int(self.items.shape[1])

    @property
    def n_users(self) -> tuple[int, ...]:
        """Its users, or one."""
        return tuple(self.users if each == self.client else 1 for each in range(self.n_clients))
