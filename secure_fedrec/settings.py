"""Settings: dataclasses whose fields say what they may hold, checked once, when one is made.

    class SamplerConfig(Settings, section="sampler"):
        rounds: Count = 10
        rate: Annotated[float, Within(above=0, most=1)] = 0.5
        order: Annotated[str, OneOf(ORDERS)] = "random"

``SamplerConfig(rate=2)`` raises a ``ConfigError`` of ``sampler.rate`` that names value, problem
and, where they can be listed, choices. A field is of a plain type (bool, int, float, str), of
``Literal`` words, of a tuple, frozenset or table of these, None as well, of any class, or of one
of several of these; ``Annotated`` adds rules. Types are strict: a bool is no number and a string no
integer. Only an integer stands for a float, and a list for a tuple, as in a file of settings;
numbers are finite.

Nothing here knows files: who reads one renames the section to the table's key
(``ConfigError.renamed``).
"""

import dataclasses
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeAlias,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

from secure_fedrec.errors import ConfigError

Reader: TypeAlias = Callable[[Any], Any]
"""From what was given to what is kept; raises ``Refused``."""


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
        least, most: closed ends; None where there is none.
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
        if not (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        ):
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
    """An end of an interval; far powers of two, and what lies one below, as such."""
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
        choices: all of them; of a mapping, its keys.
        problem: what is wrong with any other, as a clause.
    """

    choices: tuple[object, ...]
    problem: str

    def __init__(self, choices: Iterable[object], problem: str = "unknown") -> None:
        object.__setattr__(self, "choices", tuple(choices))
        object.__setattr__(self, "problem", problem)

    def check(self, value: Any) -> None:
        """Refuse a value that is none of them."""
        if value not in self.choices:
            raise Refused(value, self.problem, self.choices)


@dataclass(frozen=True, slots=True)
class Matching:
    """Text of a pattern.

    Args:
        pattern: regular expression of the whole text.
        problem: what is wrong with any other, as a clause.
        choices: what it allows, in words.
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
    """What a number counts or is measured in, for its readers.

    Args:
        name: as behind the number, "rounds".
    """

    name: str

    def check(self, value: Any) -> None:
        """Refuse nothing: a unit is no rule."""


@dataclass(frozen=True, slots=True)
class Filled:
    """Text or a tuple that is not empty."""

    problem: str = "must not be empty"

    def check(self, value: Any) -> None:
        """Refuse nothing at all, and blank text."""
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


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Settings:
    """Base that makes of its subclasses frozen dataclasses of settings; see the module docstring.

    Args:
        section: of every subclass, path of the table that its keys belong to; "" for none. A
            subclass that names none has its parent's.
        kw_only: False: fields may be given by position.
        eq: False: instances are equal only to themselves, as those with arrays must be.

    Raises:
        TypeError: by a subclass, a field whose annotation is a string or says nothing that can be
            checked.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    section: ClassVar[str] = ""

    def __init_subclass__(
        cls, *, section: str | None = None, kw_only: bool = True, eq: bool = True
    ) -> None:
        super().__init_subclass__()
        if section is not None:
            cls.section = section
        for base in cls.__mro__:  # fields come from classes that are no settings as well
            for name, kind in vars(base).get("__annotations__", {}).items():
                try:
                    _reader(kind)
                except TypeError as unknown:
                    raise TypeError(f"{cls.__name__}.{name}: {unknown}") from None
        dataclass(frozen=True, kw_only=kw_only, eq=eq)(cls)

    def __post_init__(self) -> None:
        """Check every field, then what they are together.

        Raises:
            ConfigError: a field breaks its rules, or they do not agree.
        """
        for name, read in _readers(cast(Any, type(self))).items():
            value = getattr(self, name)
            try:
                kept = read(value)
            except Refused as refused:
                key = self.key(name)
                raise ConfigError(key, refused.value, refused.problem, refused.choices) from None
            if kept is not value:
                object.__setattr__(self, name, kept)
        self._agree()

    def _agree(self) -> None:
        """Refuse fields that do not agree with each other; subclasses say which.

        Raises:
            ConfigError: they do not.
        """

    def key(self, name: str) -> str:
        """Dotted path of a field."""
        return f"{self.section}.{name}" if self.section else name

    def require_between(self, name: str, low: float, high: float) -> None:
        """Check a field, if it is set, against bounds that other fields decide.

        Raises:
            ConfigError: it is not from ``low`` to ``high``.
        """
        value = getattr(self, name)
        if value is not None and not low <= value <= high:
            raise self.refusal(name, f"must be between {low} and {high}")

    def refusal(
        self, name: str, problem: str, choices: Iterable[object] | None = None
    ) -> ConfigError:
        """The refusal of a field's value, to be raised."""
        return ConfigError(self.key(name), getattr(self, name), problem, choices)


@cache
def _readers(kind: Any) -> dict[str, Reader]:
    return {each.name: _reader(each.type) for each in dataclasses.fields(kind) if each.init}


