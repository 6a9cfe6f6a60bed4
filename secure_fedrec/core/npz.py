"""Strict npz files: written whole, read with their checksums, and nothing is ever unpickled."""

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.files import replace_file

__all__ = ["npz_names", "read_npz", "write_npz"]


def npz_names(path: Path) -> tuple[str, ...]:
    """Names of the arrays in a file, without reading them.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is not an npz file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return tuple(name.removesuffix(".npy") for name in archive.namelist())
    except (zipfile.BadZipFile, RuntimeError) as damage:
        raise ValueError(str(damage)) from damage


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read a whole npz file, checksums included.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is damaged, or holds anything but plain arrays.
    """
    with path.open("rb") as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                # Nobody writes comments: a length that became one swallows the next members.
                swallowed = any(member.comment for member in archive.infolist())
                # numpy alone does not reach the checksum of an array whose header shrank.
                if swallowed or archive.testzip() is not None:
                    raise ValueError("a checksum or the directory is wrong")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as content:
                return {name: content[name] for name in content.files}
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError) as damage:
            # RuntimeError: flags that claim encryption or an unknown compression.
            raise ValueError(str(damage)) from damage


def write_npz(
    path: Path,
    columns: Mapping[str, npt.NDArray[Any]],
    *,
    private: bool = False,
    durable: bool = False,
) -> None:
    """Write an npz file in one step; see ``replace_file``.

    Raises:
        OSError: it could not be written; names the file.
        ValueError: a column holds objects.
    """
    # In memory first: an archive that meets a full disk fails once more when it is closed.
    whole = io.BytesIO()
    np.savez(whole, allow_pickle=False, **columns)
    replace_file(path, whole.getvalue(), private=private, durable=durable)
