"""What communication costs each party: messages, row vectors and bytes, sent and received."""

from collections.abc import Mapping

import numpy as np

from secure_fedrec.arrays import IntArray
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire.messages import Messages

__all__ = ["Meter"]

_FIELDS = (
    "messages_sent",
    "messages_received",
    "vectors_sent",
    "vectors_received",
    "bytes_sent",
    "bytes_received",
)


class Meter:
    """Totals per client since the start of a run, and of the server.

    The unit "vector" is one row of the shared table, as in FedRec++ table 3; the broadcast of the
    public table counts in bytes but not in vectors, as there.

    Args:
        n_clients: clients of the federation.
    """

    __slots__ = ("_clients", "_server")

    def __init__(self, n_clients: int) -> None:
        self._clients = {name: np.zeros(n_clients, dtype=np.int64) for name in _FIELDS}
        self._server = dict.fromkeys(_FIELDS, 0)

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
        rows = payload.lengths if isinstance(payload, RowBlock) else np.zeros(len(messages), int)
        for direction, parties in (("sent", senders), ("received", receivers)):
            for quantity, amounts in (
                ("messages", np.ones(len(messages), dtype=np.int64)),
                ("vectors", rows),
                ("bytes", messages.sizes),
            ):
                name = f"{quantity}_{direction}"
                if parties is None:
                    self._server[name] += int(amounts.sum())
                else:
                    np.add.at(self._clients[name], parties, amounts)

    def clients(self, name: str) -> IntArray:
        """int64[n], one of the totals per client (a copy)."""
        return self._clients[name].copy()

    def server(self, name: str) -> int:
        """One of the server's totals."""
        return self._server[name]

    def state(self) -> dict[str, IntArray]:
        """All totals, for a checkpoint."""
        server = np.array([self._server[name] for name in _FIELDS], dtype=np.int64)
        return {**{name: values.copy() for name, values in self._clients.items()}, "server": server}

    def restore(self, state: Mapping[str, IntArray]) -> None:
        """Continue from the totals of a checkpoint."""
        for name in _FIELDS:
            self._clients[name] = state[name].astype(np.int64)
        self._server = {
            name: int(value) for name, value in zip(_FIELDS, state["server"], strict=True)
        }
