"""A recording that is read many times: the same blocks, from one look at its files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.npz import read_npz
from secure_fedrec.errors import TranscriptError
from secure_fedrec.wire import BlockStore, held


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = BlockStore(tmp_path)
    for round_ in (1, 2):
        for number in range(2):
            columns = {"senders": np.arange(3) + number, "lengths": np.full(3, round_)}
            store.append(round_, "upload", columns)
        store.append(round_, "upload-more", {"senders": np.arange(2)})
        store.seal(round_)
    return tmp_path


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read from now on."""
    read: list[Path] = []

    def reading(path: Path) -> dict[str, Any]:
        read.append(path)
        return read_npz(path)

    monkeypatch.setattr("secure_fedrec.wire.held.read_npz", reading)
    return read


def test_it_answers_as_the_store_does_and_reads_every_file_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, kept = BlockStore(folder), held.HeldBlocks(folder)
    read = counted(monkeypatch)
    for _ in range(3):
        assert kept.rounds() == plain.rounds() == (1, 2)
        for round_ in (1, 2, 3):
            assert kept.kinds(round_) == plain.kinds(round_)
            for name in ("upload", "upload-more", "upload-", "noise"):
                assert kept.names(round_, name) == plain.names(round_, name)
                here, there = list(kept.read(round_, name)), list(plain.read(round_, name))
                assert len(here) == len(there)
                for one, other in zip(here, there, strict=True):
                    assert one.keys() == other.keys()
                    assert all(np.array_equal(one[key], other[key]) for key in one)
    assert len(read) == len(set(read)) == 6


def test_what_is_kept_cannot_be_changed(folder: Path) -> None:
    kept = held.HeldBlocks(folder)
    for columns in kept.read(1, "upload"):
        with pytest.raises(ValueError, match="read-only"):
            columns["senders"][0] = 7
        columns.clear()
    assert [sorted(columns) for columns in kept.read(1, "upload")] == [["lengths", "senders"]] * 2


def test_memory_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = counted(monkeypatch)
    nothing = held.HeldBlocks(folder, limit=0)
    for _ in range(2):
        assert len(list(nothing.read(1, "upload"))) == 2
    assert len(read) == 4


def test_a_damaged_block_is_refused(folder: Path) -> None:
    (folder / "rounds" / "000001" / "upload-001.npz").write_bytes(b"PK")
    kept = held.HeldBlocks(folder)
    with pytest.raises(TranscriptError, match="a block of upload of round 1 is damaged"):
        kept.names(1, "upload")
    with pytest.raises(TranscriptError, match=r"upload-001\.npz of round 1 is damaged"):
        list(kept.read(1, "upload"))


def test_blocks_in_memory_are_what_they_are() -> None:
    store = BlockStore(None)
    assert held.held(store) is store
