"""The truth of a run, in files beside the transcript: written once, read only for scoring.

A task names its secrets as columns: ``ratings`` (rated items of clients) and ``secrets`` (other
truth for scoring, each column named by kind and name, such as "labels.majority"). They are kept as
``truth/ratings.npz`` and ``truth/secrets.npz``, and an audit reads them just as ``secure-fedrec
attack`` does later on a recorded run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks import GroundTruth
from attacks.suite import is_kind
from audits.run.build import Federation
from audits.system import Secrets, Task
from secure_fedrec.core.npz import read_npz, write_npz
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.errors import TranscriptError
from secure_fedrec.wire import Truth

Columns = Mapping[str, npt.NDArray[Any]]


def write_secrets(secrets: Secrets, folder: Path) -> None:
    """Write the secrets of a task into the truth of its run."""
    for name, columns in secrets.items():
        write_npz(folder / f"{name}.npz", columns)


def read_secrets(run: Path) -> Secrets:
    """Read them back, from a run that was checked against its seal.

    Args:
        run: the run folder.

    Raises:
        TranscriptError: a file is damaged.
    """
    found = {}
    for path in sorted((run / "truth").glob("*.npz")):
        try:
            found[path.stem] = read_npz(path)
        except (OSError, ValueError) as damaged:
            raise TranscriptError(f"{path} is damaged: no claim can be scored") from damaged
    return found


def ground_truth(
    secrets: Secrets,
    recorded: Truth,
    *,
    name: str,
    seeded: bool = False,
    denoisers: tuple[int, ...] = (),
) -> GroundTruth:
    """The truth that claims are scored against.

    Args:
        secrets: of the task.
        recorded: what the run recorded apart from the transcript.
        name: name of the data set.
        seeded: whether clients drew from the run's seed, which adversaries may know.
        denoisers: client number of each denoiser.

    Raises:
        TranscriptError: a column cannot be scored.
    """
    columns = secrets.get("secrets", {})
    for column in columns:
        kind, _, key = column.partition(".")
        if not is_kind(kind) or not key:
            raise TranscriptError(f"truth/secrets.npz holds an unknown column {column!r}")
    ratings = secrets.get("ratings")
    return GroundTruth(
        train=None if ratings is None else _table(ratings, name),
        recorded=recorded,
        denoiser_clients=denoisers,
        secrets=columns,
        seeded=seeded,
    )


def truth_of(federation: Federation[Task], recorded: Truth) -> GroundTruth:
    """The truth of a run that has just been recorded."""
    return ground_truth(
        federation.task.secrets(),
        recorded,
        name=federation.config.data.name,
        seeded=not federation.streams.keyed,
        denoisers=federation.denoiser_clients,
    )


def _table(columns: Columns, name: str) -> RatingTable:
    counts = np.diff(columns["indptr"])
    n_items = int(columns["n_items"])
    return RatingTable.from_columns(
        name=name,
        n_clients=len(counts),
        n_items=n_items,
        clients=np.repeat(np.arange(len(counts)), counts).astype(np.int32),
        items=columns["items"],
        ratings=columns["ratings"],
        scale=RatingScale.of_levels(columns["levels"]),
        client_labels=np.arange(len(counts)),
        item_labels=np.arange(n_items),
    )
