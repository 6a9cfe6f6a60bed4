"""The runs behind FedDMF's figures: taken from a folder, gone on with, or made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from audits.reproduction.feddmf.paper import Paper
from audits.reproduction.progress import StudyFolder
from audits.reproduction.ratings import generated, loaded
from secure_fedrec.data import RatingTable
from secure_fedrec.studies.feddmf.figures import file_name
from secure_fedrec.studies.feddmf.study import StudyConfig, run_study

Studies: TypeAlias = Mapping[StudyConfig, Mapping[str, Any]]
"""Reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySource(StudyFolder[StudyConfig]):
    """How studies are found or made.

    Args:
        paper: says which there are.
    """

    paper: Paper

    def path(self, study: StudyConfig) -> Path:
        """Of the report of a study."""
        return self.folder / file_name(study)


def find_studies(
    needed: Iterable[StudyConfig], source: StudySource
) -> dict[StudyConfig, dict[str, Any]]:
    """The studies that are needed, from the folder or, where it has none, run now.

    Raises:
        DataError: a file is of other settings or damaged, or the data are missing.
    """

    def make(each: StudyConfig, bar: Any) -> dict[str, Any]:
        bar.set_description(source.path(each).stem)
        return run_study(
            _table(each.data, source),
            each,
            source.path(each),
            on_epoch=lambda epoch: bar.set_postfix_str(f"epoch {epoch.epoch}"),
            wait=False,
        )

    return source.found(needed, lambda study: study, make)


def _table(name: str, source: StudySource) -> RatingTable:
    quick = source.paper.quick
    if quick:
        return generated(quick, "clients", "items", "mean_ratings", "activity_sigma")
    return loaded(name, source.data_dir)
