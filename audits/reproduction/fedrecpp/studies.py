"""The runs behind FedRec++'s tables: taken from a folder, gone on with, or made."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from audits.reproduction.fedrecpp.paper import Needed, Paper
from audits.reproduction.progress import StudyFolder
from secure_fedrec.data import RatingTable, load
from secure_fedrec.data.synthetic import SyntheticConfig, generate
from secure_fedrec.studies.fedrecpp.study import STUDY_FORMAT, run_study
from secure_fedrec.studies.resumed import finished, require_one_source

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


def find_studies(needed: Iterable[Needed], source: StudySource) -> dict[Needed, Any]:
    """The studies that are needed, from the folder or, where it has none, run now.

    Raises:
        ConfigError: a setting does not fit the data.
        DataError: a file is of other settings or damaged, or the data are missing.
    """
    wanted = list(dict.fromkeys(needed))
    there = {}
    for each in wanted:
        path, study = source.path(each), source.paper.config(each).described()
        report = finished(path, study, version=STUDY_FORMAT, paper="FedRec++")
        if report is not None:
            there[each] = report

    def make(each: Needed, bar: Any) -> Any:
        refresh: Callable[[], object] = bar.refresh
        table = _table(each.entry.data, source)
        config = source.paper.config(each)
        return run_study(table, config, source.path(each), on_round=refresh, wait=False)

    found = source.completed(there, wanted, make)
    require_one_source({source.path(each): report for each, report in found.items()})
    return found


def _table(name: str, source: StudySource) -> RatingTable:
    size = source.paper.quick
    if size:
        return _generated(size["clients"], size["items"])
    return _loaded(name, source.data_dir)


@lru_cache(maxsize=2)
def _loaded(name: str, data_dir: Path | None) -> RatingTable:
    return load(name, data_dir)


@lru_cache(maxsize=1)
def _generated(clients: int, items: int) -> RatingTable:
    return generate(SyntheticConfig(clients=clients, items=items, seed=1))
