"""Files that are complete or absent: written beside their place, then moved into it in one step."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from errno import ELOOP
from pathlib import Path
from typing import Any


def replace_file(
    path: Path,
    content: bytes | Callable[[Callable[[bytes], int]], object],
    *,
    private: bool = False,
    durable: bool = False,
) -> None:
    """Write a file, or replace the one that is there, in one step.

    Whatever interrupts it leaves the file as it was and nothing beside it; only a kill leaves the
    unfinished ``NAME.part``, which the next write replaces. For a link, its target is replaced; a
    device or a pipe is written to and not replaced.

    Args:
        path: destination.
        content: content of the file, or a function that is called with a function that writes a
            piece.
        private: for its owner alone, whatever the process's mask.
        durable: wait for the disk before the file gets its name.

    Raises:
        OSError: it could not be written; names the file.
    """
    write = content if callable(content) else (lambda piece: piece(content))
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            write(stream.write)
        return
    try:
        place = path.resolve()
    except RuntimeError:  # a loop of links; Python 3.13 resolves what it can
        place = path
    if place.is_symlink():  # to itself
        raise OSError(ELOOP, os.strerror(ELOOP), str(path))
    temporary = place.with_name(place.name + ".part")
    try:
        mode = 0o600 if private else 0o666
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as stream:
            if private:
                os.fchmod(descriptor, mode)  # a file left by a killed run keeps its old mode
            write(stream.write)
            stream.flush()
            if durable:
                os.fsync(descriptor)
        temporary.replace(place)
    except BaseException as failure:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(failure, OSError):
            raise OSError(failure.errno, failure.strerror, str(path)) from failure
        raise


def read_json(path: Path) -> Any:
    """The value in a JSON file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON, or nested too deeply.
    """
    text = path.read_text(encoding="utf-8")
    try:
        return json.loads(text)
    except RecursionError as deep:
        raise ValueError("is nested too deeply") from deep


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
