"""What a server has read of its clients' uploads, for a recording."""

from collections.abc import Iterable

import numpy as np

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.core.packing import unpack
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.dense import DenseLayout, DenseWords
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
        wire: of the record.
        arrived: every message that came to the server.
        server: its half, finished.
        codec: the ring.
        layout: what the words stand for.
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
        return envelope.sender, unpack(envelope.payload, layout.length, codec.bits)

    for client, size, words in read_each(arrived, read):
        rolled = np.roll(words, -shift)[None]
        seen = DenseWords(clients=np.array([client]), words=rolled, layout=layout)
        shown = seen.message(round_=round_, step=step, codec=codec, sizes=np.array([size]))
        wire.show(shown, origins=seen.clients)
