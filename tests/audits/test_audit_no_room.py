"""A run folder that cannot be written: no room, no permission, no such name."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.audits.folders import snapshot

Command = Callable[..., tuple[int, str, str]]
Refusal = Callable[..., str]
Write = Callable[[dict[str, Any]], Path]


def small_run(small: dict[str, Any]) -> dict[str, Any]:
    small["algorithm"]["rounds"] = 3
    small["recording"]["payload_rounds"] = [1]
    small["run"]["checkpoint_every"] = 1
    return small


class Failing:
    """An audit hook that makes one of the writes below a folder fail."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.left = 0
        self.met = 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None or event not in ("open", "os.rename", "os.mkdir"):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        path = arguments[0]
        if not isinstance(path, str | os.PathLike) or not str(path).startswith(str(self.folder)):
            return
        if event == "os.mkdir" and Path(path).exists():
            return  # nothing is made
        self.met += 1
        if self.met == self.left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


HOOK = Failing()
sys.addaudithook(HOOK)  # for good: it does nothing without a folder


def train(command: Command, config: Path, out: Path) -> tuple[int, str, str]:
    words = ("--resume",) if (out / "config.json").exists() else ()
    return command("train", config, "--out", out, "--quiet", *words)


def test_a_disk_that_is_full_at_any_write(
    write_config: Write, small: dict[str, Any], command: Command, tmp_path: Path
) -> None:
    """One line, exit code 2, and the run goes on to the same bits once there is room."""
    small = small_run(small)
    small["algorithm"]["rounds"] = 2
    config, quiet = write_config(small), tmp_path / "quiet"
    HOOK.folder, HOOK.left, HOOK.met = quiet, 0, 0
    try:
        assert train(command, config, quiet)[0] == 0
        points = HOOK.met
        assert points > 40
        for point in range(1, points + 1):
            out = tmp_path / f"run{point}"
            HOOK.folder, HOOK.left, HOOK.met = out, point, 0
            code, _, err = train(command, config, out)
            HOOK.folder = None
            assert HOOK.met >= point
            complaint = [line for line in err.splitlines() if "projected transcript" not in line]
            assert (code, len(complaint)) == (2, 1), (point, err)
            assert complaint[0].startswith("secure-fedrec: ")
            assert "No space left on device" in complaint[0]
            assert [path for path in out.rglob("*.part") if path.is_file()] == []
            assert train(command, config, out)[0] == 0, point
            assert snapshot(out) == snapshot(quiet), point
    finally:
        HOOK.folder = None


@pytest.mark.parametrize("limit", [700, 3_000, 6_000])
def test_a_write_that_is_cut_short(
    write_config: Write, small: dict[str, Any], command: Command, tmp_path: Path, limit: int
) -> None:
    config, quiet, out = write_config(small_run(small)), tmp_path / "quiet", tmp_path / "run"
    assert train(command, config, quiet)[0] == 0
    assert max(map(len, snapshot(quiet).values())) > limit
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        code, _, err = train(command, config, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    complaint = [line for line in err.splitlines() if "projected" not in line]
    assert (code, len(complaint)) == (2, 1), err
    assert complaint[0].startswith(f"secure-fedrec: {out}")
    assert complaint[0].endswith(": File too large")
    assert [path for path in out.rglob("*.part") if path.is_file()] == []
    assert train(command, config, out)[0] == 0
    assert snapshot(out) == snapshot(quiet)


def test_an_unfinished_run_is_not_attacked(
    write_config: Write, small: dict[str, Any], command: Command, refusal: Refusal, tmp_path: Path
) -> None:
    config, out = write_config(small_run(small)), tmp_path / "run"
    second = out / "transcript" / "rounds" / "000002"
    HOOK.folder, HOOK.left, HOOK.met = second, 1, 0
    try:
        assert train(command, config, out)[0] == 2
    finally:
        HOOK.folder = None
    problem = f"{out} holds 1 of 3 rounds: continue the run with --resume"
    assert refusal("attack", out / "transcript", "--quiet") == problem


def test_a_report_that_finds_no_room(
    write_config: Write,
    small: dict[str, Any],
    command: Command,
    tmp_path: Path,
) -> None:
    small = small_run(small) | {"attacks": ["direct"], "adversaries": [], "gates": []}
    config, out = write_config(small), tmp_path / "run"
    assert train(command, config, out)[0] == 0
    words = ("audit", config, "--out", out, "--resume", "--quiet")
    HOOK.folder, HOOK.left, HOOK.met = out, 0, 0
    try:
        assert command(*words)[0] == 3
        points, whole = HOOK.met, snapshot(out)
        assert points >= 4
        for point in range(1, points + 1):
            HOOK.left, HOOK.met = point, 0
            code, stdout, err = command(*words)
            assert (code, stdout) == (2, ""), err
            assert "No space left on device" in err.splitlines()[-1]
            assert snapshot(out).keys() == whole.keys()
    finally:
        HOOK.folder = None


def test_a_full_disk_under_standard_output() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "audits.cli", "explain"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    line = "secure-fedrec: standard output: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (2, line)


def test_a_name_that_is_too_long(
    refusal: Refusal, write_config: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    config, long = write_config(small), tmp_path / ("x" * 300)
    for words in (
        ("audit", config, "--out", long),
        ("train", config, "--out", long / "below"),
        ("audit", config, "--out", long, "--resume"),
        ("audit", long),
        ("check", long),
        ("attack", long),
        ("init", "plain", "--out", long),
        ("audit", config, "--out", tmp_path / "run", "--data-dir", long),
    ):
        if "--data-dir" in words:
            small["data"] = {"name": "ml-100k"}
            write_config(small)
        line = refusal(*words)
        assert "xxx" in line, words
        assert "File name too long" in line or "readable" in line, line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml"]


def test_a_file_where_a_folder_should_be(
    refusal: Refusal, write_config: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    config = write_config(small_run(small))
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.json.part").mkdir()  # where the first file would be written
    line = refusal("train", config, "--out", out, "--quiet")
    assert line == f"{out / 'config.json'}: Is a directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_must_not_be_written(
    refusal: Refusal, write_config: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    line = refusal("train", write_config(small), "--out", closed / "run", "--quiet")
    assert line.endswith("cannot be made (Permission denied)")
