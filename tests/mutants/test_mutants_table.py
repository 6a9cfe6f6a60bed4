"""The table fits the code and covers every claim; its runner knows a kill."""

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.claims import claims
from tests.mutants import table
from tests.mutants.table import (
    PARTS,
    ROOT,
    MutantError,
    changed_since_tag,
    mutated,
    part_of_today,
    read,
    select,
)

MUTANTS = read()


def test_every_row_fits_the_code() -> None:
    for mutant in MUTANTS:
        assert mutant.file.partition("/")[0] in {"secure_fedrec", "attacks", "audits"}
        mutated(mutant)


def test_every_row_names_tests_that_exist() -> None:
    for mutant in MUTANTS:
        for test in mutant.tests:
            path, _, function = test.partition("[")[0].partition("::")
            text = (ROOT / path).read_text(encoding="utf-8")
            assert f"\ndef {function}(" in text, (mutant.name, test)


def test_every_claim_has_a_mutation_that_one_of_its_tests_kills() -> None:
    killing = {test.partition("[")[0] for mutant in MUTANTS for test in mutant.tests}
    killing |= {test.partition("::")[0] for test in killing}  # a row may name a whole file
    assert [name for name, claim in claims().items() if not killing & {*claim.tests}] == []


def test_every_part_has_its_day_and_all_parts_are_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = [select(MUTANTS, part=part) for part in range(PARTS)]
    assert sorted(each.name for part in parts for each in part) == sorted(m.name for m in MUTANTS)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    days = [datetime(2030, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(PARTS)]

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            assert tz is UTC
            return days[0]

    monkeypatch.setattr(table, "datetime", Clock)
    found = []
    while days:
        found.append(part_of_today())
        assert part_of_today() == found[-1]
        days.pop(0)
    assert sorted(found) == list(range(PARTS))


def test_mutations_of_what_changed_since_the_last_tag_are_chosen(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)  # noqa: S603, S607

    assert changed_since_tag(tmp_path) is None
    git("init")
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("1")
    git("add", ".")
    git("commit", "-m", "one")
    assert changed_since_tag(tmp_path) is None
    git("tag", "v1")
    assert changed_since_tag(tmp_path) == set()
    (tmp_path / "b.py").write_text("2")
    assert changed_since_tag(tmp_path) == {"b.py"}
    files = sorted({mutant.file for mutant in MUTANTS})
    for changed in ({files[0]}, set(files)):
        due = [mutant for mutant in MUTANTS if mutant.file in changed]
        for part in range(PARTS):
            chosen = select(MUTANTS, part=part, changed=changed)
            few = len(changed) == 1
            assert chosen == due if few else chosen == select(MUTANTS, part=part)


def row(**changes: str) -> str:
    fields = {
        "name": "'adds one too many'",
        "file": "'secure_fedrec/one.py'",
        "from": "'+ 1'",
        "to": "'+ 2'",
        "tests": "['tests/test_one.py::test_exact']",
    } | changes
    return "[[mutant]]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items())


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    """Makes a small project with a table of its own."""

    def make(*rows: str) -> Path:
        for name, text in {
            "secure_fedrec/__init__.py": "",
            "secure_fedrec/one.py": "import time\ndef more(n):\n    return n + 1  # one\n",
            "tests/test_one.py": (
                "import pytest\nfrom secure_fedrec.one import more\n"
                "def test_exact(): assert more(1) == 2\n"
                "def test_grows(): assert more(1) > 1\n"
                "def test_skipped(): pytest.skip('today')\n"
            ),
            "tests/mutants/rows.toml": "\n".join(rows),
        }.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([row(**{"from": "'+ 7'"})], "occurs 0 times"),
        ([row(**{"from": "'n'"})], r"occurs \d times"),
        ([row(to="'+  1'")], "the program is the same"),
        ([row(**{"from": "'# one'"}, to="'# two'")], "the program is the same"),
        ([row(to="'+'")], "would be no program"),
        ([row(), row(to="'+ 3'")], "two mutations have one name"),
        ([row(tests="[]")], "a row needs"),
        ([row(why="'because'")], "a row needs"),
    ],
)
def test_a_row_that_does_not_fit_is_an_error(
    project: Callable[..., Path], rows: list[str], match: str
) -> None:
    root = project(*rows)
    with pytest.raises(MutantError, match=match):
        for mutant in read(root / "tests" / "mutants"):
            mutated(mutant, root)


def ran(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "tests.mutants", "--root", str(root), "--jobs", "2", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_survivors_are_named_and_a_test_that_cannot_be_run_kills_nothing(
    project: Callable[..., Path],
) -> None:
    exact, grows = "tests/test_one.py::test_exact", "tests/test_one.py::test_grows"
    root = project(
        row(),
        row(name="'half'", tests=f"['{exact}', '{grows}']"),
        row(name="'import'", **{"from": "'import time'"}, to="'import nothing_like_it'"),
        row(name="'hangs'", **{"from": "'return n'"}, to="'time.sleep(600); return n'"),
        row(name="'skipped'", tests="['tests/test_one.py::test_skipped']"),
    )
    before = (root / "secure_fedrec" / "one.py").read_bytes()
    ended = ran(root, "--timeout", "8")
    assert ended.returncode == 1
    assert ended.stdout.startswith("killed 1 / 5")
    survived = re.findall(
        r"survived: (\w+) \([\w/.]+\): (\S+) (did not fail|ran out)", ended.stdout
    )
    assert survived == [
        ("half", grows, "did not fail"),
        ("import", exact, "did not fail"),
        ("hangs", exact, "ran out"),
        ("skipped", "tests/test_one.py::test_skipped", "did not fail"),
    ]
    assert (root / "secure_fedrec" / "one.py").read_bytes() == before


def test_all_killed_is_0_and_a_table_that_cannot_be_run_is_2(project: Callable[..., Path]) -> None:
    ended = ran(project(row()))
    assert (ended.returncode, ended.stdout.split(",")[0]) == (0, "killed 1 / 1")
    assert ran(project(row(**{"from": "'+ 7'"}))).returncode == 2
    broken = ran(project(row(tests="['tests/test_one.py::test_nothing']")))
    assert broken.returncode == 2
    assert "the tests fail without a mutation" in broken.stderr
