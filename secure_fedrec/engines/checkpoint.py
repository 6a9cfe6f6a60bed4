"""Checkpoints: the whole state of a run in one file, written so that a kill leaves the old one.

A checkpoint is device-local persistence of private state (user vectors of the simulation), not a
message: it is written with owner-only permissions, holds plain arrays, and is read without pickle.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.npz import read_npz, write_npz
from secure_fedrec.errors import CheckpointError

_VERSION = "3"


def write_checkpoint(path: Path, arrays: Mapping[str, npt.NDArray[Any]], *, run_id: str) -> None:
    """Replace the checkpoint at ``path`` in one step.

    Args:
        path: destination.
        arrays: the state, plain numeric or string arrays.
        run_id: digest of the configuration the state belongs to.

    Raises:
        OSError: it could not be written; the old one is as it was.
    """
    named = {f"state.{name}": value for name, value in arrays.items()}
    content = {"version": np.array(_VERSION), "run_id": np.array(run_id), **named}
    write_npz(path, content, private=True, durable=True)


def read_checkpoint(path: Path, *, run_id: str, later: str | None = None) -> dict[str, Any]:
    """Read the checkpoint at ``path``.

    Args:
        path: of the checkpoint.
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
    prefix = "state."
    return {
        name.removeprefix(prefix): value
        for name, value in content.items()
        if name.startswith(prefix)
    }
