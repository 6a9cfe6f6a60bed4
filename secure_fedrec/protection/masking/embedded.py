"""Masked sums as a collector of the engine: the server learns sums and counts, but no rows.

Every upload is hidden under pads that cancel in the sum, as the protocol's masks do if all clients
answer: each client adds its own keystream and takes off its successor's, so that any set of uploads
short of all is uniformly random. That shows the server of an audit what the protocol would show it,
at the cost of two keystreams per client.

Item denominators are exact: a client's count words are summed under the same masks as its rows.
With a tail floor the counts are summed first, and rows of items below the floor are never sent: the
two rounds of ``masking.tail_floor``, with the protocol's layouts and settings. Against an active
server a floor is refused: it could lie about counts.
"""

from dataclasses import asdict, replace
from typing import Any, Unpack

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.base.dense_uploads import DenseLayout, DenseWords, layout_hash
from secure_fedrec.protection.base.hidden_sum import HiddenAddition, HiddenSession, HiddenSum
from secure_fedrec.protection.base.layer_interfaces import Withstood
from secure_fedrec.protection.base.table import TableSizes, aggregate_note
from secure_fedrec.protection.keystream import MaskExpander
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.masking.messages.protocol_traffic import (
    count_beside,
    count_counts,
    upload_bytes,
)
from secure_fedrec.protection.masking.tail_floor import TailFloor
from secure_fedrec.protection.session.statement import NO_STATEMENT
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import Step, Traffic, Wire


class MaskedSum(HiddenSum):
    """Collector of masked uploads.

    Args:
        config: settings.
        streams: the run's random streams; a simulation uses the one named "pads".
        table: sizes and ring, see ``TableCollector``.
    """

    def __init__(
        self, config: MaskingLayerConfig, *, streams: Streams, **table: Unpack[TableSizes]
    ) -> None:
        super().__init__(min_survivors=config.min_survivors, **table)
        self.config, self.execution = config, config.execution
        self.pads = streams.stream("pads")

    def withstands(self, cohort: int) -> Withstood:
        """The configured fraction of clients that work with the server.

        Without it they do not receive a sum; attacks do not use what they can read from public
        tables.
        """
        return Withstood(
            with_server=self.config.corrupt_clients(cohort=cohort, n_clients=self.n_clients),
            key="protection.corrupt",
            value=self.config.corrupt,
            reason="the masks reckon with no larger share of clients",
        )

    def masking_config(
        self, clients: int, length: int, named: bytes, stated: bytes
    ) -> MaskingConfig:
        """The protocol's settings for a round.

        Args:
            clients: clients of the round.
            length: ring words of each.
            named: hash of what the words stand for.
            stated: digest of the round's statement.

        Raises:
            ConfigError: no safe parameters for so few clients.
        """
        policy = self.config.policy
        config = MaskingConfig.for_cohort(
            clients,
            bits=self.codec.bits,
            length=length,
            layout_hash=named,
            corrupt=policy.corrupt,
            dropout=policy.dropout,
            adversary=policy.adversary,
            roster=self.n_clients if self.n_clients > clients else None,
            statement=stated,
        )
        return replace(config, min_survivors=max(config.min_survivors, policy.min_survivors))

    def simulated(self, round_: int, participants: IntArray, wire: Wire) -> "MaskedSession":
        """One round under pads."""
        return MaskedSession(self, round_, participants, wire)

    def expected(self, plain: Aggregate) -> Aggregate | None:
        """With a tail floor, rows below it are zeros."""
        floor = self.config.floor
        if floor is None:
            return plain
        below = np.ones(self.n_items, dtype=bool)
        below[floor.rows(plain.counts)] = False
        ring, counts = plain.ring.copy(), plain.counts.copy()
        ring[below], counts[below] = 0, 0
        return replace(plain, ring=ring, counts=counts)

    def traffic(self, rows: IntArray, virtual: IntArray) -> tuple[Traffic, ...]:
        """Every client sends every row; with a tail floor, a count of every row before."""
        sent = super().traffic(rows, virtual)
        if self.config.floor is None:
            return sent
        clients = len(rows)
        every = clients * self.n_items
        counts = Traffic(step=Step.COUNTS, messages=clients, rows=every, width=0, counts=True)
        return (counts, *sent)

    def describe(self) -> tuple[str, dict[str, Any]]:
        """All settings are public."""
        return "masking", asdict(self.config)


