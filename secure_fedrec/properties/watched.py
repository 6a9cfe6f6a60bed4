"""Collectors and bag channels that remember what they handed to the server."""

from collections.abc import Mapping
from typing import Any

from secure_fedrec.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base import (
    BagChannel,
    BagRound,
    Collector,
    PublicStep,
    RoundSession,
    StateKeeper,
    Withstood,
)
from secure_fedrec.uploads import Aggregate, RowBlock, SetBlock
from secure_fedrec.wire import Traffic, Wire

__all__ = ["Watched", "WatchedBags", "watched"]


def watched(collector: Collector) -> "Watched":
    """The collector, with all its capabilities, watched."""
    if isinstance(collector, StateKeeper):
        return _WatchedKeeper(collector, collector)
    return Watched(collector)


class Watched:
    """A collector that remembers the aggregate it handed to the server.

    Args:
        collector: does the work.

    Attributes:
        aggregate: of the last round; None before the first.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self.codec = collector.codec
        self.n_clients = collector.n_clients
        self.model_hidden_from = collector.model_hidden_from
        self.aggregate: Aggregate | None = None

    def participants(self, cohort: IntArray) -> IntArray:
        """The collector's."""
        return self._collector.participants(cohort)

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> "_WatchedSession":
        """A round of the collector."""
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
    """Watched, and clients may keep the public state from the server."""

    def __init__(self, collector: Collector, keeper: StateKeeper) -> None:
        super().__init__(collector)
        self._keeper = keeper

    def keep(self, step: PublicStep) -> None:
        self._keeper.keep(step)

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
        return self._session.exempt(clients)

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        self._session.submit(clients, block, virtual)

    def close(self) -> Aggregate:
        self._watched.aggregate = self._session.close()
        return self._watched.aggregate


class WatchedBags:
    """A bag channel that remembers the bags it handed to the server.

    Args:
        channel: does the work.

    Attributes:
        collected: of the last round; empty before the first.
    """

    def __init__(self, channel: BagChannel) -> None:
        self._channel = channel
        self.collected: dict[str, FloatArray] = {}

    @property
    def codec(self) -> FixedPoint:
        """The channel's."""
        return self._channel.codec

    @property
    def n_clients(self) -> int:
        """The channel's."""
        return self._channel.n_clients

    @property
    def names(self) -> tuple[str, ...]:
        """The channel's."""
        return self._channel.names

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> "_WatchedRound":
        """A round of the channel."""
        inner = self._channel.open(round_=round_, participants=participants, wire=wire)
        return _WatchedRound(self, inner)

    def withstands(self, cohort: int) -> Withstood:
        """The channel's."""
        return self._channel.withstands(cohort)

    def bare(self) -> BagChannel:
        """The channel's."""
        return self._channel.bare()

    def traffic(self) -> tuple[Traffic, ...]:
        """The channel's."""
        return self._channel.traffic()

    def describe(self) -> dict[str, Any]:
        """The channel's."""
        return self._channel.describe()


class _WatchedRound:
    def __init__(self, bags: WatchedBags, inner: BagRound) -> None:
        self._bags = bags
        self._inner = inner

    def submit(self, clients: IntArray, bags: Mapping[str, SetBlock]) -> None:
        self._inner.submit(clients, bags)

    def close(self) -> dict[str, FloatArray]:
        self._bags.collected = self._inner.close()
        return self._bags.collected
