"""Where private state stays: ratings and user vectors never leave a vault as an object.

An algorithm computes *with* a vault on the client. What it gives out is a block of plain arrays it
built on purpose; a vault itself cannot become one. It has no buffer, no length, no iteration, no
copy and no pickle, its repr shows names and shapes only, and no block or message has a field of its
type.
"""

from typing import NoReturn

import numpy as np

from secure_fedrec.arrays import FloatArray, IndexArray, IntArray
from secure_fedrec.errors import PrivateStateError
from secure_fedrec.kernels import segments

__all__ = ["Rated", "Vault"]


class Rated:
    """The ratings of a batch of clients, as read from their vaults.

    Attributes:
        indptr: int64[B + 1].
        items: int32[N], ascending within a client.
        ratings: float64[N].
    """

    __slots__ = ("indptr", "items", "ratings")

    def __init__(self, indptr: IntArray, items: IndexArray, ratings: FloatArray) -> None:
        self.indptr = indptr
        self.items = items
        self.ratings = ratings

    @property
    def counts(self) -> IntArray:
        """int64[B], ratings per client."""
        return np.diff(self.indptr)


class Vault:
    """Private state of one client, or of all clients of a simulation, held columnar.

    Args:
        indptr: int64[n + 1].
        items: int32[N], rated items, ascending within a client.
        ratings: float64[N].
    """

    __slots__ = ("_indptr", "_items", "_ratings", "_state")

    def __init__(self, *, indptr: IntArray, items: IndexArray, ratings: FloatArray) -> None:
        self._indptr = indptr
        self._items = items
        self._ratings = ratings
        self._state: dict[str, FloatArray] = {}

    @property
    def n_clients(self) -> int:
        """Number of clients whose state is held."""
        return len(self._indptr) - 1

    def rated_counts(self) -> IntArray:
        """int64[n], ratings per client."""
        return np.diff(self._indptr)

    def rated(self, clients: IntArray) -> Rated:
        """Ratings of some clients, in the order asked."""
        first, last = (int(clients[0]), int(clients[-1])) if len(clients) else (0, -1)
        if last - first + 1 == len(clients) and np.all(np.diff(clients) == 1):
            start, stop = self._indptr[first], self._indptr[last + 1]  # contiguous: no copy
            indptr = self._indptr[first : last + 2] - start
            return Rated(indptr, self._items[start:stop], self._ratings[start:stop])
        positions, indptr = segments(self._indptr, clients)
        return Rated(indptr, self._items[positions], self._ratings[positions])

    def create(self, name: str, values: FloatArray) -> None:
        """Add a private table with one row per client.

        Raises:
            ValueError: the number of rows is not the number of clients.
        """
        if len(values) != self.n_clients:
            raise ValueError(f"{name}: {len(values)} rows for {self.n_clients} clients")
        self._state[name] = values

    def read(self, name: str, clients: IntArray) -> FloatArray:
        """Copy the rows of some clients out of a private table, for local computation."""
        return self._state[name][clients]

    def write(self, name: str, clients: IntArray, values: FloatArray) -> None:
        """Replace the rows of some clients in a private table."""
        self._state[name][clients] = values

    def names(self) -> tuple[str, ...]:
        """Names of the private tables, in order of creation."""
        return tuple(self._state)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise PrivateStateError(
            "a Vault stays on its client: it cannot be serialised, copied, iterated or converted"
        )

    __reduce__ = _refuse
    __reduce_ex__ = _refuse
    __getstate__ = _refuse
    __setstate__ = _refuse
    __copy__ = _refuse
    __deepcopy__ = _refuse
    __bytes__ = _refuse
    __array__ = _refuse
    __buffer__ = _refuse
    __iter__ = _refuse
    __len__ = _refuse
    __getitem__ = _refuse

    def __repr__(self) -> str:
        tables = ", ".join(f"{name}{values.shape}" for name, values in self._state.items())
        return f"<Vault of {self.n_clients} clients: ratings[{len(self._items)}]; {tables}>"
