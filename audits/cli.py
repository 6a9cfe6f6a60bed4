"""The console script ``secure-fedrec``: imported first; handles interrupts and the last message.

The command line itself is ``audits.command_line``, which imports what the command needs. Imports
may take seconds, so none happens here before interrupts are handled: Ctrl-C at any moment from then
on, imports included, ends with one line and exit code 130; likewise if the process is terminated
(143), or the terminal hangs up (129).
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

from audits.interrupts import Interrupts

EXIT_USAGE, EXIT_INTERNAL = 2, 4
_INTERRUPTED = "secure-fedrec: interrupted"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: command line without the program name; None takes ``sys.argv``, and with it the
            whole process.

    Returns:
        The exit code.
    """
    interrupts = Interrupts(whole=arguments is None)
    interrupts.handle(interrupts.leave)
    if arguments is None:
        gc.disable()  # imports leave little garbage and many objects
        warnings.showwarning = _warn
        _open_streams()
    from audits.terminal import spoken_streams  # noqa: PLC0415 - after the handler

    with spoken_streams():
        return _main(arguments, interrupts)


def _main(arguments: Sequence[str] | None, interrupts: Interrupts) -> int:
    hint: Callable[[], str] = partial(str, _INTERRUPTED)
    try:
        if interrupts.numbers:  # an interrupt at exit must not change the exit code
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
        from secure_fedrec.core.compiler import after_compiling  # noqa: PLC0415

        if interrupts.numbers:
            sys.unraisablehook = interrupts.unraised
        interrupts.later = after_compiling
        hint = partial(command_line.interrupted, parsed, _INTERRUPTED)
        interrupts.handle(interrupts.raised)
        code = command_line.run(parsed)
        interrupts.handle(interrupts.leave)  # covers the interpreter's shutdown
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or interrupts.heard is not None:
            # A library may have replaced the interrupt by another error.
            return _interrupted(interrupts, hint)
        if not isinstance(error, Exception):
            raise
        import traceback  # noqa: PLC0415 - slower to import than an interrupt may take

        with contextlib.suppress(OSError):
            traceback.print_exc()
            plugins = sys.modules.get("audits.plugins")  # not imported: none is loaded
            if plugins is not None and (blamed := plugins.blamed(error)) is not None:
                print(f"secure-fedrec: {blamed}", file=sys.stderr)
                return EXIT_USAGE
            print("secure-fedrec: internal error; please report it", file=sys.stderr)
        return EXIT_INTERNAL
    # If a library swallowed an interrupt, its work may be incomplete.
    return code if interrupts.heard is None else _interrupted(interrupts, hint)


def _interrupted(interrupts: Interrupts, hint: Callable[[], str]) -> int:
    interrupts.handle(interrupts.leave)
    # After an interrupt inside ``exec``, as compilers use it, CPython ends `python -m` by SIGINT
    # whatever the exit code; another ``exec`` resets that.
    exec("")  # noqa: S102
    with contextlib.suppress(OSError):
        print(hint(), file=sys.stderr)
    interrupts.said = True
    return interrupts.code


def _open_streams() -> None:
    """Replace closed standard streams by the null device, and make output able to encode any name.

    Otherwise a file of the run could get the descriptor of a closed stream, and output for that
    stream.
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
    """Print a warning in one line, without its place in the code."""
    from audits.terminal import say  # noqa: PLC0415 - after the handler

    say(f"secure-fedrec: {' '.join(str(message).split())}")


if __name__ == "__main__":
    sys.exit(main())
