"""How the words of a round are encrypted: by the protocol's halves, or with random words instead.

Real rounds drive the signed halves of ``paillier`` for every client, whose bytes go over the wire,
and compare what comes out with plain sums. Simulated ones send as many random words, which to
whoever lacks the key is the same thing, and count what the protocol would send beside them.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from secure_fedrec.core.arrays import RingArray, WordArray
from secure_fedrec.errors import LosslessnessError
from secure_fedrec.protection.base.dense import DenseWords
from secure_fedrec.protection.base.hidden_sum import HiddenSession, RealSum
from secure_fedrec.protection.base.parts import PublicStep
from secure_fedrec.protection.paillier.federation import AuthorityFederation, TableFederation
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.messages.words_shown import uploaded_words
from secure_fedrec.protection.session import Carrier
from secure_fedrec.wire import Step


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
