"""Paillier sums as a collector of the engine: the server adds ciphertexts and reads none.

Who reads the sum depends on who holds the key (``paillier.key_holders``): an authority opens it for
the server, or the clients open it for themselves, as in FedMF, and the server does not even see the
item table. Two executions give the same bits: ``"real"`` packs, encrypts, adds and decrypts;
``"simulated"`` sends as many random words instead, which to whoever lacks the key is the same
thing, and adds the plaintexts. Neither signs messages nor carries the item table in encrypted form:
the halves of ``paillier.authority`` and ``paillier.encrypted_table`` do.

A recorded upload shows as many words of a client's ciphertexts as the layout has: the rest of them
is no more readable. Sizes are those of the whole ciphertexts.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from secure_fedrec.arrays import IntArray, RingArray
from secure_fedrec.errors import ConfigError, LosslessnessError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.hidden_sums.dense import (
    DenseWords,
    HiddenSession,
    HiddenSum,
)
from secure_fedrec.protection.hidden_sums.masked import EXECUTIONS
from secure_fedrec.protection.masking.prg import MaskExpander
from secure_fedrec.protection.paillier import (
    DEFAULT_BITS,
    KeyHolding,
    PaillierSum,
    PrivateKey,
    RunningSum,
    SlotLayout,
    generate_key,
    require_key_bits,
)
from secure_fedrec.protection.plain import aggregate_note
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import Step, Wire

__all__ = ["EncryptedSum", "EncryptionLayerConfig"]


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
    min_survivors: int = 3

    def __post_init__(self) -> None:
        if self.execution not in EXECUTIONS:
            raise ConfigError(
                "protection.execution", self.execution, "unknown execution", EXECUTIONS
            )
        if self.holder not in ("authority", "clients"):
            raise ConfigError(
                "protection.holder", self.holder, "holds no key", ("authority", "clients")
            )
        require_key_bits(self.key_bits, key="protection.key_bits")
        if self.min_survivors < 2:
            raise ConfigError(
                "protection.min_survivors", self.min_survivors, "a sum of one hides nothing"
            )

    @property
    def holding(self) -> KeyHolding:
        """What this way of holding the key promises."""
        return KeyHolding(holder=self.holder)


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
        if config.holder == "clients":
            self.model_hidden_from = ("server",)  # it keeps the table encrypted
        self.stand_ins = streams.stream("ciphertexts")
        self.slots = SlotLayout(codec=codec, length=self.layout.length, budget=n_clients)
        self.slots.slots(config.key_bits)  # refuses a key without room for one word
        self._private: PrivateKey | None = None

    @property
    def private(self) -> PrivateKey:
        """The key holder's key, made when it is first needed; from the system's generator."""
        if self._private is None:
            self._private = generate_key(self.config.key_bits)
        return self._private

    @property
    def bytes_per_upload(self) -> int:
        """Size of one client's ciphertexts."""
        return self.slots.plaintexts(self.config.key_bits) * (self.config.key_bits // 4)

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
        """Encrypt, send, add and open what was gathered."""
        self._gathered.require_complete()
        collector, layout = self._collector, self._collector.layout
        real = collector.config.execution == "real"
        hider = _Ciphertexts(collector) if real else _StandIns(collector, self._round)
        parts = self._gathered.words(layout)
        ring, counts = self._hidden_sum(Step.UPLOAD, layout, parts, hider)
        aggregate = Aggregate(ring=ring, counts=counts, codec=collector.codec)
        if collector.config.holder == "authority":  # else nobody opens it for the server
            self._wire.note(aggregate_note(self._round, aggregate))
        return aggregate


class _StandIns:
    """Random words in the place of ciphertexts, and the sum of the plaintexts."""

    def __init__(self, collector: EncryptedSum, round_: int) -> None:
        self.size = collector.bytes_per_upload
        self._keys = collector.stand_ins
        self._round = round_
        self._codec = collector.codec
        self._expander = MaskExpander()
        self._total = np.zeros(collector.layout.length, dtype=collector.codec.dtype)

    def hide(self, part: DenseWords) -> RingArray:
        """Random words; the plain ones are added up beside."""
        self._total += part.words.sum(axis=0, dtype=self._total.dtype)
        zeros = np.zeros(len(part.clients), dtype=np.int64)
        keys = self._keys.words_at(self._round, part.clients, zeros, width=4)
        shown = np.zeros_like(part.words)
        for words, key in zip(shown, keys, strict=True):
            self._expander.apply(words, add=[key.tobytes()], subtract=[])
        return self._codec.reduce(shown)

    def open(self, total: RingArray) -> RingArray:
        """The sum of the plain words."""
        del total
        return self._total


class _Ciphertexts:
    """The real thing: every client's words are packed and encrypted, and the ciphertexts added."""

    def __init__(self, collector: EncryptedSum) -> None:
        self.size = collector.bytes_per_upload
        self._private = collector.private
        self._codec = collector.codec
        self._sum = PaillierSum(
            n_clients=collector.n_clients,
            length=collector.layout.length,
            codec=collector.codec,
            key=self._private.public,
        )
        self._running = RunningSum(key=self._private.public, layout=self._sum.layout)
        self._plain = np.zeros(collector.layout.length, dtype=collector.codec.dtype)

    def hide(self, part: DenseWords) -> RingArray:
        """The first words of the ciphertexts; the ciphertexts are added up beside."""
        self._plain += part.words.sum(axis=0, dtype=self._plain.dtype)
        shown = np.empty_like(part.words)
        for seen, words in zip(shown, part.words, strict=True):
            vector = self._sum.encrypt(words)
            self._running.add(vector)
            data = b"".join(
                number.to_bytes(vector.key.ciphertext_bytes, "little")
                for number in vector.ciphertexts
            )
            seen[:] = np.frombuffer(data, dtype=seen.dtype, count=len(seen))
        return self._codec.reduce(shown)

    def open(self, total: RingArray) -> RingArray:
        """The key holder's step.

        Raises:
            LosslessnessError: what was decrypted is not the sum of the plain words.
        """
        del total
        opened = self._sum.decrypt(self._running.vector(), self._private)
        if not np.array_equal(opened, self._codec.reduce(self._plain)):
            raise LosslessnessError("the decrypted sum differs from the plain sum")
        return opened
