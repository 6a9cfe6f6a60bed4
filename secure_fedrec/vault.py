"""Storage of private state: examples and user vectors never leave a vault as an object.

An algorithm computes *with* a vault on the client. It outputs blocks of plain arrays that it
builds; a vault cannot be part of one. It has no buffer, no length, no iteration, no copy and no
pickle, its repr shows names and shapes only, and no block or message has a field of its type.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray
from secure_fedrec.core.kernels import segments
from secure_fedrec.core.npz import StoredArray
from secure_fedrec.core.spill import Kept, Spill
from secure_fedrec.errors import PrivateStateError

PrivateTable: TypeAlias = npt.NDArray[np.float64] | npt.NDArray[np.float32]
"""A private table; each has the precision it was created with."""


@dataclass(frozen=True, slots=True, eq=False)
class Rated:
    """The ratings of a batch of clients, as read from their vaults.

    Args:
        indptr: int64[B + 1].
        items: int32[N], ascending within a client.
        ratings: float64[N].
    """

    indptr: IntArray
    items: IndexArray
    ratings: FloatArray

    @property
    def counts(self) -> IntArray:
        """int64[B], ratings per client."""
        return np.diff(self.indptr)


class Vault:
    """Private state of named clients in columns: of one client, or of all clients of a simulation.

    A client has the same number in every vault, and all methods use this number. For a federation
    on ratings, call the class; one on examples of any other kind by ``of_examples``.

    Args:
        indptr: int64[n + 1].
        items: int32[N], rated items, ascending within a client.
        ratings: float64[N].
        clients: int64[n], owners of the state, ascending; None for all, 0 to n - 1.

    Attributes:
        clients: int64[n].
        named: whether the clients were named; else it holds all of them.

    Raises:
        ValueError: the clients' numbers do not ascend, or there are more or fewer than segments.
    """

    __slots__ = ("_columns", "_indptr", "_ragged", "_state", "_undo", "clients", "named")

    def __init__(
        self,
        *,
        indptr: IntArray,
        items: IndexArray,
        ratings: FloatArray,
        clients: IntArray | None = None,
    ) -> None:
        self._hold(indptr, {"items": items, "ratings": ratings}, clients)

    @classmethod
    def of_examples(
        cls,
        indptr: IntArray,
        columns: Mapping[str, npt.NDArray[Any]],
        clients: IntArray | None = None,
    ) -> "Vault":
        """Examples of any kind: texts, labels, ratings with features.

        Args:
            indptr: int64[n + 1]; the client in place c owns rows ``indptr[c]:indptr[c + 1]`` of
                every column.
            columns: plain arrays with one row per example.
            clients: as of the class.

        Raises:
            ValueError: the columns do not fit together, or one holds Python objects.
        """
        if not columns:
            raise ValueError("examples have at least one column")
        for name, column in columns.items():
            _require_plain(name, column)
            _require_segments(name, indptr, len(column), np.size(indptr) - 1)
        vault = cls.__new__(cls)
        vault._hold(indptr, columns, clients)
        return vault

    def _hold(
        self,
        indptr: IntArray,
        columns: Mapping[str, npt.NDArray[Any]],
        clients: IntArray | None,
    ) -> None:
        self._indptr = indptr
        self._columns = dict(columns)
        self._state: dict[str, PrivateTable] = {}
        self._ragged: dict[str, IntArray] = {}  # where the clients' segments lie
        self._undo: _Undo | None = None
        self.named = clients is not None
        self.clients = np.arange(len(indptr) - 1) if clients is None else clients
        if self.named:
            _require_numbers(self.clients, len(indptr) - 1)

    @property
    def n_clients(self) -> int:
        """Number of clients whose state is held."""
        return len(self._indptr) - 1

    def example_counts(self, clients: IntArray | None = None) -> IntArray:
        """int64[B], examples (in a federation on ratings: ratings) of some clients, or of all."""
        counts = np.diff(self._indptr)
        return counts if clients is None else counts[self._places(clients)]

    def examples(self, client: int) -> Mapping[str, npt.NDArray[Any]]:
        """Copy one client's rows of every column, for local computation."""
        place = self._place(client)
        own = slice(*self._indptr[[place, place + 1]].tolist())
        return {name: column[own].copy() for name, column in self._columns.items()}

    def only(self, clients: IntArray) -> "Vault":
        """A fresh vault with the examples of some clients, ascending, and no private table."""
        rows, ends = segments(self._indptr, self._places(clients))
        columns = {name: column[rows] for name, column in self._columns.items()}
        return Vault.of_examples(ends, columns, clients)

    def secret(self) -> bytes:
        """32 bytes that depend on the examples of all clients.

        As private as the examples: a key for values that must not follow from public settings.
        """
        digest = sha256(np.ascontiguousarray(self._indptr).tobytes())
        for name in sorted(self._columns):
            column = self._columns[name]
            digest.update(f"\n{name} {column.dtype} {column.shape}\n".encode())
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.digest()

    def rated(self, clients: IntArray) -> Rated:
        """Ratings of some clients, in the order asked.

        Raises:
            ValueError: the vault holds examples of another kind.
        """
        if not self._columns.keys() >= {"items", "ratings"}:
            raise ValueError(f"the vault holds no ratings but {', '.join(self._columns)}")
        items, ratings = self._columns["items"], self._columns["ratings"]
        clients = self._places(clients)
        first, last = (int(clients[0]), int(clients[-1])) if len(clients) else (0, -1)
        if last - first + 1 == len(clients) and np.all(np.diff(clients) == 1):
            start, stop = self._indptr[first], self._indptr[last + 1]  # contiguous: no copy
            indptr = self._indptr[first : last + 2] - start
            return Rated(indptr, items[start:stop], ratings[start:stop])
        positions, indptr = segments(self._indptr, clients)
        return Rated(indptr, items[positions], ratings[positions])

    def create(self, name: str, values: PrivateTable) -> None:
        """Add a private table with one row per client, in the precision of the values.

        Raises:
            ValueError: the number of rows is not the number of clients, the name is taken, or the
                values are not float32 or float64.
        """
        if len(values) != self.n_clients:
            raise ValueError(f"{name}: {len(values)} rows for {self.n_clients} clients")
        self._require_new(name, values)
        held: Any = np.ascontiguousarray(values)  # typed for one precision, not for either
        self._state[name] = held

    def read(self, name: str, clients: IntArray) -> FloatArray:
        """Copy the rows of some clients out of a private table, in its precision."""
        self._require_shape(name, ragged=False)
        rows: Any = self._state[name][self._places(clients)]
        return rows  # type: ignore[no-any-return]

    def write(self, name: str, clients: IntArray, values: PrivateTable) -> None:
        """Replace the rows of some clients in a private table, rounded to its precision."""
        self._require_shape(name, ragged=False)
        self._overwrite(name, self._places(clients), values)

    def create_ragged(self, name: str, indptr: IntArray, values: FloatArray) -> None:
        """Add a private table with any number of rows per client.

        Args:
            name: name of the table.
            indptr: int64[n + 1]; client c owns rows ``indptr[c]:indptr[c + 1]``.
            values: float64[N, ...].

        Raises:
            ValueError: the segments do not cover the rows, or the name is taken.
        """
        _require_segments(name, indptr, len(values), self.n_clients)
        self._require_new(name, values)
        self._state[name], self._ragged[name] = np.ascontiguousarray(values), indptr

    def read_ragged(self, name: str, client: int) -> FloatArray:
        """Copy one client's rows out of a ragged table, for local computation."""
        rows: Any = self._state[name][self._segment(name, client)].copy()
        return rows  # type: ignore[no-any-return]

    def write_ragged(self, name: str, client: int, values: FloatArray) -> None:
        """Replace one client's rows in a ragged table.

        Raises:
            ValueError: another number of rows, or rows of another shape.
        """
        own = self._segment(name, client)
        kept = self._state[name][own]
        if values.shape != kept.shape:
            raise ValueError(f"{name}: shape {values.shape} for a segment of shape {kept.shape}")
        self._overwrite(name, own, values)

    def lengths(self, name: str) -> IntArray:
        """int64[n], rows per client in a ragged table."""
        self._require_shape(name, ragged=True)
        return np.diff(self._ragged[name])

    def names(self) -> tuple[str, ...]:
        """Names of the private tables with one row per client, in order of creation."""
        return tuple(name for name in self._state if name not in self._ragged)

    def ragged_names(self) -> tuple[str, ...]:
        """Names of the ragged tables, in order of creation."""
        return tuple(self._ragged)

    def snapshot(self) -> dict[str, FloatArray]:
        """Copies of all private tables."""
        return {name: values.copy() for name, values in self.tables().items()}

    def tables(self) -> dict[str, FloatArray]:
        """All private tables as they are, read-only: for the device's own checkpoint."""
        views: dict[str, Any] = {name: values.view() for name, values in self._state.items()}
        for view in views.values():
            view.setflags(write=False)
        return views

    def restore(self, snapshot: Mapping[str, PrivateTable | StoredArray]) -> None:
        """Go back to a snapshot, or to a checkpoint, whose tables are read into their places.

        Raises:
            ValueError: it holds other tables, or tables of another shape or precision.
        """
        if snapshot.keys() != self._state.keys():
            raise ValueError(f"a snapshot of {sorted(snapshot)}, not of {sorted(self._state)}")
        for name, values in snapshot.items():
            if values.shape != self._state[name].shape:
                raise ValueError(f"{name}: shape {values.shape}, not {self._state[name].shape}")
            if values.dtype != self._state[name].dtype:
                raise ValueError(f"{name}: {values.dtype}, not {self._state[name].dtype}")
        for name, values in snapshot.items():
            if isinstance(values, StoredArray):
                values.fill(self._state[name])
            else:
                self._state[name][...] = values

    def begin(self, limit: int) -> None:
        """Keep values that are overwritten from now on, so that they can be restored.

        Args:
            limit: bytes of them to hold in memory; the rest goes to a file (``core.spill``).
        """
        self._undo = _Undo(limit)

    def end(self, *, undo: bool) -> None:
        """Forget the values overwritten since ``begin``, or restore them first.

        Raises:
            OSError: it could not be read back.
        """
        if undo and self._undo is not None:
            self._undo.put_back(self._state)
        self._undo = None

    def _overwrite(self, name: str, where: IntArray | slice, values: PrivateTable) -> None:
        if self._undo is not None:
            self._undo.note(name, where, self._state[name][where].copy())
        self._state[name][where] = values

    def _places(self, clients: IntArray) -> IntArray:
        """Positions of some clients' state in every column.

        Raises:
            ValueError: the vault does not hold the state of one of them.
        """
        if not self.named:
            return clients
        places = np.searchsorted(self.clients, clients)
        held = self.clients[np.minimum(places, len(self.clients) - 1)] == clients
        if not np.all(held):
            raise ValueError(f"the vault does not hold client {int(clients[~held][0])}")
        return places

    def _place(self, client: int) -> int:
        return client if not self.named else int(self._places(np.array([client]))[0])

    def _segment(self, name: str, client: int) -> slice:
        self._require_shape(name, ragged=True)
        place = self._place(client)
        return slice(*self._ragged[name][[place, place + 1]].tolist())

    def _require_new(self, name: str, values: PrivateTable) -> None:
        if name in self._state:
            raise ValueError(f"{name}: there is a private table of that name already")
        if values.dtype not in (np.float32, np.float64):
            raise ValueError(f"{name}: a private table is float32 or float64, not {values.dtype}")

    def _require_shape(self, name: str, *, ragged: bool) -> None:
        if name not in self._state:
            raise KeyError(f"no private table {name}; there are {', '.join(self._state)}")
        if (name in self._ragged) != ragged:
            kind = "one row per client" if ragged else "any number of rows per client"
            raise ValueError(f"{name} has {kind}")

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
        columns = ", ".join(f"{name}{values.shape}" for name, values in self._columns.items())
        tables = ", ".join(f"{name}{values.shape}" for name, values in self._state.items())
        return f"<Vault of {self.n_clients} clients: {columns}; {tables}>"


