"""Organisations: clients that each hold many users and items of their own.

A cross-silo federation (HPFL) has a few clients, and every client is an organisation with its own
users, its own catalogue and its own numbering of both. What all of them share are the attributes of
items: the genres of films, the concepts of questions. A record says which user answered which item,
and how.

Numbers inside a client are local: user 0 of client 3 and user 0 of client 4 are different people.
``user_ids`` and ``item_ids`` map them to numbers of the whole data set. No client has those; they
serve checks, centralised training and measures that compare users of different clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.core.kernels import bounds_of
from secure_fedrec.errors import DataError
from secure_fedrec.vault import Vault

PARTS: Final = ("train", "validation", "test")
"""Parts of every client's records, in the order of the codes that ``organise`` takes."""


class ClientRecords(NamedTuple):
    """Records of one client, with local numbers.

    Attributes:
        users: int64[N].
        items: int64[N].
        scores: float64[N].
    """

    users: IntArray
    items: IntArray
    scores: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Records:
    """Records of all clients, one segment per client, sorted by (user, item) inside it.

    Args:
        indptr: int64[C + 1]; client c owns rows ``indptr[c]:indptr[c + 1]``.
        users: int64[N], local user of each record.
        items: int64[N], local item of each record.
        scores: float64[N], on the levels of the organisations.
    """

    indptr: IntArray = field(repr=False)
    users: IntArray = field(repr=False)
    items: IntArray = field(repr=False)
    scores: FloatArray = field(repr=False)

    def __len__(self) -> int:
        return len(self.scores)

    def of(self, client: int) -> ClientRecords:
        """Records of one client (views)."""
        own = slice(int(self.indptr[client]), int(self.indptr[client + 1]))
        return ClientRecords(self.users[own], self.items[own], self.scores[own])

    def counts(self) -> IntArray:
        """int64[C], records per client."""
        return np.diff(self.indptr)

    def owners(self) -> IntArray:
        """int64[N], client of each record."""
        return np.repeat(np.arange(len(self.indptr) - 1), self.counts())

    def columns(self) -> Mapping[str, npt.NDArray[Any]]:
        """The columns by name, as a vault holds them."""
        return {"users": self.users, "items": self.items, "scores": self.scores}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Organisations:
    """A cross-silo data set, parted into training, validation and test records.

    Args:
        name: what messages and reports call it.
        names: name of each of the C clients.
        attributes: bool[items of c, K] per client, attributes of its items.
        attribute_names: names of the K attributes.
        user_ids: int64[users of c] per client, numbers in the whole data set, ascending.
        item_ids: int64[items of c] per client, numbers in the whole data set, ascending.
        levels: float64[L], values a score may take, ascending.
        train: what clients learn from.
        validation: what settings are chosen by.
        test: what is reported.

    Raises:
        DataError: a user belongs to two clients, a client has no training record, an item has no
            attribute or different ones at two clients, a score is off the levels, or columns do
            not fit together.
    """

    name: str
    names: tuple[str, ...]
    attributes: tuple[BoolArray, ...] = field(repr=False)
    attribute_names: tuple[str, ...] = field(repr=False)
    user_ids: tuple[IntArray, ...] = field(repr=False)
    item_ids: tuple[IntArray, ...] = field(repr=False)
    levels: FloatArray
    train: Records = field(repr=False)
    validation: Records = field(repr=False)
    test: Records = field(repr=False)

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) != len(self.names):
            raise DataError(self.name, "needs at least one client, each with a name of its own")
        if len(self.levels) < 2 or np.any(np.diff(self.levels) <= 0):
            raise DataError(self.name, "needs at least two levels, ascending")
        self._check_clients()
        self._check_items()
        for part in PARTS:
            self._check_records(part, getattr(self, part))
        for client in np.flatnonzero(self.train.counts() == 0):
            raise DataError(self.name, f"client {self.names[client]!r} has no training record")

    @property
    def n_clients(self) -> int:
        """C."""
        return len(self.names)

    @property
    def n_attributes(self) -> int:
        """K."""
        return len(self.attribute_names)

    @property
    def n_users(self) -> tuple[int, ...]:
        """Users per client."""
        return tuple(len(ids) for ids in self.user_ids)

    @property
    def n_items(self) -> tuple[int, ...]:
        """Items per client."""
        return tuple(len(ids) for ids in self.item_ids)

    @property
    def binary(self) -> bool:
        """Whether a score is a yes or a no (an answer right or wrong), not a rating."""
        return len(self.levels) == 2

    def pooled(self) -> "Organisations":
        """All records at one client, as centralised training has them; parts stay as they are."""
        users = np.unique(np.concatenate(self.user_ids))
        items, first = np.unique(np.concatenate(self.item_ids), return_index=True)
        return Organisations(
            name=self.name,
            names=("all",),
            attributes=(np.concatenate(self.attributes)[first],),
            attribute_names=self.attribute_names,
            user_ids=(users,),
            item_ids=(items,),
            levels=self.levels,
            **{part: self._pool(getattr(self, part), users, items) for part in PARTS},
        )

    def on(self, levels: FloatArray) -> "Organisations":
        """The same records on other levels, one for each of these.

        Args:
            levels: float64[L], ascending.
        """

        def moved(records: Records) -> Records:
            return replace(records, scores=levels[np.searchsorted(self.levels, records.scores)])

        parts: dict[str, Any] = {name: moved(getattr(self, name)) for name in PARTS}
        return replace(self, levels=levels, **parts)

    def vault(self) -> Vault:
        """What the clients learn from, as their private examples.

        Returns:
            A vault with the columns ``users`` and ``items`` (int64, local), ``scores`` (float64)
            and ``held_out`` (bool): training records, and validation records where it is set. Test
            records are not in it.
        """
        parts = (self.train, self.validation)
        owners = np.concatenate([part.owners() for part in parts])
        order = np.argsort(owners, kind="stable")
        columns = [part.columns() for part in parts]
        joined = {
            name: np.concatenate([each[name] for each in columns])[order] for name in columns[0]
        }
        held_out = np.repeat([False, True], [len(part) for part in parts])[order]
        indptr = self.train.indptr + self.validation.indptr
        return Vault.of_examples(indptr, {**joined, "held_out": held_out})

    def _pool(self, records: Records, users: IntArray, items: IntArray) -> Records:
        """One part with numbers of the whole data set."""
        local = [records.of(client) for client in range(self.n_clients)]
        ids = zip(local, self.user_ids, self.item_ids, strict=True)
        pairs = [(user[own.users], item[own.items]) for own, user, item in ids]
        user = np.searchsorted(users, np.concatenate([each for each, _ in pairs]))
        item = np.searchsorted(items, np.concatenate([each for _, each in pairs]))
        order = np.lexsort((item, user))
        columns = (user[order], item[order], records.scores[order])
        return _records(np.zeros(len(records), dtype=np.int64), columns, 1)

    def _check_clients(self) -> None:
        columns = {"user_ids": self.user_ids, "item_ids": self.item_ids}
        for what, column in {**columns, "attributes": self.attributes}.items():
            if len(column) != self.n_clients:
                raise DataError(self.name, f"{what} of {len(column)} of {self.n_clients} clients")
        for ids in (*self.user_ids, *self.item_ids):
            if ids.dtype != np.int64 or not len(ids) or np.any(np.diff(ids) <= 0):
                raise DataError(self.name, "ids must be int64, ascending, at least one per client")
        users = np.concatenate(self.user_ids)
        order = np.argsort(users, kind="stable")
        twice = order[1:][np.diff(users[order]) == 0]
        if len(twice):
            owners = np.repeat(np.arange(self.n_clients), self.n_users)
            at = [self.names[c] for c in owners[users == users[twice[0]]]]
            raise DataError(self.name, f"user {users[twice[0]]} is in two clients: {at}")

    def _check_items(self) -> None:
        for client, attributes in enumerate(self.attributes):
            expected = (self.n_items[client], self.n_attributes)
            if attributes.dtype != np.bool_ or attributes.shape != expected:
                problem = f"attributes of client {self.names[client]!r} must be bool{expected}"
                raise DataError(self.name, problem)
            for item in np.flatnonzero(~attributes.any(axis=1)):
                problem = f"item {self.item_ids[client][item]} has no attribute"
                raise DataError(self.name, problem)
        items, attributes = np.concatenate(self.item_ids), np.concatenate(self.attributes)
        _, first, inverse = np.unique(items, return_index=True, return_inverse=True)
        for row in np.flatnonzero((attributes != attributes[first[inverse]]).any(axis=1)):
            raise DataError(self.name, f"item {items[row]} has other attributes at another client")

    def _check_records(self, part: str, records: Records) -> None:
        where = f"{self.name}.{part}"
        indptr = records.indptr
        if len(indptr) != self.n_clients + 1 or indptr[0] or np.any(np.diff(indptr) < 0):
            raise DataError(where, f"has no segment for each of {self.n_clients} clients")
        if not len(records.users) == len(records.items) == len(records) == indptr[-1]:
            raise DataError(where, "the columns differ in length")
        owners = records.owners()
        sizes = {"user": (records.users, self.n_users), "item": (records.items, self.n_items)}
        for what, (numbers, limits) in sizes.items():
            if np.any((numbers < 0) | (numbers >= np.asarray(limits)[owners])):
                raise DataError(where, f"a {what} does not belong to its client")
        off = ~np.isin(records.scores, self.levels)
        if off.any():
            score = float(records.scores[off][0])
            raise DataError(where, f"score {score:g} is not one of {self.levels.tolist()}")


