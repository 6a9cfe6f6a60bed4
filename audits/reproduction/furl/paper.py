"""FURL's numbers as they were printed, and the settings under which they are repeated."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Final

from audits.config.tables import build, require_table
from audits.reproduction.files import read_paper
from audits.reproduction.seeds import require_reproduced
from secure_fedrec.algorithms.furl.configurations import CONFIGURATIONS
from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import Filled, Settings
from secure_fedrec.studies.furl.results import TASKS, StudyTexts
from secure_fedrec.studies.furl.study import FURLStudyConfig

TABLE: Final = 3
"""The paper's table of results."""

_QUICK_DATA: Final = "NOT ITS DATA AND NOT ITS SIZE: a few made-up users, too few to learn from"


class PaperTask(Settings, section="tasks"):
    """One task of the paper, and ours in its place.

    Args:
        name: one of ``TASKS``.
        paper_data: what the paper learnt from.
        our_data: what stands in for it.
        measures: what is measured; the first is the paper's.
        paper: by configuration, the paper's number (a share, not a percentage).
        same_users: whether texts of every seed are by the same users.
        classes: names of the classes.
        texts: settings of the texts that do not follow the seed of training.
        settings: of training, by configuration.
    """

    name: str
    paper_data: str
    our_data: str
    measures: Annotated[tuple[str, ...], Filled("must name a measure")]
    paper: Mapping[str, float]
    same_users: bool = False
    classes: tuple[str, ...] = ()
    texts: Mapping[str, Any]
    settings: Mapping[str, Any]

    def texts_of(self, seed: int) -> StudyTexts:
        """The texts of one repetition."""
        return StudyTexts(**{"task": self.name, "seed": seed, **self.texts})

    @property
    def between_seeds(self) -> str:
        """What differs between two repetitions, and so is in their spread."""
        return "training" if "seed" in self.texts else "training and the split of the texts"


class FURLPaper(Settings):
    """The paper.

    Args:
        title: short citation.
        seeds: of the repetitions.
        repetitions: how many of them there are by default.
        compared: one configuration less another, and what the difference says.
        rows: name in the table by configuration.
        tasks: by name.
        quick: how it is shrunk to one small task.
    """

    title: str
    seeds: tuple[int, ...]
    repetitions: int
    compared: tuple[tuple[str, str, str], ...]
    rows: Mapping[str, str]
    tasks: Mapping[str, Any]
    quick: Mapping[str, Any]

    def _agree(self) -> None:
        for name in self.rows:
            if name not in CONFIGURATIONS:
                raise ConfigError("rows", name, "unknown configuration", CONFIGURATIONS)
        _require_seeds(self, "repetitions", self.repetitions)

    def select(self, names: tuple[str, ...] | None) -> tuple[PaperTask, ...]:
        """Some of the tasks; None for all.

        Raises:
            ConfigError: there is no task of that name.
        """
        require_reproduced("--task", names, self.tasks)
        return tuple(task for name, task in self.tasks.items() if names is None or name in names)


class _Quick(Settings, section="quick"):
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
    paper = build(FURLPaper, "", raw)
    tasks = {name: _task(name, each, paper.rows) for name, each in paper.tasks.items()}
    whole = replace(paper, tasks=tasks)
    return _shrunk(whole, build(_Quick, "quick", paper.quick), paper.tasks) if quick else whole


def _task(name: str, raw: object, rows: Mapping[str, str]) -> PaperTask:
    section = f"tasks.{name}"
    if name not in TASKS:
        raise ConfigError("tasks", name, "unknown task", TASKS)
    task = build(PaperTask, section, {**require_table(section, raw), "name": name})
    build(StudyTexts, f"{section}.texts", task.texts)
    missing = [each for each in rows if each not in task.settings]
    if missing:
        raise ConfigError(f"{section}.settings", missing, "configurations without settings")
    settings = {
        each: _settings(f"{section}.settings.{each}", each, settings)
        for each, settings in task.settings.items()
    }
    return replace(task, settings=settings)


def _settings(section: str, configuration: str, raw: object) -> FURLStudyConfig:
    table = {"configuration": configuration, **require_table(section, raw)}
    return build(FURLStudyConfig, section, table)


def _require_seeds(paper: FURLPaper, key: str, repetitions: int) -> None:
    if not 1 <= repetitions <= len(paper.seeds):
        raise ConfigError(key, repetitions, f"must be 1 to {len(paper.seeds)}")


def _shrunk(paper: FURLPaper, quick: _Quick, tables: Mapping[str, Any]) -> FURLPaper:
    """The paper with one task, made small."""
    if quick.task not in paper.tasks:
        raise ConfigError("quick.task", quick.task, "unknown task", paper.tasks)
    _require_seeds(paper, "quick.repetitions", quick.repetitions)
    task, raw = paper.tasks[quick.task], tables[quick.task]["settings"]
    settings = {
        each: _settings("quick.settings", each, {**raw[each], **quick.settings})
        for each in task.settings
    }
    build(StudyTexts, "quick.texts", quick.texts)
    small = replace(task, our_data=_QUICK_DATA, texts=quick.texts, settings=settings)
    return replace(paper, repetitions=quick.repetitions, tasks={quick.task: small})
