"""Bytes in transit: messages between parties of a protocol in one stage, unchanged."""

from dataclasses import dataclass, replace

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import WireError
from secure_fedrec.wire.message_batches import Parties, Step


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parcels:
    """A batch of byte messages of one stage.

    Args:
        round: round of the run they are sent in, from 1.
        stage: name of the kind of message, in capitals, as its protocol names it.
        step: what they are for; None where they do not carry rows.
        senders: who sent them, as the receivers see them.
        receivers: who is to get them.
        data: one message each.

    Raises:
        WireError: columns of different lengths.
    """

    round: int
    stage: str
    step: Step | None
    senders: Parties
    receivers: Parties
    data: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if not len(self.senders.ids) == len(self.receivers.ids) == len(self.data):
            raise WireError("senders, receivers and data must have one entry per message")

    def __len__(self) -> int:
        """Number of messages."""
        return len(self.data)

    @property
    def sizes(self) -> IntArray:
        """int64[B], bytes per message."""
        return np.array([len(data) for data in self.data], dtype=np.int64)

    def select(self, which: IntArray) -> "Parcels":
        """The messages at some positions, in that order; a position may repeat."""
        return replace(
            self,
            senders=Parties(role=self.senders.role, ids=self.senders.ids[which]),
            receivers=Parties(role=self.receivers.role, ids=self.receivers.ids[which]),
            data=tuple(self.data[place] for place in which.tolist()),
        )

    def joined(self, other: "Parcels") -> "Parcels":
        """These messages, then others between the same roles, of any stage."""
        senders, receivers = (
            Parties(role=one.role, ids=np.concatenate([one.ids, two.ids]))
            for one, two in ((self.senders, other.senders), (self.receivers, other.receivers))
        )
        return replace(self, senders=senders, receivers=receivers, data=self.data + other.data)