def _reader(kind: Any) -> Reader:
    """What checks a value of an annotation, and makes of it what is kept."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _ruled(_reader(parts[0]), parts[1:])
    if origin is Literal:
        return _literal(parts)
    if origin in _NESTED:
        return _NESTED[origin](origin, parts)
    if kind in _PLAIN or kind is ClassVar or origin is ClassVar:
        return _PLAIN.get(kind, _anything)
    holder = origin or kind
    known = getattr(holder, "__module__", "") in _HOLDERS and issubclass(holder, Iterable)
    if known and hasattr(holder, "__class_getitem__"):
        raise TypeError(f"what a {holder.__name__} holds cannot be checked")
    return _instance(holder)


def _literal(words: tuple[Any, ...]) -> Reader:
    """One of some words, of their types: True is no 1, and an array is compared with none."""
    kinds, known = {type(word) for word in words}, OneOf(words)

    def literal(value: Any) -> Any:
        if not isinstance(value, tuple(kinds)) or (isinstance(value, bool) and bool not in kinds):
            raise Refused(value, known.problem, words)
        known.check(value)
        return value

    return literal


def _ruled(read: Reader, rules: Sequence[Any]) -> Reader:
    if not all(hasattr(rule, "check") and not isinstance(rule, type) for rule in rules):
        raise TypeError(f"{rules} are no rules")
    if read not in (_int, _float) and any(isinstance(rule, Within) for rule in rules):
        raise TypeError("an interval is a rule of numbers; where there may be none, put it inside")

    def ruled(value: Any) -> Any:
        kept = read(value)
        for rule in rules:
            rule.check(kept)
        return kept

    return ruled


def _optional(_kind: Any, parts: tuple[Any, ...]) -> Reader:
    """Of a union: None, or a value of one of the other types."""
    others = tuple(part for part in parts if part is not types.NoneType)
    if all(isinstance(each, type) and each not in _PLAIN for each in others):
        read = _instance(others)
    else:
        read = _alternatives([_reader(each) for each in others])
    return (
        read if len(others) == len(parts) else lambda value: None if value is None else read(value)
    )


def _alternatives(reads: Sequence[Reader]) -> Reader:
    if len(reads) == 1:
        return reads[0]

    def first_fitting(value: Any) -> Any:
        problems: list[str] = []
        choices: list[object] = []
        for read in reads:
            try:
                return read(value)
            except Refused as refused:
                problems.append(str(refused))
                choices += refused.choices or ()
        said = problems[:1] + [each.removeprefix("should be ") for each in problems[1:]]
        raise Refused(value, ", or ".join(said), choices or None)

    return first_fitting


def _several(kind: type, parts: tuple[Any, ...]) -> Reader:
    reads = [_reader(part) for part in parts if part is not Ellipsis]
    accepted: Any = (kind, list) if kind is tuple else (kind, list, set)
    size = len(parts) if kind is tuple and Ellipsis not in parts else None

    def several(value: Any) -> Any:
        if not isinstance(value, accepted):
            raise Refused(value, "should be a valid list")
        if size is not None and len(value) != size:
            raise Refused(value, f"should have {size} entries")
        each = reads if size is not None else reads * len(value)
        return kind(read(entry) for read, entry in zip(each, value, strict=True))

    return several


def _mapping(_kind: Any, parts: tuple[Any, ...]) -> Reader:
    name, read = (_reader(part) for part in parts)

    def mapping(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Refused(value, "should be a valid table")
        return {name(key): read(each) for key, each in value.items()}

    return mapping


def _instance(kind: Any, name: str = "") -> Reader:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not all(isinstance(each, type) and each is not object for each in kinds):
        raise TypeError(f"a field of {kind!r} cannot be checked")
    name = name or " or ".join(each.__name__ for each in kinds)

    def instance(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise Refused(value, f"should be a valid {name}")
        return value

    return instance


def _anything(value: Any) -> Any:
    return value


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise Refused(value, "should be a valid integer")
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise Refused(value, "should be a valid number")
    given: Any = value
    try:
        kept: float = given if isinstance(given, float) else float(given)
    except OverflowError:
        kept = math.inf
    if not math.isfinite(kept):
        raise Refused(value, "must be finite")
    return kept


_HOLDERS = frozenset({"builtins", "collections", "collections.abc"})
"""Whose classes hold others; those that can be looked into are in ``_NESTED``."""

_PLAIN: dict[Any, Reader] = {
    bool: _instance(bool, "boolean"),
    int: _int,
    float: _float,
    str: _instance(str, "string"),
    Any: _anything,
}
_NESTED: dict[Any, Callable[[Any, tuple[Any, ...]], Reader]] = {
    Union: _optional,
    types.UnionType: _optional,
    tuple: _several,
    frozenset: _several,
    Mapping: _mapping,
}
