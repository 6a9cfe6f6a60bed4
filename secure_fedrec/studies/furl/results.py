"""FURL's studies as files: the summary as JSON, trained vectors beside it as arrays.

A study is identified by its texts (``StudyTexts``), its settings (``FURLStudyConfig``) and its
seed; all three are in the summary. Files without a format number were written before there was one,
in what is now format 1, except that their arrays lack ``label_counts``.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.newsgroups import NewsgroupsConfig, load_newsgroups
from secure_fedrec.data.stickers import StickersConfig, generate_stickers
from secure_fedrec.data.user_texts import UserTexts
from secure_fedrec.errors import DataError
from secure_fedrec.settings import OneOf, Settings
from secure_fedrec.studies.files import arrays_beside, read_arrays, read_report, write_files
from secure_fedrec.studies.furl.study import FURLStudyConfig, StudyResult

STUDY_FORMAT: Final = 1
"""Version of the files."""

TASKS: Final = ("newsgroups", "stickers")
"""The tasks, which replace the paper's Subreddit and Sticker."""

_SUMMARY: Final[Mapping[str, type]] = {
    "task": str,
    "data_seed": int,
    "length": int,
    "config": dict,
    "configuration": str,
    "seed": int,
    "users": int,
    "curve": list,
    "last": dict,
    "best": dict,
    "majority": dict,
}


class StudyTexts(Settings, section="furl"):
    """The texts that a study learns from.

    Args:
        task: one of ``TASKS``.
        seed: of the split of the posts, or of all draws of the stickers.
        length: characters kept of a post; stickers have a length of their own.
        users: number of users of the stickers; newsgroups have their posters.

    Raises:
        ConfigError: there is no such task.
    """

    task: Annotated[str, OneOf(TASKS, "unknown task")] = "newsgroups"
    seed: int = 1
    length: int = NewsgroupsConfig().length
    users: int = StickersConfig().users

    def load(self, data_dir: Path | None = None) -> UserTexts:
        """Read or draw the texts.

        Args:
            data_dir: folder of the data sets, see ``secure_fedrec.data.locate``.

        Raises:
            ConfigError: a setting is out of range.
            DataError: the posts are missing or damaged.
        """
        if self.task == "stickers":
            return generate_stickers(StickersConfig(users=self.users, seed=self.seed))
        return load_newsgroups(data_dir, NewsgroupsConfig(length=self.length, seed=self.seed))

    def settings(self) -> dict[str, Any]:
        """The settings that apply to the task, by name."""
        shape = ("users", self.users) if self.task == "stickers" else ("length", self.length)
        return {"seed": self.seed, shape[0]: shape[1]}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UserVectors:
    """What a study learnt about its U users.

    Args:
        embeddings: float64[U, d], trained user vectors; d is 0 in a global configuration.
        users: int64[U], what each user is called outside.
        majority: int64[U], each user's most frequent class in training.
        label_counts: int64[U, classes], training texts of every class; None in older files.
    """

    embeddings: FloatArray
    users: IntArray
    majority: IntArray
    label_counts: IntArray | None = None


def write_study(
    path: Path, *, texts: StudyTexts, data: UserTexts, config: FURLStudyConfig, result: StudyResult
) -> None:
    """Write a study: ``path``, and an array file of the same stem; see ``write_files``.

    Args:
        path: of the summary.
        texts: which texts were learnt from.
        data: those texts.
        config: settings of training.
        result: the result.

    Raises:
        DataError: a file cannot be written.
    """
    summary = {
        "format": STUDY_FORMAT,
        "task": texts.task,
        "data_seed": texts.seed,
        "length": texts.length,
        "config": asdict(config),
        **result.summary,
    }
    arrays = {
        "user_embeddings": result.user_embeddings,
        "user_labels": data.user_labels,
        "majority_labels": data.majority_labels(),
        "label_counts": data.label_counts(),
        "federated": result.federated,
    }
    write_files(path, summary, arrays)


def read_study(path: Path) -> dict[str, Any]:
    """Read a summary.

    Raises:
        DataError: it is damaged, incomplete or of another version.
    """
    summary = read_report(path, STUDY_FORMAT, paper="FURL")
    for key, kind in _SUMMARY.items():
        if not isinstance(summary.get(key), kind):
            raise DataError(path, f"is not a study of FURL: {key} is missing or of a wrong type")
    points = [*summary["curve"], summary["last"], summary["best"]]
    if not summary["curve"] or not all(_is_point(point) for point in points):
        raise DataError(path, "is not a study of FURL: its learning curve is damaged")
    return summary


def read_vectors(path: Path) -> UserVectors:
    """What the study at ``path`` learnt of its users.

    Raises:
        DataError: the array file is missing or damaged.
    """
    arrays: Mapping[str, Any] = read_arrays(
        path, "user_embeddings", "user_labels", "majority_labels"
    )
    found = UserVectors(
        embeddings=arrays["user_embeddings"],
        users=arrays["user_labels"],
        majority=arrays["majority_labels"],
        label_counts=arrays.get("label_counts"),
    )
    if found.embeddings.ndim != 2 or len(found.embeddings) != len(found.users):
        raise DataError(arrays_beside(path), "must have one user vector per user")
    return found


def _is_point(point: object) -> bool:
    """Whether a value is a point of a learning curve: finite numbers, the epoch among them."""
    return (
        isinstance(point, dict)
        and isinstance(point.get("epoch"), int)
        and all(isinstance(value, int | float) and math.isfinite(value) for value in point.values())
    )
