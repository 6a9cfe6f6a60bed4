"""Studies as files: a report as JSON, and arrays in a file of the same stem.

A report carries a digest of itself and of its arrays, so that damaged, edited or mixed files are
detected. It is not a signature: anyone can compute another.
"""

import json
import stat
from collections.abc import Mapping
from errno import ELOOP
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.files import file_digest, read_json, replace_file
from secure_fedrec.core.npz import read_npz, write_npz
from secure_fedrec.data.refusals import refused, writable
from secure_fedrec.errors import DataError

_DIGEST: Final = "sha256"


def arrays_beside(path: Path) -> Path:
    """The array file of a report."""
    return path.with_suffix(".npz")


def require_files(*places: Path, written: bool = False) -> None:
    """Refuse what is not a regular file where a study has one: opening a pipe may never return.

    Args:
        places: of files that are there or not yet.
        written: whether they will be written; then the temporary place of ``replace_file`` is
            checked as well, and links into folders.

    Raises:
        DataError: a pipe, a folder, a device, or a link to itself or to nowhere is there.
    """
    for place in places:
        _require_file(place)
        if written:
            target = place.resolve()
            _require_file(target.with_name(f"{target.name}.part"))
            if place.is_symlink() and not target.parent.is_dir():
                raise DataError(
                    place, f"links into {target.parent}, which is not a folder; remove it"
                )


def _require_file(path: Path) -> None:
    try:
        fits = stat.S_ISREG(path.stat().st_mode)
    except OSError as refused:  # usually it does not exist; reading or writing reports other errors
        fits = refused.errno != ELOOP
    if not fits:
        raise DataError(path, "is not a file, but a study has a file here; remove it")


def write_files(
    path: Path, report: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Write a study; without arrays, one of an earlier study of this name is removed.

    The report is written last and in one step: if it exists, the study is complete.

    Raises:
        DataError: a file cannot be written.
    """
    require_files(path, arrays_beside(path), written=True)
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if arrays:
            write_npz(arrays_beside(path), arrays)
        else:
            arrays_beside(path).unlink(missing_ok=True)
        beside = file_digest(arrays_beside(path)) if arrays else None
        whole = {**report, _DIGEST: _digests_of(report, beside)}
        replace_file(path, (json.dumps(whole, indent=1) + "\n").encode())


def read_report(path: Path, version: int, *, paper: str) -> dict[str, Any]:
    """Read a report.

    Args:
        path: of the report.
        version: of the files; a report that names none is taken for it.
        paper: the studied paper, for the message.

    Raises:
        DataError: it is damaged, of another version, or not as it was written: it or its arrays.
            A report without digest and format is of an older release, and accepted unchecked.
    """
    require_files(path, arrays_beside(path))
    with refused(path, "is not a study ({})", OSError, ValueError):
        report = read_json(path)
    if not isinstance(report, dict):
        raise DataError(path, f"is not a study of {paper}")
    if report.get("format", version) != version:
        raise DataError(path, f"is not a study of format {version}")
    stated = report.pop(_DIGEST, None)
    if stated is not None or "format" in report:
        _require_as_written(path, report, stated)
    return report


def _digests_of(report: Mapping[str, Any], arrays: str | None) -> dict[str, str | None]:
    """Of the array file, and of it and a report's JSON values."""
    values = [json.loads(json.dumps(report)), arrays]
    whole = sha256(json.dumps(values, sort_keys=True).encode())
    return {"report": whole.hexdigest(), "arrays": arrays}


def _require_as_written(path: Path, report: Mapping[str, Any], stated: Any) -> None:
    """Refuse a report, or its arrays if present, that has changed since it was written."""
    beside, arrays = arrays_beside(path), stated.get("arrays") if isinstance(stated, dict) else None
    same = stated == _digests_of(report, arrays)
    if not same or (beside.exists() and arrays != file_digest(beside)):
        problem = "was changed after it was written, or the array file beside it was; remove both"
        raise DataError(path, problem)


def read_arrays(path: Path, *names: str) -> dict[str, npt.NDArray[np.generic]]:
    """The arrays of the study at ``path``.

    Args:
        path: of the report.
        names: of arrays that must be there.

    Raises:
        DataError: the array file is missing or damaged.
    """
    beside = arrays_beside(path)
    require_files(beside)
    with refused(beside, "is not an array file of a study ({})", OSError, ValueError):
        arrays = read_npz(beside)
    missing = [name for name in names if name not in arrays]
    if missing:
        raise DataError(beside, f"is not an array file of a study (it lacks {', '.join(missing)})")
    return arrays
