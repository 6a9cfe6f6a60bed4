"""A run folder: its single writer, whether it can hold a run, and its configuration.

One process at a time writes a run folder. It holds locks of the operating system on ``run.lock``
and on the folder, which the kernel releases however the process ends; two processes would overwrite
each other's rounds. If the system or the file system does not have such locks, the folder is
refused.
"""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from secure_fedrec.core.file_lock import lock_file
from secure_fedrec.core.files import read_json, replace_file
from secure_fedrec.errors import CheckpointError, ConfigError, EncodingError

CONFIG_NAME = "config.json"
_SECRETS = "secrets.json"
"""File beside it, for a gathered deployment."""
CONFIG_DIGEST = "sha256"
"""Key of a run's ``config.json`` for the digest of all its other keys."""

_LOCK = "run.lock"


@contextlib.contextmanager
def one_writer(out: Path, *, resume: bool) -> Iterator[None]:
    """Lock a run folder against other writers; the folder is made if it is missing.

    A fresh run whose training leaves the ring would end there again when resumed, and would only
    block the folder: its files are removed. Files of a resumed run stay.

    Args:
        out: run folder.
        resume: whether a run in it is to be continued.

    Raises:
        ConfigError: another process writes it, or it cannot be made, locked or used for the run.
    """
    try:
        _require_usable(out, resume=resume)  # before anything is written
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as refused:
        raise _unusable(out, f"cannot be made ({refused.strerror})") from refused
    try:
        out.chmod(0o700)  # a transcript gives the ratings away as surely as the truth does
        descriptor = os.open(out / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as refused:
        raise _unusable(out, f"cannot be written ({refused.strerror})") from refused
    try:
        _lock(descriptor, out, shared=False)
        with _folder_locked(out, shared=False):
            _require_usable(out, resume=resume)  # again under the lock: it may have changed
            try:
                yield
            except EncodingError:
                if not resume:
                    _empty(out)
                raise
    finally:
        os.close(descriptor)


def _empty(out: Path) -> None:
    """Remove the files of a run from a folder that was empty before."""
    for path in out.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != _LOCK:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def unwritten(run: Path) -> Iterator[None]:
    """Lock a run folder for reading, so that no process writes it.

    Raises:
        ConfigError: a process is writing it.
    """
    try:
        descriptor = os.open(run / _LOCK, os.O_RDONLY)
    except FileNotFoundError:  # a copy without its lock, or the lock was deleted
        with _folder_locked(run, shared=True):
            yield
        return
    try:
        _lock(descriptor, run, shared=True)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _folder_locked(folder: Path, *, shared: bool) -> Iterator[None]:
    """Lock the folder itself too, if the file system can, since ``run.lock`` can be deleted.

    Raises:
        ConfigError: a process is writing it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            _lock(descriptor, folder, shared=shared)
        except ConfigError as refused:
            # Network file systems lock only what is open for writing, and a folder never is.
            if not refused.problem.startswith("cannot be locked"):
                raise
        yield
    finally:
        os.close(descriptor)


def write_own_config(out: Path, settings: Mapping[str, Any]) -> None:
    """Write ``config.json`` with its own digest, so that edits are detected."""
    write_json(out / CONFIG_NAME, {**settings, CONFIG_DIGEST: _digest(settings)})


def read_own_config(out: Path) -> dict[str, Any]:
    """The configuration that a run was begun or last continued with, without its digest.

    Raises:
        CheckpointError: it is missing, damaged, or was edited.
    """
    path = out / CONFIG_NAME
    try:
        found = read_json(path)
    except (OSError, ValueError) as damage:
        raise CheckpointError(f"{path} is damaged") from damage
    stated = found.pop(CONFIG_DIGEST, None) if isinstance(found, dict) else None
    if stated != _digest(found):
        raise CheckpointError(
            f"{path} was edited after it was written; restore it, or begin a new run with it as "
            "CONFIG in another folder"
        )
    settings: dict[str, Any] = found
    return settings


def write_client_secrets(out: Path, secrets: Mapping[int, bytes]) -> None:
    """Store the clients' secrets of a deployment, readable by the owner only.

    Args:
        out: run folder.
        secrets: 32 bytes by client.
    """
    told = {str(client): secret.hex() for client, secret in sorted(secrets.items())}
    replace_file(out / _SECRETS, json.dumps(told).encode(), private=True)


def read_client_secrets(out: Path) -> dict[int, bytes] | None:
    """The secrets of ``write_client_secrets``; None if clients drew from the seed.

    Raises:
        CheckpointError: it is damaged.
    """
    path = out / _SECRETS
    if not path.exists():
        return None
    try:
        return {int(client): bytes.fromhex(told) for client, told in read_json(path).items()}
    except (OSError, ValueError, AttributeError) as damage:
        raise CheckpointError(f"{path}: {damage}") from None


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file in one step."""
    replace_file(path, (json.dumps(content, indent=2) + "\n").encode())


def _digest(settings: object) -> str:
    return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _lock(descriptor: int, folder: Path, *, shared: bool) -> None:
    try:
        lock_file(descriptor, shared=shared)
    except ImportError as absent:
        problem = "cannot be locked on this system, and two writers would mix their rounds"
        raise _unusable(folder, problem) from absent
    except OSError as refused:
        problem = f"cannot be locked ({refused.strerror}); choose a folder on a local disk"
        if refused.errno in (errno.EWOULDBLOCK, errno.EACCES):
            problem = "is being written by another process"
        raise _unusable(folder, problem) from refused


def _unusable(folder: Path, problem: str) -> ConfigError:
    return ConfigError("--out", str(folder), problem)


def _require_usable(out: Path, *, resume: bool) -> None:
    """Refuse a folder that cannot be used for the run.

    Raises:
        ConfigError: it already holds a run, holds none to resume, or is not an empty folder.
    """
    if out.exists() and not out.is_dir():
        raise _unusable(out, "is not a folder")
    for parent in Path(os.path.realpath(out)).parents:
        if (parent / CONFIG_NAME).exists() and (parent / _LOCK).exists():
            raise _unusable(out, f"lies within the run folder {parent}")
    begun = (out / CONFIG_NAME).exists()
    if begun and not resume:
        raise _unusable(out, "already holds a run; continue it with --resume or name a new folder")
    if resume and not begun:
        raise _unusable(out, "does not hold a run to resume")
    # If the process was killed while writing the first file, only its temporary file exists.
    found = out.iterdir() if out.exists() else ()
    if not resume and any(path.suffix != ".part" and path.name != _LOCK for path in found):
        raise _unusable(out, "is not empty; name a new folder")
