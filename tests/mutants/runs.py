"""Tests on copies of the project, each run in a process of its own.

Processes are forked from one that has loaded the libraries, and nothing of the project: importing
those takes longer than most tests.
"""

import contextlib
import gc
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path

__all__ = ["Run", "Runner"]

_LIBRARIES = (
    *("numpy", "scipy.stats", "numba", "cryptography.hazmat.primitives.ciphers.aead", "hypothesis"),
    *("pytest", "anyio.pytest_plugin", "torch", "torch._dynamo", "opacus", "sklearn.cluster"),
    *("sklearn.ensemble", "matplotlib.figure"),
)
_NOT_COPIED = shutil.ignore_patterns(".*", "out", "runs", "build", "dist", "*.egg-info")
_PYTEST = (
    *("-x", "-q", "--tb=short", "-rfE", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of libraries that are loaded already
)
_FAILED = re.compile(r"^(?:FAILED|ERROR) \S+::", re.MULTILINE)  # without "::" nothing was collected


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """Tests, what stands in a file meanwhile, and how it ended (no exit code: out of time)."""

    tests: tuple[str, ...]
    file: str = ""
    text: str = ""
    code: int | None = None
    output: str = ""

    @property
    def instead(self) -> str:
        """What the tests did instead of failing; empty if one failed."""
        if self.code is None:
            return "ran out of time"
        last = " ".join(self.output.strip().splitlines()[-1:])
        return "" if _FAILED.search(self.output) else f"did not fail: {last}"


class Runner:
    """Copies of a project, one for each of the runs that there are at a time."""

    def __init__(self, root: Path, scratch: Path, *, jobs: int) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"
        for library in (
            _LIBRARIES if (root / "secure_fedrec" / "core" / "compiled.py").exists() else ()
        ):
            __import__(library)
        gc.collect()
        gc.freeze()  # pytest collects garbage several times, and all of this is none
        self._root = root
        # Times are kept, so that caches beside the sources stay valid.
        self._copies = [
            Path(shutil.copytree(root, scratch / str(number), ignore=_NOT_COPIED))
            for number in range(jobs)
        ]

    def ended(self, runs: Sequence[Run], *, timeout: float = float("inf")) -> Iterator[Run]:
        """The same runs as they end, in any order, each after so many seconds at most."""
        waiting, free = list(runs), list(self._copies)
        running: list[tuple[Run, Path, ForkProcess, float]] = []
        try:
            while waiting or running:
                while waiting and free:
                    run, copy = waiting.pop(0), free.pop()
                    ends = time.monotonic() + timeout
                    running.append((run, copy, _begin(run, copy), ends))
                wait([process.sentinel for _, _, process, _ in running], timeout=1.0)
                for child in list(running):
                    run, copy, process, ends = child
                    if not process.is_alive() or time.monotonic() > ends:
                        running.remove(child)
                        self._end(run, copy, process)
                        free.append(copy)
                        yield run
        finally:
            for run, copy, process, _ in running:
                self._end(run, copy, process)

    def _end(self, run: Run, copy: Path, process: ForkProcess) -> None:
        run.code = process.exitcode
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)  # with what it started
        process.join()
        run.output = (copy / ".output").read_text(errors="replace")
        if run.file:
            shutil.copy2(self._root / run.file, copy / run.file)
        shutil.rmtree(copy / ".numba", ignore_errors=True)


def _begin(run: Run, copy: Path) -> ForkProcess:
    if run.file:
        (copy / run.file).write_text(run.text, encoding="utf-8")
    (copy / ".output").touch()
    process = multiprocessing.get_context("fork").Process(target=_pytest, args=(run, copy))
    process.start()
    return process


def _pytest(run: Run, copy: Path) -> None:
    """Run tests on a copy; the process ends with their exit code."""
    os.setpgid(0, 0)
    out = os.open(copy / ".output", os.O_WRONLY | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(out, stream)
    os.chdir(copy)
    os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(copy))
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    import pytest
    from hypothesis import Phase, settings

    # One example that fails is enough: the smallest one is for people.
    settings.register_profile("mutants", phases=(Phase.explicit, Phase.generate), database=None)
    settings.load_profile("mutants")
    if "compiled_loop" in run.text:
        from numba.core import config

        # Machine code is cached by the file of its caller: a changed callee would go unnoticed.
        os.environ["NUMBA_CACHE_DIR"] = str(copy / ".numba")
        config.reload_config()  # type: ignore[no-untyped-call]
    code = int(pytest.main([*_PYTEST, *run.tests]))
    sys.stdout.flush()
    os._exit(code)
