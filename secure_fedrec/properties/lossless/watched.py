"""Collectors that store what clients submitted: clients, rows, and which rows are virtual."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties.lossless.plain_run import Rows, own_ring
from secure_fedrec.protection.base.layer_interfaces import (
    Collector,
    PublicStep,
    RoundSession,
    StateKeeper,
    Withstood,
)
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Traffic, Wire


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Given:
    """What the clients of a round submitted to a collector, copied before the collector uses it.

    Args:
        batches: the clients, batch by batch, in order.
        exempt: clients that the session exempted from the cloak.
    """

    batches: list[IntArray] = field(default_factory=list)
    exempt: set[int] = field(default_factory=set)
    _rows: list[Rows] = field(default_factory=list)
    _virtual: list[BoolArray] = field(default_factory=list)

    def note(
        self, clients: IntArray, block: RowBlock, virtual: BoolArray, ring: FixedPoint
    ) -> None:
        """Remember a batch."""
        self.batches.append(clients.copy())
        self._rows.append(Rows.of(clients, block, ring))
        self._virtual.append(virtual.copy())

    @property
    def clients(self) -> IntArray:
        """int64[P], in the order in which they came."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self.batches])

    def rows(self, width: int, *, virtual: bool) -> Rows:
        """Rows that the clients marked as virtual, or the other rows."""
        pairs = zip(self._rows, self._virtual, strict=True)
        return Rows.joined([rows.pick(called == virtual) for rows, called in pairs], width)


def watched(collector: Collector) -> "Watched":
    """Wrap a collector, keeping all of its capabilities."""
    if isinstance(collector, StateKeeper):
        return _WatchedKeeper(collector, collector)
    return Watched(collector)


class Watched:
    """A collector that stores what it receives.

    Args:
        collector: does the work.

    Attributes:
        given: what clients submitted in the last round.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self.codec = collector.codec
        self.n_clients = collector.n_clients
        self.model_hidden_from = collector.model_hidden_from
        self.given = Given()
        self.ring = own_ring(collector.codec)

    def participants(self, cohort: IntArray) -> IntArray:
        """The collector's."""
        return self._collector.participants(cohort)

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> "_WatchedSession":
        """A round of the collector."""
        self.given = Given()
        session = self._collector.open(round_=round_, participants=participants, wire=wire)
        return _WatchedSession(self, session)

    def withstands(self, cohort: int) -> Withstood:
        """The collector's."""
        return self._collector.withstands(cohort)

    def traffic(self, rows: IntArray, virtual: IntArray) -> tuple[Traffic, ...]:
        """The collector's."""
        return self._collector.traffic(rows, virtual)

    def describe(self) -> tuple[str, dict[str, Any]] | None:
        """The collector's."""
        return self._collector.describe()


class _WatchedKeeper(Watched):
    """As ``Watched``, for collectors whose clients may keep the public state from the server."""

    def __init__(self, collector: Collector, keeper: StateKeeper) -> None:
        super().__init__(collector)
        self._keeper = keeper

    def keep(self, step: PublicStep) -> None:
        self._keeper.keep(step)

    def require_step(self, round_: int) -> PublicStep:
        return self._keeper.require_step(round_)

    def broadcast_bytes(self, words: int) -> int:
        return self._keeper.broadcast_bytes(words)


class _WatchedSession:
    def __init__(self, collector: Watched, session: RoundSession) -> None:
        self._watched = collector
        self._session = session

    @property
    def order(self) -> IntArray:
        return self._session.order

    def exempt(self, clients: IntArray) -> BoolArray:
        marked = self._session.exempt(clients)
        self._watched.given.exempt.update(clients[marked].tolist())
        return marked

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        self._watched.given.note(clients, block, virtual, self._watched.ring)
        self._session.submit(clients, block, virtual)

    def close(self) -> Aggregate:
        return self._session.close()
