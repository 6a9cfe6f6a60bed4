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
from pathlib import Path

from tqdm import tqdm

from tests.mutants.runs import Run, Runner
from tests.mutants.table import (
    ROOT,
    MutantError,
    changed_since_tag,
    mutated,
    part_of_today,
    read,
    select,
)


def main(arguments: list[str] | None = None) -> int:
    """Run the mutations and print how many were killed."""
    options = _parser().parse_args(arguments)
    root, begun = options.root.resolve(), time.monotonic()
    part = None if options.part is None else int(options.part)
    try:
        changed = changed_since_tag(root) if options.changed else None
        table = read(root / "tests" / "mutants")
        mutants = select(table, part=part, word=options.only, changed=changed)
        work = [(one, mutated(one, root), test) for one in mutants for test in one.tests]
    except MutantError as error:
        print(error, file=sys.stderr)
        return 2
    tests = sorted({test for _, _, test in work})
    plain = [Run(tests=tuple(tests[number :: options.jobs])) for number in range(options.jobs)]
    broken = [Run(tests=(test,), file=each.file, text=text) for each, text, test in work]
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        runner = Runner(root, Path(scratch), jobs=options.jobs)
        problems = [run.output for run in runner.ended([r for r in plain if r.tests]) if run.code]
        if problems:
            print("the tests fail without a mutation:", *problems, sep="\n", file=sys.stderr)
            return 2
        ended = runner.ended(broken, timeout=options.timeout)
        for _ in tqdm(ended, "mutations", len(broken), unit="test", file=sys.stderr, disable=None):
            pass
    left = [(one, run) for (one, _, _), run in zip(work, broken, strict=True) if run.instead]
    killed = len(mutants) - len({one.name for one, _ in left})
    which = "" if part is None else f" (part {part})"
    print(f"killed {killed} / {len(mutants)}{which}, {time.monotonic() - begun:.0f} s")
    for one, run in left:
        print(f"survived: {one.name} ({one.file}): {run.tests[0]} {run.instead}")
    return 1 if left else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--part", nargs="?", const=part_of_today(), help="a tenth: 0 to 9 (default: today's)"
    )
    parser.add_argument(
        "--changed",
        action="store_true",
        help="mutations of files that changed since the last tag; with --part, a tenth of the table"
        " at most",
    )
    parser.add_argument("--only", default="", help="mutations with this word in name or file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests at a time")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds per test")
    parser.add_argument("--root", type=Path, default=ROOT, help="project (default: this one)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
