"""Code that makes the value that a strategy drew."""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from inspect import getsourcelines, signature
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from secure_fedrec.streams import Streams

_Call = tuple[Callable[..., Any], Mapping[str, Any]]


class _Printer(Protocol):
    def text(self, words: str) -> None: ...
    def break_(self) -> None: ...


class Repeatable:
    """A value that prints as a call that makes it, which Hypothesis shows for a failing test."""

    __slots__ = ()

    def call(self) -> _Call:
        """The call that makes it again: a function, and arguments by name."""
        raise NotImplementedError

    @property
    def imports(self) -> str:
        """Lines that import what the call names, and comments that say what cannot be."""
        return imports_of(self)

    @property
    def code(self) -> str:
        """The imports, and the call."""
        return f"{self.imports}\n\n{self!r}\n"

    def __repr__(self) -> str:
        function, arguments = _given(*self.call())
        lines = "".join(f"    {name}={_code(value)},\n" for name, value in arguments.items())
        return f"{function.__qualname__}(\n{lines})"

    def _repr_pretty_(self, printer: _Printer, _cycle: bool) -> None:
        for number, line in enumerate(repr(self).splitlines()):
            if number:
                printer.break_()
            printer.text(line)


class Named:
    """A callable, printed by the name under which it is imported.

    Hypothesis prints a class with its module, and of a method the last name.

    Args:
        called: a class or a function.
    """

    __slots__ = ("called",)

    def __init__(self, called: Callable[..., Any]) -> None:
        self.called = called

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it."""
        return self.called(*arguments, **named)

    def _repr_pretty_(self, printer: _Printer, _cycle: bool) -> None:
        printer.text(_code(self.called))


def imports_of(*values: Any) -> str:
    """Lines that import what the code of values names, and comments that say what cannot be."""
    homes: dict[str, set[str]] = {}
    comments: dict[str, None] = {}
    # Hypothesis prints all other values in full.
    each = [part for value in values for part in _parts(value, isinstance(value, Repeatable))]
    for part in each:
        if _importable(part):
            homes.setdefault(part.__qualname__.partition(".")[0], set()).add(part.__module__)
        elif (said := _said(part)) is not None:
            comments[f"# {said}"] = None
    # Arrays print eight digits.
    of_floats = (value for value in values if getattr(value, "dtype", None) == np.float64)
    comments |= {f"# In full: array({value.tolist()})": None for value in of_floats}
    names: dict[str, list[str]] = {}
    for name, modules in sorted(homes.items()):
        if len(modules) == 1:
            names.setdefault(min(modules), []).append(name)
        else:  # the last import would hide the others
            where = " and ".join(sorted(modules))
            comments[f"# Several are called {name}, in {where}: import them by other names."] = None
    lines = [f"from {module} import {', '.join(names[module])}" for module in sorted(names)]
    return "\n".join([*lines, *comments])


def _call_of(value: Any, *, short: bool = True) -> _Call | None:
    """The call that makes a value of a class with fields; None for other values."""
    call: _Call | None = None
    if isinstance(value, Repeatable):
        call = value.call()
    elif is_dataclass(value) and not isinstance(value, type):
        call = type(value), {each.name: getattr(value, each.name) for each in fields(value)}
    return _given(*call) if call is not None and short else call


def _given(function: Callable[..., Any], arguments: Mapping[str, Any]) -> _Call:
    """A call without arguments that equal their defaults."""
    default = {name: each.default for name, each in signature(function).parameters.items()}
    return function, {
        name: value
        for name, value in arguments.items()
        if name not in default or value != default[name]
    }


def _code(value: Any) -> str:
    call = _call_of(value)
    if call is not None:
        arguments = ", ".join(f"{name}={_code(each)}" for name, each in call[1].items())
        return f"{_code(call[0])}({arguments})"
    if isinstance(value, partial):
        given = [*map(_code, (value.func, *value.args))]
        given += (f"{name}={_code(each)}" for name, each in value.keywords.items())
        return f"partial({', '.join(given)})"
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, np.generic):
        return repr(value.item())
    name = str(getattr(value, "__qualname__", repr(value)))
    # A local class or function appears under its last name, to be defined beside the code.
    said = name.rpartition("<locals>.")[2]
    return said if _is_expression(said) else "..."


def _parts(value: Any, short: bool) -> Iterator[Any]:
    """What the code of a value names: classes, functions, and objects that have no code.

    Args:
        value: any.
        short: whether the code leaves arguments out that are as they are by default.
    """
    if isinstance(value, Enum) or (isinstance(value, Streams) and value.seed is not None):
        yield type(value)
    elif isinstance(value, np.ndarray):
        yield np.array
    elif isinstance(value, partial):
        yield partial
        for each in (value.func, *value.args, *value.keywords.values()):
            yield from _parts(each, short)
    elif (call := _call_of(value, short=short)) is not None:
        yield call[0]
        for each in call[1].values():
            yield from _parts(each, short)
    else:
        yield value


def _importable(value: Any) -> bool:
    """Whether a fresh file can import it: no script's own, and nothing made inside a function."""
    found = sys.modules.get(getattr(value, "__module__", None) or "")
    name = getattr(value, "__qualname__", None)
    if not isinstance(name, str) or found is None or found.__name__ == "__main__":
        return False
    for part in name.split("."):
        found = getattr(found, part, None)
    return bool(found == value)


def _said(value: Any) -> str | None:
    """Text for the name of a value that cannot be imported; None for numbers and the like."""
    name = getattr(value, "__qualname__", None)
    if name is None:
        return None if _is_expression(repr(value)) else f"In place of ... put {value!r}."
    where = value.__module__
    try:
        where = f"{Path(sys.modules[where].__file__ or where).name}"
        where = f"{where}, line {getsourcelines(value)[1]}"
    except (AttributeError, KeyError, OSError, TypeError):
        pass  # from an interactive session, or not in Python
    what = _code(value)
    if what == "...":
        return f"In place of ... put {name} ({where})."
    return f"Define {what.partition('.')[0]} here, or import it: {name} ({where})."


def _is_expression(code: str) -> bool:
    try:
        compile(code, "", "eval")
    except SyntaxError:
        return False
    return True
