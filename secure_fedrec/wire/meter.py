"""Communication of each party: messages, row vectors and bytes, sent and received."""

from collections.abc import Mapping

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.uploads import DenseBlock
from secure_fedrec.wire.message_batches import Messages

_QUANTITIES, _DIRECTIONS = ("messages", "vectors", "bytes"), ("sent", "received")
_FIELDS = tuple(f"{what}_{where}" for what in _QUANTITIES for where in _DIRECTIONS)
_BESIDE = ("messages", "bytes")
_SERVER = "server"
_AUTHORITY = "authority"


class Meter:
    """Totals per client since the start of a run, and of the other parties by role.

    The unit "vector" is one row of the shared table, as in FedRec++ table 3, or one vector of a
    bag; the broadcast of the public table counts in bytes but not in vectors, as there.

    Args:
        n_clients: clients of the federation.
    """

    __slots__ = ("_beside", "_clients", "_others")

    def __init__(self, n_clients: int) -> None:
        self._clients = {name: np.zeros(n_clients, dtype=np.int64) for name in _FIELDS}
        self._others = {name: dict.fromkeys(_FIELDS, 0) for name in (_SERVER, _AUTHORITY)}
        self._beside = dict.fromkeys(_BESIDE, 0)

    def count(
        self, messages: Messages, *, senders: IntArray | None, receivers: IntArray | None
    ) -> None:
        """Add a batch.

        Args:
            messages: what was sent.
            senders: int64[B], client numbers of the true senders; None for the server.
            receivers: int64[B], client numbers of the receivers; None for the server.
        """
        payload = messages.payload
        rows = np.zeros(len(messages), int) if isinstance(payload, DenseBlock) else payload.lengths
        self.count_bytes(messages.sizes, rows=rows, senders=senders, receivers=receivers)

    def count_beside(
        self, sizes: IntArray, *, senders: IntArray | str | None, receivers: IntArray | str | None
    ) -> None:
        """Add a protocol's other messages, besides rows and tables: keys, shares, agreement, sums.

        Args:
            sizes: int64[B], bytes per message.
            senders: int64[B], client numbers; None for the server, "authority" for a key holder.
            receivers: likewise.
        """
        self.count_bytes(sizes, rows=None, senders=senders, receivers=receivers)

    def count_bytes(
        self,
        sizes: IntArray,
        *,
        rows: IntArray | None,
        senders: IntArray | str | None,
        receivers: IntArray | str | None,
    ) -> None:
        """Add messages of a protocol: with so many rows each, or without rows (None)."""
        if rows is None:
            self._beside["messages"] += len(sizes)
            self._beside["bytes"] += int(sizes.sum())
            rows = np.zeros(len(sizes), dtype=np.int64)
        added = (np.ones(len(sizes), dtype=np.int64), rows, sizes)
        for direction, parties in zip(_DIRECTIONS, (senders, receivers), strict=True):
            for quantity, amounts in zip(_QUANTITIES, added, strict=True):
                name = f"{quantity}_{direction}"
                if parties is None or isinstance(parties, str):
                    self._others[parties or _SERVER][name] += int(amounts.sum())
                else:
                    np.add.at(self._clients[name], parties, amounts)

    def clients(self, name: str) -> IntArray:
        """int64[n], one of the totals per client (a copy)."""
        return self._clients[name].copy()

    def server(self, name: str) -> int:
        """One of the server's totals."""
        return self._others[_SERVER][name]

    def authority(self, name: str) -> int:
        """One of the totals of a key holder that is neither client nor server."""
        return self._others[_AUTHORITY][name]

    def beside(self, name: str) -> int:
        """The "messages" or "bytes" that ``count_beside`` added, at their senders."""
        return self._beside[name]

    def state(self) -> dict[str, IntArray]:
        """All totals, for a checkpoint."""
        named = {**self._others, "beside": self._beside}
        return {
            **{name: values.copy() for name, values in self._clients.items()},
            **{name: np.array([*each.values()], dtype=np.int64) for name, each in named.items()},
        }

    def restore(self, state: Mapping[str, IntArray]) -> None:
        """Continue from the totals of a checkpoint."""
        for name in _FIELDS:
            self._clients[name] = state[name].astype(np.int64)
        for role in self._others:
            self._others[role] = dict(zip(_FIELDS, state[role].tolist(), strict=True))
        self._beside = dict(zip(_BESIDE, state["beside"].tolist(), strict=True))
