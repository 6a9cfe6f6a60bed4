"""A digest of everything that determines the machine code of a loop.

The code of a loop includes the loops that it calls and the constants that it names, in any module,
so all of them enter the digest. They are taken from the imported modules, not from files, which may
have been updated since.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, EnumType
from functools import cache, singledispatch
from hashlib import sha256
from pathlib import Path
from types import CodeType, EllipsisType, ModuleType, NoneType
from typing import Any, Final, TypeAlias

import numpy as np

from secure_fedrec.core.compiler import Late

_ROOT: Final = Path(__file__).parents[2]
_KNOWN: Final = frozenset(("builtins", "cmath", "math", "numba", "numpy", "operator", "typing"))
"""Packages whose functions are identified by name and version."""


def follows_from(loop: Callable[..., object]) -> str | None:
    """Digest of what determines the machine code of a loop; None if that cannot be determined.

    That is its bytecode, and that of all loops that it calls, and all that they name: constants,
    arrays, fields of tuples that they make. (What is given to a loop is part of the name of its
    code: ``fields_of``.) Functions of NumPy and of the compiler are identified by version; a loop
    that names anything else, such as an object or a module of this package, is compiled again in
    every process.
    """
    digest, called = sha256(np.__version__.encode()), [loop]
    for each in called:  # which grows
        function: Any = each
        named = {name: function.__globals__.get(name) for name in sorted(_names(function.__code__))}
        held = {name: cell.cell_contents for name, cell in _cells(function)}
        defaults = function.__defaults__, tuple((function.__kwdefaults__ or {}).items())
        try:
            digest.update(repr(_told(function.__code__, called)).encode())
            digest.update(repr(_told(defaults, called)).encode())
            for name, value in (*named.items(), *held.items()):
                digest.update(repr((name, _told(value, called))).encode())
                if value is None and name.startswith("secure_fedrec."):  # imported inside
                    digest.update(_source(_ROOT.joinpath(*name.split(".")).with_suffix(".py")))
        except _UntoldError:
            return None
    return digest.hexdigest()


class _UntoldError(Exception):
    """The effect of a value on machine code is unknown."""


_Called: TypeAlias = list[Callable[..., object]]
"""Loops whose code is part of that of another, each once."""


@singledispatch
def _told(value: Any, _: _Called) -> object:
    """The representation of a value in a digest: equal for values that compile to equal code.

    Args:
        value: a global of a loop, or a part of one.
        called: gets the loops that it calls.
    """
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    name = home if isinstance(value, ModuleType) else getattr(value, "__qualname__", None)
    if str(home).split(".")[0] not in _KNOWN or name is None:
        raise _UntoldError
    return home, name


@_told.register
def _(value: Late, called: _Called) -> object:
    if value.like not in called:
        called.append(value.like)
    return "loop", called.index(value.like)


@_told.register
def _(value: CodeType, called: _Called) -> object:
    parts = value.co_code, value.co_names, value.co_varnames, value.co_flags, value.co_argcount
    return *parts, value.co_exceptiontable, _told(value.co_consts, called)


@_told.register(int)
@_told.register(str)
@_told.register(bytes)
@_told.register(NoneType)
def _(value: Any, called: _Called) -> object:
    if isinstance(value, Enum):  # dispatch would take an IntEnum member for an integer
        return _told.dispatch(Enum)(value, called)
    return type(value).__name__, repr(value)


@_told.register
def _(value: float | complex, _: _Called) -> object:  # NaNs with different bits are told apart
    return type(value).__name__, struct.pack("<2d", value.real, value.imag)


@_told.register
def _(value: slice | range | EllipsisType | np.ufunc, _: _Called) -> object:
    return type(value).__name__, repr(value)


@_told.register
def _(value: tuple, called: _Called) -> object:  # type: ignore[type-arg]
    held = [_told(each, called) for each in value]
    return type(value).__name__, getattr(value, "_fields", ()), held


@_told.register
def _(value: frozenset, called: _Called) -> object:  # type: ignore[type-arg]
    return sorted(repr(_told(each, called)) for each in value)


@_told.register
def _(value: np.ndarray | np.generic, _: _Called) -> object:
    if value.dtype.hasobject:
        raise _UntoldError
    layout = str(value.dtype), value.shape, value.strides
    return type(value).__name__, layout, value.tobytes()


@_told.register
def _(value: np.dtype, _: _Called) -> object:
    return type(value).__name__, str(value)


@_told.register
def _(value: type, called: _Called) -> object:
    if issubclass(value, tuple) and hasattr(value, "_fields"):
        return value.__qualname__, value._fields
    return _told.dispatch(object)(value, called)


@_told.register
def _(value: EnumType, called: _Called) -> object:
    members: dict[str, Any] = dict(value.__members__)  # including aliases
    return value.__qualname__, [(each, _told(members[each], called)) for each in members]


@_told.register
def _(value: Enum, called: _Called) -> object:
    return type(value).__qualname__, value.name, _told(value.value, called)


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _cells(function: Any) -> Iterator[tuple[str, Any]]:
    return zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)


def fields_of(kinds: Iterable[Any]) -> tuple[Any, ...]:
    """Names of the fields of tuples in the compiler's types, which its own names leave out."""
    from numba.core.types import BaseTuple, Type  # noqa: PLC0415

    told = []
    for kind in kinds:
        parts = [each for value in vars(kind).values() for each in _several(value)]
        fields = getattr(kind, "fields", ()) if isinstance(kind, BaseTuple) else ()
        told.append((fields, fields_of(each for each in parts if isinstance(each, Type))))
    return tuple(told)


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@cache
def _source(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # in an archive, for example, where files do not change
        return b""
