"""The runs behind FedDMF's figures: taken from a folder, gone on with, or made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from audits.reproduction.feddmf.paper import Paper
from audits.reproduction.progress import StudyFolder
from secure_fedrec.data import RatingTable, load
from secure_fedrec.data.synthetic import SyntheticConfig, generate
from secure_fedrec.studies.feddmf.figures import file_name
from secure_fedrec.studies.feddmf.study import STUDY_FORMAT, StudyConfig, run_study
from secure_fedrec.studies.resumed import as_json, finished, require_one_source

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


def find_studies(needed: Iterable[StudyConfig], source: StudySource) -> dict[StudyConfig, Any]:
    """The studies that are needed, from the folder or, where it has none, run now.

    Raises:
        DataError: a file is of other settings or damaged, or the data are missing.
    """
    wanted, there = list(dict.fromkeys(needed)), {}
    for each in wanted:
        path = source.path(each)
        report = finished(path, as_json(each), version=STUDY_FORMAT, paper="FedDMF")
        if report is not None:
            there[each] = report

    def make(each: StudyConfig, bar: Any) -> Any:
        bar.set_description(source.path(each).stem)
        return run_study(
            _table(each.data, source),
            each,
            source.path(each),
            on_epoch=lambda epoch: bar.set_postfix_str(f"epoch {epoch.epoch}"),
            wait=False,
        )

    found = source.completed(there, wanted, make)
    require_one_source({source.path(each): report for each, report in found.items()})
    return found


def _table(name: str, source: StudySource) -> RatingTable:
    if source.paper.quick:
        names = ("clients", "items", "mean_ratings", "activity_sigma")
        return generate(
            SyntheticConfig(seed=1, **{name: source.paper.quick[name] for name in names})
        )
    return _loaded(name, source.data_dir)


@lru_cache(maxsize=2)
def _loaded(name: str, data_dir: Path | None) -> RatingTable:
    return load(name, data_dir)
