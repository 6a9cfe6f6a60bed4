"""The journal of releases: a line is on disk, whole, before its round releases anything."""

import os
from pathlib import Path
from typing import Any

import pytest

from audits.run.releases import ReleaseJournal


def test_a_line_is_on_disk_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append((tmp_path / "releases.log").read_bytes())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    journal = ReleaseJournal(tmp_path)
    for round_ in (1, 2):
        journal.begin(round_)
    assert synced == [b"1\n", b"1\n2\n"]
    assert (tmp_path / "releases.log").stat().st_mode & 0o077 == 0


def test_a_line_that_is_cut_short_begins_no_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = ReleaseJournal(tmp_path)
    journal.begin(1)
    write = os.write

    def short(descriptor: int, line: Any) -> int:
        return write(descriptor, line[:-1])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short)
        with pytest.raises(OSError, match="No space left on device") as refused:
            journal.begin(2)
    assert refused.value.filename == str(tmp_path / "releases.log")
    assert journal.repeated(1) == 0
    journal.begin(2)
    assert journal.repeated(2) == 0
