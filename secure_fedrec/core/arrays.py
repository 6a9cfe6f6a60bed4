"""Names for the array types that cross module borders."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from secure_fedrec.errors import MisfitError

FloatArray: TypeAlias = npt.NDArray[np.float64]
"""Real values before encoding into the ring or after decoding."""

RingArray: TypeAlias = npt.NDArray[Any]
"""Elements of Z_2^b: uint32 where b <= 32, else uint64 (see ``fixedpoint``)."""

IntArray: TypeAlias = npt.NDArray[np.int64]
"""Positions, identities and counts."""

IndexArray: TypeAlias = npt.NDArray[np.int32]
"""Item numbers, the widest column of a recording."""

WordArray: TypeAlias = npt.NDArray[np.uint64]
"""Words of a random stream."""

BoolArray: TypeAlias = npt.NDArray[np.bool_]
"""Masks."""


def unmasked(values: Any, what: str) -> npt.NDArray[Any]:
    """An input of a sum as a plain array.

    Args:
        values: an array of any shape and dtype, or what NumPy makes one of.
        what: what it is called in the refusal.

    Raises:
        MisfitError: it is masked: what its mask hides would be summed like everything else.
    """
    if isinstance(values, np.ma.MaskedArray):
        problem = (
            "is a numpy.ma.MaskedArray, and what its mask hides would be summed: fill it first"
        )
        raise MisfitError(f"{what} {problem}")
    return np.asarray(values)


def nobody() -> IntArray:
    """An empty int64 array of client numbers."""
    return np.zeros(0, dtype=np.int64)
