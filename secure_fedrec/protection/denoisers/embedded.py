"""FedRec++'s denoising clients: virtual rows are collected, summed and subtracted again.

eta clients are denoisers for the whole run and every other client is bound to one of them, in
groups whose sizes differ by at most one. In a round (FedRec++ eq. 4-9)

- an ordinary client sends all its rows to the server under its name, and the virtual ones once more
  to its denoiser over an anonymous channel;
- a denoiser sums the virtual rows it collects, subtracts its own rows (which reach the server only
  this way), and sends sums and counts;
- the server subtracts the denoisers' sums from its own. What remains is the exact sum of the real
rows.

Row words are encoded once, so the server subtracts exactly the integers that it added. Two repairs
of the paper make the *divisor* exact as well: the count a denoiser reports is the number of virtual
rows less one for each of its own ratings (as printed, the server cannot count the denoisers'
ratings but sums their gradients), and the rows it sends are the union of collected and own items.

Assumptions, which are not enforced here: the channel to the denoiser hides the sender, the server
does not know which denoiser serves which client, and all parties follow the protocol. The attack
suite shows how far the claim holds under them.
"""

from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray, WordArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.base.expected_senders import Heard
from secure_fedrec.protection.base.layer_interfaces import RoundSession
from secure_fedrec.protection.base.picked_rows import pick, pick_segments
from secure_fedrec.protection.base.table import (
    TableCollector,
    TableSizes,
    accumulate,
    denoiser_sums,
)
from secure_fedrec.protection.denoisers.config import Binding, DenoisersConfig
from secure_fedrec.protection.denoisers.group_sums import GroupSums
from secure_fedrec.protection.plain.embedded import DirectSession
from secure_fedrec.streams import Streams
from secure_fedrec.traits import Traits
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Messages, Parties, Step, Traffic, Wire, message_sizes

DENOISED = Traits(
    virtual_rows="taken-out", reports=None, uploads="rows", noise=None, denoising="groups"
)
"""Traits of uploads from which denoisers take the virtual rows, without the denoisers' numbers."""


