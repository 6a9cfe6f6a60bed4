"""``python -m tests.mutants``: break the package on purpose and see whether tests notice.

The named tests run once on the code as it is, and must pass. Then every mutation is put into a
temporary copy of the project, never into the working tree, and each of its tests runs on that in a
process of its own. A mutation is killed if all of its tests fail. It survives if one passes, is
skipped, cannot be collected, or takes longer than ``--timeout`` seconds.

Exit code 0 if all were killed, 1 if some survive (they are named), 2 if the table does not fit the
code or the tests fail without a mutation.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from tqdm import tqdm

from tests.mutants.table import ROOT, Mutant, MutantError, mutated, part_of_today, read, select

_NOT_COPIED = shutil.ignore_patterns(".*", "out", "runs", "build", "dist", "*.egg-info")
_PYTEST = (
    *(sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-rfE"),
    *("-p", "no:cacheprovider", "--hypothesis-seed=0"),
)
_FAILED = re.compile(r"^(?:FAILED|ERROR) \S+::", re.MULTILINE)  # without "::" nothing was collected


def main(arguments: list[str] | None = None, *, root: Path = ROOT) -> int:
    """Run the mutations and print how many were killed."""
    options = _parser().parse_args(arguments)
    part = part_of_today() if options.part == "today" else options.part
    begun = time.monotonic()
    try:
        mutants = select(
            read(root / "tests" / "mutants"), part=None if part is None else int(part),
            word=options.only,
        )  # fmt: skip
        for mutant in mutants:
            mutated(mutant, root)
    except MutantError as error:
        print(error, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        copies = Copies(root, Path(scratch), options.jobs, options.timeout)
        problem = copies.control(sorted({test for mutant in mutants for test in mutant.tests}))
        if problem:
            print(f"the tests fail without a mutation:\n{problem}", file=sys.stderr)
            return 2
        survived = copies.survivors(mutants)
    which = "" if part is None else f" (part {part})"
    killed = len(mutants) - len({mutant.name for mutant, _, _ in survived})
    print(f"killed {killed} / {len(mutants)}{which}, {time.monotonic() - begun:.0f} s")
    for mutant, test, verdict in survived:
        print(f"survived: {mutant.name} ({mutant.file}): {test} {verdict}")
    return 1 if survived else 0


class Copies:
    """Copies of the project, one for each job.

    Args:
        root: the project.
        scratch: where the copies go.
        jobs: how many tests run at a time.
        timeout: seconds for one mutation under one test.
    """

    def __init__(self, root: Path, scratch: Path, jobs: int, timeout: float) -> None:
        self._root, self._jobs, self._timeout = root, jobs, timeout
        self._free: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            # Times are kept, so that caches beside the sources stay valid.
            copy = shutil.copytree(root, scratch / str(number), ignore=_NOT_COPIED)
            self._free.put(Path(copy))

    def control(self, tests: Sequence[str]) -> str:
        """What goes wrong without a mutation; empty if nothing does."""
        shares = [tests[number :: self._jobs] for number in range(self._jobs)]
        with ThreadPoolExecutor(self._jobs) as pool:
            ended = list(pool.map(self._control, [share for share in shares if share]))
        return "\n".join(output for output in ended if output)

    def survivors(self, mutants: Sequence[Mutant]) -> list[tuple[Mutant, str, str]]:
        """Mutations, tests that did not fail on them, and what these did."""
        work = [(mutant, test) for mutant in mutants for test in mutant.tests]
        with ThreadPoolExecutor(self._jobs) as pool:
            verdicts = pool.map(lambda pair: self._verdict(*pair), work)
            bar = tqdm(verdicts, "mutants", len(work), unit="test", file=sys.stderr, disable=None)
            ended = list(bar)
        told = zip(work, ended, strict=True)
        return [(mutant, test, verdict) for (mutant, test), verdict in told if verdict]

    def _control(self, tests: Sequence[str]) -> str:
        with self._one() as copy:
            ended = _pytest(copy, tests, {}, None)
        return "" if ended.returncode == 0 else ended.stdout[-4000:]

    def _verdict(self, mutant: Mutant, test: str) -> str:
        """What the test did instead of failing; empty if it failed."""
        with self._one() as copy:
            file = copy / mutant.file
            text = mutated(mutant, self._root)
            # Compiled loops are cached by the file of the caller alone.
            compiled = "compiled_loop" in text
            fresh = {"NUMBA_CACHE_DIR": str(copy / ".numba")} if compiled else {}
            try:
                file.write_text(text, encoding="utf-8")
                ended = _pytest(copy, [test], fresh, self._timeout)
            except subprocess.TimeoutExpired:
                return f"took more than {self._timeout:.0f} s"
            finally:
                shutil.copy2(self._root / mutant.file, file)
                shutil.rmtree(copy / ".numba", ignore_errors=True)
        if _FAILED.search(ended.stdout):
            return ""
        last = (ended.stdout.strip() or ended.stderr.strip()).splitlines()[-1:]
        return f"did not fail: {' '.join(last)}"

    @contextmanager
    def _one(self) -> Iterator[Path]:
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)


def _pytest(
    copy: Path, tests: Sequence[str], more: dict[str, str], timeout: float | None
) -> subprocess.CompletedProcess[str]:
    own = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(  # noqa: S603  # the table is ours
        [*_PYTEST, *tests], cwd=copy, env={**os.environ, **own, **more}, timeout=timeout,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--part", help="a tenth of the table: 0 to 9, or today")
    parser.add_argument("--only", default="", help="mutations with this word in name or file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests at a time")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds per test")
    return parser


if __name__ == "__main__":
    sys.exit(main())
