"""Studies of a folder that several processes share, or that one of them left in the middle."""

import os
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from fcntl import LOCK_EX, flock, lockf
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any, NamedTuple, Self

import pytest

from audits.reproduction.progress import StudyFolder
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.data.top_n import TopN
from secure_fedrec.errors import DataError, MissingExtraError
from secure_fedrec.studies.fed3cr.study import StudyConfig
from secure_fedrec.studies.files import read_arrays
from secure_fedrec.studies.resumed import being_made, once, read_study, run_study

DATA = TopN(generate(SyntheticConfig(clients=24, items=60, mean_ratings=12.0, seed=2)), None)


def config(rounds: int = 2) -> StudyConfig:
    return StudyConfig(
        data="made up",
        protocol="clean",
        method="pfedrec",
        seed=1,
        rounds=rounds,
        settings={"rank": 8},
    )


def test_a_named_pipe_beside_a_report_is_taken_away(tmp_path: Path) -> None:
    """Found by attacking: a named pipe beside a report was opened until somebody read from it."""
    path = tmp_path / "study.json"
    report = run_study(DATA, config(), path)
    os.mkfifo(path.with_suffix(".lock"))
    assert read_study(path, config()) == report
    assert sorted(each.name for each in tmp_path.iterdir()) == ["study.json", "study.npz"]


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path.name)])
@pytest.mark.parametrize("suffix", [".json", ".npz", ".checkpoint"])
@pytest.mark.parametrize("part", ["", ".part"])
def test_what_is_no_file_is_refused_before_anything_is_made(
    put: Callable[[Path], None], suffix: str, part: str, tmp_path: Path
) -> None:
    """Found by attacking: a named pipe was opened until somebody wrote to it, by all runs."""
    path = tmp_path / "study.json"
    odd = path.with_suffix(suffix + part)
    put(odd)
    for wait in (True, False):
        with pytest.raises(DataError, match=f"{re.escape(odd.name)}: is not a file, but a study"):
            run_study(DATA, config(), path, on_round=pytest.fail, wait=wait)
    if odd.exists() and odd == path:
        with pytest.raises(DataError, match="is not a file, but"):
            read_study(path, config())
    else:
        assert read_study(path, config()) is None
    assert [each.name for each in tmp_path.iterdir()] == [odd.name]


@pytest.mark.parametrize("suffix", [".json", ".npz", ".checkpoint"])
@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir])
def test_what_is_written_behind_a_link_is_looked_at_there(
    put: Callable[[Path], None], suffix: str, tmp_path: Path
) -> None:
    """Found by attacking: it was looked at beside the link, and then written beside its target."""
    path, there = tmp_path / "study.json", tmp_path / "there"
    there.mkdir()
    path.with_suffix(suffix).symlink_to(there / "file")
    put(there / "file.part")
    with pytest.raises(DataError, match=r"file\.part: is not a file, but a study"):
        run_study(DATA, config(), path, on_round=pytest.fail)
    path.with_suffix(suffix).unlink()
    path.with_suffix(suffix).symlink_to(tmp_path / "nowhere" / "file")
    with pytest.raises(DataError, match="nowhere, which is not a folder"):
        run_study(DATA, config(), path, on_round=pytest.fail)


def test_arrays_are_read_from_files_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "study.npz")
    with pytest.raises(DataError, match="is not a file, but"):
        read_arrays(tmp_path / "study.json")


def test_nothing_is_made_where_it_cannot_be_written(tmp_path: Path) -> None:
    """As studies of all papers ask for it; found by attacking: two had no look before training."""
    (tmp_path / "study.npz").mkdir()
    with pytest.raises(DataError, match=r"study\.npz: is not a file, but"):
        once(tmp_path / "study.json", lambda: None, pytest.fail)


def test_links_to_files_elsewhere_are_followed(tmp_path: Path) -> None:
    path, there = tmp_path / "study.json", tmp_path / "there"
    there.mkdir()
    for suffix in (".json", ".npz"):
        path.with_suffix(suffix).symlink_to(there / f"study{suffix}")
    report = run_study(DATA, config(), path)
    assert sorted(each.name for each in there.iterdir()) == ["study.json", "study.npz"]
    assert read_study(path, config()) == read_study(there / path.name, config()) == report


