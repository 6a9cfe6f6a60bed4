"""A journal of how often a run has drawn noise, outside the checkpoint, written before sending.

A run that is interrupted goes on from its last checkpoint and repeats the rounds after it. Their
noise comes from the operating system, so each repetition is a further release of the same data and
has a privacy cost. A checkpoint does not record later rounds; this journal does.
"""

import errno
import os
from pathlib import Path

from secure_fedrec.errors import CheckpointError

_NAME = "releases.log"


class ReleaseJournal:
    """One line per round that was begun, in the order in which they were.

    Args:
        folder: folder of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME

    def begin(self, round_: int) -> None:
        """Note that a round is about to release something; the note is on disk when this returns.

        Raises:
            OSError: it could not be written; the round must not begin.
        """
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # A line without an end was being written when the run was cut off: its round had not
            # begun, and the next line must not be glued to it.
            written = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
            os.ftruncate(descriptor, written.rfind(b"\n") + 1)
            line = f"{round_}\n".encode()
            if os.write(descriptor, line) != len(line):  # a partial write: the round must not begin
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        except OSError as refused:
            raise OSError(refused.errno, refused.strerror, str(self._path)) from refused
        finally:
            os.close(descriptor)

    def repeated(self, completed: int) -> int:
        """Number of times that rounds were begun beyond once per completed round.

        Raises:
            CheckpointError: the journal does not have every completed round, or is damaged.
        """
        begun = self._begun()
        missing = sorted(set(range(1, completed + 1)) - set(begun))
        if missing:
            raise CheckpointError(
                f"{self._path} does not list round {missing[0]}: how often noise was drawn is "
                "unknown, and no epsilon can be stated"
            )
        return len(begun) - completed

    def _begun(self) -> list[int]:
        try:
            *lines, _ = self._path.read_bytes().split(b"\n")  # an incomplete last line is dropped
        except FileNotFoundError:
            return []
        try:
            return [int(line) for line in lines]
        except ValueError as damage:
            raise CheckpointError(f"{self._path} is damaged") from damage
