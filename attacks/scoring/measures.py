"""The record of a figure in ``figures.toml``, and what follows from it.

Gates, findings, severities, sentences, the schema and the page of a report, controls and
``explain`` read ``MEASURES``; figures are listed nowhere else. A record states the severity of its
figure and the floor on planted data; a record without them is refused when it is read.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

from attacks.scoring.scales import UNITS, Page, Prior, Scale
from attacks.scoring.severities import SEVERITIES
from secure_fedrec.core.registry import Registry

Figures: TypeAlias = Mapping[str, float | None]

_PLAIN = Page()

Floor: TypeAlias = float | str
"""The floor of a figure on a federation built to leak, or why it does not have one."""


class Rule(Protocol):
    """The severity rule of a figure, and its floor on planted data."""

    @property
    def floor(self) -> Floor:
        """The floor."""

    def grade(self, key: str, figures: Figures) -> str:
        """Severity of a finding by this figure alone."""


_HIGH, _MEDIUM, _LEAST = 0.20, 0.05, 0.02
_MANY, _WHOLE = 0.1, 0.9


class Gained(NamedTuple):
    """Severity of a gain over what is known without the view, by its certain part.

    High from 0.20, medium from 0.05; a gain below 0.02 is not a finding, however certain, and above
    it is low. The certain part is the lower limit that holds for all gains of an audit at once
    (``gains``).
    """

    floor: Floor

    def grade(self, key: str, figures: Figures) -> str:
        """By thresholds."""
        sure = _value(figures, f"{key}_certain")
        if sure >= _MEDIUM:
            return "high" if sure >= _HIGH else "medium"
        return "low" if sure > 0 and _value(figures, key) >= _LEAST else "info"

    def __str__(self) -> str:
        limits = f"high from {_HIGH:g}, medium from {_MEDIUM:g}, low from {_LEAST:g} if any is"
        return f"by its certain part: {limits}"


class Behind(NamedTuple):
    """Severity of a figure that is judged by its gains, since guessing may reach its value.

    Attributes:
        gains: their keys.
        floor: the floor.
        critical: value from which the figure is critical, if a certain gain is high; None for no
            value.
        beside: what other figures must reach for that.
    """

    gains: tuple[str, ...]
    floor: Floor
    critical: float | None = None
    beside: Mapping[str, float] = MappingProxyType({})

    def grade(self, key: str, figures: Figures) -> str:
        """Critical, or None: then the gains decide."""
        if self.critical is None:
            return "info"
        needed = {key: self.critical, **self.beside}
        named = all(_value(figures, name) >= least for name, least in needed.items())
        sure = max(_value(figures, f"{name}_certain") for name in self.gains)
        return "critical" if named and sure >= _HIGH else "info"

    def __str__(self) -> str:
        words = f"by {', '.join(self.gains)}"
        if self.critical is None:
            return words
        more = "".join(f" and {name} {least:g}" for name, least in self.beside.items())
        return f"{words}; critical from {self.critical:g}{more} with a certain gain of {_HIGH:g}"


class Observed(NamedTuple):
    """Severity of a figure that guessing cannot reach, judged by its value.

    Attributes:
        medium: from which value.
        floor: the floor.
    """

    medium: float
    floor: Floor

    def grade(self, key: str, figures: Figures) -> str:
        """By the value."""
        return "medium" if _value(figures, key) >= self.medium else "info"

    def __str__(self) -> str:
        return f"by itself: medium from {self.medium:g}"


class Exposed(NamedTuple):
    """Severity of a number of clients that are exposed for certain: one is high.

    Attributes:
        floor: the floor.
        share: key of their share of all clients, if graded as well.
        profile: key of the largest exposed share of a client, if graded as well.
    """

    floor: Floor
    share: str = ""
    profile: str = ""

    def grade(self, key: str, figures: Figures) -> str:
        """By their number, their share, and the largest exposed share of a client."""
        if _value(figures, key) < 1.0:
            return "info"
        many = _value(figures, self.share) >= _MANY
        whole = _value(figures, self.profile) >= _WHOLE
        return "critical" if many or whole else "high"

    def __str__(self) -> str:
        limits = f", critical from {self.share} {_MANY:g} or {self.profile} {_WHOLE:g}"
        return f"by its value: high from the first client{limits if self.share else ''}"


class Context(NamedTuple):
    """Rule of a figure without a severity, which helps to read other figures.

    Attributes:
        why: why it has none, in words.
        floor: the floor.
    """

    why: str
    floor: Floor

    def grade(self, key: str, figures: Figures) -> str:
        """Always info."""
        return "info"

    def __str__(self) -> str:
        return f"none: {self.why}"


_RULES = {each.__name__.lower(): each for each in (Gained, Behind, Observed, Exposed, Context)}
"""Severity rules by their names in records."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure; its interval is under ``key_low`` and ``key_high`` where it has one.

    Args:
        name: in reports.
        about: what it measures.
        scale: the meaning of a value.
        severity: its severity rule, and its floor on planted data.
        page: where it is shown.
        words: its clause of the sentence that a privacy officer reads, "names {label_accuracy:%} of
            them[ (by chance: {label_base_rate:%})]" say; "" if it has none. What stands in brackets
            is left out where one of its figures is missing, and the whole clause where another is.
        said: the clause is used for values strictly between these.
        secret: what becomes known where the figure is bad, "rated set" say: documenting one secret
            as a leak does not document another.
        key: in findings, gates and reports.
        kind: kind of the claims that it judges.

    Raises:
        ValueError: a record that does not say what it measures, without a rule for its severity, or
            without a floor.
    """

    name: str
    about: str
    scale: Scale
    severity: Rule
    page: Page = _PLAIN
    words: str = ""
    said: tuple[float, float] = (-math.inf, math.inf)
    secret: str = ""
    key: str = ""
    kind: str = ""

    def __post_init__(self) -> None:
        if not self.about.strip():
            raise ValueError(f"{self.name}: a figure must say what it measures")
        if not _grades(self.severity):
            raise ValueError(f"{self.name}: a figure must have a severity rule, or say why not")
        floor = self.severity.floor
        if not (floor.strip() if isinstance(floor, str) else _is_positive(floor)):
            raise ValueError(f"{self.name}: a figure must state its floor on planted data")

    @property
    def prior(self) -> Prior | None:
        """The figure to compare with, where there is one."""
        return self.scale.chance if isinstance(self.scale.chance, Prior) else None

    @property
    def ends(self) -> tuple[str, str]:
        """Keys of the ends of its interval."""
        return f"{self.key}_low", f"{self.key}_high"

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys in ``report.json``: the figure, its interval, its comparison value."""
        return (self.key, *self.ends, *(() if self.prior is None else (self.prior.key,)))

    def card(self) -> dict[str, str]:
        """The record in words."""
        scale, prior = self.scale, self.prior
        return {
            "name": self.name,
            "about": self.about,
            "secret": self.secret,
            "worse": "lower" if scale.lower_is_worse else "higher",
            "chance": str(scale.chance if prior is None else f"{prior.key}: {prior.words}"),
            "abstention": scale.abstention,
            "rounds": scale.rounds,
            "severity": str(self.severity),
            "floor": self._floor(),
            "units": self.page.units,
        }

    def _floor(self) -> str:
        floor = self.severity.floor
        if isinstance(floor, str):
            return f"none: {floor}"
        sense = "at most" if self.scale.lower_is_worse else "at least"
        return f"{sense} {floor:g} where a federation is planted to leak it, the positive control"