def test_folders_of_network_file_systems_are_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by attacking: they lock records in the place of files, for writers alone."""
    monkeypatch.setattr("fcntl.flock", lockf)
    path = tmp_path / "study.json"
    report = run_study(DATA, config(), path, wait=False)
    path.with_suffix(".lock").touch()
    assert not being_made(path)
    assert read_study(path, config()) == report
    assert sorted(each.name for each in tmp_path.iterdir()) == ["study.json", "study.npz"]


@pytest.mark.parametrize("left", [".checkpoint", ".lock"])
def test_what_a_kill_at_the_very_end_left_is_taken_away(left: str, tmp_path: Path) -> None:
    """Found by attacking: the report was written, and nobody looked beside it any more."""
    path = tmp_path / "study.json"
    report = run_study(DATA, config(), path)
    beside = path.with_suffix(left)
    beside.write_bytes(b"rest")
    assert read_study(path, config()) == report
    assert sorted(each.name for each in tmp_path.iterdir()) == ["study.json", "study.npz"]
    beside.write_bytes(b"of one at work")
    with path.with_suffix(".lock").open("ab") as lock:
        flock(lock, LOCK_EX)
        assert read_study(path, config()) == report
        assert beside.exists()
    beside.unlink(missing_ok=True)
    beside.mkdir()  # whoever made that
    assert read_study(path, config()) == report


def test_two_at_once_make_a_study_once(tmp_path: Path) -> None:
    """Found by attacking: both wrote the same unfinished file, and one of them ended there."""
    path, made = tmp_path / "study.json", []
    settings = config(rounds=11)

    def one(_: int) -> dict[str, Any]:
        return run_study(DATA, settings, path, on_round=lambda: made.append(1))

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(one, range(3)))
    assert found[0] == found[1] == found[2]
    assert len(made) == 11
    assert sorted(each.name for each in tmp_path.iterdir()) == ["study.json", "study.npz"]


class Numbers(StudyFolder[int]):
    """Studies that are a word: who made them."""

    def path(self, needed: int) -> Path:
        return self.folder / f"{needed}.json"

    def once(self, number: int, who: str, begin: Callable[[], object], *, wait: bool) -> str:
        path = self.path(number)

        def read() -> str | None:
            return path.read_text() if path.exists() else None

        def make() -> str:
            begin()
            path.write_text(who)
            return who

        return once(path, read, make, wait=wait)


class Another(NamedTuple):
    """Another process that makes a study: it ends when it is let."""

    let: Event
    result: "Future[str]"

    @classmethod
    def at(
        cls, source: Numbers, number: int, pool: ThreadPoolExecutor, fails: bool = False
    ) -> Self:
        begun, let = Event(), Event()

        def begin() -> None:
            begun.set()
            assert let.wait(10)
            if fails:
                raise InterruptedError

        result = pool.submit(source.once, number, "another", begin, wait=True)
        assert begun.wait(10)
        return cls(let, result)


@pytest.mark.parametrize("late", [False, True], ids=["before our look", "between look and lock"])
def test_runs_that_share_a_folder_make_what_nobody_makes(late: bool, tmp_path: Path) -> None:
    """What another one makes comes last, and is read then.

    Found by attacking: runs that looked at once went for the same study; one waited for the other,
    and then both went for the next.
    """
    source, ours, others = Numbers(folder=tmp_path, progress=False), [], list[Another]()

    with ThreadPoolExecutor(1) as pool:

        def make(number: int, _: object) -> str:
            ours.append(number)
            if not others:
                others.append(Another.at(source, 1, pool))
            if number == 3:
                others[0].let.set()
            return source.once(number, "us", lambda: None, wait=False)

        if not late:
            others.append(Another.at(source, 1, pool))
        found = source.completed({0: "before"}, [0, 1, 2, 3], make)
        assert others[0].result.result() == "another"
    assert ours == ([1] if late else []) + [2, 3, 1]
    assert found == {0: "before", 1: "another", 2: "us", 3: "us"}
    assert list(found) == [0, 1, 2, 3]


def test_whatever_is_let_go_first_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found by attacking: a run that waited for one study saw no other that was let go."""
    source, ours = Numbers(folder=tmp_path), []

    with ThreadPoolExecutor(2) as pool:
        long, killed = Another.at(source, 0, pool), Another.at(source, 1, pool, fails=True)

        def looks(_: float) -> None:
            if not killed.let.is_set():
                killed.let.set()
                assert killed.result.exception()
            sleep(0.01)

        def make(number: int, _: object) -> str:
            ours.append(number)
            long.let.set()
            return source.once(number, "us", lambda: None, wait=False)

        monkeypatch.setattr("audits.reproduction.progress.sleep", looks)
        found = source.completed({}, [0, 1], make)
    assert ours == [1, 0]
    assert found == {0: "another", 1: "us"}
    told = [line for line in capsys.readouterr().err.splitlines() if "waits: others make" in line]
    assert len(told) == 1
    assert str(source.path(0)) in told[0]


