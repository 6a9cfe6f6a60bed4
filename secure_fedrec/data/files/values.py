"""Ratings: from texts to numbers, and the scale that they lie on."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.data.files.columns import Columns
from secure_fedrec.data.files.decimals import number_of
from secure_fedrec.data.files.nobody import is_nothing
from secure_fedrec.data.ratings import RatingScale
from secure_fedrec.errors import DataError

IMPLICIT: Final = RatingScale(0.0, 1.0, 1.0)
"""Scale of implicit feedback: 1 for an interaction; a 0 would never be uploaded."""

MOST_LEVELS: Final = 201
"""Most levels of a scale that is found and not stated: -10 to 10 in steps of 0.1. More are counts.
"""


def comma_hint(text: str) -> str:
    """Advice about a decimal comma; empty if a text has none."""
    if re.fullmatch(r"[+-]?[0-9]*,[0-9]+", text.strip()) is None:
        return ""
    return ": write decimals with a point, as 3.5; most programs save a CSV file so in English"


def numbers(columns: Columns) -> list[Fraction]:
    """The different ratings of a file, by the code of their texts; several texts may be one.

    Raises:
        DataError: one is not a plain decimal number, or is another one once it has 64 bits.
    """
    found: list[Fraction] = []
    kept: dict[float, Fraction] = {}
    for code, text in enumerate(columns.texts["rating"].texts):
        value = number_of(text)
        if value is None:
            problem = "is not a plain decimal number (such as 4, -2 or 3.5)" + comma_hint(text)
            if re.search(r"[0-9]", text) is None and text.strip():
                advice = columns.file.advice("missing_values", json.dumps([text.strip()]))
                words = "; write words and grades as numbers"
                problem += "" if is_nothing(text.strip()) else words
                problem += f"; if nothing was rated there, {advice}"
            raise columns.refuse("rating", code, problem)
        if kept.setdefault(float(value), value) != value:
            problem = "differs from another rating by less than 64 bits hold"
            raise columns.refuse("rating", code, problem)
        found.append(value)
    return found


def ratings(columns: Columns, exact: list[Fraction]) -> FloatArray:
    """The rating of every row: float64[N]."""
    return np.array(exact, dtype=np.float64)[columns.texts["rating"].codes]


def found_scale(source: object, exact: Iterable[Fraction]) -> RatingScale:
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
            f"has the rating {float(values[0]):g} alone: state data.scale, or read it as implicit "
            "feedback, without data.rating"
        )
        raise DataError(str(source), problem)
    step = common_step(values)
    levels = int((values[-1] - values[0]) / step) + 1
    if levels > MOST_LEVELS or 2 * len(values) <= levels:
        problem = (
            f"has {len(values):,} different ratings on a grid of {levels:,} levels, "
            f"{float(values[0]):g} to {float(values[-1]):g} in steps of {float(step):g}: these are "
            "counts, or scales are mixed; state data.scale or data.positive_from"
        )
        raise DataError(str(source), problem)
    return RatingScale(float(values[0]), float(values[-1]), float(step))


def common_step(values: Sequence[Fraction]) -> Fraction:
    """The largest step that all of several values, ascending, lie on."""
    gaps = [value - values[0] for value in values[1:]]
    unit = math.lcm(*(gap.denominator for gap in gaps))
    return Fraction(math.gcd(*(int(gap * unit) for gap in gaps)), unit)


def require_on(scale: RatingScale, columns: Columns, exact: list[Fraction]) -> None:
    """Refuse ratings that are not on a scale.

    Raises:
        DataError: a rating is not on a scale; names the first.
    """
    off = np.flatnonzero(~scale.contains(np.array(exact, dtype=np.float64)))
    if len(off):
        raise columns.refuse("rating", int(off[0]), f"is off the scale, {scale}")


def nearest(scale: RatingScale, values: FloatArray) -> FloatArray:
    """The level next to each value, the upper one of two."""
    # A value half way between levels may be off by rounding: 0.25 on a scale from 0.1 in steps of
    # 0.1.
    steps = np.floor((values - scale.low) / scale.step + 0.5 + 1e-9)
    return scale.levels[np.clip(steps, 0, len(scale.levels) - 1).astype(np.int64)]