def organise(
    *,
    name: str,
    names: Sequence[str],
    clients: IntArray,
    users: IntArray,
    items: IntArray,
    scores: FloatArray,
    parts: IntArray,
    attributes: BoolArray,
    attribute_names: Sequence[str],
    levels: FloatArray,
) -> Organisations:
    """Deals records out to their clients, each with local numbers.

    A client's catalogue is the set of items it has records of, in any part: a site knows which
    films it lists before users rate them.

    Args:
        name: name of the data set.
        names: names of the clients.
        clients: int64[N], client of each record, in any order.
        users: int64[N], user in the whole data set.
        items: int64[N], item in the whole data set.
        scores: float64[N].
        parts: int64[N], place in ``PARTS``.
        attributes: bool[all items, K].
        attribute_names: names of the K attributes.
        levels: float64[L].

    Raises:
        DataError: as the class, or a user has two records of one item.
    """
    order = np.lexsort((items, users, parts, clients))
    clients, users, items = clients[order], users[order], items[order]
    _refuse_repeats(name, users, items)
    own = [np.flatnonzero(clients == client) for client in range(len(names))]
    for client in (client for client, rows in enumerate(own) if not len(rows)):
        raise DataError(name, f"client {names[client]!r} has no training record")
    user_ids, local_users = _renumbered(users, own)
    item_ids, local_items = _renumbered(items, own)
    columns = (local_users, local_items, scores[order])
    chosen = {what: np.flatnonzero(parts[order] == code) for code, what in enumerate(PARTS)}
    return Organisations(
        name=name,
        names=tuple(names),
        attributes=tuple(attributes[ids] for ids in item_ids),
        attribute_names=tuple(attribute_names),
        user_ids=user_ids,
        item_ids=item_ids,
        levels=levels,
        **{
            what: _records(clients[rows], [column[rows] for column in columns], len(names))
            for what, rows in chosen.items()
        },
    )


