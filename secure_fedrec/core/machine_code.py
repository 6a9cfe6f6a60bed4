"""Machine code of loops: made when it is first wanted, kept on disk where that is possible.

Importing the compiler takes longer than most commands need, so a loop is a ``Late`` until it is
called, by Python or by another loop that is being compiled.

What was compiled lies beside the source, else in the user's cache folder; where neither can be
written, as in a read-only image without a home, in a folder of this user's own among the temporary
files. Code that is loaded is run: a folder that anybody else may write is never used.

The compiler takes its cache of a loop for good as long as the loop's own file is as it was. But the
code of a loop holds that of the loops it calls and the constants it names, wherever these stand, so
that all of them are asked here: after an update, old code would give old bits without a word. What
this process has imported is asked, not the files, which may have been updated since.
"""

import contextlib
import mmap
import os
import stat
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, EnumType
from functools import cache, cached_property, singledispatch, update_wrapper
from glob import escape
from hashlib import sha256
from pathlib import Path
from time import process_time
from types import CodeType, EllipsisType, ModuleType, NoneType
from typing import Any, Final, TypeAlias

import numpy as np

_ROOT: Final = Path(__file__).parents[2]
_KNOWN: Final = frozenset(("builtins", "cmath", "math", "numba", "numpy", "operator", "typing"))
"""Packages whose functions are what their names and versions say."""


class Late:
    """Something that compiled code may call, made when it is first called.

    Args:
        like: a function with its name and its docstring.
        make: makes it: a compiled function, or what the compiler has for a part of one.
    """

    def __init__(self, like: Callable[..., object], make: Callable[[], Any]) -> None:
        update_wrapper(self, like)
        self.like, self._make = like, make

    @cached_property
    def made(self) -> Any:
        """What it stands for."""
        _teach_compiler()
        return self._make()

    def __call__(self, *arguments: Any) -> Any:
        """Run it."""
        return self.made(*arguments)


@cache
def _teach_compiler() -> None:
    """Let loops that are being compiled call what is made late."""
    from numba.core.registry import cpu_target  # noqa: PLC0415
    from numba.core.typing.typeof import typeof_impl  # noqa: PLC0415

    @typeof_impl.register(Late)
    def _(late: Late, _context: Any) -> Any:
        made, known = late.made, cpu_target.typing_context
        known.refresh()  # what has just been made
        return known.resolve_value_type(made)


def compile_cached(loop: Callable[..., object]) -> Any:
    """Hand a loop to the compiler, with a cache on disk where one can be written.

    Args:
        loop: in what the compiler knows of Python and NumPy; other threads run meanwhile.
    """
    from numba import njit  # noqa: PLC0415
    from numba.core import config  # noqa: PLC0415

    if (stamp := follows_from(loop)) is not None:
        with contextlib.suppress(RuntimeError):  # the compiler finds no folder to write
            return _forgiving(njit(cache=True, nogil=True)(loop), stamp)
        if folder := _own_folder():
            config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
            with contextlib.suppress(RuntimeError):  # nor the loop's file
                return _forgiving(njit(cache=True, nogil=True)(loop), stamp)
    return njit(nogil=True)(loop)


def follows_from(loop: Callable[..., object]) -> str | None:
    """Digest of what the machine code of a loop follows from; None where that cannot be told.

    That is its bytecode, and that of all loops that it calls, and all that they name: constants,
    arrays, fields of tuples that they make. (What is given to a loop is part of the name of its
    code: ``_fields``.) Of other packages it takes NumPy's and the compiler's functions for what
    their versions say; a loop that names anything else, as an object or a module of this package,
    is compiled anew in every process.
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
    """Nothing is known that a value's part in machine code follows from."""


_Called: TypeAlias = list[Callable[..., object]]
"""Loops whose code is part of that of another, each once."""


