"""The processors that this process may use."""

import os


def usable_cores() -> int:
    """How many there are for it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