def test_what_others_have_made_is_read_last(tmp_path: Path) -> None:
    """To read it takes time as well, of its data, in which something else can be made."""
    source, ours = Numbers(folder=tmp_path, progress=False), []

    def make(number: int, _: object) -> str:
        ours.append(number)
        return source.once(number, "us", lambda: None, wait=False)

    source.path(0).write_text("another")
    assert source.completed({}, [0, 1, 2], make) == {0: "another", 1: "us", 2: "us"}
    assert ours == [1, 2, 0]


def test_a_lock_that_is_no_file_holds_nobody_up(tmp_path: Path) -> None:
    """Found by attacking: a named pipe in its place was opened until somebody wrote to it."""
    source = Numbers(folder=tmp_path, progress=False)

    def make(number: int, _: object) -> str:
        return source.once(number, "us", lambda: None, wait=False)

    os.mkfifo(source.path(0).with_suffix(".lock"))
    assert source.completed({}, [0], make) == {0: "us"}
    source.path(1).with_suffix(".lock").mkdir()
    with pytest.raises(DataError, match="cannot be written"):
        source.completed({}, [1], make)


def test_a_study_that_cannot_begin_leaves_no_folder(tmp_path: Path) -> None:
    """As without a package that it needs; a folder that was there stays."""

    def refuse() -> None:
        raise MissingExtraError("torch", "torch")

    for folder in (tmp_path / "new", tmp_path / "new" / "within", tmp_path):
        with pytest.raises(MissingExtraError):
            once(folder / "study.json", lambda: None, refuse)
        assert not any(tmp_path.iterdir())
    with pytest.raises(DataError, match="cannot be written"):  # a name that no file can have
        once(tmp_path / "new" / "within" / f"{'s' * 300}.json", lambda: None, refuse)
    assert not any(tmp_path.iterdir())


def test_a_study_that_cannot_begin_takes_no_folder_from_another(tmp_path: Path) -> None:
    """Found by attacking: another process that waited for it ended for want of the folder."""
    path, waits, made = tmp_path / "new" / "study.json", Event(), []

    def refuse() -> None:
        assert waits.wait(10)
        sleep(0.2)  # until the other waits for the lock
        raise MissingExtraError("torch", "torch")

    def first() -> None:
        with pytest.raises(MissingExtraError):
            once(path, lambda: None, refuse)

    def second() -> None:
        def make() -> str:
            made.append(path.parent.exists())
            path.write_text("{}")
            return "made"

        assert once(path, lambda: None, make) == "made"

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first)
        while not path.with_suffix(".lock").exists():
            sleep(0.01)
        other = pool.submit(second)
        waits.set()
        one.result()
        other.result()
    assert made == [True]
    assert [each.name for each in path.parent.iterdir()] == ["study.json"]
