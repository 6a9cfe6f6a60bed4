"""Memory of this process and of those that it shares its work out to, as the system counts it."""

import os
import resource
import sys
from collections.abc import Iterable
from pathlib import Path

_KIB = 1024
_LARGEST_TOGETHER: dict[int, int] = {}
"""By process: one that is forked begins with what its parent knew."""


def peak_bytes() -> int:
    """The most that this process has held so far, or it and its workers together.

    What forked processes share counts once. Workers are looked at every now and then (``look_at``),
    the more seldom the more they hold, so that a peak of a moment may be missed.
    """
    return max(_own_peak(), _LARGEST_TOGETHER.get(os.getpid(), 0))


def look_at(workers: Iterable[int]) -> None:
    """Take note of what this process and its workers, by number, hold now."""
    shares = [_figure(f"{each}/smaps_rollup", "Pss") for each in ("self", *workers)]
    held, ours = sum(share or 0 for share in shares), os.getpid()
    _LARGEST_TOGETHER[ours] = max(_LARGEST_TOGETHER.get(ours, 0), held)


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
