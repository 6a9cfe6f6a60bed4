"""What a server has read from its clients' uploads, for a recording."""

from collections.abc import Iterable

import numpy as np

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.fixedpoint import FixedPoint, unpack
from secure_fedrec.protection.base.dense_uploads import DenseLayout, show_words
from secure_fedrec.protection.base.hosting import read_each
from secure_fedrec.protection.masking.envelope import Envelope, Kind, round_number
from secure_fedrec.protection.masking.server.half import MaskingServer
from secure_fedrec.wire import Step, Wire


def show_uploads(
    wire: Wire,
    arrived: Iterable[bytes],
    server: MaskingServer,
    codec: FixedPoint,
    layout: DenseLayout,
    *,
    round_: int,
    step: Step = Step.UPLOAD,
    counts_first: bool = False,
) -> None:
    """Show the masked words of the clients in a sum.

    Args:
        wire: wire of the record.
        arrived: every message that came to the server.
        server: its half, finished.
        codec: the ring.
        layout: meaning of the words.
        round_: the run's round that the sum is of.
        step: as which they are shown.
        counts_first: whether the words of counts stand before those of values.
    """
    shift = len(layout.items) if counts_first else 0

    def read(data: bytes) -> tuple[int, RingArray] | None:
        envelope = Envelope.decode(data)
        other = envelope.kind is not Kind.UPLOAD or round_number(data) != server.round_number
        if other or envelope.sender not in server.survivors:
            return None
        words = unpack(envelope.payload, layout.length, codec.bits)
        return envelope.sender, np.roll(words, -shift)

    found = read_each(arrived, read)
    show_words(wire, found, layout, round_=round_, step=step, codec=codec)
