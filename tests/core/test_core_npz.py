"""Array files: what a checksum or the directory does not cover is not read."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from secure_fedrec.core.npz import npz_names, read_npz, write_npz


@pytest.mark.parametrize("count", [4, 400_000])
def test_a_header_that_hides_the_end_of_an_array_is_refused(count: int, tmp_path: Path) -> None:
    """numpy reads as much as the header says, and never comes to the checksum of a large one."""
    path, half = tmp_path / "file.npz", count // 2
    write_npz(path, {"a": np.arange(count)})
    assert np.array_equal(read_npz(path)["a"], np.arange(count))
    whole, told = path.read_bytes(), f"'shape': ({count},)".encode()
    assert whole.count(told) == 1
    path.write_bytes(whole.replace(told, f"'shape': ({half},)".encode().rjust(len(told))))
    with pytest.raises(ValueError, match="a checksum or the directory is wrong"):
        read_npz(path)


def test_a_comment_in_the_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    write_npz(path, {"a": np.arange(4)})
    with zipfile.ZipFile(path) as archive:
        (member,) = archive.infolist()
        content = archive.read(member)
    member.comment = b"a length that became one"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
    assert npz_names(path) == ("a",)
    with pytest.raises(ValueError, match="a checksum or the directory is wrong"):
        read_npz(path)


@pytest.mark.parametrize("told", [2, 10**12])
def test_a_header_that_tells_another_size_is_refused(told: int, tmp_path: Path) -> None:
    """Nothing is allocated for it, though the checksum of the file is right."""
    path = tmp_path / "file.npz"
    write_npz(path, {"a": np.arange(4)})
    with zipfile.ZipFile(path) as archive:
        (member,) = archive.infolist()
        content = archive.read(member)
    shape, other = b"'shape': (4,), }", f"'shape': ({told},), }}".encode()
    longer = len(other) - len(shape)
    begin, found, end = content.partition(shape)
    assert found
    content = begin + other + (end[longer:] if longer else end)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member.filename, content)
    with pytest.raises(ValueError, match="the header of an array tells another size"):
        read_npz(path)
