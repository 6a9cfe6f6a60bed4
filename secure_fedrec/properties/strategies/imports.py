"""Strategies whose values are printed with the lines that import what is printed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from hypothesis import note
from hypothesis import strategies as st

from secure_fedrec.properties.strategies.code import imports_of

_P = ParamSpec("_P")
_T = TypeVar("_T")

_INSIDE: ContextVar[bool] = ContextVar("_INSIDE", default=False)
"""Whether the drawn value is a part of something that is printed as a whole."""


@contextmanager
def parts() -> Iterator[None]:
    """Values drawn here are not printed by themselves."""
    token = _INSIDE.set(True)
    try:
        yield
    finally:
        _INSIDE.reset(token)


def tell(*values: Any) -> None:
    """Print the imports of values with the example that fails, unless they are parts."""
    lines = imports_of(*values)
    if lines and not _INSIDE.get():
        note(lines)


def telling(
    make: Callable[Concatenate[st.DrawFn, _P], _T],
) -> Callable[Concatenate[st.DrawFn, _P], _T]:
    """Decorate a composite strategy: its values are printed with their imports."""

    @wraps(make)
    def made(draw: st.DrawFn, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with parts():
            value = make(draw, *args, **kwargs)
        tell(value)
        return value

    return made


def told(
    *instead: Any,
) -> Callable[[Callable[_P, st.SearchStrategy[_T]]], Callable[_P, st.SearchStrategy[_T]]]:
    """Decorate a function that makes another strategy: its values are printed so, too.

    Args:
        instead: text printed in place of the names in the code of a value.
    """

    def decorate(
        make: Callable[_P, st.SearchStrategy[_T]],
    ) -> Callable[_P, st.SearchStrategy[_T]]:
        @wraps(make)
        def made(*args: _P.args, **kwargs: _P.kwargs) -> st.SearchStrategy[_T]:
            return _told(make(*args, **kwargs), instead)

        return made

    return decorate


@st.composite
def _told(draw: st.DrawFn, strategy: st.SearchStrategy[_T], instead: tuple[Any, ...]) -> _T:
    with parts():
        value = draw(strategy)
    tell(*(instead or (value,)))
    return value
