"""What a figure is: one record beside the scorer that measures it, and all that follows from it.

A scorer states its figures in ``MEASURES``. Gates, findings, severities, sentences, the schema and
the page of a report, controls and ``explain`` read ``suite.MEASURES``; nothing else lists figures.
A record says how bad its figure is and what it reaches where it must; one that says neither is
refused where it is written, at import.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

__all__ = [
    "AREA",
    "CORRELATION",
    "DIFFERENCE",
    "HEADROOM",
    "SEVERITIES",
    "SHARE",
    "Behind",
    "Context",
    "Gained",
    "Measure",
    "Observed",
    "Prior",
    "Rule",
    "Unit",
    "gain",
]

SEVERITIES = ("critical", "high", "medium", "low", "info")
"""Worst first."""

Figures: TypeAlias = Mapping[str, float | None]

Words: TypeAlias = str | Callable[[Figures, Mapping[str, Any]], str | None]
"""A clause: "names {label_accuracy:%} of them[ (by chance: {label_base_rate:%})]".

What stands in brackets is left out where one of its figures is missing, and the whole clause where
another is.
"""


class Unit(NamedTuple):
    """How a figure is written, and where it lies.

    Attributes:
        write: "percent", "decimal", or "signed".
        low, high: ends of its range; None where there is none.
    """

    write: str
    low: float | None
    high: float | None


SHARE = Unit("percent", 0.0, 1.0)
AREA = Unit("decimal", 0.0, 1.0)
CORRELATION = Unit("decimal", -1.0, 1.0)
DIFFERENCE = Unit("signed", -1.0, 1.0)
HEADROOM = Unit("signed", None, 1.0)


class Prior(NamedTuple):
    """A figure that says what anybody reaches without the view.

    Attributes:
        key: of the figure.
        words: who or what reaches it.
        about: what it is; "For comparison: ..." where it is left out.
        name: in reports.
    """

    key: str
    words: str
    about: str = ""
    name: str = ""


class Rule(Protocol):
    """How bad a figure is."""

    def grade(self, key: str, figures: Figures) -> str:
        """Severity of a finding as far as this figure says."""
        ...


_HIGH, _MEDIUM, _LEAST = 0.20, 0.05, 0.02


@dataclass(frozen=True, slots=True)
class Gained:
    """Of a gain over what is known without the view: as much of it as is certain.

    Certain is the lower limit that holds for all gains of an audit at once (``gains``).

    Args:
        high, medium: from how much that is certain.
        least: smaller ones are no finding, however certain; above it they are low.
    """

    high: float = _HIGH
    medium: float = _MEDIUM
    least: float = _LEAST

    def grade(self, key: str, figures: Figures) -> str:
        """By thresholds."""
        sure = _value(figures, f"{key}_certain")
        if sure >= self.medium:
            return "high" if sure >= self.high else "medium"
        return "low" if sure > 0 and _value(figures, key) >= self.least else "info"

    def __str__(self) -> str:
        return (
            f"by what of it is certain: high from {self.high:g}, medium from {self.medium:g}, low "
            f"if any is and it is {self.least:g} or more"
        )


@dataclass(frozen=True, slots=True)
class Behind:
    """Of a figure that is judged by its gains, since by itself it may be what anybody reaches.

    Args:
        gains: their keys.
        critical: from which value the figure is critical, if a certain gain is high; None for no
            value.
        beside: what other figures must reach for that.
    """

    gains: tuple[str, ...]
    critical: float | None = None
    beside: Mapping[str, float] | None = None

    def grade(self, key: str, figures: Figures) -> str:
        """Critical or left to the gains."""
        if self.critical is None:
            return "info"
        needed = {key: self.critical, **(self.beside or {})}
        named = all(_value(figures, name) >= least for name, least in needed.items())
        sure = max(_value(figures, f"{name}_certain") for name in self.gains)
        return "critical" if named and sure >= _HIGH else "info"

    def __str__(self) -> str:
        words = f"by {', '.join(self.gains)}"
        if self.critical is not None:
            more = "".join(f" and {name} {least:g}" for name, least in (self.beside or {}).items())
            words += f"; critical from {self.critical:g}{more} with a certain gain of {_HIGH:g}"
        return words


@dataclass(frozen=True, slots=True)
class Observed:
    """Of something that nobody reaches by guessing, so that a value speaks for itself.

    Args:
        medium: from which value.
    """

    medium: float

    def grade(self, key: str, figures: Figures) -> str:
        """By the value."""
        return "medium" if _value(figures, key) >= self.medium else "info"

    def __str__(self) -> str:
        return f"by itself: medium from {self.medium:g}"


@dataclass(frozen=True, slots=True)
class Context:
    """Of a figure that helps to read others and is never bad by itself.

    Args:
        why: it is not, in words.
    """

    why: str

    def __post_init__(self) -> None:
        if not self.why:
            raise ValueError("a figure that sets no severity says why")

    def grade(self, key: str, figures: Figures) -> str:
        """Always info."""
        del key, figures
        return "info"

    def __str__(self) -> str:
        return f"none: {self.why}"


WORST = "the worst of the rounds tried; intervals and limits allow for the choice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure; its interval is under ``key_low`` and ``key_high`` where it has one.

    Args:
        key: of the figure in findings, gates and reports.
        name: in reports.
        about: what it measures.
        unit: how it is written.
        severity: how bad it is.
        floor: what it must reach on a federation planted to leak; why it has no floor otherwise.
        chance: what anybody reaches without the view: a figure of its own, or words.
        abstention: how it counts where an attack says nothing.
        rounds: how several rounds make one figure.
        words: its clause of the sentence that a privacy officer reads; "" if it has none.
        said: the clause is said of values strictly between these.
        lower_is_worse: whether low is a leak.
        units: whom it is measured on.
        listed: whether it has a key of its own in ``report.json``; others stand in the details.
        leads: whether it is the one number that stands for a finding, before those that do not.
        axis: what it is called in the chart of leakage, where figures with an axis come first.
        rate: the false-positive rate it is taken at; a tenth of its inverse is needed in negatives.
        by_round: whether the rounds that were tried are listed with it.
        chooses: of which findings it says how strong a round was, "rated sets" or "other secrets".

    Raises:
        ValueError: a record without a rule for its severity, or without a floor and why.
    """

    key: str
    name: str
    about: str
    unit: Unit
    severity: Rule
    floor: float | str
    chance: Prior | str
    abstention: str
    rounds: str = WORST
    words: Words = ""
    said: tuple[float, float] = (-math.inf, math.inf)
    lower_is_worse: bool = False
    units: str = "clients"
    listed: bool = True
    leads: bool = False
    axis: str = ""
    rate: float | None = None
    by_round: bool = False
    chooses: str = ""

    def __post_init__(self) -> None:
        if not hasattr(self.severity, "grade"):
            raise ValueError(f"{self.key}: a figure says how bad it is, by a rule or by context")
        if self.floor is None or self.floor == "":
            raise ValueError(f"{self.key}: a figure says what it must reach where it is planted")

    @property
    def prior(self) -> Prior | None:
        """The figure to compare with, where there is one."""
        return self.chance if isinstance(self.chance, Prior) else None

    @property
    def ends(self) -> tuple[str, str]:
        """Keys of the ends of its interval."""
        return f"{self.key}_low", f"{self.key}_high"

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys in ``report.json``: the figure, its interval, what it compares with."""
        return (self.key, *self.ends, *(() if self.prior is None else (self.prior.key,)))

    def card(self) -> dict[str, str]:
        """The record in words."""
        prior = self.prior
        chance = self.chance if prior is None else f"{prior.key}: {prior.words}"
        return {
            "name": self.name,
            "about": self.about,
            "worse": "lower" if self.lower_is_worse else "higher",
            "chance": str(chance),
            "abstention": self.abstention,
            "rounds": self.rounds,
            "severity": str(self.severity),
            "floor": str(self.floor),
            "units": self.units,
        }

    def told(self, figures: Figures) -> bool:
        """Whether a finding has the figure."""
        return figures.get(self.key) is not None


def gain(
    key: str,
    name: str,
    floor: float | str,
    *,
    about: str = "",
    unit: Unit = DIFFERENCE,
    severity: Rule | None = None,
    listed: bool = False,
    chooses: str = "",
) -> Measure:
    """The record of a gain over what is known without the view, by the thresholds of every gain."""
    return Measure(
        key=key,
        name=name,
        about=about,
        unit=unit,
        severity=severity or Gained(),
        floor=floor,
        chance="0",
        abstention="gains nothing",
        listed=listed,
        chooses=chooses,
    )


def _value(figures: Figures, name: str) -> float:
    found = figures.get(name)
    return 0.0 if found is None else found
