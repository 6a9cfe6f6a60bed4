"""Bags as a property: what the server holds is the multiset of the encoded vectors, bit for bit.

A bag must not depend on which client gave a vector, on the order of clients, or on the batches in
which they were simulated; and no vector may be lost, repeated or changed on the way.
``assert_collected`` turns that into a test for any ``BagChannel`` without noise.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import LosslessnessError
from secure_fedrec.protection.base.layer_interfaces import BagChannel
from secure_fedrec.uploads import Upload
from secure_fedrec.wire import Fault, Meter, Wire


def assert_collected(
    *,
    channel: BagChannel,
    uploads: Sequence[Upload],
    round_: int = 1,
    faults: tuple[Fault, ...] = (),
) -> None:
    """Send uploads through a channel and compare the bags with the multisets of their vectors.

    Args:
        channel: a channel that adds no noise.
        uploads: one per batch of clients, in any order; the clients of all are the participants.
        round_: the round they are sent in.
        faults: applied to messages on the wire.

    Example::

        @given(collection=collections())
        def test_my_channel_loses_nothing(collection: Collection) -> None:
            assert_collected(channel=MyChannel(...), uploads=collection.uploads)

    Raises:
        LosslessnessError: a bag differs; the message names the first differing place.
        ProtocolError: the channel refused the round.
    """
    wire = Wire(meter=Meter(channel.n_clients), faults=faults)
    nobody = np.empty(0, dtype=np.int64)
    participants = np.sort(np.concatenate([nobody, *(upload.clients for upload in uploads)]))
    session = channel.open(round_=round_, participants=participants, wire=wire)
    for upload in uploads:
        session.submit(upload.clients, upload.bags)
    found = session.close()
    for name, vectors in expected_bags(channel, uploads).items():
        _require_equal(name, found[name], vectors)


def expected_bags(
    channel: BagChannel, uploads: Sequence[Upload]
) -> dict[str, list[tuple[Fraction, ...]]]:
    """The bags in exact arithmetic: every vector rounded to the ring's grid, in ascending order."""
    scale = 2**channel.codec.fraction_bits
    found: dict[str, list[tuple[Fraction, ...]]] = {name: [] for name in channel.names}
    for upload in uploads:
        for name, block in upload.bags.items():
            vectors = [] if block.values is None else block.values.tolist()
            # Python rounds exact fractions to the nearest integer with ties to even, as the ring.
            found[name] += [
                tuple(Fraction(round(Fraction(value) * scale), scale) for value in vector)
                for vector in vectors
            ]
    return {name: sorted(vectors) for name, vectors in found.items()}


def _require_equal(name: str, found: FloatArray, due: list[tuple[Fraction, ...]]) -> None:
    if len(found) != len(due):
        raise LosslessnessError(f"bag {name!r}: {len(found)} vectors instead of {len(due)}")
    for place, (vector, expected) in enumerate(zip(found.tolist(), due, strict=True)):
        # As bits: a negative zero is not the zero of the ring.
        wanted = np.array([float(value) for value in expected])
        if np.array(vector).tobytes() != wanted.tobytes():
            raise LosslessnessError(
                f"bag {name!r}, vector {place}: {vector} instead of {wanted.tolist()}"
            )
