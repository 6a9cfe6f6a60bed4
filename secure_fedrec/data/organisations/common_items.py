"""Organisations with users of their own and items some of which others have too (FedDMF, Fig. 3).

A table of interactions is cut both ways. A share of the items, drawn at random, belongs to all
organisations; each other item and each user belongs to one organisation. An organisation knows what
its users did with the items that it has, its own and the common ones. What its users did with the
items of other organisations is held out: predictions across organisations are judged by it.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.core.kernels import bounds_of
from secure_fedrec.data.ratings import RatingTable
from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import Natural, Settings, Within
from secure_fedrec.vault import Vault

Part = Annotated[float, Within(above=0, below=1)]

# Keep these draws unrelated to other uses of the same seed (see ``split``).
_PURPOSE: Final = 7
_HIDING: Final = 8
_FEWEST: Final = 2


class CommonItemsConfig(Settings, section="data"):
    """How a table is cut.

    Args:
        organisations: how many.
        common: share of the items that all organisations have.
        users: share of the users that are the first organisation's; None for equal parts. The
            others have equal parts of the rest.
        items: share of the items that are not common that are the first organisation's; likewise.
        seed: seed of the draws.

    Raises:
        ConfigError: a field is out of range.
    """

    organisations: Annotated[int, Within(least=2)] = 2
    common: Part = 0.5
    users: Part | None = None
    items: Part | None = None
    seed: Natural


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommonItems:
    """Organisations, and the interactions that each of them knows.

    Args:
        name: name of the data.
        listed: bool[n, m], which organisation has which item.
        asked: bool[n, m], for which items of other organisations the truth about its users is
            known.
        n_users: int64[n], users of each organisation.
        indptr: int64[n + 1].
        users: int64[N], places of users in their organisation.
        items: int64[N], items, ascending within a user; users ascend within an organisation.

    Raises:
        ConfigError: a pair of organisations has no item in common, a user has fewer than two
            interactions with items that its organisation has, or an organisation has no user.
    """

    name: str
    listed: BoolArray
    asked: BoolArray
    n_users: IntArray
    indptr: IntArray
    users: IntArray
    items: IntArray

    def __post_init__(self) -> None:
        shared = self.listed.astype(np.int64) @ self.listed.T
        apart = np.argwhere(shared == 0)
        if len(apart):
            one, other = apart[0].tolist()
            problem = f"organisations {one} and {other} have no item in common"
            raise ConfigError("data.common", [one, other], problem)
        for place in range(self.n_organisations):
            users, _ = self.known(place)
            counts = np.bincount(users, minlength=int(self.n_users[place]))
            few = np.flatnonzero(counts < _FEWEST)
            if len(few) or not len(counts):
                user = int(few[0]) if len(few) else None
                problem = f"of organisation {place}: a user has at least two interactions with its"
                raise ConfigError("data.users", user, f"{problem} items")

    @property
    def n_organisations(self) -> int:
        """Number of organisations."""
        return len(self.listed)

    @property
    def n_items(self) -> int:
        """Number of items of all organisations together."""
        return int(self.listed.shape[1])

    @property
    def common(self) -> BoolArray:
        """bool[m], items that several organisations have."""
        found: BoolArray = self.listed.sum(axis=0) > 1
        return found

    def items_of(self, place: int) -> IntArray:
        """int64[I], the items of an organisation, ascending: the order of its item table."""
        return np.flatnonzero(self.listed[place])

    def own(self, place: int) -> IntArray:
        """int64[k], items that it alone has."""
        return np.flatnonzero(self.listed[place] & ~self.common)

    def known(self, place: int) -> tuple[IntArray, IntArray]:
        """(users, places of items in the organisation's table) of what it knows."""
        users, items = self._pairs(place)
        kept = self.listed[place, items]
        return users[kept], np.searchsorted(self.items_of(place), items[kept])

    def truth(self, place: int, items: IntArray) -> BoolArray:
        """bool[U, k], which of its users have interacted with which items, known or not."""
        whole = np.zeros((int(self.n_users[place]), self.n_items), dtype=np.bool_)
        users, own = self._pairs(place)
        whole[users, own] = True
        return whole[:, items]

    def vault(self) -> Vault:
        """What each organisation knows, as its private examples: columns "users" and "items"."""
        parts = (self.known(place) for place in range(self.n_organisations))
        users, items = zip(*parts, strict=True)
        columns = {"users": np.concatenate(users), "items": np.concatenate(items)}
        return Vault.of_examples(bounds_of([*map(len, users)]), columns)

    def hiding(self, share: float, *, seed: int) -> "CommonItems":
        """The same organisations, with a share of common items assigned to one of them each.

        The others drop their interactions with these items, and predict them. Common items are
        known to all organisations, so quality across organisations can be measured this way without
        held-out truth, before settings are chosen; items of a single organisation are not asked
        for.

        Args:
            share: of the common items, above 0 and below 1.
            seed: seed of the draw.
        """
        words = np.random.PCG64([_HIDING, seed]).random_raw(self.n_items)
        common = np.flatnonzero(self.common)
        chosen = common[np.argsort(words[common], kind="stable")][: round(share * len(common))]
        listed = self.listed.copy()
        listed[:, chosen] = False
        keepers = np.arange(len(chosen)) % self.n_organisations
        listed[keepers, chosen] = self.listed[keepers, chosen]
        asked = np.zeros_like(listed)
        asked[:, chosen] = self.listed[:, chosen] & ~listed[:, chosen]
        return replace(self, listed=listed, asked=asked)

    def _pairs(self, place: int) -> tuple[IntArray, IntArray]:
        own = slice(*self.indptr[[place, place + 1]].tolist())
        return self.users[own], self.items[own]


def split_common_items(
    table: RatingTable, config: CommonItemsConfig, *, name: str = "table"
) -> CommonItems:
    """Cut a table; every rating is an interaction, whatever its value.

    Args:
        table: who rated what.
        config: how to cut it.
        name: name of the data.

    Raises:
        ConfigError: see ``CommonItems``.
    """
    words = np.random.PCG64([_PURPOSE, config.seed]).random_raw(table.n_items + table.n_clients)
    order = np.argsort(words[: table.n_items], kind="stable")
    cut = round(config.common * table.n_items)
    owners = np.full(table.n_items, -1, dtype=np.int64)
    owners[order[cut:]] = _dealt(table.n_items - cut, config.organisations, config.items)
    places = np.empty(table.n_clients, dtype=np.int64)
    users = np.argsort(words[table.n_items :], kind="stable")
    places[users] = _dealt(table.n_clients, config.organisations, config.users)
    numbers = np.arange(config.organisations)[:, None]
    listed = (owners == -1) | (owners == numbers)
    by_place = np.argsort(places, kind="stable")
    n_users = np.bincount(places, minlength=config.organisations)
    within = np.empty(table.n_clients, dtype=np.int64)
    within[by_place] = np.arange(table.n_clients) - np.repeat(np.cumsum(n_users) - n_users, n_users)
    where, who = places[table.clients], within[table.clients]
    rows = np.lexsort((table.items, who, where))
    return CommonItems(
        name=name,
        listed=listed,
        asked=~listed,
        n_users=n_users,
        indptr=np.searchsorted(where[rows], np.arange(config.organisations + 1)).astype(np.int64),
        users=who[rows],
        items=table.items[rows].astype(np.int64),
    )


def _dealt(size: int, organisations: int, first: float | None) -> IntArray:
    """int64[size], the owner of each: the first's share, then equal parts, ascending."""
    shares = np.full(organisations, 1.0 / organisations)
    if first is not None:
        shares[0], shares[1:] = first, (1.0 - first) / (organisations - 1)
    ends = np.rint(np.cumsum(shares) * size).astype(np.int64)
    return np.searchsorted(ends, np.arange(size), side="right")
