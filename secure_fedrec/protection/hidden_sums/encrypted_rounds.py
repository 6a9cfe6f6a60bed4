"""How the words of a round are encrypted: by the protocol's halves, or with random words instead.

Four ways of hiding, one per key holder and execution. The real ones drive the signed halves of
``paillier`` for every client of the round and compare what comes out with plain sums; the simulated
ones send as many random words, which to whoever lacks the key is the same thing. All say what they
sent beside the uploads themselves, and how large it was.
"""

from collections.abc import Callable, Sequence

import numpy as np

from secure_fedrec.core.arrays import IntArray, RingArray, WordArray
from secure_fedrec.errors import LosslessnessError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base import PublicStep
from secure_fedrec.protection.hidden_sums.dense import DenseLayout, DenseWords
from secure_fedrec.protection.masking.round.prg import MaskExpander
from secure_fedrec.protection.paillier import PrivateKey, SlotLayout
from secure_fedrec.protection.paillier.envelopes import SIGNATURE_BYTES, Role
from secure_fedrec.protection.paillier.message_sizes import Sent
from secure_fedrec.protection.paillier.rounds import (
    AuthorityFederation,
    AuthorityRound,
    TableFederation,
    TableRound,
)
from secure_fedrec.streams import Stream
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import Meter

__all__ = [
    "AuthorityCiphertexts",
    "EncryptedState",
    "StandIns",
    "TableCiphertexts",
    "aggregate_of",
    "meter_beside",
    "table_layout",
]


def table_layout(words: int) -> SlotLayout:
    """How the bits of a public state are packed: whole words of 64 bits, never added."""
    codec = FixedPoint(bits=64, fraction_bits=0, clip=1.0)
    return SlotLayout(codec=codec, length=words, budget=1, whole_ring=True)