class MaskedSession(HiddenSession):
    """One round of masked uploads."""

    collector: MaskedSum

    def close(self) -> Aggregate:
        """Hide, send and sum what was gathered."""
        self._gathered.require_complete()
        floor = self.collector.config.floor
        if floor is None:
            seen = aggregate = self._masked_sum()
        else:  # the server learns counts beside those of the rows it gets
            aggregate, known = self._floored(floor)
            seen = replace(aggregate, counts=known)
        self.wire.show(aggregate_note(self.round, seen))
        return aggregate

    def _hider(self) -> "_Pads | None":
        """A pad concerns two clients, a floor all of them."""
        if self.collector.config.floor is not None:
            return None
        collector, layout = self.collector, self.collector.layout
        config = self._config(layout.length, layout_hash(layout, collector.codec))
        return _Pads(self, config, Step.UPLOAD)

    def _masked_sum(self) -> Aggregate:
        """Sums and counts of all rows, as they came.

        Raises:
            ProtocolError: no client has submitted.
        """
        if self._sum is None:
            raise ProtocolError(f"round {self.round}: no client has submitted")
        return self._opened(self._sum)

    def _floored(self, floor: TailFloor) -> tuple[Aggregate, IntArray]:
        """Sums and counts of the items at the floor, zeros at the others, and the counts of all."""
        collector, codec, n = self.collector, self.collector.codec, len(self.order)
        marks = TailFloor.presence_layout(collector.n_items, clients=n, bits=codec.bits)
        first = self._config(marks.words, marks.hash)
        known = self._padded_sum(Step.COUNTS, replace(collector.layout, width=0), first).counts
        items = floor.rows(known).astype(np.int32)
        ring: RingArray = np.zeros((collector.n_items, collector.width), dtype=codec.dtype)
        counts = np.zeros(collector.n_items, dtype=np.int64)
        if len(items):  # otherwise no rows are requested
            count_counts(self.wire.meter, collector.n_items, codec.bits, self.order)
            second = floor.second_round(
                known,
                self.order,
                first=first,
                statement=None,
                codec=codec,
                width=collector.width,
            )
            layout = replace(collector.layout, items=items)
            found = self._padded_sum(Step.UPLOAD, layout, floor.config(second, first))
            ring[items], counts[items] = found.ring, found.counts
        return Aggregate(ring=ring, counts=counts, codec=codec), known

    def _config(self, length: int, named: bytes) -> MaskingConfig:
        # Only sizes are needed, as the protocol does not run.
        return self.collector.masking_config(len(self.order), length, named, NO_STATEMENT)

    def _padded_sum(self, step: Step, layout: DenseLayout, config: MaskingConfig) -> Aggregate:
        """Send and add words under simulated pads."""
        pads = _Pads(self, config, step)
        addition = HiddenAddition(self, step, layout, pads)
        addition.add(self._gathered.words(layout))
        return self._opened(addition)

    def _opened(self, addition: HiddenAddition) -> Aggregate:
        found, hider = addition.open(), addition.hider
        if isinstance(hider, _Pads):
            count_beside(self.wire.meter, hider.config, self.order)
        return found


class _Pads:
    """Pads that cancel: every client adds a keystream and takes off that of the next client.

    A device has its mask keys from the key agreement; a simulation takes them from a seeded stream.
    """

    def __init__(self, session: MaskedSession, config: MaskingConfig, step: Step) -> None:
        collector, order, round_ = session.collector, session.order, session.round
        phases = np.full(len(order), int(step))
        keys = collector.pads.words_at(round_, order, phases, width=4)
        self._own = {int(client): key.tobytes() for client, key in zip(order, keys, strict=True)}
        self._next = dict(zip(order.tolist(), np.roll(order, -1).tolist(), strict=True))
        self._codec = collector.codec
        self._expander = MaskExpander()
        self.size = upload_bytes(config)
        self.config = config

    def hide(self, part: DenseWords) -> RingArray:
        """Words under their pads."""
        hidden = part.words.copy()
        for client, words in zip(part.clients.tolist(), hidden, strict=True):
            successor = self._own[self._next[client]]
            self._expander.apply(words, add=[self._own[client]], subtract=[successor])
        return self._codec.reduce(hidden)

    def open(self, total: RingArray) -> RingArray:
        """The pads of all clients cancel."""
        return total
