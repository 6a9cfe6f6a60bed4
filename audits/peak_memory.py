"""Memory of this process and of its workers, as the system counts it."""

import os
import resource
import sys
from collections.abc import Iterable
from pathlib import Path
from time import monotonic, thread_time

_KIB = 1024
LOOK_EVERY, _LOOK_SHARE = 0.5, 50
"""Least time between two measurements: in seconds, and relative to the cost of the last one, in
which the system reads every page."""

_LARGEST_TOGETHER: dict[int, int] = {}
"""Largest memory of all processes, by process id, since a forked process inherits the values."""

_due = 0.0
"""Time of ``monotonic`` from which memory may be read again."""


def peak_bytes() -> int:
    """The largest memory of this process so far, or of the process and its workers together.

    Memory that forked processes share counts once. The memory of workers is read every half second,
    less often the more they hold, so a short peak may be missed (``look_at``).
    """
    return max(_own_peak(), _LARGEST_TOGETHER.get(os.getpid(), 0))


def look_at(workers: Iterable[int]) -> None:
    """Note the current memory of this process and its workers, given by process id.

    Does nothing if memory was read a moment ago, even if the workers have changed.
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
    if share is None:  # old systems: shared memory counts in full for each process
        share = _figure(f"{process}/status", "VmRSS")
    return share or 0


def _own_peak() -> int:
    # Not ``ru_maxrss``: on Linux it includes the process before ``exec``, a copy of its parent.
    found = _figure("self/status", "VmHWM")
    if found is not None:
        return found
    unit = 1 if sys.platform == "darwin" else _KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _figure(name: str, key: str) -> int | None:
    """Bytes of a line "KEY: N kB" below /proc; None if there is no such line or process."""
    try:
        lines = Path("/proc", name).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    found = (line.split()[1] for line in lines if line.startswith(f"{key}:"))
    return next((int(kib) * _KIB for kib in found), None)
