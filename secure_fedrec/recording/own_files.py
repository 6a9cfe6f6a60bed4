"""Checks that files and folders are regular: links are not followed, pipes not opened."""

import stat
from pathlib import Path

from secure_fedrec.errors import TranscriptError


def require_file(path: Path) -> None:
    """Refuse what is not a regular file before it is opened: opening a pipe may never return.

    Raises:
        TranscriptError: it is a link, a folder, a pipe or a device, or it does not exist.
    """
    if not stat.S_ISREG(_mode(path)):
        raise TranscriptError(f"{path} is not a regular file")


def require_folder(path: Path) -> None:
    """Refuse what is not a folder, such as a link to one.

    Raises:
        TranscriptError: it is a link or a file, or it does not exist.
    """
    if not stat.S_ISDIR(_mode(path)):
        raise TranscriptError(f"{path} is not a folder")


def _mode(path: Path) -> int:
    try:
        mode = path.lstat().st_mode
    except (OSError, ValueError) as absent:
        raise TranscriptError(f"{path} is damaged, or not there: {absent}") from absent
    if stat.S_ISLNK(mode):
        raise TranscriptError(f"{path} is a link; a recording has files of its own")
    return mode