def aggregate_of(words: RingArray, layout: DenseLayout, codec: FixedPoint) -> Aggregate:
    """Sums and counts, from the ring words of a layout that has all rows."""
    cut = len(layout.items) * layout.width
    return Aggregate(
        ring=words[:cut].reshape(len(layout.items), layout.width),
        counts=codec.to_integers(words[cut:]),
        codec=codec,
    )


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
        keys: the stream that random words are drawn from.
        round_: the round in progress.
        codec: the ring.
        size: bytes of an upload.
        messages: what the protocol would have sent.
    """

    def __init__(
        self, keys: Stream, *, round_: int, codec: FixedPoint, size: int, messages: Sequence[Sent]
    ) -> None:
        self.size = size
        self.messages = list(messages)
        self._keys = keys
        self._round = round_
        self._codec = codec
        self._expander = MaskExpander()
        self._plain: RingArray | None = None

    def hide(self, part: DenseWords) -> RingArray:
        """Random words; the plain ones are added up beside."""
        self._plain = _added(self._plain, part.words)
        zeros = np.zeros(len(part.clients), dtype=np.int64)
        keys = self._keys.words_at(self._round, part.clients, zeros, width=4)
        shown = np.zeros_like(part.words)
        for words, key in zip(shown, keys, strict=True):
            self._expander.apply(words, add=[key.tobytes()], subtract=[])
        return self._codec.reduce(shown)

    def open(self, total: RingArray) -> RingArray:
        """The sum of the plain words."""
        return np.zeros_like(total) if self._plain is None else self._plain


class AuthorityCiphertexts:
    """A round whose sum an authority opens for the server.

    Args:
        federation: the parties.
        clients: int64[P], of the round.
        codec: the ring.
        size: bytes of an upload.
    """

    def __init__(
        self, federation: AuthorityFederation, *, clients: IntArray, codec: FixedPoint, size: int
    ) -> None:
        self.size = size
        self._codec = codec
        self._round: AuthorityRound = federation.open(clients.tolist())
        self._plain: RingArray | None = None

    @property
    def messages(self) -> list[Sent]:
        """What was sent."""
        return self._round.sent

    def hide(self, part: DenseWords) -> RingArray:
        """Encrypt, sign and hand over the words of some clients; words of what the server got."""
        self._plain = _added(self._plain, part.words)
        return self._codec.reduce(_shown(part, lambda c, words: self._round.submit(c, [words])))

    def open(self, total: RingArray) -> RingArray:
        """What the authority answered.

        Raises:
            LosslessnessError: it is not the sum of the plain words.
        """
        del total
        (opened,) = self._round.close()
        _require_equal(opened, self._plain, self._codec)
        return opened


class EncryptedState:
    """The public state of a run, which the server keeps under the clients' key, round after round.

    A round goes on with the state that the round before left. One that begins anywhere else, the
    first of a run or one after an abandoned round, makes a new key and encrypts the state anew.

    Args:
        n_clients: clients of the federation.
        layout: of the uploads.
        minimum: fewest clients in a sum.
        generate: makes the clients' key.
    """

    def __init__(
        self,
        *,
        n_clients: int,
        layout: SlotLayout,
        minimum: int,
        generate: Callable[[], PrivateKey],
    ) -> None:
        self._n_clients = n_clients
        self._layout = layout
        self._minimum = minimum
        self._generate = generate
        self._federation: TableFederation | None = None
        self._last = 0
        self._left: WordArray | None = None

    def federation(
        self, round_: int, clients: IntArray, words: WordArray
    ) -> tuple[TableFederation, list[Sent]]:
        """The parties, whose server has the state of the round; and what beginning anew sent.

        Raises:
            LosslessnessError: the round before left another state than the engine's.
        """
        left = self._left if round_ == self._last + 1 else None
        if left is not None and not np.array_equal(left, words):
            raise LosslessnessError(
                f"round {round_}: the clients' state differs from the engine's public state"
            )
        if self._federation is not None and left is not None:
            return self._federation, []
        federation = TableFederation(
            range(self._n_clients),
            private=self._generate(),
            layouts=(self._layout,),
            table=table_layout(len(words)),
            minimum=self._minimum,
        )
        return federation, federation.begin(words, clients.tolist())

    def leave(self, federation: TableFederation, round_: int, words: WordArray) -> None:
        """Note what a completed round left."""
        self._federation, self._last, self._left = federation, round_, words

    def forget(self) -> None:
        """Give up a round that was not completed, and with it the key."""
        self._federation, self._left = None, None


class TableCiphertexts:
    """A round in which clients alone read the state and the sums, and take the step.

    Args:
        kept: the state between rounds.
        step: the state of the round, and the step that follows.
        round_: the round in progress.
        clients: int64[P], of the round.
        layout: of the uploads.
        codec: the ring.
        size: bytes of an upload.
    """

    def __init__(
        self,
        kept: EncryptedState,
        step: PublicStep,
        *,
        round_: int,
        clients: IntArray,
        layout: DenseLayout,
        codec: FixedPoint,
        size: int,
    ) -> None:
        self.size = size
        self._kept = kept
        self._step = step
        self._number = round_
        self._layout = layout
        self._codec = codec
        self._plain: RingArray | None = None
        self._opened: list[RingArray] = []
        self._next: list[WordArray] = []
        self._federation, self._begun = kept.federation(round_, clients, step.words)
        self._round: TableRound = self._federation.open(clients.tolist(), self._update)

    @property
    def messages(self) -> list[Sent]:
        """What was sent."""
        return [*self._begun, *self._round.sent]

    def hide(self, part: DenseWords) -> RingArray:
        """Let some clients read the state, encrypt, sign and hand over; words the server got.

        Raises:
            LosslessnessError: a client read another state than the engine's.
        """
        self._plain = _added(self._plain, part.words)
        return self._codec.reduce(_shown(part, self._submit))

    def open(self, total: RingArray) -> RingArray:
        """Let two clients open the sums, take the step and encrypt the next state.

        Raises:
            ProtocolError: they disagree.
            LosslessnessError: they agree on anything but the step from the plain sums.
        """
        del total
        self._round.close()
        for opened in self._opened:
            _require_equal(opened, self._plain, self._codec)
        aggregate = aggregate_of(self._opened[0], self._layout, self._codec)
        after = self._step.after(self._step.words, aggregate)
        if not all(np.array_equal(after, made) for made in self._next):
            raise LosslessnessError(
                f"round {self._number}: the clients' next state differs from the plain step"
            )
        self._kept.leave(self._federation, self._number, after)
        return self._opened[0]

    def _submit(self, client: int, words: RingArray) -> bytes:
        if not np.array_equal(self._round.read(client), self._step.words):
            raise LosslessnessError(
                f"round {self._number}: client {client} decrypted another state than the engine's"
            )
        return self._round.submit(client, [words])

    def _update(self, table: RingArray, sums: tuple[RingArray, ...]) -> RingArray:
        """An updater's step, from what it decrypted and nothing else."""
        (opened,) = sums
        aggregate = aggregate_of(opened, self._layout, self._codec)
        made = self._step.after(table, aggregate)
        self._opened.append(opened)
        self._next.append(made)
        return made


def _added(total: RingArray | None, words: RingArray) -> RingArray:
    more: RingArray = words.sum(axis=0, dtype=words.dtype)
    return more if total is None else total + more


def _shown(part: DenseWords, submit: Callable[[int, RingArray], bytes]) -> RingArray:
    """As many words of each client's ciphertexts as its plain words are.

    They are the last of a message but for the signature.
    """
    shown = np.empty_like(part.words)
    for seen, client, words in zip(shown, part.clients.tolist(), part.words, strict=True):
        message = submit(client, words)
        end = len(message) - SIGNATURE_BYTES
        seen[:] = np.frombuffer(message[end - seen.nbytes : end], dtype=seen.dtype)
    return shown


def _require_equal(opened: RingArray, plain: RingArray | None, codec: FixedPoint) -> None:
    if plain is None or not np.array_equal(opened, codec.reduce(plain)):
        raise LosslessnessError("the decrypted sum differs from the plain sum")
