"""Files that cannot be read or written: what went wrong, as a ``DataError`` of the file."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from secure_fedrec.errors import DataError


@contextmanager
def refused(path: str | Path, problem: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of some kinds into a ``DataError``.

    Args:
        path: path of the file.
        problem: what is wrong with it, as a clause; {} stands for the error.
        kinds: kinds of errors.

    Raises:
        DataError: an error of these kinds was raised.
    """
    try:
        yield
    except kinds as error:
        raise DataError(path, problem.format(error)) from error


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Read a file, which may be packed by gzip.

    Raises:
        DataError: it cannot be read or unpacked.
    """
    try:
        with refused(
            path, "is a damaged or truncated gzip file ({})", gzip.BadGzipFile, EOFError, zlib.error
        ):
            yield
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror or error})") from error


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Write a file.

    Raises:
        DataError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise DataError(path, f"cannot be written ({error.strerror or error})") from error
