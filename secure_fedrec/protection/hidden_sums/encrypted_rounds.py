"""How the words of a round are encrypted: by the protocol's halves, or with random words instead.

Real rounds drive the signed halves of ``paillier`` for every client, whose bytes go over the wire,
and compare what comes out with plain sums. Simulated ones send as many random words, which to
whoever lacks the key is the same thing, and count what the protocol would send beside them.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from secure_fedrec.core.arrays import RingArray, WordArray
from secure_fedrec.errors import LosslessnessError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base import PublicStep
from secure_fedrec.protection.hidden_sums.dense import DenseWords
from secure_fedrec.protection.hidden_sums.session import HiddenSession, RealSum
from secure_fedrec.protection.masking.round.prg import MaskExpander
from secure_fedrec.protection.paillier import SlotLayout
from secure_fedrec.protection.paillier.envelopes import Kind
from secure_fedrec.protection.paillier.message_sizes import Sent
from secure_fedrec.protection.paillier.rounds import AuthorityFederation, TableFederation
from secure_fedrec.protection.session import Carrier, Role
from secure_fedrec.protection.session.envelope import SIGNATURE_BYTES
from secure_fedrec.streams import Stream
from secure_fedrec.wire import Meter, Step


def table_layout(words: int) -> SlotLayout:
    """How the bits of a public state are packed: whole words of 64 bits, never added."""
    codec = FixedPoint(bits=64, fraction_bits=0, clip=1.0)
    return SlotLayout(codec=codec, length=words, budget=1, whole_ring=True)


def uploaded_words(data: bytes, length: int, codec: FixedPoint) -> RingArray:
    """As many words of a client's ciphertexts as it encrypted, the last of its message.

    Its signature alone comes behind them.

    Raises:
        WireError: the message is too short.
    """
    dtype, end = np.dtype(codec.dtype), len(data) - SIGNATURE_BYTES
    start = end - length * dtype.itemsize
    if start < 0:
        raise WireError(f"message of {len(data)} bytes is no upload")
    return codec.reduce(np.frombuffer(data[start:end], dtype=dtype))


def meter_beside(meter: Meter, messages: Sequence[Sent]) -> None:
    """Count messages, each at its sender and at its receiver."""
    for sent in messages:
        ends = [
            np.array([party.number]) if party.role is Role.CLIENT else party.role.name.lower()
            for party in (sent.sender, sent.receiver)
        ]
        meter.count_beside(np.array([sent.size]), senders=ends[0], receivers=ends[1])


class StandIns:
    """Random words in the place of ciphertexts, and the sum of the plaintexts.

    Args:
        session: whose round it is.
        keys: the stream that random words are drawn from.
        size: bytes of an upload.
    """

    def __init__(self, session: HiddenSession, keys: Stream, *, size: int) -> None:
        self.size = size
        self._session = session
        self._keys = keys
        self._expander = MaskExpander()
        self._plain: RingArray | None = None

    def hide(self, part: DenseWords) -> RingArray:
        """Random words; the plain ones are added up beside."""
        self._plain = _added(self._plain, part.words)
        zeros = np.zeros(len(part.clients), dtype=np.int64)
        keys = self._keys.words_at(self._session.round, part.clients, zeros, width=4)
        shown = np.zeros_like(part.words)
        for words, key in zip(shown, keys, strict=True):
            self._expander.apply(words, add=[key.tobytes()], subtract=[])
        return self._session.collector.codec.reduce(shown)

    def open(self, total: RingArray) -> RingArray:
        """The sum of the plain words."""
        return np.zeros_like(total) if self._plain is None else self._plain


class _Ciphertexts(RealSum):
    """What real rounds have in common, whoever holds the key."""

    def __init__(self, session: HiddenSession) -> None:
        unmetered = frozenset({Kind.TABLE.name})  # counted as the round's broadcast
        super().__init__(session, Step.UPLOAD, session.collector.layout, unmetered=unmetered)

    def _read(self, data: bytes) -> RingArray:
        """What a view shows of a client's message."""
        return uploaded_words(data, self.layout.length, self.codec)


