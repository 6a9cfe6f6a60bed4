"""Checkpoints: read back exactly, private to their owner, refused when damaged or foreign."""

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secure_fedrec.engines import read_checkpoint, write_checkpoint
from secure_fedrec.errors import CheckpointError

pytestmark = pytest.mark.claim("no-pickle")

Arrays = dict[str, npt.NDArray[Any]]


def state() -> Arrays:
    rng = np.random.default_rng(1)
    return {
        "table": rng.normal(size=(4, 3)),
        "vault.user_vectors": np.array([[np.nan, -0.0, np.inf, 5e-324]]),
        "round": np.array(7),
        "words": np.array([0, 2**64 - 1], dtype=np.uint64),
        "names": np.array(["a", "bc"]),
        "nothing": np.empty((0, 2)),
    }


def same(left: Arrays, right: Arrays) -> bool:
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].tobytes() == right[name].tobytes()
        for name in left
    )


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.npz"
    write_checkpoint(path, state(), run_id="run")
    return path


def test_round_trip_keeps_every_bit(written: Path) -> None:
    assert same(read_checkpoint(written, run_id="run"), state())


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    previous = os.umask(0)
    try:
        (tmp_path / "checkpoint.npz.part").touch(mode=0o666)  # left by a killed run
        write_checkpoint(path, state(), run_id="run")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_checkpoint_replaces_the_old_one_and_leaves_nothing_else(written: Path) -> None:
    newer = {**state(), "round": np.array(8)}
    write_checkpoint(written, newer, run_id="run")
    assert same(read_checkpoint(written, run_id="run"), newer)
    assert [path.name for path in written.parent.iterdir()] == [written.name]


def test_an_interrupted_write_leaves_the_old_checkpoint(written: Path) -> None:
    with pytest.raises(ValueError, match=r"[Oo]bject arrays"):
        write_checkpoint(written, {"table": np.array([object()])}, run_id="run")
    assert same(read_checkpoint(written, run_id="run"), state())
    write_checkpoint(written, state(), run_id="run")
    assert same(read_checkpoint(written, run_id="run"), state())


def test_an_absent_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing to resume"):
        read_checkpoint(tmp_path / "checkpoint.npz", run_id="run")
    with pytest.raises(CheckpointError):
        read_checkpoint(tmp_path, run_id="run")


def test_a_foreign_checkpoint_is_refused(written: Path) -> None:
    for run_id in ("", "run2", "Run"):
        with pytest.raises(CheckpointError, match="another configuration"):
            read_checkpoint(written, run_id=run_id)


def test_truncated_checkpoints_are_refused(written: Path) -> None:
    whole = written.read_bytes()
    for length in range(0, len(whole), 17):
        written.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            read_checkpoint(written, run_id="run")


def test_changed_checkpoints_are_refused_or_unchanged_in_content(written: Path) -> None:
    whole = written.read_bytes()
    refused = 0
    places = range(0, len(whole), 7)
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        written.write_bytes(damaged)
        try:
            content = read_checkpoint(written, run_id="run")
        except CheckpointError:
            refused += 1
        else:  # dates and attributes of the archive carry nothing
            assert same(content, state()), f"byte {place}"
    assert refused > len(places) / 2


@pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY\x01\x00", b"not a checkpoint" * 9])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint.npz"
    path.write_bytes(content)
    with pytest.raises(CheckpointError):
        read_checkpoint(path, run_id="run")


def test_other_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    np.savez(path, table=np.zeros(3))
    with pytest.raises(CheckpointError, match="version"):
        read_checkpoint(path, run_id="run")
    np.savez(path, version=np.array("2"), run_id=np.array("run"))
    with pytest.raises(CheckpointError, match="has version 2, need 3"):
        read_checkpoint(path, run_id="run")


def test_pickles_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    content: dict[str, Any] = {
        "version": np.array("3"),
        "run_id": np.array("run"),
        "state.table": np.array([{"an": "object"}], dtype=object),
    }
    np.savez(path, **content)
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(path, run_id="run")
