"""Interrupts of a command: Ctrl-C, termination, and hang-up of the terminal.

An interrupt is raised where it occurs, and the clean-up after it is not interrupted again. If it
would do harm at that place, or cannot be raised, it is raised a little later. (Little is imported
here, because the console script cannot handle interrupts before this import.)
"""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KILLED = 128
"""Added to the number of a signal that ended a process, to give its exit code, as shells do."""

_UNHANDLED = (signal.SIG_DFL, signal.default_int_handler)
_SOON = 0.01


class Interrupts:
    """Interrupts of a command, including those that a library has swallowed.

    Signals that other code handles, or that are ignored, are left alone.

    Args:
        whole: whether the process belongs to the command only; otherwise nothing is handled.
    """

    def __init__(self, *, whole: bool) -> None:
        self.numbers = [
            number for number in ENDINGS if whole and signal.getsignal(number) in _UNHANDLED
        ]
        """Signals that are handled."""
        self.heard: int | None = None
        self.said = False
        """Whether a message about it has been printed."""
        self.later: Callable[[Callable[[], None]], bool] = _never
        """Defers a call if an error would do harm now; returns whether it was deferred."""

    @property
    def code(self) -> int:
        """Exit code of the interrupted command."""
        return _KILLED + (self.heard or signal.SIGINT)

    def handle(self, handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
        """Set the handler of the signals, or None."""
        for number in self.numbers:
            signal.signal(number, handler)

    def leave(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal: end the process at once, whatever it is importing."""
        self.heard = self.heard or number
        try:
            if not self.said:
                os.write(2, b"secure-fedrec: interrupted\n")
        except OSError:
            pass
        finally:
            os._exit(self.code)

    def raised(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal: raise an interrupt, unless one is on its way."""
        error = sys.exception()
        while error is not None and not isinstance(error, KeyboardInterrupt):
            error = error.__context__
        if error is None:
            self.heard = number
            if not self.later(_interrupt):
                _interrupt()

    def unraised(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Repeat an interrupt that came where nothing can be raised."""
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(unraisable)
            return
        from threading import Timer  # noqa: PLC0415

        again = self.heard or signal.SIGINT
        try:
            Timer(_SOON, self._repeat, (again,)).start()
        except RuntimeError:  # the interpreter is ending
            self.leave(again, None)

    def _repeat(self, number: int) -> None:
        if not self.said:
            os.kill(os.getpid(), number)


def _never(_: Callable[[], None]) -> bool:
    return False


def _interrupt() -> None:
    raise KeyboardInterrupt
