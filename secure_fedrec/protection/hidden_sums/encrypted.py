"""Paillier sums as a collector of the engine: the server adds ciphertexts and reads none.

Who reads the sum depends on who holds the key (``paillier.key_holders``):

- an *authority* opens it for the server, which goes on as it does with plain sums;
- the *clients* open it for themselves, as in FedMF. The server keeps the public state encrypted and
  hands out what it cannot read; two clients decrypt the sums, take the algorithm's server step and
  encrypt the next state. The aggregate that the engine is given holds the integers which those two
  decrypted, so the engine's public state is the clients', and no view of the server has either.

Two executions give the same bits (``encrypted_rounds``): ``"real"`` drives the signed halves of
``paillier`` for every client, ``"simulated"`` sends as many random words and adds the plaintexts.

A recorded upload shows as many words of a client's ciphertexts as the layout has: the rest of them
is no more readable. Sizes are those of the whole messages.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base import PublicStep, Withstood
from secure_fedrec.protection.configured import as_configured
from secure_fedrec.protection.executions import require_execution
from secure_fedrec.protection.hidden_sums.dense import DenseWords, HiddenSession, HiddenSum
from secure_fedrec.protection.hidden_sums.encrypted_rounds import (
    AuthorityCiphertexts,
    EncryptedState,
    StandIns,
    TableCiphertexts,
    meter_beside,
    table_layout,
)
from secure_fedrec.protection.paillier import (
    DEFAULT_BITS,
    SlotLayout,
    generate_key,
    require_key_bits,
)
from secure_fedrec.protection.paillier.envelopes import Kind
from secure_fedrec.protection.paillier.message_sizes import (
    Sent,
    authority_messages,
    first_table_messages,
    table_bytes,
    table_messages,
    upload_bytes,
)
from secure_fedrec.protection.paillier.rounds import AuthorityFederation
from secure_fedrec.protection.plain import aggregate_note
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import Step, Wire

__all__ = ["EncryptedSum", "EncryptionLayerConfig"]

_LEAST_CLIENTS = 3
_ELSEWHERE = (Kind.UPLOAD, Kind.TABLE)  # counted as the round's uploads and its broadcast


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionLayerConfig:
    """Settings of the layer.

    Args:
        execution: "simulated" or "real".
        holder: who holds the key, "clients" or "authority".
        key_bits: bits of the modulus.
        min_survivors: fewest clients whose sum may be opened.

    Raises:
        ConfigError: a field is out of range.
    """

    execution: str = "simulated"
    holder: str = "authority"
    key_bits: int = DEFAULT_BITS
    min_survivors: int = _LEAST_CLIENTS

    def __post_init__(self) -> None:
        require_execution(self.execution)
        if self.holder not in ("authority", "clients"):
            raise ConfigError(
                "protection.holder", self.holder, "holds no key", ("authority", "clients")
            )
        require_key_bits(self.key_bits, key="protection.key_bits")
        if self.min_survivors < _LEAST_CLIENTS:
            raise ConfigError(
                "protection.min_survivors",
                self.min_survivors,
                f"must be at least {_LEAST_CLIENTS}: of two clients each knows the other's upload "
                "from the sum",
            )


class EncryptedSum(HiddenSum):
    """Collector of encrypted uploads.

    Args:
        config: settings.
        n_clients: clients of the federation.
        n_items: rows of the shared table.
        width: values per row.
        codec: the ring.
        streams: the run's random streams; a simulation uses the one named "ciphertexts".
    """

    def __init__(
        self,
        config: EncryptionLayerConfig,
        *,
        n_clients: int,
        n_items: int,
        width: int,
        codec: FixedPoint,
        streams: Streams,
    ) -> None:
        super().__init__(
            min_survivors=config.min_survivors,
            n_clients=n_clients,
            n_items=n_items,
            width=width,
            codec=codec,
        )
        self.config = config
        if self.held_by_clients:
            self.model_hidden_from = ("server",)  # it keeps the state encrypted
        self.stand_ins = streams.stream("ciphertexts")
        self.slots = SlotLayout(codec=codec, length=self.layout.length, budget=n_clients)
        with as_configured({"paillier.bits": "protection.key_bits"}):
            self.slots.slots(config.key_bits)  # refuses a key without room for one word
        self._step: PublicStep | None = None
        self._authority: AuthorityFederation | None = None
        self._state: EncryptedState | None = None

    @property
    def held_by_clients(self) -> bool:
        """Whether the clients keep sums and state from the server."""
        return self.config.holder == "clients"

    @property
    def authority(self) -> AuthorityFederation:
        """The parties of real rounds with an authority; keys are made when first needed."""
        if self._authority is None:
            self._authority = AuthorityFederation(
                range(self.n_clients),
                private=generate_key(self.config.key_bits),
                layouts=(self.slots,),
                minimum=self.min_survivors,
            )
        return self._authority

    @property
    def state(self) -> EncryptedState:
        """The state between real rounds whose key the clients hold."""
        if self._state is None:
            self._state = EncryptedState(
                n_clients=self.n_clients,
                layout=self.slots,
                minimum=self.min_survivors,
                generate=lambda: generate_key(self.config.key_bits),
            )
        return self._state

    @property
    def bytes_per_upload(self) -> int:
        """Size of one client's upload."""
        return upload_bytes((self.slots,), self.config.key_bits)

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
        """No client with the server where every client holds the key; else any number."""
        del cohort
        if not self.held_by_clients:
            return Withstood()
        return Withstood(
            with_server=0,
            reason="every client holds the key: server and client together read all uploads, which "
            "protection.holder = 'clients' does not claim to withstand",
        )

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> "EncryptedSession":
        """Begin a round.

        Raises:
            ProtocolError: fewer clients than the smallest sum allowed.
        """
        return EncryptedSession(self, round_, participants, wire)

    def describe(self) -> tuple[str, dict[str, Any]]:
        """All settings are public."""
        return "paillier", asdict(self.config)


