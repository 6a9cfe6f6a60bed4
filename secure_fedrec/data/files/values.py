"""Ratings: from texts to numbers, and the scale that they lie on."""

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.data.files.columns import Columns
from secure_fedrec.data.ratings import RatingScale
from secure_fedrec.errors import DataError

IMPLICIT: Final = RatingScale(0.0, 1.0, 1.0)
"""Of implicit feedback: 1 where it happened; a 0 would be what nobody uploads."""

MOST_LEVELS: Final = 201
"""Of a scale that is found and not stated: -10 to 10 in steps of 0.1. More are counts."""

_DECIMAL: Final = re.compile(r"[+-]?([0-9]{1,15}(\.[0-9]{0,15})?|\.[0-9]{1,15})")


def decimals(columns: Columns) -> list[Decimal]:
    """The different ratings of a file, exactly, by the code of their texts.

    Raises:
        DataError: one is no plain decimal number.
    """
    found = []
    for code, text in enumerate(columns.texts["rating"].texts):
        if _DECIMAL.fullmatch(text.strip()) is None:
            problem = "is no plain decimal number (such as 4, -2 or 3.5)"
            raise columns.refuse("rating", code, problem)
        found.append(Decimal(text.strip()))
    return found


def ratings(columns: Columns, exact: list[Decimal]) -> FloatArray:
    """The rating of every row: float64[N]."""
    return np.array(exact, dtype=np.float64)[columns.texts["rating"].codes]


def found_scale(source: object, exact: Iterable[Decimal]) -> RatingScale:
    """The coarsest scale with all values of a file on it, from the lowest to the highest.

    Args:
        source: the file, for messages.
        exact: the different values.

    Raises:
        DataError: there is one value only, or far fewer than the scale has levels.
    """
    values = sorted(set(exact))
    if len(values) < 2:
        problem = (
            f"has the rating {values[0]} alone: state data.scale, or read it as implicit feedback, "
            "without data.rating"
        )
        raise DataError(str(source), problem)
    unit = Decimal(1).scaleb(min(0, *(_exponent(value) for value in values)))
    whole = [int(value / unit) for value in values]
    step = math.gcd(*(each - whole[0] for each in whole))
    levels = (whole[-1] - whole[0]) // step + 1
    scale = RatingScale(float(values[0]), float(values[-1]), float(step * unit))
    if levels > MOST_LEVELS or 2 * len(values) <= levels:
        problem = (
            f"has {len(values):,} different ratings on a grid of {levels:,} levels, {scale}: these "
            "are counts, or scales are mixed; state data.scale or data.positive_from"
        )
        raise DataError(str(source), problem)
    return scale


def require_on(scale: RatingScale, columns: Columns, exact: list[Decimal]) -> None:
    """Refuse ratings that are not on a scale.

    Raises:
        DataError: there is one; names the first.
    """
    off = np.flatnonzero(~scale.contains(np.array(exact, dtype=np.float64)))
    if len(off):
        raise columns.refuse("rating", int(off[0]), f"is off the scale, {scale}")


def nearest(scale: RatingScale, values: FloatArray) -> FloatArray:
    """The level next to each value, the upper one of two."""
    steps = np.floor((values - scale.low) / scale.step + 0.5)
    return scale.levels[np.clip(steps, 0, len(scale.levels) - 1).astype(np.int64)]


def _exponent(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0
