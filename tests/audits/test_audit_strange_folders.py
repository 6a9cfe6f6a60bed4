"""Strange run folders and strange surroundings: a line and exit code 2, never an internal error."""

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits.run.folder import one_writer
from secure_fedrec.wire.spool import Spool

Command = Callable[..., tuple[int, str, str]]
Refusal = Callable[..., str]
Write = Callable[[dict[str, Any]], Path]

DEEP = "[" * 100_000
ROUNDS = "transcript/rounds"


def started(shell: str, *words: str | Path) -> "subprocess.CompletedProcess[bytes]":
    """The command in a shell that has done something to its streams first."""
    program = [sys.executable, "-m", "audits.cli", *map(str, words)]
    line = ["/bin/bash", "-c", f'"$@" {shell}', "_", *program]
    return subprocess.run(line, capture_output=True, check=False)  # noqa: S603


@pytest.fixture
def out(recorded: Path, write_config: Write, small: dict[str, Any], tmp_path: Path) -> Path:
    """A copy of a finished run, its configuration beside it."""
    write_config(small)
    shutil.copytree(recorded, tmp_path / "run")
    return tmp_path / "run"


def resumed(out: Path) -> tuple[str | Path, ...]:
    return ("audit", out.parent / "config.toml", "--out", out, "--resume", "--quiet")


def no_history(out: Path) -> None:
    with np.load(out / "checkpoint.npz") as kept:
        columns = dict(kept)
    del columns["state.history.digests"]
    np.savez(out / "checkpoint.npz", **columns)


@pytest.mark.parametrize(
    ("damage", "file", "problem"),
    [
        (no_history, "checkpoint.npz", "is damaged"),
        ("x", "folds.json", "is damaged"),
        ("[]", "folds.json", "is damaged"),
        (DEEP, "folds.json", "is damaged"),
        (DEEP, "config.json", "is damaged"),
        (DEEP, "recording.json", "is damaged"),
        ('{"rounds": 9, "files": {"a": "b"}}', "recording.json", "run/a is missing"),
        ("x", "transcript", "File exists"),
        ("x", "truth", "File exists"),
    ],
)
def test_a_damaged_file_of_a_run_is_named_when_it_is_resumed(
    command: Command, out: Path, damage: str | Callable[[Path], None], file: str, problem: str
) -> None:
    if callable(damage):
        damage(out)
    else:
        if (out / file).is_dir():
            shutil.rmtree(out / file)
        (out / file).write_text(damage)
    code, said, err = command(*resumed(out))
    line = err.splitlines()[-1]
    assert (code, said) == (2, ""), err
    assert problem in line
    assert file in line or problem == "run/a is missing"


@pytest.mark.parametrize("file", ["transcript/transcript.json", "recording.json", "config.json"])
def test_a_file_nested_too_deeply_is_named_by_attack(
    refusal: Refusal, out: Path, file: str
) -> None:
    (out / file).write_text(DEEP)
    assert Path(file).name in refusal("attack", out / "transcript")


def test_a_manifest_without_its_keys_is_named(refusal: Refusal, out: Path) -> None:
    manifest = out / "transcript/transcript.json"
    manifest.write_text(json.dumps({"schema_version": "1", "public": {}}))
    assert "transcript.json is damaged" in refusal("attack", out / "transcript")


def test_a_damaged_truth_is_not_called_missing(refusal: Refusal, out: Path) -> None:
    os.truncate(out / "truth/ratings.npz", 100)
    assert "truth/ratings.npz is damaged" in refusal("attack", out / "transcript")


def test_a_folder_that_is_no_round_counts_as_none(command: Command, out: Path) -> None:
    """A stray folder once ended in a traceback, or counted a round twice."""
    code, found, _ = command("attack", out / "transcript", "--json", "--quiet")
    stray = [out / ROUNDS / name for name in ("1", "notes", "²", "٣", "000000", "keep.part")]
    stray.append(out / "truth/rounds/notes")
    for folder in stray:
        folder.mkdir()
    assert command("attack", out / "transcript", "--json", "--quiet")[:2] == (code, found)
    assert command(*resumed(out))[0] not in (2, 4)
    assert all(folder.is_dir() for folder in stray)


def test_no_run_within_another(refusal: Refusal, out: Path, command: Command) -> None:
    """It once made the outer recording one to which strange files belong."""
    config = out.parent / "config.toml"
    for within in (out / "new", out / "transcript/new", out / ROUNDS / "000001.part" / "x"):
        assert "lies within the run folder" in refusal("audit", config, "--out", within)
        assert not within.exists()
    assert command("attack", out / "transcript", "--quiet")[0] != 2


@pytest.mark.parametrize("content", ["a = " + DEEP, "seed = " + "9" * 5000])
def test_a_configuration_that_no_reader_takes(
    refusal: Refusal, tmp_path: Path, content: str
) -> None:
    for name in ("c.toml", "c.json"):
        (tmp_path / name).write_text(content if name == "c.toml" else content.partition("= ")[2])
        refusal("train", tmp_path / name)


def test_an_override_of_a_list_that_holds_no_tables(
    refusal: Refusal, write_config: Write, small: dict[str, Any]
) -> None:
    words = ("--set", "gates=[1]", "--set", "gates.max=1")
    assert "gates" in refusal("train", write_config(small), *words)


# Streams.


@pytest.mark.parametrize(
    "streams",
    [">&-", "<&- >&- 2>&-", "2>/dev/full"],
)
def test_closed_and_full_streams_are_no_internal_error(streams: str) -> None:
    ended = started(streams, "explain")
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_refusal_into_a_full_stream_is_no_verdict() -> None:
    """Exit code 1 says that a gate fell."""
    assert started("2>/dev/full", "init", "nothing").returncode == 2
    assert started("2>&-", "init", "nothing").stdout == b""


def test_a_reader_that_leaves() -> None:
    ended = started("| true; exit ${PIPESTATUS[0]}", "explain")
    assert ended.returncode in (0, 2)  # 0: all was written before the reader left
    wanted = b"secure-fedrec: standard output: Broken pipe\n"
    assert ended.stderr == (wanted if ended.returncode == 2 else b"")


def test_a_name_that_is_no_text(write_config: Write, small: dict[str, Any], tmp_path: Path) -> None:
    out = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xc3\xa9")
    ended = started("", "audit", write_config(small), "--out", out, "--quiet")
    assert ended.returncode in (0, 1, 3), ended.stderr
    assert b"report: " in ended.stdout
    assert Path(out, "report.html").exists()


def test_what_memory_does_not_hold_is_written_whole(tmp_path: Path) -> None:
    """numpy's own writing names neither file nor cause, and may cut a file short in silence."""
    spool, ids = Spool(tmp_path / "scratch", limit=1), np.arange(20_000)
    columns = {"senders": ids, "receivers": ids, "sizes": ids, "lengths": np.ones_like(ids)}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="scratch") as refused:
            for _ in range(2):  # what came last is in memory until it is read
                spool.add({**columns, "rows": ids})
            list(spool.blocks())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert refused.value.errno == errno.EFBIG


def test_deleting_the_lock_file_lets_no_second_writer_in(
    refusal: Refusal, out: Path, tmp_path: Path
) -> None:
    with one_writer(out, resume=True):
        (out / "run.lock").unlink()
        assert "is being written by another process" in refusal("attack", out / "transcript")
        words = ("train", tmp_path / "config.toml", "--out", out, "--resume", "--quiet")
        assert "is being written by another process" in refusal(*words)