def _renumbered(
    numbers: IntArray, rows: Sequence[IntArray]
) -> tuple[tuple[IntArray, ...], IntArray]:
    """Numbers that each client has, ascending, and for every record the place among them."""
    ids = tuple(np.unique(numbers[own]) for own in rows)
    places = [np.searchsorted(known, numbers[own]) for known, own in zip(ids, rows, strict=True)]
    return ids, np.concatenate(places)


def _refuse_repeats(name: str, users: IntArray, items: IntArray) -> None:
    order = np.lexsort((items, users))
    user, item = users[order], items[order]
    twice = np.flatnonzero((np.diff(user) == 0) & (np.diff(item) == 0))
    if len(twice):
        raise DataError(name, f"user {user[twice[0]]} has two records of item {item[twice[0]]}")


def _records(clients: IntArray, columns: Sequence[npt.NDArray[Any]], n_clients: int) -> Records:
    """Read-only records, by client ascending: they can be shared without being changed."""
    users, items = (np.array(column, dtype=np.int64) for column in columns[:2])
    scores = np.array(columns[2], dtype=np.float64)
    for column in (users, items, scores):
        column.setflags(write=False)
    indptr = bounds_of(np.bincount(clients, minlength=n_clients))
    return Records(indptr=indptr, users=users, items=items, scores=scores)
