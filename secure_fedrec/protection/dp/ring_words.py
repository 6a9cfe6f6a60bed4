"""The check on ring words that every server half of the noise layer makes."""

import numpy as np

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import FixedPoint


def require_ring_words(words: RingArray, codec: FixedPoint, size: int) -> None:
    """Refuse an array that is not ``size`` elements of the ring.

    Raises:
        WireError: another shape or type, or a word of more than ``codec.bits`` bits.
    """
    if words.dtype != codec.dtype or words.shape != (size,):
        raise WireError(
            f"{size} ring words of {np.dtype(codec.dtype)} were due, got {words.dtype} of shape "
            f"{words.shape}"
        )
    if int(words.max(initial=0)) >> codec.bits:
        raise WireError(f"a ring word exceeds {codec.bits} bits")
