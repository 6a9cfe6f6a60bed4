"""Rules that an annotation of a field adds to its type, and types that are often used with one."""

import math
import re
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Annotated, Any, TypeAlias


class Refused(Exception):  # noqa: N818 - becomes a ConfigError, which knows the key
    """A value breaks a rule.

    Args:
        value: the value, or the part of it that is to blame.
        problem: what is wrong with it, as a clause.
        choices: the allowed values, where they can be listed.
    """

    def __init__(
        self, value: object, problem: str, choices: Iterable[object] | None = None
    ) -> None:
        super().__init__(problem)
        self.value, self.problem, self.choices = value, problem, choices


_FAR = 16


@dataclass(frozen=True, slots=True)
class Within:
    """Numbers of an interval.

    Args:
        least, most: closed ends; None without one.
        above, below: open ends, likewise.
        why: put behind the refusal.
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    why: str = ""

    def check(self, value: Any) -> None:
        """Refuse a number outside."""
        ends = ((ge, self.least), (gt, self.above), (le, self.most), (lt, self.below))
        if not all(end is None or fits(value, end) for fits, end in ends):
            raise Refused(value, f"must be {self}{self.why}")

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f"between {_shown(self.least)} and {_shown(self.most)}"
        if self.above == 0 and self.most is self.below is None:
            return "positive"
        ends = {
            "at least": self.least,
            "above": self.above,
            "at most": self.most,
            "below": self.below,
        }
        return " and ".join(
            f"{word} {_shown(end)}" for word, end in ends.items() if end is not None
        )


def _shown(end: float) -> str:
    """Text of an interval's end; large powers of two, and one less, as powers."""
    for power, less in ((end, ""), (end + 1, " - 1")):
        half, exponent = math.frexp(power)
        exact = half == 0.5 and power == 2.0 ** (exponent - 1)  # an integer may be near one only
        if exact and abs(exponent) > _FAR and (not less or isinstance(end, int)):
            return f"2^{exponent - 1}{less}"
    return str(end)


@dataclass(frozen=True, slots=True, init=False)
class OneOf:
    """Known words, or other values.

    Args:
        known: all of them; of a mapping, its keys. A hashable collection that may grow is read anew
            each time.
        problem: what is wrong with any other, as a clause.
    """

    known: Collection[object]
    problem: str

    def __init__(self, known: Iterable[object], problem: str = "unknown") -> None:
        kept = isinstance(known, Collection) and isinstance(known, Hashable)
        object.__setattr__(self, "known", known if kept else tuple(known))
        object.__setattr__(self, "problem", problem)

    @property
    def choices(self) -> tuple[object, ...]:
        """All of them."""
        return tuple(self.known)

    def check(self, value: Any) -> None:
        """Refuse any other value."""
        if value not in self.choices:
            raise Refused(value, self.problem, self.choices)


@dataclass(frozen=True, slots=True)
class Matching:
    """Text of a pattern.

    Args:
        pattern: regular expression of the whole text.
        problem: what is wrong with any other, as a clause.
        choices: the allowed values, in words.
    """

    pattern: str
    problem: str
    choices: tuple[str, ...]

    def check(self, value: Any) -> None:
        """Refuse other text."""
        if not re.fullmatch(self.pattern, value):
            raise Refused(value, self.problem, self.choices)


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a number, for its readers.

    Args:
        name: as behind the number, "rounds".
    """

    name: str

    def check(self, value: Any) -> None:
        """Accept every value: a unit is not a rule."""


@dataclass(frozen=True, slots=True)
class Filled:
    """Text or a tuple that is not empty."""

    problem: str = "must not be empty"

    def check(self, value: Any) -> None:
        """Refuse empty values and blank text."""
        if not (value.strip() if isinstance(value, str) else value):
            raise Refused(value, self.problem)


Bits: TypeAlias = Annotated[int, Unit("bits")]
Count: TypeAlias = Annotated[int, Within(least=1)]
Natural: TypeAlias = Annotated[int, Within(least=0)]
Positive: TypeAlias = Annotated[float, Within(above=0)]
NonNegative: TypeAlias = Annotated[float, Within(least=0)]
Probability: TypeAlias = Annotated[float, Within(least=0, most=1)]
Rate: TypeAlias = Annotated[float, Within(above=0, most=1)]
Rounds: TypeAlias = Annotated[Count, Unit("rounds")]
Round: TypeAlias = Annotated[int, Within(least=1, why=": rounds count from 1")]
Share: TypeAlias = Annotated[float, Within(least=0, below=1)]
