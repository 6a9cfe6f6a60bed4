"""Text for a terminal, without control characters from files or configurations.

Reasons, names and paths come from other sources. The streams of the console script are wrapped
here, so that calls of ``print`` need not handle it.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from shutil import get_terminal_size
from threading import RLock
from typing import Any, Final

_CONTROLS: Final = (
    *(each for each in range(0x20) if chr(each) not in "\t\n\r"),
    *range(0x7F, 0xA0),
    *(0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
)
"""Escapes, and characters that change the direction of a line or end it."""

_SHOWN: Final = {each: ascii(chr(each))[1:-1] for each in _CONTROLS}


class Spoken:
    r"""A text stream that shows control characters as text (``\x1b``).

    A carriage return is passed on only at the start of a text, where progress bars write it; within
    a line it would overwrite the line.

    Args:
        stream: the stream that is written to; other calls are forwarded to it unchanged.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text; the number of its characters, as any stream."""
        shown = text.translate(_SHOWN)
        self._stream.write(shown[:1] + shown[1:].replace("\r", "\\r"))
        return len(text)


@contextmanager
def spoken_streams() -> Iterator[None]:
    """Wrap standard output and standard error."""
    out: Any = Spoken(sys.stdout)
    err: Any = Spoken(sys.stderr)
    with redirect_stdout(out), redirect_stderr(err):
        yield


def print_json(value: object) -> None:
    """Print what a command found, for machines."""
    print(json.dumps(value, indent=2))


_LEFT: Final[list[bool]] = []
"""Whether the bars belong to another process."""


def say(line: str) -> None:
    """Print a line on standard error, above the progress bars that are shown there."""
    bars, text = _bars(), f"{line}\n"
    above = nullcontext() if bars is None or _LEFT else bars.external_write_mode(sys.stderr)
    if bars is not None and _LEFT and not all(bar.disable for bar in list(bars._instances)):
        # Written over the bar in one call; the bar is redrawn by its owner.
        text = f"\r{line.ljust(get_terminal_size().columns - 1)}\n"
    with suppress(OSError), above:
        sys.stderr.write(text)


def leave_bars() -> None:
    """Leave the bars to the process that this one was forked from.

    The processes share a lock. If a worker were killed while it holds the lock, all others would
    wait for ever.
    """
    _LEFT.append(True)
    if (bars := _bars()) is not None:
        bars.set_lock(RLock())


def _bars() -> Any:
    return getattr(sys.modules.get("tqdm"), "tqdm", None)  # not there yet while tqdm is imported