class Denoisers(TableCollector):
    """Collector with denoising clients.

    Args:
        config: settings.
        streams: the run's random streams; uses "denoisers" and "arrival".
        table: sizes and ring, see ``TableCollector``.
    """

    def __init__(
        self, config: DenoisersConfig, *, streams: Streams, **table: Unpack[TableSizes]
    ) -> None:
        super().__init__(**table)
        config.require_fits(self.n_clients)
        self.config = config
        self.binding = Binding.draw(self.n_clients, config.count, streams.stream("denoisers"))
        self.arrival = streams.stream("arrival")

    def participants(self, cohort: IntArray) -> IntArray:
        """Clients of the groups with all required parties present.

        A client whose denoiser is absent sits the round out, and so does a denoiser without any of
        its clients is present: its sum would be its own rows alone.
        """
        binding = self.binding
        groups = binding.group[cohort]
        ordinary = ~binding.is_denoiser[cohort]
        served = np.zeros(self.config.count, dtype=bool)
        served[groups[~ordinary]] = True
        asked = np.zeros(self.config.count, dtype=bool)
        asked[groups[ordinary]] = True
        return np.sort(cohort[(served & asked)[groups]])

    def simulated(self, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        """One round, whose channel to the denoisers is assumed."""
        return DenoisingSession(self, round_, participants, wire)

    def noise_sizes(self, block: RowBlock) -> IntArray:
        """Bytes of each client's message to its denoiser: int64[B]."""
        return message_sizes(block, width=self.width, codec=self.codec)

    def traffic(self, rows: IntArray, virtual: IntArray) -> tuple[Traffic, ...]:
        """Uploads and noise of the ordinary clients, sums of the denoisers.

        A client whose denoiser is not invited sits out.
        """
        ordinary = ~self.binding.is_denoiser
        count, width = int(ordinary.sum()), self.width
        noise = int(virtual[ordinary].sum())
        sums = min(self.config.count * self.n_items, noise + int(rows[~ordinary].sum()))
        real = int(rows[ordinary].sum())
        return (
            Traffic(step=Step.UPLOAD, messages=count, rows=real, width=width, invited=2),
            Traffic(step=Step.NOISE, messages=count, rows=noise, width=width, invited=2),
            Traffic(
                step=Step.DENOISE, messages=self.config.count, rows=sums, width=width, counts=True
            ),
        )

    @property
    def traits(self) -> Traits:
        """Sums over groups, and who the denoisers are."""
        return replace(DENOISED, denoisers=tuple(self.binding.denoisers.tolist()))

    def describe(self) -> tuple[str, dict[str, Any]]:
        """Number and identities of the denoisers, selected by the server (Algorithm 1, line 1)."""
        clients = self.binding.denoisers.tolist()
        return "denoisers", {"count": self.config.count, "clients": clients}


class DenoisingSession(DirectSession):
    """One round with denoisers."""

    collector: Denoisers

    def __post_init__(self) -> None:
        collector, participants = self.collector, self.order
        binding = collector.binding
        group, own = binding.group[participants], binding.is_denoiser[participants]
        self.order = participants[~own]
        super().__post_init__()
        # Groups one after the other, the denoiser first: a group's sums are complete, and can be
        # sent, as soon as its last client has been submitted.
        self.order = participants[np.lexsort((participants, ~own, group))]
        members = np.bincount(group, minlength=collector.config.count)
        self._sums = GroupSums(members, collector.n_items, collector.width, collector.codec)
        self._noise_due = np.bincount(group[~own], minlength=collector.config.count)
        self._tags_seen: list[WordArray] = []
        self._denoisers = Heard(
            self.round, Step.DENOISE, expected=np.flatnonzero(members), senders=len(members)
        )

    def exempt(self, clients: IntArray) -> BoolArray:
        """Denoisers draw no virtual items: their rows reach the server only inside sums."""
        return self.collector.binding.is_denoiser[clients]

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        """Send the rows of the next clients in ``order``."""
        own = self.collector.binding.is_denoiser[clients]
        kept = block
        if own.any():
            self._sums.add(self._groups(clients[own]), pick_segments(block, own), sign=-1)
            kept = pick_segments(block, ~own)
            virtual = virtual[np.repeat(~own, block.lengths)]
        if not own.all():
            super().submit(clients[~own], kept, virtual)
            everyone = np.ones(len(kept), dtype=bool)
            self._send_noise(clients[~own], pick(kept, everyone, virtual))
        self._send_sums(self._sums.finish(self._groups(clients)))

    def close(self) -> Aggregate:
        """Check completeness, subtract the noise, and return the sum of the real rows."""
        tags = np.concatenate(self._tags_seen) if self._tags_seen else np.empty(0, np.uint64)
        if len(np.unique(tags)) != len(tags):
            raise ProtocolError(f"round {self.round}: a noise message arrived twice")
        if self._noise_due.any():
            late = int(np.flatnonzero(self._noise_due)[0])
            raise ProtocolError(
                f"round {self.round}: denoiser {late} misses {int(self._noise_due[late])} noise "
                "messages; the round is abandoned"
            )
        self._denoisers.require_complete()
        return super().close()

    def _groups(self, clients: IntArray) -> IntArray:
        return self.collector.binding.group[clients]

    def _send_noise(self, clients: IntArray, block: RowBlock) -> None:
        collector = self.collector
        groups = self._groups(clients)
        zeros = np.zeros(len(clients), dtype=np.int64)
        sent = Messages(
            round=self.round,
            step=Step.NOISE,
            senders=Parties.anonymous("client", len(clients)),
            receivers=Parties(role="denoiser", ids=groups),
            payload=block,
            sizes=collector.noise_sizes(block),
            tags=collector.arrival.words_at(self.round, clients, zeros, width=1)[:, 0],
        )
        targets = collector.binding.denoisers[groups]
        delivered = self.wire.send(sent, origins=clients, targets=targets)
        self._delivered(sent, delivered)
        self._collect(delivered)

    def _delivered(self, sent: Messages, delivered: Messages) -> None:
        """The senders' side: with an assumed channel, they have nothing to check."""

    def _collect(self, messages: Messages) -> None:
        """The denoisers' side: accept delivered noise."""
        if messages.round != self.round or messages.step is not Step.NOISE:
            raise ProtocolError(
                f"round {self.round} awaits noise, got {messages.step.name} of round "
                f"{messages.round}"
            )
        if messages.tags is None:
            raise ProtocolError(f"round {self.round}: a noise message carries no tag")
        self._tags_seen.append(messages.tags)
        groups = messages.receivers.ids
        np.subtract.at(self._noise_due, groups, 1)
        if np.any(self._noise_due < 0):
            raise ProtocolError(f"round {self.round}: a denoiser got more messages than senders")
        if isinstance(messages.payload, RowBlock):
            self._sums.add(groups, messages.payload, sign=1)

    def _send_sums(self, finished: tuple[IntArray, RowBlock] | None) -> None:
        """Send the sums of finished groups; the server subtracts delivered ones from its own."""
        if finished is None:
            return
        groups, block = finished
        collector = self.collector
        sizes = message_sizes(block, width=collector.width, codec=collector.codec)
        sent = denoiser_sums(self.round, groups, block, sizes)
        delivered = self.wire.send(sent, origins=collector.binding.denoisers[groups])
        self._denoisers.take(delivered)
        came = delivered.payload
        if not isinstance(came, RowBlock) or came.values is None or came.counts is None:
            raise ProtocolError(f"round {self.round}: denoisers send rows with counts")
        accumulate(self._server.ring, self._server.counts, came.rows, came, sign=-1)
