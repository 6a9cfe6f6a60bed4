"""A run folder: one writer, a whole recording before any verdict, an unedited configuration."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from secure_fedrec.wire import Transcript
from tests.audits.folders import snapshot
from tests.audits.silenced import all_waived

pytestmark = pytest.mark.claim("run-folder-one-writer")

Command = Callable[..., tuple[int, str, str]]
Refusal = Callable[..., str]
Write = Callable[[dict[str, Any]], Path]


def begin(*words: str | Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "audits.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines_of(process: "subprocess.Popen[str]", count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


@contextmanager
def held(folder: Path, how: int) -> Iterator[None]:
    """Another process's lock, as far as the kernel can tell: another open file."""
    with (folder / "run.lock").open("rb") as stream:
        fcntl.flock(stream, how)
        yield


# One writer.


def test_two_resumptions_of_one_run(
    write_config: Write,
    small: dict[str, Any],
    command: Command,
    refusal: Refusal,
    tmp_path: Path,
) -> None:
    """The second is refused, the first ends on all rounds: two once passed on some of them."""
    small["algorithm"]["rounds"] = 40
    small["gates"] = [{"metric": "lossless", "equals": True}]
    small["waivers"] = all_waived(small)
    config, quiet, out = write_config(small), tmp_path / "quiet", tmp_path / "out"
    assert command("train", config, "--out", quiet, "--quiet")[0] == 0
    with begin("train", config, "--out", out, "--quiet") as killed:
        assert len(lines_of(killed, 8)) == 8
        killed.kill()
    resumption = ("train", config, "--out", out, "--resume", "--quiet")
    with begin(*resumption) as first:
        lines_of(first, 1)  # it writes
        first.send_signal(signal.SIGSTOP)
        for name in ("audit", "train"):
            line = refusal(name, *resumption[1:])
            assert line == f"--out = '{out}': is being written by another process"
        first.send_signal(signal.SIGCONT)
        first.communicate(timeout=60)
    assert first.returncode == 0
    digests = [Transcript.open(run / "transcript").digest() for run in (quiet, out)]
    assert digests[0] == digests[1]
    code, printed, _ = command("audit", config, "--out", out, "--resume", "--quiet", "--json")
    assert (code, json.loads(printed)["lossless"]["rounds_compared"]) == (0, 40)


@pytest.mark.parametrize("name", ["audit", "train"])
def test_a_folder_that_is_being_written_is_left_alone(
    refusal: Refusal, recorded: Path, tmp_path: Path, name: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    before = snapshot(run)
    problem = f"--out = '{run}': is being written by another process"
    config = recorded.parent / "config.toml"
    with held(run, fcntl.LOCK_EX):
        assert refusal(name, config, "--out", run, "--resume") == problem
        assert refusal("attack", run / "transcript") == problem
    with held(run, fcntl.LOCK_SH):  # while somebody attacks it
        assert refusal(name, config, "--out", run, "--resume") == problem
    assert snapshot(run) == before


def test_a_fresh_folder_is_held_before_it_holds_a_run(
    refusal: Refusal, write_config: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "run.lock").touch()
    with held(out, fcntl.LOCK_EX):
        line = refusal("audit", write_config(small), "--out", out)
    assert line == f"--out = '{out}': is being written by another process"
    assert list(snapshot(out)) == ["run.lock"]


def test_a_file_system_without_locks_is_refused(
    refusal: Refusal,
    write_config: Write,
    small: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    line = refusal("audit", write_config(small), "--out", tmp_path / "run")
    assert line.endswith("(No locks available); choose a folder on a local disk")


# A whole recording.


def extra(file: Path) -> None:
    shutil.copy(file, file.with_name("upload-001.npz"))


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("again", ["attack", "resume"])
@pytest.mark.parametrize(
    ("name", "damage", "blamed", "problem"),
    [
        ("transcript/rounds/000003/upload-000.npz", Path.unlink, "", "is missing"),
        ("transcript/rounds/000003/upload-000.npz", truncated, "", "is damaged"),
        ("transcript/rounds/000003/upload-000.npz", flipped, "", "is damaged"),
        ("transcript/rounds/000003/upload-000.npz", extra, "upload-001.npz", "does not belong"),
        ("transcript/rounds/000003", shutil.rmtree, "", "is missing"),
        ("truth/rounds/000004/noise-origins-000.npz", flipped, "", "is damaged"),
        ("truth/ratings.npz", flipped, "", ""),
        ("recording.json", truncated, "", "is damaged"),
        ("recording.json", Path.unlink, "", "is missing"),
    ],
)
def test_what_is_wrong_with_a_recording_is_named_before_any_verdict(
    refusal: Refusal,
    recorded: Path,
    tmp_path: Path,
    name: str,
    damage: Callable[[Path], None],
    blamed: str,
    problem: str,
    again: str,
) -> None:
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    damage(run / name)
    words: tuple[str | Path, ...] = ("attack", run / "transcript")
    if again == "resume":
        words = ("audit", recorded.parent / "config.toml", "--out", run, "--resume")
    line = refusal(*words, "--quiet")
    assert problem in line
    if (name, again) != ("truth/ratings.npz", "attack"):  # which is read before it is compared
        assert line.startswith(str((run / name).with_name(blamed) if blamed else run / name))


def test_rounds_that_only_the_checkpoint_knows_are_refused(
    refusal: Refusal, recorded: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    seal = json.loads((run / "recording.json").read_text())
    seal["rounds"] = 3
    seal["files"] = {n: d for n, d in seal["files"].items() if not n.split("/")[2:3] > ["000003"]}
    (run / "recording.json").write_text(json.dumps(seal))
    line = refusal("audit", recorded.parent / "config.toml", "--out", run, "--resume")
    assert line == f"{run / 'recording.json'} knows 3 of 6 completed rounds"


# An unedited configuration.


def test_an_edited_configuration_is_for_a_new_run(
    refusal: Refusal, command: Command, recorded: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    kept = run / "config.json"
    settings = json.loads(kept.read_text())
    settings["gates"][1]["max"] = 0.999  # as if the AUC had been allowed to be anything
    kept.write_text(json.dumps(settings))
    before = snapshot(run)
    for words in (
        ("audit", kept, "--out", run, "--resume"),
        ("audit", recorded.parent / "config.toml", "--out", run, "--resume"),
        ("train", recorded.parent / "config.toml", "--out", run, "--resume"),
        ("attack", run / "transcript"),
    ):
        assert refusal(*words).startswith(f"{kept} was edited after it was written; ")
    assert snapshot(run) == before
    assert command("train", kept, "--out", tmp_path / "new", "--quiet")[0] == 0
    assert command("train", kept, "--out", tmp_path / "new", "--quiet", "--resume")[0] == 0
