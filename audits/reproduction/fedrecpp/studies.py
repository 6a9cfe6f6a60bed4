"""The runs behind FedRec++'s tables: taken from a folder, gone on with, or made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from audits.reproduction.fedrecpp.paper import Needed, Paper
from audits.reproduction.progress import StudyFolder
from audits.reproduction.ratings import generated, loaded
from secure_fedrec.studies.fedrecpp.study import run_study

Studies: TypeAlias = Mapping[Needed, Mapping[str, Any]]
"""Reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySource(StudyFolder[Needed]):
    """How studies are found or made.

    Args:
        paper: says with which settings.
    """

    paper: Paper

    def path(self, needed: Needed) -> Path:
        """Of the report of a study."""
        length = "" if needed.rounds == self.paper.rounds else f"-rounds{needed.rounds}"
        return self.folder / f"{needed.entry.stem}{length}-fold{needed.fold}.json"


def find_studies(needed: Iterable[Needed], source: StudySource) -> dict[Needed, dict[str, Any]]:
    """The studies that are needed, from the folder or, where it has none, run now.

    Raises:
        ConfigError: a setting does not fit the data.
        DataError: a file is of other settings or damaged, or the data are missing.
    """
    paper = source.paper

    def make(each: Needed, bar: Any) -> dict[str, Any]:
        path, config = source.path(each), paper.config(each)
        if paper.quick:
            table = generated(paper.quick, "clients", "items")
        else:
            table = loaded(each.entry.data, source.data_dir)
        return run_study(table, config, path, on_round=bar.refresh, wait=False)

    return source.found(needed, paper.config, make)
