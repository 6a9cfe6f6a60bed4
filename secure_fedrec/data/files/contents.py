"""Facts about a column from its first texts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from secure_fedrec.data.files.decimals import number_of
from secure_fedrec.data.files.faults import shown
from secure_fedrec.data.files.times import Clock, is_moment, spelling_of

_FINE: Final = re.compile(r"[+-]?[0-9]{1,3}\.[0-9]{3,}")
"""A degree of latitude or longitude."""

_MANY: Final = 10
"""Fewest rows that tell whether a column rises, or repeats."""

_SEEN: Final = 100
"""Fewest rows that tell whether a column has few values."""


@dataclass(frozen=True, eq=False)
class Contents:
    """The texts of a column in the first rows of a file, blanks around them taken off.

    Args:
        texts: texts of all these rows.
    """

    texts: Sequence[str]

    @cached_property
    def written(self) -> list[str]:
        """The texts that are not empty."""
        return [text for text in self.texts if text]

    @cached_property
    def numbers(self) -> list[float] | None:
        """All values, where each is a number, True or False."""
        found = [number_of(text) for text in self.written]
        values = [float(each) for each in found if each is not None]
        return values if values and len(values) == len(found) else None

    @cached_property
    def numeric(self) -> bool:
        """Whether half or more are numbers."""
        found = [number_of(text) is not None for text in self.written]
        return bool(found) and 2 * sum(found) >= len(found)

    @cached_property
    def short(self) -> bool:
        """Whether there are too few rows to judge the column as a whole."""
        return len(self.written) < _MANY

    @cached_property
    def constant(self) -> bool:
        """Whether many values are all equal."""
        return not self.short and len(set(self.written)) == 1

    @cached_property
    def whole(self) -> bool:
        """Whether all are whole numbers."""
        return self.numbers is not None and all(each.is_integer() for each in self.numbers)

    @cached_property
    def times(self) -> bool:
        """Whether all are dates, or seconds or milliseconds of our days."""
        if not self.written:
            return False
        return all(map(is_moment, self.written)) or all(map(spelling_of, self.written))

    @cached_property
    def degrees(self) -> bool:
        """Whether all may be degrees of latitude or longitude, and most differ."""
        fine = all(map(_FINE.fullmatch, self.written)) and self.numbers is not None
        few = len(set(self.written)) <= min(_MANY, len(self.written) // 2)
        return fine and not few and all(abs(each) <= 180 for each in self.numbers or ())

    @cached_property
    def rising(self) -> bool:
        """Whether each number is above the one before, as of rows that are numbered."""
        values = self.numbers or []
        return len(values) >= _MANY and all(low < high for low, high in pairwise(values))

    @cached_property
    def few(self) -> bool:
        """Whether a few values repeat, as ratings and categories do."""
        different = len(set(self.written))
        turns = sum(before != after for before, after in pairwise(self.written))
        return len(self.written) >= _SEEN and different <= _MANY and turns > 3 * different

    @cached_property
    def flags(self) -> bool:
        """Whether all values are 0 and 1, -1 and 1, or True and False."""
        return self.numbers is not None and set(self.numbers) <= {-1.0, 0.0, 1.0}

    @cached_property
    def unique(self) -> bool:
        """Whether nearly every row of many has a text of its own."""
        return not self.short and len(set(self.written)) > 0.9 * len(self.written)

    def same_as(self, other: "Contents") -> bool:
        """Whether another column distinguishes the same rows, so that either can be used."""
        pairs = len(set(zip(self.texts, other.texts, strict=True)))
        alike = len(set(self.texts)) == len(set(other.texts)) == pairs
        return alike and not self.unique

    def same_order(self, other: "Contents") -> bool:
        """Whether the times of another column have the same order."""
        ranks = []
        for texts in (self.texts, other.texts):
            clock = Clock(gaps=frozenset(("",)))
            if self.short or not clock.add(texts):
                return False
            ranks.append(np.unique(clock.moments(), return_inverse=True)[1])
        return bool(np.array_equal(ranks[0], ranks[1]))

    @property
    def odd_times(self) -> str:
        """Some of the numbers that are not times."""
        odd = dict.fromkeys(text for text in self.written if not is_moment(text))
        return ", ".join(map(shown, list(odd)[:2])) if self.whole else ""

    @property
    def examples(self) -> str:
        """Some of the texts."""
        return ", ".join(map(shown, list(dict.fromkeys(self.written))[:2]))


class Unlikely(NamedTuple):
    """Why a column probably does not hold clients or items.

    Attributes:
        reason: as a clause.
        rating: whether it may hold ratings.
    """

    reason: str
    rating: bool = False


def unlike_ids(columns: Sequence[Contents]) -> dict[int, Unlikely]:
    """Which columns are unlikely clients and items by their contents, by place from 0, and why."""
    found = {}
    sorted_by_another = any(column.constant for column in columns)
    for place, column in enumerate(columns):
        beside = [each.degrees for each in columns[max(0, place - 1) : place + 2]]
        if not column.written:
            found[place] = Unlikely("is empty")
        elif column.times:
            found[place] = Unlikely(f"reads like times ({column.examples})")
        elif column.degrees and sum(beside) > 1:
            found[place] = Unlikely(f"reads like coordinates ({column.examples})")
        elif column.numbers is not None and not column.whole:
            found[place] = Unlikely(f"has numbers with fractions ({column.examples})", rating=True)
        elif column.rising and not sorted_by_another:
            found[place] = Unlikely(f"rises from row to row ({column.examples})")
        elif column.few:
            different = len(set(column.written))
            reason = f"has {different} values that take turns ({column.examples})"
            found[place] = Unlikely(reason, rating=True)
    return found
