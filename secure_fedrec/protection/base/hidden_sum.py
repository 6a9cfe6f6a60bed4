"""One round of hidden uploads: submitted, hidden, sent, added up and opened."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.base.dense_uploads import (
    HIDDEN,
    DenseLayout,
    DenseSum,
    DenseWords,
    Gathered,
    Hider,
    words_of,
)
from secure_fedrec.protection.base.table import TableCollector, TableSession, TableSizes
from secure_fedrec.traits import Traits
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Step, Traffic, Wire


class HiddenSum(TableCollector):
    """Common base of collectors of hidden uploads.

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

    def require_round(self, round_: int, participants: IntArray) -> None:
        """Refuse a sum of too few clients to hide any of them.

        Raises:
            ProtocolError: fewer clients than the smallest sum allowed.
        """
        least = self.min_survivors
        if len(participants) < least:
            raise ProtocolError(
                f"round {round_}: {len(participants)} clients, a sum needs at least {least}"
            )

    def traffic(self, rows: IntArray, virtual: IntArray) -> tuple[Traffic, ...]:
        """Every client sends every row."""
        return (
            Traffic(
                step=Step.UPLOAD,
                messages=len(rows),
                rows=len(rows) * self.n_items,
                width=self.width + 1,
            ),
        )


class HiddenSession(TableSession):
    """One round of hidden uploads up to the point where all clients have submitted.

    If a session ``streams``, uploads are hidden, sent and added as they come.
    """

    collector: HiddenSum

    def __init__(
        self, collector: HiddenSum, round_: int, participants: IntArray, wire: Wire
    ) -> None:
        super().__init__(collector, round_, participants, wire)
        self._sum: HiddenAddition | None = None
        self._gathered = Gathered(collector, round_, participants)

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        """Send the rows of the next clients, or store them until all have arrived."""
        self._gathered.accept(clients, block)
        layout = self.collector.layout
        if self._sum is None:
            hider = self._hider()
            if hider is None:
                self._gathered.keep(block)
                return
            self._sum = HiddenAddition(self, Step.UPLOAD, layout, hider)
        self._sum.add(self._hidden(words_of(self.collector, clients, block, layout)))

    def _hider(self) -> Hider | None:
        """Hides an upload before the others arrive; None where that is impossible."""
        return None

    def _hidden(self, parts: Iterator[DenseWords]) -> Iterator[DenseWords]:
        """The clients' step on their words before they are hidden."""
        return parts


class HiddenAddition:
    """Words of some clients at a time, hidden, sent, added up, and opened at the end.

    Args:
        session: session of the round.
        step: step of the messages.
        layout: meaning of the words.
        hider: how they are hidden.
    """

    def __init__(
        self, session: HiddenSession, step: Step, layout: DenseLayout, hider: Hider
    ) -> None:
        self.hider = hider
        self._session = session
        self._step = step
        self._layout = layout
        self._server = DenseSum(layout, session, step)

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


NO_CLOAK = ("cloak",)
"""What hidden sums exclude: with every row hidden, there is no rated set left to cover."""


def require_reachable(settings: Any, cohort: int) -> None:
    """Refuse sums that no round reaches.

    Raises:
        ConfigError: a round has fewer clients than the smallest sum.
    """
    if settings.min_survivors > cohort:
        raise ConfigError(
            "protection.min_survivors",
            settings.min_survivors,
            f"only {cohort} clients take part in a round",
        )
