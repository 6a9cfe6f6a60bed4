"""Studies as files: the report as JSON, the users' characteristics beside it as arrays.

A study of one setting that diverged has a report only.
"""

from pathlib import Path
from typing import Any

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.errors import DataError
from secure_fedrec.studies.files import read_arrays, read_report, write_files
from secure_fedrec.studies.hpfl.table_entry import STUDY_FORMAT, Study


def write_study(study: Study, path: Path) -> None:
    """Write a study: ``path``, and an array file of the same stem if it reached anything.

    Raises:
        DataError: a file cannot be written.
    """
    arrays = {}
    if study.snapshot is not None:
        own = study.snapshot.characteristics
        clients = np.repeat(np.arange(len(own)), [len(users) for users in own])
        arrays = {"characteristics": np.concatenate(own), "clients": clients}
    write_files(path, study.report, arrays)


def read_study(path: Path) -> dict[str, Any]:
    """Read a report.

    Raises:
        DataError: it is damaged, or of another version.
    """
    report = read_report(path, STUDY_FORMAT, paper="HPFL")
    if "format" not in report:
        raise DataError(path, f"is no study of format {STUDY_FORMAT}")
    return report


def read_characteristics(path: Path) -> tuple[FloatArray, IntArray]:
    """The users' characteristics of the study at ``path``.

    Returns:
        float64[U, K], and int64[U], the client of each user.

    Raises:
        DataError: the array file is missing or damaged.
    """
    arrays: dict[str, Any] = read_arrays(path, "characteristics", "clients")
    return arrays["characteristics"], arrays["clients"]
