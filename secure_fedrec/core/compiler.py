"""The compiler of loops: imported at the first call, timed, and protected from interrupts.

Importing it takes longer than most commands need, so a loop is a ``Late`` until it is called, by
Python or by another loop that is being compiled.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache, cached_property, update_wrapper
from time import process_time
from typing import Any


class Late:
    """A function that compiled code may call, made at its first call.

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
    """Lets loops that are being compiled call ``Late`` functions."""
    from numba.core.registry import cpu_target  # noqa: PLC0415
    from numba.core.typing.typeof import typeof_impl  # noqa: PLC0415

    @typeof_impl.register(Late)
    def _(late: Late, _context: Any) -> Any:
        made, known = late.made, cpu_target.typing_context
        known.refresh()  # registers the type just made
        return known.resolve_value_type(made)


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


_AFTERWARDS: list[Callable[[], None]] = []


def after_compiling(act: Callable[[], None]) -> bool:
    """Have the main thread call something as soon as it has left the compiler.

    An exception that passes through the compiler, as one that a signal raises, may leave it with
    objects that it frees twice. Only the last such call is made, once.

    Args:
        act: may raise.

    Returns:
        Whether the calling thread, the main one, is in the compiler. If it is not, nothing is
        called, now or later, including earlier requests.
    """
    lock = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    if lock is None or not lock.is_locked():
        _AFTERWARDS.clear()
        return False
    awaited = bool(_AFTERWARDS)
    _AFTERWARDS[:] = [act]
    if not awaited:
        _await_compiler(lock)
    return True


def _await_compiler(lock: Any) -> None:
    from numba.core import event  # noqa: PLC0415

    class Listener(event.Listener):
        """Loops that are compiled for another one leave the compiler locked."""

        def on_start(self, _: Any) -> None:
            pass

        def on_end(self, _: Any) -> None:
            if threading.current_thread() is threading.main_thread() and not lock.is_locked():
                event.unregister("numba:compiler_lock", self)  # type: ignore[no-untyped-call]
                while _AFTERWARDS:  # another signal may have come meanwhile
                    _AFTERWARDS.pop()()

    event.register("numba:compiler_lock", Listener())  # type: ignore[no-untyped-call]
