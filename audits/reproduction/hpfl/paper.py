"""HPFL's numbers as they were printed, and the runs behind the tables.

Studies are taken from a folder of results, whatever their names, or made and put there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from audits.reproduction.engine import chosen
from audits.reproduction.numbers import MISSING
from audits.reproduction.papers import read_paper
from audits.reproduction.progress import Found, StudyFolder
from secure_fedrec.data import (
    Organisations,
    SyntheticOrganisationsConfig,
    generate_organisations,
    load_organisations,
)
from secure_fedrec.data.refusals import refused
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.settings import Settings
from secure_fedrec.studies.hpfl.settings import METHODS, grid_for, starts_of
from secure_fedrec.studies.hpfl.table_entry import (
    StudyConfig,
    merge_reports,
    read_study,
    run_study,
    write_study,
)
from secure_fedrec.studies.resumed import once


class PaperTable(Settings):
    """The part of a table that is about one data set.

    Args:
        number: of the table in the paper.
        title: what it shows.
        data: name of the data set here.
        paper_name: what the paper calls it, and what is different about ours.
        measures: names of the columns.
        ours: further measures, which the paper does not have: names, those of other records than
            the test records with their part in front ("train.doa").
        rows: method to one number per measure; None where the paper has none.
        compared: methods that are compared seed by seed, one less the other.
    """

    number: int
    title: str
    data: str
    paper_name: str
    measures: tuple[str, ...]
    rows: Mapping[str, tuple[Any, ...]]
    ours: tuple[str, ...] = ()
    compared: tuple[tuple[str, str], ...] = ()

    def _agree(self) -> None:
        printed = {
            method: tuple(None if cell == MISSING else cell for cell in cells)
            for method, cells in self.rows.items()
        }
        object.__setattr__(self, "rows", printed)

    @property
    def every_measure(self) -> tuple[str, ...]:
        """The paper's measures, then ours."""
        return (*self.measures, *self.ours)

    def only(self, methods: Sequence[str]) -> "PaperTable":
        """The rows of some methods."""
        return replace(self, rows={name: self.rows[name] for name in self.rows if name in methods})


class Variants(Settings):
    """Variants of HPFL, one setting each, that no table of the paper has.

    Args:
        data: name of the data set.
        measure: what they are compared by.
        rows: what a variant is, to (method, grid).
    """

    data: str
    measure: str
    rows: Mapping[str, tuple[str, str]]


class Paper(Settings):
    """A paper.

    Args:
        title: short citation.
        seeds: of the repetitions.
        figure_methods: methods whose users' characteristics are drawn.
        tables: in its order.
        variants: beside them.
    """

    title: str
    seeds: tuple[int, ...]
    figure_methods: tuple[str, ...]
    tables: tuple[PaperTable, ...]
    variants: Variants

    def select(
        self,
        numbers: Sequence[int] | None = None,
        *,
        data: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
    ) -> tuple[PaperTable, ...]:
        """Some of the tables, and of their rows; None for all.

        Raises:
            ConfigError: there is no such table, data set or method, or no table has all of these.
        """
        parts = chosen("--table", numbers, sorted({table.number for table in self.tables}))
        sets = chosen("--data", data, sorted({table.data for table in self.tables}))
        kept = chosen("--method", methods, METHODS)
        wanted = (each for each in self.tables if each.number in parts and each.data in sets)
        filled = tuple(table for each in wanted if (table := each.only(kept)).rows)
        if not filled:
            raise ConfigError("--method", methods, "is in no table that was asked for")
        return filled


def load_paper() -> Paper:
    """Read the paper's numbers."""
    raw = read_paper("hpfl")
    compared = raw.pop("compared")
    tables = [
        PaperTable(**head, data=part.pop("name"), compared=compared, **part)
        for head in raw["tables"]
        for part in head.pop("data")
    ]
    variants = Variants(**raw["variants"])
    return Paper(**{**raw, "tables": tables, "variants": variants})


class Needed(NamedTuple):
    """One study that a table needs.

    Attributes:
        data: name of the data set.
        method: name of the method.
        seed: of the repetition.
        start: of training.
        grid: of its settings; None is the one laid out for the data.
    """

    data: str
    method: str
    seed: int
    start: str
    grid: str | None = None

    def __str__(self) -> str:
        return f"{self.method} on {self.data} from {self.start}, seed {self.seed}"


