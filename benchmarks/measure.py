"""Measuring on a noisy machine: interleaved timings, ratios of neighbours, peak memory."""

import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from math import inf
from statistics import median
from time import perf_counter, process_time

__all__ = ["interleave", "own_peak_gb", "progress", "ratio", "run_module"]

Timings = dict[str, list[float]]
"""CPU seconds per contender, one per repeat; equal positions were measured side by side."""

_RUSAGE_UNIT = 1 if sys.platform == "darwin" else 1024


def interleave(
    contenders: Mapping[str, Callable[[], object]],
    *,
    repeats: int,
    warm_up: int = 1,
    wall_budget: float = inf,
) -> Timings:
    """Time contenders in turn, A B A B, so that a slow minute hits all of them.

    What is measured is the CPU time of this process: it runs one thread, so that is its wall time
    on a machine that does nothing else.

    Args:
        contenders: what to call, by name.
        repeats: timed calls of each.
        warm_up: untimed calls of each, before.
        wall_budget: after so many wall seconds no further repeat begins; one is always made.

    Returns:
        CPU seconds of each call.
    """
    timings: Timings = {name: [] for name in contenders}
    begun = perf_counter()
    for turn in range(warm_up + repeats):
        if turn > warm_up and perf_counter() - begun > wall_budget:
            break
        for name, call in contenders.items():
            start = process_time()
            call()
            seconds = process_time() - start
            if turn >= warm_up:
                timings[name].append(seconds)
    return timings


def ratio(timings: Timings, over: str, under: str) -> float:
    """Median of the ratios of neighbouring measurements."""
    pairs = zip(timings[over], timings[under], strict=True)
    return median(above / below for above, below in pairs)


def own_peak_gb() -> float:
    """Peak resident memory of this process and its children so far, in 10^9 bytes.

    Children that ran one after the other count as the largest of them; the sum with the parent is
    an upper bound.
    """
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(which).ru_maxrss for which in who) * _RUSAGE_UNIT / 1e9


def run_module(module: str, arguments: Sequence[str]) -> str:
    """Run ``python -m module`` to its end and return what it printed.

    A process starts with the peak of the process it was forked from, so call this before loading
    anything large.

    Raises:
        subprocess.CalledProcessError: the module failed; its messages are on stderr.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return done.stdout


def progress(message: str) -> None:
    """Tell people on stderr what is going on."""
    print(f"benchmarks: {message}", file=sys.stderr, flush=True)
