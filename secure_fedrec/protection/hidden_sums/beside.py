"""What the masking protocol sends beside the uploads: keys, shares, survivors, reveals, receipts.

A real round counts its messages; a simulated one knows their sizes from the configuration that a
real one would have (``masking.message_sizes``: the largest case, which inclusion paths of some
clients stay below by a few hashes).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.protection.masking import MaskingConfig
from secure_fedrec.protection.masking.agreed.formats import Kind
from secure_fedrec.protection.masking.message_sizes import MessageSize, message_sizes
from secure_fedrec.wire import Meter

__all__ = ["Beside", "foreseen", "upload_bytes"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beside:
    """Messages between clients and server, without the uploads.

    Args:
        senders: int64[A], the client of each message to the server.
        sent: int64[A], its bytes.
        receivers: int64[B], the client of each message from the server.
        received: int64[B], its bytes.
    """

    senders: IntArray
    sent: IntArray
    receivers: IntArray
    received: IntArray

    def count(self, meter: Meter) -> None:
        """Add all of it to a meter."""
        meter.count_beside(self.sent, senders=self.senders, receivers=None)
        meter.count_beside(self.received, senders=None, receivers=self.receivers)


def foreseen(config: MaskingConfig, clients: IntArray) -> Beside:
    """What a round in which everybody answers would send."""
    sizes = [each for each in message_sizes(config) if each.kind != Kind.UPLOAD.name]
    senders, sent = _spread([each for each in sizes if each.direction == "up"], clients)
    receivers, received = _spread([each for each in sizes if each.direction == "down"], clients)
    return Beside(senders=senders, sent=sent, receivers=receivers, received=received)


def upload_bytes(config: MaskingConfig) -> int:
    """Bytes of a masked upload."""
    (size,) = (each.size for each in message_sizes(config) if each.kind == Kind.UPLOAD.name)
    return size


def _spread(messages: Sequence[MessageSize], clients: IntArray) -> tuple[IntArray, IntArray]:
    """Each client once per message: (clients, sizes)."""
    sizes = np.array([each.size for each in messages], dtype=np.int64)
    return np.tile(clients, len(sizes)), np.repeat(sizes, len(clients))
