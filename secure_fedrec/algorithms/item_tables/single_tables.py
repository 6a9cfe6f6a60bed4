"""Servers of the family that compare single clients, and send each client its own item table.

A client sends its trained vectors one by one, with its number, in a bag: (n / clients,
item / items, row), and (n / clients, -1 / items, what it keeps to itself). The server puts the
tables together again and mixes them, as the method says, into one table per client, which is sent
to that client alone (``Addressed``) and with which it starts the next round. The mean of all tables
is still public.

So the server has to read every client's table. A sum or a vector without its owner is useless here:
stacks that hide either are refused (``reads_singles``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.item_tables.local import Models, SingleArray
from secure_fedrec.algorithms.item_tables.method import ItemTableMethod
from secure_fedrec.algorithms.item_tables.trainer import ItemTables
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, SetBlock, Upload
from secure_fedrec.vault import Vault

SINGLES = "single-tables"
"""Name of the bag."""
_OF = "table-"
_MIXED_AT_ONCE = 2**23
"""Number of values that are mixed at once."""


@runtime_checkable
class MixingMethod(ItemTableMethod, Protocol):
    """A method whose server mixes single tables; dense, without a personal table at home."""

    def mix(self, tables: FloatArray, own: FloatArray) -> FloatArray:
        """One table per client, in the place of ``tables``: float64[B, m, d].

        All tables of a federation are gigabytes, so methods mix part by part.

        Args:
            tables: float64[B, m, d], as the clients of the round trained them; written over.
            own: float64[B, q], their private vectors.
        """


def parts_of_tables(tables: FloatArray) -> Iterator[FloatArray]:
    """Columns of all clients' tables, for mixing in place: views, float64[B, k] each.

    Args:
        tables: float64[B, m, d].

    Raises:
        ValueError: they are not contiguous, so that a part would be a copy.
    """
    columns = np.reshape(tables, (len(tables), -1), copy=False)
    size = max(1, _MIXED_AT_ONCE // max(1, len(tables)))
    for first in range(0, columns.shape[1], size):
        yield columns[:, first : first + size]


class SingleTables(ItemTables):
    """The algorithm; see the module docstring.

    Args:
        method: its model and its server.
        n_clients: number of clients of the federation.
        more: of ``ItemTables``.

    Raises:
        ValueError: the method is not dense, or keeps a personal table at home.
    """

    reads_singles = (
        "its server compares single clients' item tables, which cannot be computed from their sum"
    )

    def __init__(self, method: MixingMethod, n_clients: int, **more: Any) -> None:
        if method.personal or not method.dense:
            raise ValueError(f"{method.name}: clients must send and receive one whole table")
        super().__init__(method, **more)
        self._method, self._n_clients = method, n_clients
        self._own = method.own(np.arange(1), Streams.from_seed(0)).shape[1]

    def bag_sizes(self) -> Mapping[str, tuple[int, int]]:
        """(values per vector, vectors of one client) by bag; public."""
        return {SINGLES: (2 + max(self.width, self._own), self.n_items + 1)}

    def upload_vectors(self, vault: Vault) -> Mapping[str, IntArray]:
        """A vector per item, and one more."""
        return {SINGLES: np.full(vault.n_clients, self.n_items + 1)}

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """The mean, and a table for every client of the round; absent clients keep theirs.

        Raises:
            ProtocolError: the bag does not hold one table of every client.
        """
        after = super().server_step(public, aggregate)
        clients, found = self._put_together(aggregate.bags[SINGLES])
        own, tables = found[:, 0, 2 : 2 + self._own].copy(), _packed(found, self.width)
        mixed = self._method.mix(tables, own)
        extras = {f"{_OF}{each}": table for each, table in zip(clients, mixed, strict=True)}
        return replace(after, extras={**after.extras, **extras})

    def _put_together(self, vectors: FloatArray) -> tuple[IntArray, FloatArray]:
        """Clients, ascending, and what each has sent: float64[B, m + 1, 2 + width].

        Raises:
            ProtocolError: a vector is missing or there twice, or the ring is too coarse to tell
                clients or items apart.
        """
        width, each = self.bag_sizes()[SINGLES]
        clients = np.rint(vectors[:, 0] * self._n_clients).astype(np.int64)
        items = np.rint(vectors[:, 1] * self.n_items).astype(np.int64)
        if np.any(np.diff(clients) < 0):  # the host chooses the order of a bag
            order = np.lexsort((items, clients))
            vectors, clients, items = vectors[order], clients[order], items[order]
        who = clients[::each]
        if (
            len(vectors) % each
            or np.any(np.diff(who) <= 0)
            or np.any(clients.reshape(-1, each) != who[:, None])
            or np.any(items.reshape(-1, each) != np.arange(-1, self.n_items))
        ):
            raise ProtocolError(
                f"{SINGLES}: not one vector per item of each client: one is missing or there "
                "twice, or the steps of the ring are too coarse to tell items apart"
            )
        return who, vectors.reshape(-1, each, width)

    def addressed(self, public: PublicState) -> Mapping[str, IntArray]:
        """Every client's table is sent to that client."""
        names = {f"{_OF}{client}": np.array([client]) for client in range(self._n_clients)}
        return {name: names[name] for name in public.extras if name in names}

    def _models(self, clients: IntArray, public: PublicState, *more: Any) -> Models:
        """As for ``ItemTables``, with each client's own table, to which it is regularised."""
        models = super()._models(clients, public, *more)
        for place, client in enumerate(clients.tolist()):
            given = public.extras.get(f"{_OF}{client}")
            if given is not None:
                models.table[models.indptr[place] : models.indptr[place + 1]] = given
        return models._replace(personal=models.table.copy())

    def _upload(
        self, clients: IntArray, public: PublicState, models: Models, table: SingleArray
    ) -> Upload:
        width, each = self.bag_sizes()[SINGLES]
        values = np.zeros((len(clients), each, width))
        values[:, :, 0] = (clients / self._n_clients)[:, None]
        # At most 1, so within the clip of any ring.
        values[:, :, 1] = np.arange(-1, self.n_items) / self.n_items
        values[:, 0, 2 : 2 + self._own] = models.own
        values[:, 1:, 2 : 2 + self.width] = models.table.reshape(len(clients), self.n_items, -1)
        starts = np.arange(len(clients) + 1) * each
        bag = SetBlock(indptr=starts, values=values.reshape(-1, width))
        return replace(super()._upload(clients, public, models, table), bags={SINGLES: bag})


def _packed(found: FloatArray, width: int) -> FloatArray:
    """The tables that clients sent, compacted in place: float64[B, m, width]."""
    size, each, _ = found.shape
    memory = found.reshape(-1)
    for place in range(size):  # ascending: does not overwrite a table not yet moved
        begin = place * (each - 1) * width
        memory[begin : begin + (each - 1) * width] = found[place, 1:, 2 : 2 + width].reshape(-1)
    return memory[: size * (each - 1) * width].reshape(size, each - 1, width)


def item_tables(method: ItemTableMethod, n_clients: int, **more: Any) -> ItemTables:
    """A method as an algorithm, with its server.

    Args:
        method: method of the family.
        n_clients: number of clients of the federation.
        more: of ``ItemTables``.
    """
    if isinstance(method, MixingMethod):
        return SingleTables(method, n_clients, **more)
    return ItemTables(method, **more)
