"""FURL's numbers as they were printed, and the settings under which they are repeated."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from audits.config.tables import build, require_table
from audits.reproduction.files import read_paper
from secure_fedrec.algorithms.furl.configurations import CONFIGURATIONS
from secure_fedrec.errors import ConfigError
from secure_fedrec.studies.furl.results import TASKS, StudyTexts
from secure_fedrec.studies.furl.study import FURLStudyConfig

__all__ = ["TABLE", "FURLPaper", "PaperTask", "load_paper", "parse_paper"]

TABLE: Final = 3
"""The paper's table of results."""

_QUICK_DATA: Final = "NOT ITS DATA AND NOT ITS SIZE: a few made-up users, too few to learn from"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTask:
    """One task of the paper, and ours in its place.

    Args:
        name: one of ``TASKS``.
        paper_data: what the paper learnt from.
        our_data: what stands in for it.
        measures: what is measured; the first is the paper's.
        paper: by configuration, the paper's number (a share, not a percentage).
        same_users: whether texts of every seed are by the same users.
        classes: names of the classes.
        own: settings of the texts that do not follow the seed of training.
        settings: of training, by configuration.
    """

    name: str
    paper_data: str
    our_data: str
    measures: tuple[str, ...]
    paper: Mapping[str, float]
    same_users: bool
    classes: tuple[str, ...]
    own: Mapping[str, Any]
    settings: Mapping[str, FURLStudyConfig]

    def texts(self, seed: int) -> StudyTexts:
        """The texts of one repetition."""
        return StudyTexts(**{"task": self.name, "seed": seed, **self.own})

    @property
    def between_seeds(self) -> str:
        """What differs between two repetitions, and so is in their spread."""
        return "training" if "seed" in self.own else "training and the split of the texts"


@dataclass(frozen=True, slots=True, kw_only=True)
class FURLPaper:
    """The paper.

    Args:
        title: short citation.
        seeds: of the repetitions.
        repetitions: how many of them there are by default.
        rows: name in the table by configuration.
        tasks: by name.
    """

    title: str
    seeds: tuple[int, ...]
    repetitions: int
    rows: Mapping[str, str]
    tasks: Mapping[str, PaperTask]

    def select(self, names: tuple[str, ...] | None) -> tuple[PaperTask, ...]:
        """Some of the tasks; None for all.

        Raises:
            ConfigError: there is no task of that name.
        """
        for name in names or ():
            if name not in self.tasks:
                raise ConfigError("--task", name, "is none that is reproduced", self.tasks)
        return tuple(task for name, task in self.tasks.items() if names is None or name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PaperTable:
    title: str
    seeds: tuple[int, ...]
    repetitions: int
    rows: Mapping[str, str]
    tasks: Mapping[str, Any]
    quick: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskTable:
    paper_data: str
    our_data: str
    measures: tuple[str, ...]
    paper: Mapping[str, float]
    texts: Mapping[str, Any]
    settings: Mapping[str, Any]
    same_users: bool = False
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _QuickTable:
    task: str
    repetitions: int
    texts: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def load_paper(*, quick: bool = False) -> FURLPaper:
    """Read the paper's file.

    Args:
        quick: shrink it to one small task, which shows that everything runs.

    Raises:
        ConfigError: a key of the file is unknown or missing, or a value is out of range.
    """
    return parse_paper(read_paper("furl"), quick=quick)


def parse_paper(raw: Mapping[str, Any], *, quick: bool = False) -> FURLPaper:
    """The paper from the tables of its file; see ``load_paper``."""
    table = build(_PaperTable, "", raw)
    for name in table.rows:
        if name not in CONFIGURATIONS:
            raise ConfigError("rows", name, "unknown configuration", CONFIGURATIONS)
    if not 1 <= table.repetitions <= len(table.seeds):
        raise ConfigError("repetitions", table.repetitions, f"must be 1 to {len(table.seeds)}")
    paper = FURLPaper(
        title=table.title,
        seeds=table.seeds,
        repetitions=table.repetitions,
        rows=table.rows,
        tasks={name: _task(name, each, table.rows) for name, each in table.tasks.items()},
    )
    return _shrunk(paper, build(_QuickTable, "quick", table.quick), table) if quick else paper


def _task(name: str, raw: object, rows: Mapping[str, str]) -> PaperTask:
    section = f"tasks.{name}"
    if name not in TASKS:
        raise ConfigError("tasks", name, "unknown task", TASKS)
    table = build(_TaskTable, section, require_table(section, raw))
    if not table.measures:
        raise ConfigError(f"{section}.measures", table.measures, "must name a measure")
    build(StudyTexts, f"{section}.texts", table.texts)
    missing = [each for each in rows if each not in table.settings]
    if missing:
        raise ConfigError(f"{section}.settings", missing, "configurations without settings")
    return PaperTask(
        name=name,
        paper_data=table.paper_data,
        our_data=table.our_data,
        measures=table.measures,
        paper=table.paper,
        same_users=table.same_users,
        classes=table.classes,
        own=table.texts,
        settings={
            each: _settings(f"{section}.settings.{each}", each, settings)
            for each, settings in table.settings.items()
        },
    )


def _settings(section: str, configuration: str, raw: object) -> FURLStudyConfig:
    table = {"configuration": configuration, **require_table(section, raw)}
    return build(FURLStudyConfig, section, table)


def _shrunk(paper: FURLPaper, quick: _QuickTable, table: _PaperTable) -> FURLPaper:
    """The paper with one task, made small."""
    if quick.task not in paper.tasks:
        raise ConfigError("quick.task", quick.task, "unknown task", paper.tasks)
    if not 1 <= quick.repetitions <= len(paper.seeds):
        raise ConfigError(
            "quick.repetitions", quick.repetitions, f"must be 1 to {len(paper.seeds)}"
        )
    task = paper.tasks[quick.task]
    raw = table.tasks[quick.task]["settings"]
    settings = {
        each: _settings("quick.settings", each, {**raw[each], **quick.settings})
        for each in task.settings
    }
    build(StudyTexts, "quick.texts", quick.texts)
    small = replace(task, our_data=_QUICK_DATA, own=quick.texts, settings=settings)
    return replace(paper, repetitions=quick.repetitions, tasks={quick.task: small})