class AuthorityCiphertexts(_Ciphertexts):
    """A round whose sum an authority opens for the server."""

    def sum(self, federation: AuthorityFederation, parts: Sequence[DenseWords]) -> RingArray:
        """Run it; ring words of the sum.

        Args:
            federation: the parties.
            parts: the clients' words.

        Raises:
            ProtocolError: it was aborted.
            LosslessnessError: the sum is not that of the clients' words.
        """
        vectors = {client: [words] for client, words in _by_client(parts)}
        with self.session.in_round():
            (opened,) = federation.sum(vectors, carrier=self.line)
        self.check(opened, parts, "the decrypted sum")
        self.show(self._read)
        return opened


class EncryptedState:
    """The public state of a run, which the server keeps under the clients' key, round after round.

    A round goes on with the state that the round before left. One that begins anywhere else, the
    first of a run or one after an abandoned round, makes a new key and encrypts the state anew.

    Args:
        begin: makes the parties, with a new key, for a state of so many words.
    """

    def __init__(self, begin: Callable[[int], TableFederation]) -> None:
        self._begin = begin
        self._federation: TableFederation | None = None
        self._last = 0
        self._left: WordArray | None = None

    def federation(
        self, round_: int, clients: Sequence[int], words: WordArray, carrier: Carrier
    ) -> TableFederation:
        """The parties, whose server has the state of the round.

        Raises:
            ProtocolError: beginning anew was aborted.
            LosslessnessError: the round before left another state than the engine's.
        """
        left = self._left if round_ == self._last + 1 else None
        if left is not None and not np.array_equal(left, words):
            raise LosslessnessError(
                f"round {round_}: the clients' state differs from the engine's public state"
            )
        if self._federation is not None and left is not None:
            return self._federation
        federation = self._begin(len(words))
        federation.begin(words, clients, carrier=carrier)
        return federation

    def leave(self, federation: TableFederation, round_: int, words: WordArray) -> None:
        """Note what a completed round left."""
        self._federation, self._last, self._left = federation, round_, words

    def forget(self) -> None:
        """Give up a round that was not completed, and with it the key."""
        self._federation, self._left = None, None


class TableCiphertexts(_Ciphertexts):
    """A round in which clients alone read the state and the sums, and take the step."""

    def sum(self, kept: EncryptedState, step: PublicStep, parts: Sequence[DenseWords]) -> RingArray:
        """Run it; ring words of the sum, as the clients opened it.

        Args:
            kept: the state between rounds.
            step: the state of the round, and the step that follows.
            parts: the clients' words.

        Raises:
            ProtocolError: it was aborted, as it is where the two that take the step disagree.
            LosslessnessError: a client read another state than the engine's, or the two agree on
                anything but the step from the plain sums.
        """
        number, self._state = self.session.round, step
        self._opened: list[RingArray] = []
        self._next: list[WordArray] = []
        uploads = {client: self._upload(client, words) for client, words in _by_client(parts)}
        with self.session.in_round():
            federation = kept.federation(number, list(uploads), step.words, self.line)
            federation.step(uploads, self._update, carrier=self.line)
        for opened in self._opened:
            self.check(opened, parts, "the decrypted sum")
        after = step.after(step.words, self.layout.split(self._opened[0], self.codec))
        if not all(np.array_equal(after, made) for made in self._next):
            raise LosslessnessError(
                f"round {number}: the clients' next state differs from the plain step"
            )
        kept.leave(federation, number, after)
        self.show(self._read)
        return self._opened[0]

    def _upload(self, client: int, words: RingArray) -> Callable[[RingArray], Sequence[RingArray]]:
        """What a client uploads once it has read the state, which must be the engine's."""

        def make(table: RingArray) -> Sequence[RingArray]:
            if not np.array_equal(table, self._state.words):
                raise LosslessnessError(
                    f"round {self.session.round}: client {client} decrypted another state than the "
                    "engine's"
                )
            return [words]

        return make

    def _update(self, table: RingArray, sums: tuple[RingArray, ...]) -> RingArray:
        """An updater's step, from what it decrypted and nothing else."""
        (opened,) = sums
        made = self._state.after(table, self.layout.split(opened, self.codec))
        self._opened.append(opened)
        self._next.append(made)
        return made


def _by_client(parts: Sequence[DenseWords]) -> Iterator[tuple[int, RingArray]]:
    for part in parts:
        yield from zip(part.clients.tolist(), part.words, strict=True)


def _added(total: RingArray | None, words: RingArray) -> RingArray:
    more: RingArray = words.sum(axis=0, dtype=words.dtype)
    return more if total is None else total + more
