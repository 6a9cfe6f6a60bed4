"""The console script ``secure-fedrec``: the first thing imported, and the last to speak.

The command line itself is ``audits.command_line``, which imports what the command needs. That may
take seconds, so nothing is imported here that an interrupt could hit before it is taken care of:
Ctrl-C at any moment, imports included, ends with one line and exit code 130; so does being
terminated (143), or left by the terminal (129).
"""

import atexit
import contextlib
import gc
import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType

from audits.terminal import say, spoken_streams

EXIT_INTERNAL = 4
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_UNHANDLED = (signal.SIG_DFL, signal.default_int_handler)
_KILLED = 128
"""What shells add to the number of a signal that ended a process, for its exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: command line without the program name; None takes ``sys.argv``, and with it the
            whole process.

    Returns:
        The exit code.
    """
    if arguments is None:
        gc.disable()  # imports leave no garbage, only much to look through
        warnings.showwarning = _warn
        _open_streams()
    with spoken_streams():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    # What somebody else handles, or has made this process deaf to, stays so.
    whole = _ENDINGS if arguments is None else ()
    ours = [number for number in whole if signal.getsignal(number) in _UNHANDLED]
    interrupts = _Interrupts(ours)
    hint: Callable[[], str] = str
    try:
        interrupts.handle(_leave)
        if ours:  # of what is done, and its exit code, the last third of a second takes nothing
            atexit.register(interrupts.handle, signal.SIG_IGN)
        from audits import command_line  # noqa: PLC0415 - after the handler

        parsed = command_line.parse(sys.argv[1:] if arguments is None else arguments)
        command_line.load(parsed)
        if arguments is None:
            from secure_fedrec.core import allocator  # noqa: PLC0415

            serves = getattr(parsed, "serves", False)
            allocator.reuse_freed_memory(allocator.KEPT_BY_SERVERS if serves else allocator.KEPT)
            gc.freeze()
            gc.enable()
        if ours:
            sys.unraisablehook = interrupts.unraised
        from secure_fedrec.core.compiler import after_compiling  # noqa: PLC0415

        interrupts.later = after_compiling
        interrupts.handle(interrupts.raised)
        hint = partial(command_line.resumption, parsed)
        code = command_line.run(parsed)
        interrupts.handle(_leave)  # the interpreter takes a while to end
        return code
    except KeyboardInterrupt:
        return _interrupted(interrupts, hint)
    except Exception:
        if interrupts.seen:  # a library has made another error of it
            return _interrupted(interrupts, hint)
        import traceback  # noqa: PLC0415 - slower to import than an interrupt may take

        with contextlib.suppress(OSError):
            traceback.print_exc()
            print("secure-fedrec: internal error; please report it", file=sys.stderr)
        return EXIT_INTERNAL


class _Interrupts:
    """Interrupts of a running command, those that a library has swallowed included.

    Args:
        numbers: signals that are taken care of.
    """

    def __init__(self, numbers: Sequence[int] = ()) -> None:
        self._numbers = numbers
        self.seen: int | None = None
        self.later: Callable[[Callable[[], None]], bool] = _never
        """Has something done later, where an error would do harm now; tells whether it will be."""

    def handle(self, handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
        """Let a function handle them, or nobody."""
        for number in self._numbers:
            signal.signal(number, handler)

    def raised(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        self.seen = number
        if not self.later(_interrupt):
            _interrupt()

    def unraised(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """End the process on an interrupt that came where nothing can be raised.

        It is as safe as a kill, which every file of a run withstands.
        """
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            _leave(self.seen or signal.SIGINT, None)
        else:
            sys.__unraisablehook__(unraisable)


def _never(_: Callable[[], None]) -> bool:
    return False


def _interrupt() -> None:
    raise KeyboardInterrupt


def _interrupted(interrupts: _Interrupts, hint: Callable[[], str]) -> int:
    interrupts.handle(_leave)
    # An interrupt that passed through a string of code, as compilers make them, would have CPython
    # end `python -m` by SIGINT whatever the exit code; it forgets that with the next string.
    exec("")  # noqa: S102
    with contextlib.suppress(OSError):
        print(f"secure-fedrec: interrupted{hint()}", file=sys.stderr)
    return _KILLED + (interrupts.seen or signal.SIGINT)


def _open_streams() -> None:
    """Put the null device where a standard stream is closed, and let output hold any name.

    A file of the run would take the number of a closed stream, and what others write there.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does by itself


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Say a warning in a line: where in the code it arose helps no user."""
    say(f"secure-fedrec: {' '.join(str(message).split())}")


def _leave(number: int, _frame: FrameType | None) -> None:
    """End the process at once, whatever it is importing."""
    with contextlib.suppress(OSError):
        os.write(2, b"secure-fedrec: interrupted\n")
    os._exit(_KILLED + number)


if __name__ == "__main__":
    sys.exit(main())
