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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

__all__ = ["Outcome", "Run", "Runner"]

_OURS = {"secure_fedrec", "attacks", "audits"}
_LIBRARIES = ("numpy", "scipy.stats", "numba", "pytest", "hypothesis", "torch", "cryptography")
_NOT_COPIED = shutil.ignore_patterns(".*", "out", "runs", "build", "dist", "*.egg-info")
_PYTEST = (
    *("-x", "-q", "--tb=short", "-rfE", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of libraries that are loaded already
)
_FAILED = re.compile(r"^(?:FAILED|ERROR) \S+::", re.MULTILINE)  # without "::" nothing was collected


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Tests, and the text of a file that is put in another's place meanwhile."""

    tests: tuple[str, ...]
    file: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Exit code of pytest (None: out of time) and what it printed."""

    code: int | None
    output: str

    @property
    def instead(self) -> str:
        """What the test did instead of failing; empty if it failed."""
        if self.code is None:
            return "ran out of time"
        if _FAILED.search(self.output):
            return ""
        return f"did not fail: {' '.join(self.output.strip().splitlines()[-1:])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Child:
    run: Run
    place: int
    copy: Path
    process: BaseProcess
    ends: float


class Runner:
    """Copies of the project, one for each job.

    Args:
        root: the project.
        scratch: where the copies go.
        jobs: how many runs there are at a time.
        timeout: seconds for a timed run.
    """

    def __init__(self, root: Path, scratch: Path, *, jobs: int, timeout: float) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"
        for library in _LIBRARIES if (root / "secure_fedrec" / "compiled.py").exists() else ():
            __import__(library)
        gc.collect()
        gc.freeze()  # pytest collects garbage several times, and all of this is none
        self._root, self._timeout = root, timeout
        # Times are kept, so that caches beside the sources stay valid.
        self._copies = [
            Path(shutil.copytree(root, scratch / str(number), ignore=_NOT_COPIED))
            for number in range(jobs)
        ]

    def outcomes(
        self, runs: Sequence[Run], *, timed: bool = True, told: Callable[[], object] = lambda: None
    ) -> list[Outcome]:
        """How each run ended.

        Args:
            runs: what to run.
            timed: whether a run ends after the timeout.
            told: called at the end of each.
        """
        ended: dict[int, Outcome] = {}
        running: list[_Child] = []
        waiting, free = list(enumerate(runs)), list(self._copies)
        try:
            while waiting or running:
                while waiting and free:
                    running.append(self._begin(*waiting.pop(0), free.pop(), timed=timed))
                wait([child.process.sentinel for child in running], timeout=1.0)
                for child in list(running):
                    if not child.process.is_alive() or time.monotonic() > child.ends:
                        running.remove(child)
                        ended[child.place] = self._end(child)
                        free.append(child.copy)
                        told()
        finally:
            for child in running:
                self._end(child)
        return [ended[place] for place in range(len(runs))]

    def _begin(self, place: int, run: Run, copy: Path, *, timed: bool) -> _Child:
        if run.file:
            (copy / run.file).write_text(run.text, encoding="utf-8")
        # Machine code is cached by the file of its caller: a changed callee would go unnoticed.
        fresh = "compiled_loop" in run.text
        context = multiprocessing.get_context("fork")
        process = context.Process(target=_pytest, args=(copy, run.tests, fresh))
        process.start()
        ends = time.monotonic() + (self._timeout if timed else float("inf"))
        return _Child(run=run, place=place, copy=copy, process=process, ends=ends)

    def _end(self, child: _Child) -> Outcome:
        code = child.process.exitcode
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.process.pid or 0, signal.SIGKILL)  # with what it started
        child.process.join()
        if child.run.file:
            shutil.copy2(self._root / child.run.file, child.copy / child.run.file)
        shutil.rmtree(child.copy / ".numba", ignore_errors=True)
        output = child.copy / ".output"
        return Outcome(code=code, output=output.read_text(errors="replace"))


def _pytest(copy: Path, tests: Sequence[str], fresh: bool) -> None:
    """Run tests on a copy; the process ends with their exit code."""
    os.setpgid(0, 0)
    out = os.open(copy / ".output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(out, stream)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(copy))
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    if _OURS & sys.modules.keys():
        raise RuntimeError("the project was imported before it was broken")
    import pytest
    from hypothesis import Phase, settings

    # One example that fails is enough: the smallest one is for people.
    settings.register_profile("mutants", phases=(Phase.explicit, Phase.generate), database=None)
    settings.load_profile("mutants")
    if fresh:
        from numba.core import config

        os.environ["NUMBA_CACHE_DIR"] = str(copy / ".numba")
        config.reload_config()  # type: ignore[no-untyped-call]
    code = int(pytest.main([*_PYTEST, *tests]))
    sys.stdout.flush()
    os._exit(code)