def _grades(rule: Any) -> bool:
    """Whether a severity rule is complete: of a known kind, with all that the kind needs."""
    match rule:
        case Context(why=why):
            return isinstance(why, str) and bool(why.strip())
        case Behind(gains=gains, critical=critical):
            return bool(gains) and (critical is None or _is_positive(critical))
        case Observed(medium=medium):
            return _is_positive(medium)
    return not isinstance(rule, type) and callable(getattr(rule, "grade", None))


def _is_number(value: Any) -> bool:
    """Whether it is a finite number, not a bool, a text or an array."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value)


def _is_positive(value: Any) -> bool:
    """Whether a floor is a number above zero; an attack that claims nothing reaches 0."""
    return _is_number(value) and value > 0


GAIN: Mapping[str, Mapping[str, Any]] = {
    "scale": {"unit": "difference", "chance": "0", "abstention": "gains nothing"},
    "page": {"listed": False},
}
"""Defaults of a record of a gain over what is known without the view."""


def catalogue(told: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Measure]:
    """Measures by key, from records by kind of claim (``figures.toml``).

    Raises:
        KeyError, TypeError: a record lacks a field, or has an unknown one.
        ValueError: a group does not name a secret, two figures have the same key, or one is judged
            by a gain that is unknown or tells another secret.
    """
    known: dict[str, Measure] = {}
    for kind, group in told.items():
        records = dict(group)
        secret = records.pop("secret")
        if not secret.strip():
            raise ValueError(f"{kind}: figures must say which secret they tell")
        if both := known.keys() & records:
            raise ValueError(f"two figures have the key {min(both)}")
        for key, record in records.items():
            known[key] = _measure({"secret": secret, **record, "key": key, "kind": kind})
    require_gains(known, known)
    return MappingProxyType(known)


def require_gains(measures: Mapping[str, Measure], known: Mapping[str, Measure]) -> None:
    """Refuse measures that are judged by something other than a gain of their secret.

    Args:
        measures: the measures by key.
        known: all known measures, including these.

    Raises:
        ValueError: a measure is judged by something else.
    """
    for key, each in measures.items():
        for name in each.severity.gains if isinstance(each.severity, Behind) else ():
            if name not in known or not isinstance(known[name].severity, Gained):
                raise ValueError(f"{key} is judged by {name}, which is not a gain")
            if known[name].secret != each.secret:
                raise ValueError(f"{key} is judged by {name}, which tells another secret")


def require_numbers(figures: Mapping[str, object]) -> None:
    """Refuse figures that a report cannot hold: each must be a finite number or None.

    Raises:
        ValueError: a name is unknown; names it.
    """
    for key, value in figures.items():
        if value is not None and not _is_number(value):
            raise ValueError(f"the figure {key} is {value!r}, not a finite number")


def _measure(told: Mapping[str, Any]) -> Measure:
    severity = {key: _frozen(value) for key, value in told["severity"].items()}
    rule = _RULES[severity.pop("rule")](**severity)
    usual = GAIN if isinstance(rule, Gained) else {}
    scale, page = ({**usual.get(name, {}), **told.get(name, {})} for name in ("scale", "page"))
    if isinstance(scale["chance"], dict):
        scale["chance"] = Prior(**scale["chance"])
    scale["unit"] = UNITS[scale["unit"]]
    parts = {"scale": Scale(**scale), "severity": rule, "page": Page(**page)}
    name = told["key"].replace("_", " ")
    return Measure(
        **{"name": name, **{key: _frozen(value) for key, value in told.items()}, **parts}
    )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _value(figures: Figures, name: str) -> float:
    found = figures.get(name)
    return 0.0 if found is None else found


_FILE = Path(__file__).with_name("figures.toml")

MEASURES = Registry("figure", catalogue(tomllib.loads(_FILE.read_text(encoding="utf-8"))))
"""Every figure by key, as gates and findings use it."""


def measures_of(figures: Figures) -> list[Measure]:
    """The measures that a finding has, in the order of reports."""
    return [each for each in MEASURES.values() if figures.get(each.key) is not None]


def leading(figures: Figures) -> Measure | None:
    """The figure that represents a finding; None if no figure with its own key does."""
    listed = [each for each in measures_of(figures) if each.page.listed]
    return min(listed, key=lambda each: not each.page.leads, default=None)


def listed_keys() -> tuple[str, ...]:
    """Keys of ``report.json`` that figures have: their own, of intervals, of comparisons."""
    listed = (each for each in MEASURES.values() if each.page.listed)
    return tuple(dict.fromkeys(key for each in listed for key in each.keys))


def severity_of(figures: Figures) -> str:
    """Severity of figures: that of the worst."""
    grades = {each.severity.grade(each.key, figures) for each in MEASURES.values()}
    return min(grades, key=SEVERITIES.index)
