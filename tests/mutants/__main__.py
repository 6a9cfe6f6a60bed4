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
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from tests.mutants.runs import Run, Runner
from tests.mutants.table import ROOT, Mutant, MutantError, mutated, part_of_today, read, select


def main(arguments: list[str] | None = None) -> int:
    """Run the mutations and print how many were killed."""
    options = _parser().parse_args(arguments)
    part = None if options.part is None else int(options.part)
    root, begun = options.root.resolve(), time.monotonic()
    try:
        mutants = select(read(root / "tests" / "mutants"), part=part, word=options.only)
        texts = {mutant.name: mutated(mutant, root) for mutant in mutants}
    except MutantError as error:
        print(error, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        runner = Runner(root, Path(scratch), jobs=options.jobs, timeout=options.timeout)
        problem = _control(runner, mutants, options.jobs)
        if problem:
            print(f"the tests fail without a mutation:\n{problem}", file=sys.stderr)
            return 2
        survived = _survivors(runner, mutants, texts)
    killed = len(mutants) - len({mutant.name for mutant, _, _ in survived})
    which = "" if part is None else f" (part {part})"
    print(f"killed {killed} / {len(mutants)}{which}, {time.monotonic() - begun:.0f} s")
    for mutant, test, what in survived:
        print(f"survived: {mutant.name} ({mutant.file}): {test} {what}")
    return 1 if survived else 0


def _control(runner: Runner, mutants: Sequence[Mutant], jobs: int) -> str:
    """What goes wrong without a mutation; empty if nothing does."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    shares = [tests[number::jobs] for number in range(min(jobs, len(tests)))]
    ended = runner.outcomes([Run(tests=tuple(share)) for share in shares], timed=False)
    return "\n".join(outcome.output[-4000:] for outcome in ended if outcome.code != 0)


def _survivors(
    runner: Runner, mutants: Sequence[Mutant], texts: dict[str, str]
) -> list[tuple[Mutant, str, str]]:
    """Mutations, tests that did not fail on them, and what these did."""
    work = [(mutant, test) for mutant in mutants for test in mutant.tests]
    runs = [Run(tests=(test,), file=one.file, text=texts[one.name]) for one, test in work]
    bar = tqdm(desc="mutations", total=len(runs), unit="test", file=sys.stderr, disable=None)
    with bar:
        ended = runner.outcomes(runs, told=bar.update)
    told = zip(work, ended, strict=True)
    return [(mutant, test, end.instead) for (mutant, test), end in told if end.instead]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--part", nargs="?", const=part_of_today(), help="a tenth: 0 to 9 (default: today's)"
    )
    parser.add_argument("--only", default="", help="mutations with this word in name or file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests at a time")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds per test")
    parser.add_argument("--root", type=Path, default=ROOT, help="project (default: this one)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
