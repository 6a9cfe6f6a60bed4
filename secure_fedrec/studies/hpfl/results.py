"""Studies as files: the report as JSON, the users' characteristics beside it as arrays.

A study of one setting that diverged has a report only.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.npz import read_npz
from secure_fedrec.errors import DataError
from secure_fedrec.studies.hpfl.snapshots import Snapshot
from secure_fedrec.studies.hpfl.study import STUDY_FORMAT, Study

__all__ = ["read_characteristics", "read_study", "write_study"]

_ARRAYS = ".npz"


def write_study(study: Study, path: Path) -> None:
    """Write a study: ``path``, and an array file of the same stem if it reached anything.

    The report is written last and in one step: where it is, the study is complete.

    Raises:
        DataError: a file cannot be written.
    """
    hidden = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_arrays(study.snapshot, path.with_suffix(_ARRAYS))
        hidden.write_text(json.dumps(study.report, indent=1), encoding="utf-8")
        hidden.replace(path)
    except OSError as refused:
        raise DataError(path, f"cannot be written ({refused.strerror or refused})") from refused


def _write_arrays(snapshot: Snapshot | None, path: Path) -> None:
    if snapshot is None:
        path.unlink(missing_ok=True)  # of an earlier study of this name
        return
    characteristics = snapshot.characteristics
    users = [len(own) for own in characteristics]
    with path.open("wb") as stream:
        np.savez_compressed(
            stream,
            characteristics=np.concatenate(characteristics),
            clients=np.repeat(np.arange(len(users)), users),
        )


def read_study(path: Path) -> dict[str, Any]:
    """Read a report.

    Raises:
        DataError: it is damaged, or of another version.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as damage:
        raise DataError(path, f"is no study ({damage})") from damage
    if not isinstance(report, Mapping) or report.get("format") != STUDY_FORMAT:
        raise DataError(path, f"is no study of format {STUDY_FORMAT}")
    return dict(report)


def read_characteristics(path: Path) -> tuple[FloatArray, IntArray]:
    """The users' characteristics of the study at ``path``.

    Returns:
        float64[U, K], and int64[U], the client of each user.

    Raises:
        DataError: the array file is missing or damaged.
    """
    beside = path.with_suffix(_ARRAYS)
    try:
        arrays = read_npz(beside)
        return arrays["characteristics"], arrays["clients"]
    except (OSError, ValueError, KeyError) as damage:
        raise DataError(beside, f"is no array file of a study ({damage})") from damage
