"""The first difference of two runs, in words: of integers in ring units, of floats by bits."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray


def different_parts(
    what: str, left: Mapping[str, FloatArray], right: Mapping[str, FloatArray]
) -> str | None:
    """First difference of arrays by name; ``what`` has a placeholder for the name."""
    if left.keys() != right.keys():
        kind = what.partition("{}")[0].strip() or "private tables"
        return f"{kind}: {sorted(left)} instead of {sorted(right)}"
    found = (different_bits(what.format(name), left[name], right[name]) for name in left)
    return next((difference for difference in found if difference is not None), None)


def different_integers(what: str, left: IntArray, right: IntArray, unit: str = "") -> str | None:
    """First difference of two integer arrays."""
    place = _first_place(left, right)
    if place is None or isinstance(place, str):
        return place if place is None else f"{what}: {place}"
    if not np.issubdtype(left.dtype, np.integer):
        return f"{what} {_in_words(place)}: {left[place]}, which is not an integer"
    return f"{what} {_in_words(place)}: {off_by(left[place], right[place], unit)}"


def off_by(found: np.integer, plain: np.integer, unit: str) -> str:
    """The difference of a number, in words."""
    # Python integers: the difference of two 64-bit words may need 65 bits.
    steps = f"{int(found) - int(plain):+d} {unit}".rstrip()
    return f"off by {steps} (plain: {int(plain)})"


def different_bits(what: str, left: FloatArray, right: FloatArray) -> str | None:
    """First difference of two arrays of up to 64 bits an entry, as bit patterns.

    NaN equals itself and -0.0 differs from 0.0.
    """
    if left.dtype != right.dtype:
        return f"{what}: {left.dtype} instead of {right.dtype}"
    place = _first_place(_bits(left), _bits(right))
    if place is None or isinstance(place, str):
        return place if place is None else f"{what}: {place}"
    return f"{what} {_in_words(place)}: {left[place]!r} instead of {right[place]!r}"


def _bits(values: FloatArray) -> Any:
    return np.ascontiguousarray(values).view(f"u{values.itemsize}")


def _first_place(left: Any, right: Any) -> tuple[int, ...] | str | None:
    """Index of the first difference, None without a difference, words if the shapes differ."""
    if left.shape != right.shape:
        return f"shape {left.shape} instead of {right.shape}"
    different = np.argwhere(left != right)
    return tuple(different[0].tolist()) if len(different) else None


def _in_words(place: tuple[int, ...]) -> str:
    row, *rest = place
    return f"{row}" + "".join(f", factor {number}" for number in rest)
