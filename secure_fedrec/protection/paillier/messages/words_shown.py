"""What a view shows of an encrypted upload, and how the bits of a state are packed."""

import numpy as np

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier.scheme.slots import SlotLayout
from secure_fedrec.protection.session.envelope import SIGNATURE_BYTES


def table_layout(words: int) -> SlotLayout:
    """How the bits of a public state are packed: whole words of 64 bits, never added."""
    codec = FixedPoint(bits=64, fraction_bits=0, clip=1.0)
    return SlotLayout(codec=codec, length=words, budget=1, whole_ring=True)


def uploaded_words(data: bytes, length: int, codec: FixedPoint) -> RingArray:
    """As many words of a client's ciphertexts as it encrypted, the last of its message.

    Only its signature follows them.

    Raises:
        WireError: the message is too short.
    """
    dtype, end = np.dtype(codec.dtype), len(data) - SIGNATURE_BYTES
    start = end - length * dtype.itemsize
    if start < 0:
        raise WireError(f"message of {len(data)} bytes is not an upload")
    return codec.reduce(np.frombuffer(data[start:end], dtype=dtype))
