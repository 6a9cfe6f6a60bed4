"""One round of hidden uploads: submitted, hidden, sent, added up and opened."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Unpack

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.hidden_sums.dense import (
    HIDDEN,
    DenseLayout,
    DenseSum,
    DenseWords,
    Gathered,
    Hider,
)
from secure_fedrec.protection.plain import TableCollector, TableSizes
from secure_fedrec.traits import Traits
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Step, Traffic, Wire

__all__ = ["HiddenAddition", "HiddenSession", "HiddenSum"]


class HiddenSum(TableCollector):
    """What collectors of hidden uploads have in common.

    Args:
        min_survivors: fewest clients whose sum may be formed.
        table: sizes and ring, see ``TableCollector``.

    Raises:
        ConfigError: fewer clients than the smallest sum.
    """

    traits: Traits = HIDDEN

    def __init__(self, *, min_survivors: int, **table: Unpack[TableSizes]) -> None:
        super().__init__(**table)
        if min_survivors > self.n_clients:
            problem = f"there are only {self.n_clients} clients"
            raise ConfigError("protection.min_survivors", min_survivors, problem)
        self.min_survivors = min_survivors

    @property
    def layout(self) -> DenseLayout:
        """All rows of the table."""
        return DenseLayout(items=np.arange(self.n_items, dtype=np.int32), width=self.width)

    def require_enough(self, round_: int, participants: IntArray) -> None:
        """Check that the round's sum hides somebody.

        Raises:
            ProtocolError: fewer clients than the smallest sum allowed.
        """
        if len(participants) < self.min_survivors:
            raise ProtocolError(
                f"round {round_}: {len(participants)} clients, a sum needs at least "
                f"{self.min_survivors}"
            )

    def traffic(self, rows: IntArray, virtual: IntArray) -> tuple[Traffic, ...]:
        """Every client sends every row."""
        del virtual
        return (
            Traffic(
                step=Step.UPLOAD,
                messages=len(rows),
                rows=len(rows) * self.n_items,
                width=self.width + 1,
            ),
        )


class HiddenSession:
    """One round of hidden uploads up to the point where all clients have submitted.

    Where a session ``streams``, uploads are hidden, sent and added as they come.
    """

    def __init__(
        self, collector: HiddenSum, round_: int, participants: IntArray, wire: Wire
    ) -> None:
        collector.require_enough(round_, participants)
        self.order = participants
        self.collector = collector
        self.round = round_
        self.wire = wire
        self._sum: HiddenAddition | None = None
        self._gathered = Gathered(
            round_=round_, expected=participants, n_items=collector.n_items, codec=collector.codec
        )

    def exempt(self, clients: IntArray) -> BoolArray:
        """Nobody is exempt from a cloak."""
        return np.zeros(len(clients), dtype=bool)

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        """Send the rows of the next clients, or hold them until all are there."""
        del virtual
        self._gathered.accept(clients, block)
        layout = self.collector.layout
        if not self._streams:
            self._gathered.keep(block)
            return
        if self._sum is None:
            self._sum = HiddenAddition(self, Step.UPLOAD, layout, self._stream_hider())
        self._sum.add(self._hidden(self._gathered.words_of(clients, block, layout)))

    @property
    def _streams(self) -> bool:
        """Whether an upload can be hidden before the others are there."""
        return False

    def _stream_hider(self) -> Hider:
        raise NotImplementedError

    def _hidden(self, parts: Iterator[DenseWords]) -> Iterator[DenseWords]:
        """What clients make of their words before they are hidden."""
        return parts


class HiddenAddition:
    """Words of some clients at a time, hidden, sent, added up, and opened at the end.

    Args:
        session: whose round it is.
        step: of the messages.
        layout: what the words stand for.
        hider: how they are hidden.
    """

    def __init__(
        self, session: HiddenSession, step: Step, layout: DenseLayout, hider: Hider
    ) -> None:
        self.hider = hider
        self._session = session
        self._step = step
        self._layout = layout
        self._server = DenseSum(
            layout,
            round_=session.round,
            step=step,
            expected=session.order,
            n_clients=session.collector.n_clients,
            codec=session.collector.codec,
        )

    def add(self, parts: Iterator[DenseWords]) -> None:
        """Hide and send the words of some clients.

        Raises:
            ProtocolError: the server refuses a delivered message.
        """
        session = self._session
        for part in parts:
            sent = replace(part, words=self.hider.hide(part)).message(
                round_=session.round,
                step=self._step,
                codec=session.collector.codec,
                sizes=np.full(len(part.clients), self.hider.size),
            )
            self._server.accept(session.wire.send(sent, origins=part.clients))

    def open(self) -> Aggregate:
        """The sum: [k, width] ring words, and counts int64[k].

        Raises:
            ProtocolError: a client was not heard.
        """
        self._server.require_complete()
        codec = self._session.collector.codec
        return self._layout.split(codec.reduce(self.hider.open(self._server.total)), codec)