@singledispatch
def _told(value: Any, _: _Called) -> object:
    """What stands for a value in a digest: equal for values that compile to equal code.

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
    if isinstance(value, Enum):  # an integer before it is a member, to Python
        return _told.dispatch(Enum)(value, called)
    return type(value).__name__, repr(value)


@_told.register
def _(value: float | complex, _: _Called) -> object:  # not all that are none look alike
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
    members: dict[str, Any] = dict(value.__members__)  # other names of one included
    return value.__qualname__, [(each, _told(members[each], called)) for each in members]


@_told.register
def _(value: Enum, called: _Called) -> object:
    return type(value).__qualname__, value.name, _told(value.value, called)


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _cells(function: Any) -> Iterator[tuple[str, Any]]:
    return zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)


def _fields(kinds: Iterable[Any]) -> tuple[Any, ...]:
    """Names of the fields of tuples in the compiler's types, which its own names leave out."""
    from numba.core.types import BaseTuple, Type  # noqa: PLC0415

    told = []
    for kind in kinds:
        parts = [each for value in vars(kind).values() for each in _several(value)]
        fields = getattr(kind, "fields", ()) if isinstance(kind, BaseTuple) else ()
        told.append((fields, _fields(each for each in parts if isinstance(each, Type))))
    return tuple(told)


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@cache
def _source(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # of an archive, say: it is as its release
        return b""


@contextlib.contextmanager
def clock_without_compiling() -> Iterator[Callable[[], float]]:
    """A clock of this process's CPU seconds, which stands still while loops are compiled."""
    from numba.core import event  # noqa: PLC0415

    class Listener(event.Listener):
        """One loop that is compiled may compile others."""

        spent, depth, began = 0.0, 0, 0.0

        def on_start(self, event: Any) -> None:
            if not self.depth:
                self.began = process_time()
            self.depth += 1

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if not self.depth:
                self.spent += process_time() - self.began

    listener = Listener()
    event.register("numba:compile", listener)  # type: ignore[no-untyped-call]
    try:
        yield lambda: process_time() - listener.spent
    finally:
        event.unregister("numba:compile", listener)  # type: ignore[no-untyped-call]


def _cache_file(kept: Any, stamp: str) -> Any:
    """Files of a loop's code: of other names for another stamp, and for every signature.

    The compiler numbers its files, so that two processes, or one that is killed, could put the code
    of one stamp or signature under the name of another. Code is written before it is listed.
    """
    from numba import __version__  # noqa: PLC0415
    from numba.core.caching import IndexDataCacheFile  # noqa: PLC0415

    class CacheFile(IndexDataCacheFile):
        """Its parts are the compiler's."""

        def save(self, key: Any, data: Any) -> None:
            files: Any = self
            name = files._data_name(int(sha256(repr(key).encode()).hexdigest()[:16], 16))
            files._save_data(name, data)
            listed = files._load_index()
            if listed.get(key) != name:
                files._save_index({**listed, key: name})
            for other in folder.glob(f"{escape(base)}-*.nb?"):
                if not other.name.startswith(f"{own}."):
                    other.unlink(missing_ok=True)

    folder, base = Path(kept.cache_path), kept._impl.filename_base
    own = f"{base}-{sha256(f'{__version__} {stamp}'.encode()).hexdigest()[:16]}"
    made: Any = CacheFile
    return made(cache_path=kept.cache_path, filename_base=own, source_stamp=stamp)


def _forgiving(compiled: Any, stamp: str) -> Any:
    """A compiled loop that does without a cache that cannot be written, or read.

    Args:
        compiled: the loop.
        stamp: what its code follows from.
    """
    kept, loop = compiled._cache, compiled.py_func
    kept._cache_file = _cache_file(kept, stamp)
    save, load, index_key = kept.save_overload, kept.load_overload, kept._index_key

    def with_fields(signature: Any, codegen: Any) -> tuple[Any, ...]:
        fields = _fields(getattr(signature, "args", signature))
        return *index_key(signature, codegen), fields

    def save_overload(signature: Any, data: Any) -> None:
        try:
            if follows_from(loop) == stamp:  # no array was written to since
                save(signature, data)
        except Exception as refused:
            _tell_unused(kept.cache_path, refused)

    def load_overload(signature: Any, context: Any) -> Any:
        try:
            return load(signature, context) if follows_from(loop) == stamp else None
        except OSError as refused:
            _tell_unused(kept.cache_path, refused)
        except Exception:
            with contextlib.suppress(OSError):
                kept.flush()  # so that it is written anew
        return None

    kept.save_overload, kept.load_overload = save_overload, load_overload
    kept._index_key = with_fields
    return compiled


def _tell_unused(folder: str | Path, refused: Exception) -> None:
    _warn_once(f"{folder}: {getattr(refused, 'strerror', None) or refused}")


_TOLD = mmap.mmap(-1, 1)
"""Whether it has been said, in this process or in one that has been forked from it since."""


def _warn_once(problem: str) -> None:
    """Say what is wrong with the first folder that something is: all have the same remedy."""
    if _TOLD[0]:
        return
    _TOLD[0] = True
    told = f"{problem}; loops are compiled anew in every process: name a folder that"
    warnings.warn(f"{told} can be written in NUMBA_CACHE_DIR", RuntimeWarning, stacklevel=2)


@cache
def _own_folder() -> Path | None:
    """A folder of this user's alone among the temporary files; None where there cannot be one."""
    folder = Path(tempfile.gettempdir()) / f"secure-fedrec-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as refused:
        problem: str = refused.strerror or str(refused)
    else:
        foreign = found.st_uid != os.getuid() or found.st_mode & 0o077
        if stat.S_ISDIR(found.st_mode) and not foreign:
            return folder
        problem = "others may write it"
    _warn_once(f"{folder}: {problem}")
    return None
