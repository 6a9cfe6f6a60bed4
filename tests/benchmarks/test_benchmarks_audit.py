"""The benchmark of audits: what it compares with, and what it says without a history."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import audit, audit_large, audit_scale, audit_steps
from benchmarks.federations import Options
from benchmarks.processes import Taken, metered
from docs import audit_scale_picture


def git(root: Path, *words: str) -> str:
    names = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(  # noqa: S603
        ["git", "-C", str(root), *names, *words],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def history(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    for text in ("first", "second"):
        (tmp_path / "file").write_text(text)
        git(tmp_path, "add", "file")
        git(tmp_path, "commit", "--quiet", "-m", text)
    return tmp_path


def test_an_earlier_commit_is_checked_out_and_taken_away(history: Path) -> None:
    first = git(history, "rev-parse", "HEAD~1")
    with audit.past(first, history) as tree:
        assert tree is not None
        assert (tree / "file").read_text() == "first"
        assert len(git(history, "worktree", "list").splitlines()) == 2
    assert (history / "file").read_text() == "second"
    assert len(git(history, "worktree", "list").splitlines()) == 1


def test_without_that_commit_there_is_nothing_to_compare_with(
    history: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with audit.past("0" * 40, history) as tree:
        assert tree is None
    with audit.past(audit.START, tmp_path_factory.mktemp("export")) as tree:
        assert tree is None


def runs(monkeypatch: pytest.MonkeyPatch, past: Path | None) -> list[tuple[Path, list[str]]]:
    """Stands in for the processes; one that runs the past takes twice as long."""
    done: list[tuple[Path, list[str]]] = []

    def fake(tree: Path, words: list[str]) -> tuple[str, float]:
        done.append((tree, words))
        seconds = 8.0 if tree == past else 4.0
        if words[0] == "-c":
            known = ["direct", "lattice"] if tree == past else ["direct", "lattice", "newer"]
            return str(known).replace("'", '"'), 0.1
        if "--dry-run" in words:
            return '{"seconds": {"training": 3.0, "attacks": 2.0}}', 0.1
        took = 6.0 / int(words[2]) if words[0].endswith("attack_once.py") else 0.0
        return f'{{"cpu_seconds": {seconds / 4}, "seconds": {took}}}', seconds

    monkeypatch.setattr(audit, "_run", fake)

    class Past:
        def __enter__(self) -> Path | None:
            return past

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(audit, "past", Past)
    return done


@pytest.mark.parametrize("quick", [True, False])
def test_both_are_run_in_turn_with_the_attacks_that_both_know(
    quick: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SECURE_FEDREC_DATA", raising=False)
    done = runs(monkeypatch, tmp_path)
    for name, key in (("ml_1m", "seconds_ml_1m"), ("ten_million", "minutes_10m")):
        told = {key: 7.0, "targets": {key: "< 8"}}
        monkeypatch.setattr(audit_large, name, lambda _, told=told: dict(told))
    found = audit.run(Options(quick=quick))
    large = {"seconds_ml_1m", "minutes_10m"}
    assert large & found.keys() == large & found["targets"].keys() == (set() if quick else large)
    assert (found["quickstart_ratio"], found["attacks_ratio"]) == (0.5, 0.5)
    assert (found["workers_speedup"], found["forecast_ratio"]) == (2.0, 1.25)
    attacked = [words for _, words in done if words[0].endswith("attack_once.py")]
    assert attacked
    assert all(words[3:] == ["direct", "lattice"] for words in attacked)
    audited = [each for each in done if each[1][1:3] == ["audits.cli", "audit"]]
    trees = [tree for tree, words in audited if "--dry-run" not in words]
    assert trees == [audit.ROOT, tmp_path] * (2 if quick else 4)
    trained = [words for _, words in done if words[1:3] == ["audits.cli", "train"]]
    assert len(trained) == (0 if quick else 2)
    assert all("data.clients=943" in words for words in trained)


def test_without_history_the_ratios_are_null(monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, None)
    found = audit.run(Options(quick=True))
    assert found["quickstart_ratio"] is None
    assert found["attacks_ratio"] is None
    assert found["seconds"] == {
        "quickstart": {"present": [4.0]},
        "attacks": {"present": [1.0]},
        "workers": {"one": [6.0], "two": [3.0]},
    }


# --- what grows with clients and items ------------------------------------------------------------


def test_the_table_of_sizes_is_that_of_the_record_which_keeps_its_bars() -> None:
    found = json.loads(audit_scale_picture.RESULTS.read_text(encoding="utf-8"))
    page = (audit_scale_picture.HERE / "how-to" / "plan.md").read_text(encoding="utf-8")
    assert "\n".join(audit_scale_picture.table(found)) in page
    by = {(row["clients"], row["items"]): audit_scale.seconds_of(row) for row in found["rows"]}
    assert found["targets"] == audit_scale.TARGETS
    most = max(row["clients"] for row in found["rows"])
    assert found["per_client"] == pytest.approx(1000 * by[most, 1000] / most / by[1000, 1000])
    assert found["per_item"] == pytest.approx(by[1000, 100_000] / 100 / by[1000, 1000])
    assert max(found["per_client"], found["per_item"]) <= 1.2


def test_every_step_of_a_size_is_measured(tmp_path: Path) -> None:
    found = audit_steps.steps(audit_steps.sized(80, 120), tmp_path / "run")
    assert list(found)[:3] == ["data", "training", "plain twin"]
    assert len(found) == 5
    assert all(step["seconds"] >= 0 and step["peak_gb"] > 0.05 for step in found.values())


# --- the large ones -------------------------------------------------------------------------------


def test_a_command_is_metered_with_all_its_processes(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; held = bytearray(80_000_000); child = os.fork()\n"
        "mine = bytearray(60_000_000); time.sleep(1.5)\n"
        "print('done') if child else os._exit(0)\nos.wait(); sys.exit(3)"
    )
    command = [sys.executable, "-c", code]
    told = list(metered(command, tmp_path / "out", cwd=tmp_path, every=0.05))
    assert (tmp_path / "out").read_text() == "done\n"
    assert len(told) > 1
    assert {each.code for each in told[:-1]} == {None}
    assert told[-1].code == 3
    assert told[-1].seconds > 1.4
    assert told[-1].cpu_seconds > 0
    # What was there before the fork counts once, what came after it twice.
    assert 0.2 < told[-1].peak_gb < 0.27


class StoppedError(Exception):
    """Stands in for a benchmark that is cut off."""


def test_what_was_cut_off_goes_on_and_what_is_finished_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A try that is cut off is counted; the run goes on in its folder."""
    asked: list[list[str]] = []
    codes: list[int | None] = [None, 2, 1]

    def fake(command: list[str], _out: Path, *, cwd: Path) -> Iterator[Taken]:
        assert cwd == audit_large.ROOT
        asked.append(command[3:])
        (tmp_path / "10m" / "run").mkdir(exist_ok=True)
        taken = Taken(seconds=60.0, cpu_seconds=30.0, peak_gb=float(len(asked)), code=None)
        yield taken
        code = codes[len(asked) - 1]
        if code is None:
            raise StoppedError
        yield replace(taken, seconds=120.0, code=code)

    monkeypatch.setattr(audit_large, "metered", fake)
    options = Options(folder=tmp_path)
    with pytest.raises(StoppedError):
        audit_large.ten_million(options)
    with pytest.raises(ChildProcessError, match="exit code 2"):
        audit_large.ten_million(options)
    for _ in range(2):
        found = audit_large.ten_million(options)
        assert found["minutes_10m"] == 1.0 + 2.0 + 2.0
        assert (found["cpu_minutes_10m"], found["peak_gb_10m"]) == (1.5, 3.0)
    assert ["--resume" in words for words in asked] == [False, True, True]
    assert all("data.clients=70000" in words for words in asked)


def test_attacks_of_ml_1m_are_metered_without_its_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SECURE_FEDREC_DATA", raising=False)
    asked: list[list[str]] = []

    def fake(command: list[str], _out: Path, *, cwd: Path) -> Iterator[Taken]:
        asked.append(command[3:])
        seconds = 400.0 if command[3] == "train" else 100.0
        yield Taken(seconds=seconds, cpu_seconds=seconds, peak_gb=seconds / 100, code=0)

    monkeypatch.setattr(audit_large, "metered", fake)
    found = audit_large.ml_1m(Options(folder=tmp_path))
    assert (found["seconds_ml_1m"], found["peak_gb_ml_1m"]) == (100.0, 1.0)
    assert [words[0] for words in asked] == ["train", "attack"]
    assert "data.clients=6040" in asked[0]
