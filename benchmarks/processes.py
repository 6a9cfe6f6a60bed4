"""What a command takes with all the processes that it starts."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

_TOLD = 10
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a command took.

    Args:
        seconds: by the clock.
        cpu_seconds: on processors, user and system, of all its processes.
        peak_gb: most resident memory of all of them at one moment, in 10^9 bytes: looked at once a
            second by default, a shared page counts once. Of the largest of them alone where the
            system does not tell.
        code: its exit status; None while it runs.
    """

    seconds: float
    cpu_seconds: float
    peak_gb: float
    code: int | None


def metered(command: Sequence[str], out: Path, *, cwd: Path, every: float = 1.0) -> Iterator[Taken]:
    """Run a command, and say now and then, and at its end, what it has taken.

    Args:
        command: the program and its arguments; its stderr is ours.
        out: file for what it prints.
        cwd: folder that it runs in.
        every: seconds between two looks; every tenth is told.
    """
    begun, peak = perf_counter(), 0.0
    with out.open("wb") as printed:
        child = subprocess.Popen(command, cwd=cwd, stdout=printed)  # noqa: S603
    try:
        looked = 0
        while True:
            ended, status, used = os.wait4(child.pid, os.WNOHANG)
            if ended:
                break
            family = _family(child.pid)
            peak = max(peak, sum(map(_resident, family)) / 1e9)
            if looked % _TOLD == 0:
                spent = sum(map(_cpu_seconds, family))
                yield Taken(
                    seconds=perf_counter() - begun, cpu_seconds=spent, peak_gb=peak, code=None
                )
            looked += 1
            sleep(every)
        child.returncode = os.waitstatus_to_exitcode(status)
    finally:
        if child.returncode is None:
            child.terminate()
            child.wait()
    yield Taken(
        seconds=perf_counter() - begun,
        cpu_seconds=used.ru_utime + used.ru_stime,
        # A process begins with the peak of the one it was forked from: the last resort.
        peak_gb=peak or used.ru_maxrss * 1024 / 1e9,
        code=child.returncode,
    )


def _family(process: int) -> list[int]:
    """A process and all that come from it; the process alone where the system does not tell."""
    found = [process]
    for each in found:
        for listed in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += map(int, listed.read_text(encoding="ascii").split())
            except OSError:  # it ended meanwhile
                continue
    return found


def _resident(process: int) -> int:
    """Bytes of a process, of shared pages its part; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _cpu_seconds(process: int) -> float:
    """Of a process and of those of its children that have ended."""
    try:
        told = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    return sum(map(int, told.rpartition(")")[2].split()[11:15])) / _TICKS