class EncryptedSession(HiddenSession):
    """One round of encrypted uploads."""

    _collector: EncryptedSum

    def close(self) -> Aggregate:
        """Encrypt, send, add and open what was gathered.

        Raises:
            ProtocolError: a message is missing, repeated or late, or two clients disagree.
            LosslessnessError: what was decrypted differs from the plain sums, or what clients made
                of them from the plain step.
        """
        self._gathered.require_complete()
        collector, layout = self._collector, self._collector.layout
        try:
            if collector.config.execution == "real":
                total = self._real_sum(list(self._gathered.words(layout)))
                ring, counts = layout.split(total, collector.codec)
            else:
                ring, counts = self._simulated_sum()
        except BaseException:
            collector.state.forget()
            raise
        aggregate = Aggregate(ring=ring, counts=counts, codec=collector.codec)
        if not collector.held_by_clients:  # else nobody opens it for the server
            self._wire.note(aggregate_note(self._round, aggregate))
        return aggregate

    def _simulated_sum(self) -> tuple[RingArray, IntArray]:
        collector, layout = self._collector, self._collector.layout
        hider = StandIns(
            collector.stand_ins,
            round_=self._round,
            codec=collector.codec,
            size=collector.bytes_per_upload,
        )
        found = self._hidden_sum(Step.UPLOAD, layout, self._gathered.words(layout), hider)
        beside = [sent for sent in self._foreseen() if sent.kind not in _ELSEWHERE]
        meter_beside(self._wire.meter, beside)
        return found

    def _real_sum(self, parts: Sequence[DenseWords]) -> RingArray:
        collector = self._collector
        common: dict[str, Any] = {
            "round_": self._round,
            "wire": self._wire,
            "layout": collector.layout,
            "codec": collector.codec,
        }
        if not collector.held_by_clients:
            return AuthorityCiphertexts(**common).sum(collector.authority, parts)
        step = collector.require_step(self._round)
        return TableCiphertexts(**common).sum(collector.state, step, parts)

    def _foreseen(self) -> list[Sent]:
        """What the protocol would send, by its layouts."""
        collector, clients = self._collector, self.order.tolist()
        key_bits, layouts = collector.config.key_bits, (collector.slots,)
        if not collector.held_by_clients:
            return authority_messages(clients, layouts=layouts, key_bits=key_bits)
        table = table_layout(len(collector.require_step(self._round).words))
        first: list[Sent] = []
        if self._round == 1:
            first = first_table_messages(clients, table=table, key_bits=key_bits)
        return first + table_messages(
            clients, round_=self._round, layouts=layouts, table=table, key_bits=key_bits
        )
