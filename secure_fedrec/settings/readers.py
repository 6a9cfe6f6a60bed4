"""Makes checks of values from the annotation of a field: types are strict, see the package."""

import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, Union, get_args, get_origin

from secure_fedrec.settings.rules import OneOf, Refused, Within

Reader: TypeAlias = Callable[[Any], Any]
"""Converts a given value to the kept one; raises ``Refused``."""


def reader(kind: Any) -> Reader:
    """The function that checks a value by an annotation and converts it to the kept one.

    Raises:
        TypeError: it is a string, or does not state anything that can be checked.
    """
    kind = _written_out(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        held, *rules = get_args(Annotated[(_written_out(parts[0]), *parts[1:])])  # rules in a row
        return _ruled(reader(held), rules)
    if origin is Literal:
        return _literal(parts)
    if origin in _NESTED:
        return _NESTED[origin](origin, parts)
    if kind in _PLAIN or kind is ClassVar or origin is ClassVar:
        return _PLAIN.get(kind, _anything)
    holder = origin or kind
    known = getattr(holder, "__module__", "") in _HOLDERS and issubclass(holder, Iterable)
    if known and hasattr(holder, "__class_getitem__"):
        raise TypeError(f"the values in a {holder.__name__} cannot be checked")
    return _instance(holder)


def _written_out(kind: Any) -> Any:
    """The type behind an alias of a ``type`` statement (PEP 695), as NumPy's ``NDArray`` may be."""
    alias = get_origin(kind) or kind
    if not (hasattr(alias, "__value__") and hasattr(alias, "__type_params__")):
        return kind
    known, given = alias.__type_params__, get_args(kind)
    if given and len(known) != len(given):  # a variadic parameter, or one with a default
        raise TypeError(f"{kind} cannot be checked: write out what it stands for")
    named = dict(zip(known, given, strict=False))
    meant = named.get(alias.__value__, alias.__value__)
    # The aliased type may use the parameters in another order, or not use some.
    order = getattr(meant, "__parameters__", ())
    return _written_out(meant[tuple(named[each] for each in order)] if named and order else meant)


def _literal(words: tuple[Any, ...]) -> Reader:
    """One of some words, of their types: True is not 1, and an array does not equal any."""
    kinds, known = {type(word) for word in words}, OneOf(words)

    def literal(value: Any) -> Any:
        if not isinstance(value, tuple(kinds)) or (isinstance(value, bool) and bool not in kinds):
            raise Refused(value, known.problem, words)
        known.check(value)
        return value

    return literal


def _ruled(read: Reader, rules: Sequence[Any]) -> Reader:
    if not all(hasattr(rule, "check") and not isinstance(rule, type) for rule in rules):
        raise TypeError(f"{rules} are not rules")
    if read not in (_int, _float) and any(isinstance(rule, Within) for rule in rules):
        raise TypeError("an interval is a rule for numbers; where None is allowed, put it inside")

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
        read = _alternatives([reader(each) for each in others])
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
    reads = [reader(part) for part in parts if part is not Ellipsis]
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
    name, read = (reader(part) for part in parts)

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
"""Types that hold other values; those whose values can be checked are in ``_NESTED``."""

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
