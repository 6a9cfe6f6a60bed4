"""Paillier sums as a collector of the engine: the server adds ciphertexts and reads none.

Which party reads the sum depends on which holds the key (``paillier.key_holders``):

- an *authority* opens it for the server, which goes on as it does with plain sums;
- the *clients* open it for themselves, as in FedMF. The server keeps the public state encrypted and
  hands out tables that it cannot read; two clients decrypt the sums, take the algorithm's server
  step and encrypt the next state. The engine's aggregate holds the integers which those two
  decrypted, so the engine's public state is the clients'; the server's view contains neither.

Clients send as many random words as they would ciphertexts, which a party without the key cannot
distinguish, and plaintexts are summed separately.

A recorded upload shows as many words of a client's ciphertexts as the layout has; the others are
omitted. Recorded sizes are those of the whole messages.
"""

from dataclasses import asdict
from typing import Any, Unpack

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ProtocolError, renamed_keys
from secure_fedrec.protection.base.hidden_sum import HiddenSession, HiddenSum
from secure_fedrec.protection.base.layer_interfaces import PublicStep, Withstood
from secure_fedrec.protection.base.table import TableSizes, aggregate_note
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.messages.sizes import (
    Sent,
    authority_messages,
    table_bytes,
    table_messages,
    upload_bytes,
)
from secure_fedrec.protection.paillier.messages.words_shown import table_layout
from secure_fedrec.protection.paillier.scheme.slots import SlotLayout
from secure_fedrec.protection.paillier.stand_ins import StandIns, meter_beside
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import Wire

_ELSEWHERE = (Kind.UPLOAD, Kind.TABLE)  # counted as the round's uploads and its broadcast


class EncryptedSum(HiddenSum):
    """Collector of encrypted uploads.

    Args:
        config: settings.
        streams: the run's random streams; a simulation uses the one named "ciphertexts".
        table: sizes and ring, see ``TableCollector``.
    """

    def __init__(
        self, config: EncryptionLayerConfig, *, streams: Streams, **table: Unpack[TableSizes]
    ) -> None:
        super().__init__(min_survivors=config.min_survivors, **table)
        self.config, self.execution = config, config.execution
        if self.held_by_clients:
            self.model_hidden_from = ("server",)  # it keeps the state encrypted
        self.stand_ins = streams.stream("ciphertexts")
        self.slots = SlotLayout(codec=self.codec, length=self.layout.length, budget=self.n_clients)
        with renamed_keys({"paillier.bits": "protection.key_bits"}):
            self.slots.slots(config.key_bits)  # refuses a key without room for one word
        self._step: PublicStep | None = None

    @property
    def held_by_clients(self) -> bool:
        """Whether the clients keep sums and state from the server."""
        return self.config.holder == "clients"

    def keep(self, step: PublicStep) -> None:
        """Take the state of the round that is opened next."""
        self._step = step

    def require_step(self, round_: int) -> PublicStep:
        """The state of the round in progress.

        Raises:
            ProtocolError: clients that keep it from the server were not given it.
        """
        if self._step is None:
            raise ProtocolError(f"round {round_}: no public state was handed to the clients")
        return self._step

    def broadcast_bytes(self, words: int) -> int:
        """Size of the message that brings a client the state, encrypted where clients keep it."""
        if not self.held_by_clients:
            return 8 * words
        return table_bytes(table_layout(words), self.config.key_bits)

    def withstands(self, cohort: int) -> Withstood:
        """No client may work with the server if every client holds the key; else any number."""
        if not self.held_by_clients:
            return Withstood()
        return Withstood(
            with_server=0,
            reason="every client holds the key: server and client together read all uploads, which "
            "protection.holder = 'clients' does not claim to withstand",
        )

    def simulated(self, round_: int, participants: IntArray, wire: Wire) -> "EncryptedSession":
        """One round of random words."""
        return EncryptedSession(self, round_, participants, wire)

    def describe(self) -> tuple[str, dict[str, Any]]:
        """All settings are public."""
        return "paillier", asdict(self.config)


class EncryptedSession(HiddenSession):
    """One round of encrypted uploads."""

    collector: EncryptedSum

    def close(self) -> Aggregate:
        """Check completeness, open the sum, and count the protocol's other messages.

        Raises:
            ProtocolError: a message is missing, repeated or late.
        """
        self._gathered.require_complete()
        if self._sum is None:
            raise ProtocolError(f"round {self.round}: no client has submitted")
        aggregate = self._sum.open()
        beside = [sent for sent in self._foreseen() if sent.kind not in _ELSEWHERE]
        meter_beside(self.wire.meter, beside)
        if not self.collector.held_by_clients:  # otherwise the server cannot open it
            self.wire.show(aggregate_note(self.round, aggregate))
        return aggregate

    def _hider(self) -> StandIns:
        collector = self.collector
        size = upload_bytes((collector.slots,), collector.config.key_bits)
        return StandIns(self, collector.stand_ins, size=size)

    def _foreseen(self) -> list[Sent]:
        """What the protocol would send, by its layouts; tables come with the round's broadcast."""
        collector, clients = self.collector, self.order.tolist()
        key_bits, layouts = collector.config.key_bits, (collector.slots,)
        if not collector.held_by_clients:
            return authority_messages(clients, layouts=layouts, key_bits=key_bits)
        table = table_layout(len(collector.require_step(self.round).words))
        return table_messages(
            clients, round_=self.round, layouts=layouts, table=table, key_bits=key_bits
        )
