"""Identified uploads, in clear: the server adds them up."""

from dataclasses import dataclass

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.protection.base.table import (
    ServerSum,
    TableCollector,
    TableSession,
    aggregate_note,
    upload_messages,
)
from secure_fedrec.traits import AS_BEFORE, Traits
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Step, Traffic, Wire


class DirectSum(TableCollector):
    """Collector of identified uploads, in clear."""

    traits: Traits = AS_BEFORE

    def simulated(self, round_: int, participants: IntArray, wire: Wire) -> "DirectSession":
        """One round of uploads in clear."""
        return DirectSession(self, round_, participants, wire)

    def traffic(self, rows: IntArray, virtual: IntArray) -> tuple[Traffic, ...]:
        """One upload per client."""
        return (
            Traffic(step=Step.UPLOAD, messages=len(rows), rows=int(rows.sum()), width=self.width),
        )

    def describe(self) -> None:
        """Plain summation protects nothing."""
        return


@dataclass(eq=False)
class DirectSession(TableSession):
    """One round of identified uploads."""

    def __post_init__(self) -> None:
        self._server = ServerSum(self.collector, self.round, self.order)

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        """Send the uploads of a batch of clients."""
        collector = self.collector
        sent = upload_messages(self.round, clients, block, collector.width, collector.codec)
        self._server.accept(self.wire.send(sent, origins=clients))

    def close(self) -> Aggregate:
        """Check completeness and hand over the sum."""
        self._server.require_complete()
        aggregate = self._server.aggregate()
        self.wire.show(aggregate_note(self.round, aggregate))
        return aggregate
