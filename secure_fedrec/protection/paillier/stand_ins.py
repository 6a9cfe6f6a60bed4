"""Random words in place of ciphertexts, and the protocol's other messages."""

from collections.abc import Sequence

import numpy as np

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.protection.base.dense_uploads import DenseWords
from secure_fedrec.protection.base.hidden_sum import HiddenSession
from secure_fedrec.protection.keystream import MaskExpander
from secure_fedrec.protection.paillier.messages.sizes import Sent
from secure_fedrec.protection.session import Role
from secure_fedrec.streams import Stream
from secure_fedrec.wire import Meter


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
        session: session of the round.
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
        """Random words; the plain ones are summed separately."""
        more: RingArray = part.words.sum(axis=0, dtype=part.words.dtype)
        self._plain = more if self._plain is None else self._plain + more
        zeros = np.zeros(len(part.clients), dtype=np.int64)
        keys = self._keys.words_at(self._session.round, part.clients, zeros, width=4)
        shown = np.zeros_like(part.words)
        for words, key in zip(shown, keys, strict=True):
            self._expander.apply(words, add=[key.tobytes()], subtract=[])
        return self._session.collector.codec.reduce(shown)

    def open(self, total: RingArray) -> RingArray:
        """The sum of the plain words."""
        return np.zeros_like(total) if self._plain is None else self._plain
