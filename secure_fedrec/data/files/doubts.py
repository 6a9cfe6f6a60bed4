"""Questions about ratings with unclear values: codes for "not rated", counts, or mistakes."""

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from secure_fedrec.data.files.columns import Columns
from secure_fedrec.data.files.values import common_step, found_scale
from secure_fedrec.data.ratings import MOST_STATED, RatingScale
from secure_fedrec.errors import DataError

_USUAL: Final = (RatingScale(1, 5, 1), RatingScale(0.5, 5, 0.5), RatingScale(1, 10, 1))
"""A level just outside one of these scales is probably not a rating."""

_FEW: Final = 4
_SEVERAL: Final = 6
"""Fewest levels needed to judge that another value is an outlier, or a code just below 0."""

_FAR: Final = 2.5
"""Distance from all other values, in steps, from which a value counts as an outlier."""

_LARGEST: Final = 1000
"""Numbers above this are more likely counts, years or ids than ratings."""

_STRAY: Final = 0.01
"""Largest share of the rows that may be outliers on both sides of a scale."""


def doubt_of(
    columns: Columns, exact: Sequence[Fraction], levels: Mapping[float, int]
) -> DataError | None:
    """The question what the ratings of a file are; None if their values decide it.

    Args:
        columns: columns of the file.
        exact: the different ratings, by the code of their texts.
        levels: how often each occurs.
    """
    ordered = sorted(set(exact))
    refused = _no_scale(columns, ordered)
    few = _STRAY * sum(levels.values())
    ends = (ordered[-1:], ordered[:1], ordered[-2:], ordered[:1] + ordered[-1:])
    for strays in ends if len(ordered) > 2 else ():
        rest = [each for each in ordered if each not in strays]
        if _no_scale(columns, rest) is not None:
            alone = len(strays) == 1 and _far_off(strays[0], rest)
            clear = False
        else:
            alone = len(strays) == 1 and _stands_apart(strays[0], rest)
            rare = sum(levels[float(value)] for value in strays) <= few
            clear = refused is not None and (rare or (len(strays) == 1 and len(rest) >= _FEW))
        if alone or clear:
            return _asked_of(columns, exact, levels, strays, rest)
    if refused is None:
        return None
    problem = refused.problem.partition(";")[0].partition(": state")[0]
    return DataError(columns.path, f"{problem}. {_answers(columns, ordered)}")


def _no_scale(columns: Columns, ordered: Sequence[Fraction]) -> DataError | None:
    """Why values, ascending, are on no scale of ratings; None where they are."""
    try:
        found_scale(columns.path, ordered)
    except DataError as refused:
        return refused
    if max(abs(ordered[0]), abs(ordered[-1])) <= _LARGEST:
        return None
    problem = f"has ratings of {float(ordered[0]):g} to {float(ordered[-1]):g}"
    return DataError(columns.path, problem)


def _far_off(value: Fraction, rest: Sequence[Fraction]) -> bool:
    """Whether a value is farther from many others than their whole range, and is not a count."""
    away = min(abs(value - rest[0]), abs(value - rest[-1]))
    small = max(abs(rest[0]), abs(rest[-1])) <= _LARGEST
    return small and len(rest) > _SEVERAL and away > rest[-1] - rest[0]


def _stands_apart(value: Fraction, rest: Sequence[Fraction]) -> bool:
    """Whether a value at an end is not a level like the others, which are ascending."""
    away = min(abs(value - rest[0]), abs(value - rest[-1]))
    scale = found_scale("", rest)
    code = value < 0 <= rest[0] and (len(rest) >= _SEVERAL or away > 1.5 * scale.step)
    return scale in _USUAL or (len(rest) >= _FEW and (code or away > _FAR * scale.step))


def _asked_of(
    columns: Columns,
    exact: Sequence[Fraction],
    levels: Mapping[float, int],
    strays: Sequence[Fraction],
    rest: Sequence[Fraction],
) -> DataError:
    """The question what the values at the ends are, with the first row of one."""
    count, rows = sum(levels[float(value)] for value in strays), sum(levels.values())
    advice = columns.file.advice("missing_values", json.dumps([_short(each) for each in strays]))
    if _no_scale(columns, rest) is not None:
        advice += f" {columns.file.advice('scale', _scale(rest))}"
    low, high, step = map(float, (rest[0], rest[-1], common_step(rest)))
    problem = (
        f"({count:,} of {rows:,} rows) stands apart: without {'it' if len(strays) == 1 else 'two'}"
        f", the scale is {low:g} to {high:g} in steps of {step:g}. If nothing was rated there, "
        f"say {advice}. {_answers(columns, sorted(set(exact)))}"
    )
    return columns.refuse("rating", exact.index(strays[-1]), problem)


def _answers(columns: Columns, ordered: Sequence[Fraction]) -> str:
    """The options that say that values are ratings, or counts."""
    least = next((value for value in ordered if value > 0), ordered[-1])
    counts = columns.file.advice("positive_from", _short(least))
    numbers = ""
    if len(ordered) < 2:
        ordered = sorted({*ordered, Fraction(1), Fraction(2), Fraction(5)})
        numbers = " with its numbers"
    said = f"if they are neither, {columns.file.advice('rating', 'null')}"
    if (ordered[-1] - ordered[0]) / common_step(ordered) >= MOST_STATED:
        return f"If they are counts or clicks, say {counts}; {said}"
    return (
        f"If all are ratings, say {columns.file.advice('scale', _scale(ordered))}{numbers}; if "
        f"they are counts or clicks, {counts}; {said}"
    )


def _scale(ordered: Sequence[Fraction]) -> str:
    """A scale of all values as a setting has it."""
    low, high, step = map(_short, (ordered[0], ordered[-1], common_step(ordered)))
    return f"{{ low = {low}, high = {high}, step = {step} }}"


def _short(value: Fraction) -> int | float:
    """A value as a setting has it."""
    return int(value) if value.denominator == 1 else float(value)
