"""The runs behind Fed3CR's tables: taken from a folder, gone on with, or made."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from audits.reproduction.fed3cr.paper import Needed, Paper
from audits.reproduction.progress import StudyFolder
from audits.reproduction.ratings import generated
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.data.top_n import TopN, load_top_n
from secure_fedrec.studies.fed3cr.study import run_study
from secure_fedrec.studies.files import read_arrays


class Found(NamedTuple):
    """A study.

    Attributes:
        report: everything measured.
        path: of it; arrays per client lie beside.
    """

    report: Mapping[str, Any]
    path: Path

    @property
    def diverged(self) -> bool:
        """Whether it ended with a loss that was no number."""
        return "diverged" in self.report

    def array(self, name: str) -> FloatArray:
        """One array.

        Raises:
            DataError: it is missing or damaged.
        """
        held: Mapping[str, Any] = read_arrays(self.path, name)
        values: FloatArray = held[name].astype("float64")
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySource(StudyFolder[Needed]):
    """How studies are found or made.

    Args:
        paper: says with which settings.
    """

    paper: Paper

    def path(self, needed: Needed) -> Path:
        """Of the report of a study."""
        return self.folder / f"{needed.stem}.json"


def find_studies(needed: Iterable[Needed], source: StudySource) -> dict[Needed, Found]:
    """The studies that are needed, from the folder or, where it has none, run now.

    Raises:
        ConfigError: a setting does not fit the method.
        DataError: a file is of other settings or damaged, or the data are missing.
    """

    def make(each: Needed, bar: Any) -> dict[str, Any]:
        data, config = _data(each.place.data, source), source.paper.config(each)
        tell = _teller(bar, each.rounds)
        return run_study(data, config, source.path(each), on_round=tell, wait=False)

    reports = source.found(needed, source.paper.config, make).items()
    return {each: Found(report, source.path(each)) for each, report in reports}


def _teller(bar: Any, rounds: int) -> Callable[[], object]:
    """Counts the rounds of a study behind the bar of all studies."""
    count = iter(range(1, rounds + 1))
    return lambda: bar.set_postfix_str(f"round {next(count)} of {rounds}")


def _data(name: str, source: StudySource) -> TopN:
    if source.paper.quick:
        return TopN(generated(source.paper.quick, "clients", "items", "mean_ratings"), None)
    return _loaded(name, source.data_dir)


@lru_cache(maxsize=1)
def _loaded(name: str, data_dir: Path | None) -> TopN:
    return load_top_n(name, data_dir)
