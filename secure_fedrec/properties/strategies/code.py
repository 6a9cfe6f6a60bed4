"""What a strategy drew, as code that makes it again."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from inspect import signature
from typing import Any, Protocol

_Call = tuple[Callable[..., Any], Mapping[str, Any]]


class _Printer(Protocol):
    def text(self, words: str) -> None: ...
    def break_(self) -> None: ...


class Repeatable:
    """Prints as a call that makes it again; Hypothesis prints it so where a test fails."""

    __slots__ = ()

    def call(self) -> _Call:
        """What makes it again: a function, and arguments by name."""
        raise NotImplementedError

    @property
    def imports(self) -> str:
        """Lines that import what the call names."""
        names: dict[str, set[str]] = {}
        for module, name in _names(self):
            names.setdefault(module, set()).add(name)
        return "\n".join(
            f"from {module} import {', '.join(sorted(names[module]))}" for module in sorted(names)
        )

    @property
    def code(self) -> str:
        """The imports, and the call."""
        return f"{self.imports}\n\n{self!r}\n"

    def __repr__(self) -> str:
        function, arguments = _given(*self.call())
        lines = "".join(f"    {name}={_code(value)},\n" for name, value in arguments.items())
        return f"{function.__name__}(\n{lines})"

    def _repr_pretty_(self, printer: _Printer, _cycle: bool) -> None:
        for number, line in enumerate(repr(self).splitlines()):
            if number:
                printer.break_()
            printer.text(line)


def _call_of(value: Any) -> _Call | None:
    """The call that makes a value, if it is of something that has fields."""
    if isinstance(value, Repeatable):
        return _given(*value.call())
    if is_dataclass(value) and not isinstance(value, type):
        return _given(type(value), {each.name: getattr(value, each.name) for each in fields(value)})
    return None


def _given(function: Callable[..., Any], arguments: Mapping[str, Any]) -> _Call:
    """A call without arguments that are as they are by default."""
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
        return f"{call[0].__name__}({arguments})"
    return str(getattr(value, "__name__", repr(value)))


def _names(value: Any) -> Iterator[tuple[str, str]]:
    """Modules and names in the code of a value."""
    function, arguments = _call_of(value) or (value, {})
    # What is defined inside a function cannot be imported.
    if getattr(function, "__qualname__", ".").isidentifier():
        yield function.__module__, function.__name__
    for each in arguments.values():
        yield from _names(each)