Studies: TypeAlias = Mapping[Needed, Found]


def needed_study(data: str, method: str, seed: int, start: str) -> Needed:
    """The study of a method under a start, or under its own where it has no other.

    A method with one start has one study, which is in the tables of every start.
    """
    starts = starts_of(method)
    return Needed(data, method, seed, start if start in starts else starts[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySource(StudyFolder[Needed]):
    """The library of studies: those of a folder, and those made now.

    Args:
        form: of the user model.
        quick: small generated organisations and one setting per method instead of the real data and
            the whole grid.
    """

    form: str = "paper"
    quick: bool = False

    def path(self, needed: Needed) -> Path:
        """File name of a report of a study that is run here; others may have other names."""
        named = [needed.data, self.form, needed.start, needed.method, needed.grid, str(needed.seed)]
        return self.folder / f"{'-'.join(filter(None, named))}.json"

    def config(self, needed: Needed) -> StudyConfig:
        """Settings of a study."""
        grid = "quick" if self.quick else needed.grid or grid_for(needed.data)
        return StudyConfig(
            method=needed.method,
            seed=needed.seed,
            grid=grid,
            start=needed.start,
            form=self.form,
        )

    def organisations(self, name: str, seed: int) -> Organisations:
        """Data of a study.

        Raises:
            DataError: the data set is not there, or damaged.
        """
        if not self.quick:
            return load_organisations(name, self.data_dir, seed=seed)
        answers = name.startswith("assist")
        return generate_organisations(
            SyntheticOrganisationsConfig(clients=3, users=15, items=40, binary=answers, seed=seed)
        )


def find_studies(needed: Iterable[Needed], source: StudySource) -> dict[Needed, Found]:
    """The studies that are needed, from the folder or, where it has none, run now.

    A study that was run is in the folder at once: an interrupted reproduction goes on where it was.
    A study that diverges with all of its settings is left out, with a message.

    Raises:
        ConfigError: results of one study do not fit together.
        DataError: a result is damaged, or the data are missing.
    """
    wanted = dict.fromkeys(needed)
    return source.completed(
        _stored(wanted, source),
        wanted,
        lambda each, bar: _run(each, source, bar.refresh),
    )


def _stored(wanted: Mapping[Needed, None], source: StudySource) -> dict[Needed, Found]:
    """Studies of the folder; those whose settings were tried apart are put together."""
    places = {(each.data, source.config(each)): each for each in wanted}
    parts: dict[Needed, list[Found]] = defaultdict(list)
    for path in sorted(source.folder.glob("*.json")):
        report = read_study(path)
        place = places.get((_kind(source, report), _config_of(report, path)))
        if place is not None:
            parts[place].append(Found(report, path))
    found = {}
    for each, tried in parts.items():
        report = merge_reports([part.report for part in tried])
        best = next(part for part in tried if part.report["chosen"] == report["chosen"])
        found[each] = Found(report, best.path)
    return found


def _config_of(report: Mapping[str, Any], path: Path) -> StudyConfig:
    with refused(path, "is not a study of HPFL ({})", ConfigError, KeyError):
        return StudyConfig(**{each.name: report[each.name] for each in fields(StudyConfig)})


def _kind(source: StudySource, report: Mapping[str, Any]) -> str:
    """What the tables call the data of a report."""
    if not source.quick:
        return str(report["data"])
    return "assist2009" if report["criterion"] == "auc" else "ml-100k-zip"


def _run(each: Needed, source: StudySource, on_round: Callable[[], object]) -> Found:
    path, config = source.path(each), source.config(each)

    def read() -> Found | None:
        """What another process has made since the folder was read."""
        if not path.exists():
            return None
        report = read_study(path)
        if _config_of(report, path) != config:
            raise DataError(path, "is of a study with other settings")
        return Found(report, path)

    def make() -> Found:
        study = run_study(source.organisations(each.data, each.seed), config, on_round=on_round)
        write_study(study, path)
        return Found(study.report, path)

    return once(path, read, make, wait=False)
