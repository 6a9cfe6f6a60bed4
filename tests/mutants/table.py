"""The table of mutations: what is broken in the package, and the tests that must notice.

A mutation is a row of a ``*.toml`` file beside this module, so adding one is adding one row:

    [[mutant]]
    name = "what the broken code does"
    file = "secure_fedrec/..."
    from = "the exact source fragment, which occurs once in the file"
    to = "what stands there instead"
    tests = ["tests/...::test_one", "tests/...::test_two[case]"]

Every one of its tests must fail on the mutated code alone, so each test stands for a condition.
Mutations are written for what a claim says, not generated from syntax: what tools like mutmut and
cosmic-ray make tells how well lines are tested, and does not know which line a claim hangs on.
Hence a runner of our own (``runs``, ``__main__``), which is to stay at 200 lines.
"""

import ast
import subprocess
import tomllib
from collections.abc import Container
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Final

__all__ = [
    "PARTS",
    "ROOT",
    "Mutant",
    "MutantError",
    "changed_since_tag",
    "mutated",
    "part_of_today",
    "read",
    "select",
]

ROOT: Final = Path(__file__).parents[2]
PARTS: Final = 10
"""Every day has one of so many parts of the table."""

_FIELDS = {"name", "file", "from", "to", "tests"}


class MutantError(Exception):
    """A row of the table is malformed, or does not fit the code (any more)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mutation.

    Args:
        name: what the broken code does; unique.
        file: path from the root of the project.
        old: source fragment, which occurs exactly once in the file.
        new: what stands there instead.
        tests: node ids of pytest; each must fail on the mutated code.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def read(folder: Path = Path(__file__).parent) -> list[Mutant]:
    """All rows, by file name and then in the order written.

    Raises:
        MutantError: a row lacks a field or has another one, or two have one name.
    """
    found: list[Mutant] = []
    for path in sorted(folder.glob("*.toml")):
        for row in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            if row.keys() != _FIELDS or not row["tests"]:
                raise MutantError(f"{path.name}: a row needs {sorted(_FIELDS)}: {row}")
            fields = {"old": row.pop("from"), "new": row.pop("to"), "tests": tuple(row["tests"])}
            found.append(Mutant(**{**row, **fields}))
    names = [mutant.name for mutant in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise MutantError(f"two mutations have one name: {twice}")
    return found


def mutated(mutant: Mutant, root: Path = ROOT) -> str:
    """Text of the file with the mutation.

    Raises:
        MutantError: the fragment does not occur exactly once, or the result is the same program, or
            none.
    """
    text = (root / mutant.file).read_text(encoding="utf-8")
    times = text.count(mutant.old)
    if times != 1:
        raise MutantError(f"{mutant.name}: the fragment occurs {times} times in {mutant.file}")
    changed = text.replace(mutant.old, mutant.new)
    try:
        same = _program(changed) == _program(text)
    except SyntaxError as error:
        raise MutantError(f"{mutant.name}: {mutant.file} would be no program: {error}") from None
    if same:
        raise MutantError(f"{mutant.name}: the program is the same")
    return changed


@lru_cache(maxsize=256)
def _program(text: str) -> bytes:
    """What a text says as a program, comments and spaces left out."""
    return sha256(ast.dump(ast.parse(text)).encode()).digest()


def part_of_today() -> int:
    """Which part of the table is due (UTC): every part once in so many days."""
    return datetime.now(tz=UTC).toordinal() % PARTS


def select(
    mutants: list[Mutant],
    *,
    part: int | None = None,
    word: str = "",
    changed: Container[str] | None = None,
) -> list[Mutant]:
    """Rows of a table.

    Args:
        mutants: all of them.
        part: which tenth of them; None for all.
        word: in their name or file.
        changed: files that they are about; None for any. All rows of those are chosen where they
            are no more than a tenth of the table, else the part of them.
    """
    due = [mutant for mutant in mutants if changed is None or mutant.file in changed]
    few = changed is not None and len(due) <= len(mutants) // PARTS
    chosen = due if part is None or few else due[part % PARTS :: PARTS]
    return [mutant for mutant in chosen if word in f"{mutant.name} {mutant.file}"]


def changed_since_tag(root: Path = ROOT) -> set[str] | None:
    """Files that differ from those of the last tag; None without a tag, or without git."""
    try:
        tag = _git(root, "describe", "--tags", "--abbrev=0").strip()
        return set(_git(root, "diff", "--name-only", tag).splitlines())
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *words: str) -> str:
    ended = subprocess.run(  # noqa: S603
        ["git", "-C", str(root), *words],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout
