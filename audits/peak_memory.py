"""Memory of this process and of those that it shares its work out to, as the system counts it."""

import os
import resource
import sys
from collections.abc import Iterable
from pathlib import Path
from time import monotonic, thread_time

_KIB = 1024
LOOK_EVERY, _LOOK_SHARE = 0.5, 50
"""From one look to the next: seconds, at least, and times what the last one cost, as the system
goes through every page."""

_LARGEST_TOGETHER: dict[int, int] = {}
"""By process: one that is forked begins with what its parent knew."""

_due = 0.0
"""When the next look may be, of ``monotonic``."""


def peak_bytes() -> int:
    """The most that this process has held so far, or it and its workers together.

    What forked processes share counts once. Workers are looked at every half second, more seldom
    the more they hold, so that a peak of a moment may be missed (``look_at``).
    """
    return max(_own_peak(), _LARGEST_TOGETHER.get(os.getpid(), 0))


def look_at(workers: Iterable[int]) -> None:
    """Take note of what this process and its workers, by number, hold now.

    Nothing is done where the last look was a moment ago, whoever the workers were then.
    """
    global _due  # noqa: PLW0603 - of the process, like what was found
    if monotonic() < _due:
        return
    begun, ours = thread_time(), os.getpid()
    held = sum(_held(str(each)) for each in ("self", *workers))
    _LARGEST_TOGETHER[ours] = max(_LARGEST_TOGETHER.get(ours, 0), held)
    _due = monotonic() + max(LOOK_EVERY, _LOOK_SHARE * (thread_time() - begun))


def _held(process: str) -> int:
    share = _figure(f"{process}/smaps_rollup", "Pss")
    if share is None:  # an old system: what is shared counts for everybody
        share = _figure(f"{process}/status", "VmRSS")
    return share or 0


def _own_peak() -> int:
    # Beside it there is ``ru_maxrss``, in which Linux counts what a process was before it ran this
    # program: the one that started it, with all that it held.
    found = _figure("self/status", "VmHWM")
    if found is not None:
        return found
    unit = 1 if sys.platform == "darwin" else _KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _figure(name: str, key: str) -> int | None:
    """Bytes of a line "KEY: N kB" below /proc; None where there is none, or no such process."""
    try:
        lines = Path("/proc", name).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    found = (line.split()[1] for line in lines if line.startswith(f"{key}:"))
    return next((int(kib) * _KIB for kib in found), None)
