"""Machine code of loops: made when it is first wanted, kept on disk where that is possible.

Importing the compiler takes longer than most commands need, so a loop is a ``Late`` until it is
called, by Python or by another loop that is being compiled.

What was compiled lies beside the source, else in the user's cache folder; where neither can be
written, as in a read-only image without a home, in a folder of this user's own among the temporary
files. Code that is loaded is run: a folder that anybody else may write is never used.
"""

import contextlib
import mmap
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache, cached_property, update_wrapper
from pathlib import Path
from time import process_time
from typing import Any


class Late:
    """Something that compiled code may call, made when it is first called.

    Args:
        like: a function with its name and its docstring.
        make: makes it: a compiled function, or what the compiler has for a part of one.
    """

    def __init__(self, like: Callable[..., object], make: Callable[[], Any]) -> None:
        update_wrapper(self, like)
        self._make = make

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

    with contextlib.suppress(RuntimeError):  # the compiler finds no folder to write
        return _forgiving(njit(cache=True, nogil=True)(loop))
    if folder := _own_folder():
        config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
        return _forgiving(njit(cache=True, nogil=True)(loop))
    return njit(nogil=True)(loop)


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


def _forgiving(compiled: Any) -> Any:
    """A compiled loop that does without a cache that cannot be written, or read."""
    kept = compiled._cache
    save, load = kept.save_overload, kept.load_overload

    def save_overload(signature: Any, data: Any) -> None:
        try:
            save(signature, data)
        except Exception as refused:
            _tell_unused(kept.cache_path, refused)

    def load_overload(signature: Any, context: Any) -> Any:
        try:
            return load(signature, context)
        except OSError as refused:
            _tell_unused(kept.cache_path, refused)
        except Exception:
            with contextlib.suppress(OSError):
                kept.flush()  # so that it is written anew
        return None

    kept.save_overload, kept.load_overload = save_overload, load_overload
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
