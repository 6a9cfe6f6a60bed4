"""The console script ``secure-fedrec``: the first thing imported, and the last to speak.

The command line itself is ``audits.command_line``, which imports what the command needs. That may
take seconds, so nothing is imported here that an interrupt could hit before it is taken care of:
Ctrl-C at any moment, imports included, ends with one line and exit code 130.
"""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType

from audits.terminal import spoken_streams

EXIT_INTERNAL, EXIT_INTERRUPTED = 4, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: command line without the program name; None takes ``sys.argv``, and with it the
            whole process.

    Returns:
        The exit code.
    """
    if arguments is None:
        _open_streams()
    with spoken_streams():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    interrupts = _Interrupts()
    ours = arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    hint: Callable[[], str] = str
    try:
        if ours:
            signal.signal(signal.SIGINT, _leave)
        from audits import command_line  # noqa: PLC0415 - after the handler

        parsed = command_line.parse(sys.argv[1:] if arguments is None else arguments)
        command_line.load(parsed)
        if arguments is None:
            from secure_fedrec.core.allocator import reuse_freed_memory  # noqa: PLC0415

            reuse_freed_memory()
        if ours:
            sys.unraisablehook = interrupts.unraised
            signal.signal(signal.SIGINT, interrupts.raised)
        hint = partial(command_line.resumption, parsed)
        code = command_line.run(parsed)
        if ours:
            signal.signal(signal.SIGINT, _leave)  # the interpreter takes a while to end
        return code
    except KeyboardInterrupt:
        return _interrupted(hint, ours=ours)
    except Exception:
        if interrupts.seen:  # a library has made another error of it
            return _interrupted(hint, ours=ours)
        import traceback  # noqa: PLC0415 - slower to import than an interrupt may take

        with contextlib.suppress(OSError):
            traceback.print_exc()
            print("secure-fedrec: internal error; please report it", file=sys.stderr)
        return EXIT_INTERNAL


class _Interrupts:
    """Interrupts of a running command, those that a library has swallowed included."""

    def __init__(self) -> None:
        self.seen = False

    def raised(self, _signal: int, _frame: FrameType | None) -> None:
        """Handle the signal."""
        self.seen = True
        raise KeyboardInterrupt

    def unraised(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """End the process on an interrupt that came where nothing can be raised.

        It is as safe as a kill, which every file of a run withstands.
        """
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            _leave(signal.SIGINT, None)
        else:
            sys.__unraisablehook__(unraisable)


def _interrupted(hint: Callable[[], str], *, ours: bool) -> int:
    if ours:
        signal.signal(signal.SIGINT, _leave)
    with contextlib.suppress(OSError):
        print(f"secure-fedrec: interrupted{hint()}", file=sys.stderr)
    return EXIT_INTERRUPTED


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


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """End the process at once, whatever it is importing."""
    with contextlib.suppress(OSError):
        os.write(2, b"secure-fedrec: interrupted\n")
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
