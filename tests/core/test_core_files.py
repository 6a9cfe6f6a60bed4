"""Files are replaced whole; what is not a file is not replaced."""

import os
import threading
from errno import ELOOP
from pathlib import Path

import pytest

from secure_fedrec.core.files import replace_file


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    replace_file(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    replace_file(pipe, b"content")
    reader.join(timeout=10)
    assert read == [b"content"]
    assert pipe.is_fifo()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        replace_file(tmp_path, b"content")
    assert not list(tmp_path.iterdir())


def test_a_link_to_itself_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "loop"
    path.symlink_to(path)
    with pytest.raises(OSError, match="loop") as refused:
        replace_file(path, b"")
    assert refused.value.errno == ELOOP
