"""Kill anywhere, resume: real processes, SIGKILL, and every byte compared with a quiet run's."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.wire import Transcript

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]
ROUNDS, EVERY = 40, 5
REPORTS = ("report.json", "report.html")


@pytest.fixture
def config(small: dict[str, Any], write_config: Write) -> Path:
    """A run with enough rounds to be hit between checkpoints, a second fold and an attack phase."""
    small["data"] |= {"utility_folds": 2}
    small["algorithm"]["rounds"] = ROUNDS
    small["recording"]["payload_rounds"] = [1, 7, ROUNDS]
    small["run"]["checkpoint_every"] = EVERY
    return write_config(small)


def start(name: str, config: Path, out: Path) -> "subprocess.Popen[str]":
    """Begins a run, or goes on with it where the folder holds one."""
    words = [sys.executable, "-m", "audits.cli", name, str(config), "--out", str(out), "--quiet"]
    if (out / "config.json").exists():
        words.append("--resume")
    return subprocess.Popen(  # noqa: S603
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def kill_when(
    process: "subprocess.Popen[str]", reached: Callable[[], bool], *, patience: float = 60.0
) -> str:
    """Kills a process as soon as a point is reached; returns what it had printed."""
    end = time.monotonic() + patience
    with process:
        while not reached():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < end
            time.sleep(0.0005)
        os.kill(process.pid, signal.SIGKILL)
        stdout, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    return stdout


def round_reached(out: Path, round_: int) -> Callable[[], bool]:
    """Whether the transcript holds a round, complete or in progress."""

    def reached() -> bool:
        folder = out / "transcript" / "rounds"
        return any((folder / f"{round_:06d}{end}").exists() for end in ("", ".part"))

    return reached


def arrays(path: Path) -> dict[str, tuple[str, bytes]]:
    with np.load(path) as content:
        return {name: (str(content[name].dtype), content[name].tobytes()) for name in content.files}


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All files of a run but its report."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in REPORTS:
            yield str(path.relative_to(folder)), path.read_bytes()


def same_run(left: Path, right: Path) -> None:
    assert arrays(left / "checkpoint.npz") == arrays(right / "checkpoint.npz")
    digests = [Transcript.open(run / "transcript").digest() for run in (left, right)]
    assert digests[0] == digests[1]
    assert [name for name, _ in files(left)] == [name for name, _ in files(right)]
    assert dict(files(left)) == dict(files(right))


def timeless(folder: Path) -> str:
    """A report without its times, memory and command line."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    for part, keys in {
        "cost": ("seconds", "peak_memory_mb"),
        "manifest": ("seconds", "started", "command"),
    }.items():
        for key in keys:
            del report[part][key]
    return json.dumps(report, indent=1)


def test_an_audit_killed_again_and_again_ends_like_one_that_was_not(
    command: Command, config: Path, tmp_path: Path
) -> None:
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    assert command("audit", config, "--out", quiet, "--quiet")[0] == 1  # a privacy gate falls

    points = [
        killed.exists,  # before the first checkpoint is whole
        round_reached(killed, random.Random(20210202).randrange(2, ROUNDS // 2)),
        (killed / "folds.json").exists,  # training is over: the twin and the attacks
    ]
    for reached in points:
        kill_when(start("audit", config, killed), reached)
        assert not (killed / "report.json").exists()
    with start("audit", config, killed) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    same_run(quiet, killed)
    assert timeless(quiet) == timeless(killed)


def test_a_training_killed_between_checkpoints_goes_on_from_the_last(
    command: Command, refusal: Callable[..., str], config: Path, tmp_path: Path
) -> None:
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    code, lines, _ = command("train", config, "--out", quiet, "--quiet")
    assert code == 0
    expected = [json.loads(line) for line in lines.splitlines()]
    assert [line["round"] for line in expected] == list(range(1, ROUNDS + 1))

    printed: list[str] = []
    for round_ in (EVERY + 2, 3 * EVERY + 1):
        printed += kill_when(
            start("train", config, killed), round_reached(killed, round_)
        ).splitlines()
        # What a kill in mid-write leaves: unfinished rounds and files, to be dropped.
        for store in ("transcript", "truth"):
            stale = killed / store / "rounds" / f"{round_ + 1:06d}.part"
            stale.mkdir(exist_ok=True)
            (stale / "upload-000.npz").write_bytes(b"half a block")
            (killed / "checkpoint.npz.part").write_bytes(b"half a checkpoint")
    resumption = ("train", config, "--out", killed, "--resume", "--quiet")
    checkpoint = killed / "checkpoint.npz"
    sound = checkpoint.read_bytes()
    for damaged in (sound[: len(sound) // 2], sound[:-1], b"", flipped(sound)):
        checkpoint.write_bytes(damaged)
        before = dict(files(killed))
        assert refusal(*resumption) == f"{checkpoint} is damaged"
        assert dict(files(killed)) == before
    checkpoint.write_bytes(sound)
    code, lines, _ = command(*resumption)
    assert code == 0
    printed += lines.splitlines()
    rounds = {line["round"]: line for line in map(json.loads, filter(whole, printed))}
    assert [rounds[number] for number in range(1, ROUNDS + 1)] == expected
    same_run(quiet, killed)


def whole(line: str) -> bool:
    """Whether a printed line was not cut by the kill."""
    return line.endswith("}")


def flipped(content: bytes) -> bytes:
    """The content with one bit of its middle turned over."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def test_resuming_a_finished_audit_judges_again_and_trains_nothing(
    recorded: Path,
    small: dict[str, Any],
    write_config: Write,
    command: Command,
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    path = write_config(small)
    assert command("audit", path, "--out", run, "--resume", "--quiet")[0] == 1
    assert dict(files(run)) == dict(files(recorded))
    assert timeless(run) == timeless(recorded)

    small |= {"gates": [{"metric": "rmse", "max": 5.0}], "attacks": ["direct"], "title": "Again"}
    # What is learned from one upload no gate judges any more.
    assert command("audit", write_config(small), "--out", run, "--resume", "--quiet")[0] == 3
    assert arrays(run / "checkpoint.npz") == arrays(recorded / "checkpoint.npz")
    assert json.loads((run / "config.json").read_text(encoding="utf-8"))["title"] == "Again"
