"""Checkpoints: the whole state of a run in one file, written so that a kill leaves the old one.

A checkpoint is device-local persistence of private state (user vectors of the simulation), not a
message: it is written with owner-only permissions, holds plain arrays, and is read without pickle.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.core.npz import read_npz, write_npz
from secure_fedrec.errors import CheckpointError

_KEY_BYTES = 32
_VERSION = "3"

Columns = Mapping[str, npt.NDArray[Any]]
"""Arrays of a state by name."""


def write_checkpoint(path: Path, arrays: Columns, *, run_id: str) -> None:
    """Replace the checkpoint at ``path`` in one step.

    Args:
        path: destination.
        arrays: the state, plain numeric or string arrays.
        run_id: digest of the configuration the state belongs to.

    Raises:
        OSError: it could not be written; the old one is unchanged.
    """
    head = {"version": np.array(_VERSION), "run_id": np.array(run_id)}
    write_npz(path, {**head, **as_part("state", arrays)}, private=True, durable=True)


def read_checkpoint(path: Path, *, run_id: str, later: str | None = None) -> dict[str, Any]:
    """Read the checkpoint at ``path``.

    Args:
        path: path of the checkpoint.
        run_id: digest of the configuration.
        later: arrays whose names begin so are given as ``core.npz.StoredArray``, to be read where
            they belong: private tables can be too large to be held twice.

    Raises:
        CheckpointError: missing, damaged, of another version, or of another configuration.
    """
    try:
        content = read_npz(path, later=None if later is None else f"state.{later}")
    except FileNotFoundError as absent:
        raise CheckpointError(f"{path} does not exist: nothing to resume") from absent
    except (OSError, ValueError) as damage:
        raise CheckpointError(f"{path} is damaged") from damage
    if str(content.get("version")) != _VERSION:
        raise CheckpointError(f"{path} has version {content.get('version')}, need {_VERSION}")
    if str(content.get("run_id")) != run_id:
        raise CheckpointError(
            f"{path} belongs to a run with another configuration or data; start afresh in an empty "
            "folder, or restore the configuration"
        )
    return part_of(content, "state")


@contextmanager
def unless_damaged(path: Path | None) -> Iterator[None]:
    """Turn errors of reading a state into ``CheckpointError``.

    Args:
        path: path of the file.

    Raises:
        CheckpointError: in the place of an error that says that an array is missing or misshapen.
    """
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError) as damage:
        raise CheckpointError(f"{path} is damaged") from damage


def as_part(part: str, columns: Columns) -> dict[str, npt.NDArray[Any]]:
    """Arrays under names that begin with that of a part and a dot."""
    return {f"{part}.{name}": values for name, values in columns.items()}


def part_of(columns: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Inverse of ``as_part``; ignores arrays of other parts."""
    prefix = f"{part}."
    return {key.removeprefix(prefix): columns[key] for key in columns if key.startswith(prefix)}


def public_columns(public: PublicState) -> dict[str, npt.NDArray[Any]]:
    """A public state as arrays."""
    state = {"round": np.array(public.round), "table": public.table}
    return {**state, **as_part("extras", public.extras)}


def public_state_of(columns: Columns) -> PublicState:
    """Inverse of ``public_columns``; ignores other arrays."""
    round_, table = int(columns["round"]), np.asarray(columns["table"])
    return PublicState(round=round_, table=table, extras=part_of(columns, "extras"))


def generation_columns(generations: Mapping[bytes, int]) -> dict[str, npt.NDArray[Any]]:
    """Generations of clients' journals, by key of 32 bytes, as arrays."""
    known = sorted(generations.items())
    keys = np.frombuffer(b"".join(key for key, _ in known), dtype=np.uint8)
    numbers = np.array([number for _, number in known], dtype=np.int64)
    return {"keys": keys.reshape(-1, _KEY_BYTES), "numbers": numbers}


def generations_of(columns: Columns) -> dict[bytes, int]:
    """Inverse of ``generation_columns``; ignores other arrays."""
    pairs = zip(columns["keys"], columns["numbers"].tolist(), strict=True)
    return {key.tobytes(): number for key, number in pairs}