class _Undo:
    """Overwritten values, in order."""

    def __init__(self, limit: int) -> None:
        self._spill = Spill(limit)
        self._log: list[tuple[str, IntArray | slice, Kept]] = []

    def note(self, name: str, where: IntArray | slice, values: PrivateTable) -> None:
        self._log.append((name, where, self._spill.put(values)))

    def put_back(self, state: Mapping[str, PrivateTable]) -> None:
        for name, where, kept in reversed(self._log):
            state[name][where] = self._spill.get(kept)


def _require_numbers(clients: IntArray, due: int) -> None:
    if type(clients) is not np.ndarray or clients.dtype != np.int64 or clients.ndim != 1:
        raise ValueError("clients must be int64[n]")
    if len(clients) != due:
        raise ValueError(f"{len(clients)} clients for {due} segments")
    if not due or clients[0] < 0 or np.any(clients[1:] <= clients[:-1]):
        raise ValueError("clients must ascend from 0")


def _require_plain(name: str, column: npt.NDArray[Any]) -> None:
    if type(column) is not np.ndarray or column.ndim < 1 or column.dtype.hasobject:
        raise ValueError(f"{name}: examples are plain arrays, without Python objects")


def _require_segments(name: str, indptr: IntArray, size: int, clients: int) -> None:
    """``indptr`` divides ``size`` rows among ``clients`` clients."""
    if type(indptr) is not np.ndarray or indptr.dtype != np.int64 or indptr.ndim != 1:
        raise ValueError(f"{name}: indptr must be int64[n + 1]")
    if len(indptr) != clients + 1 or not len(indptr):
        raise ValueError(f"{name}: {len(indptr) - 1} segments for {clients} clients")
    if indptr[0] != 0 or indptr[-1] != size or np.any(indptr[1:] < indptr[:-1]):
        raise ValueError(f"{name}: indptr must ascend from 0 to {size}")
