"""FURL's numbers as they were printed, the settings they are repeated under, and the studies.

A study that is found counts whatever its settings are, because a long run must not be lost to a
changed pin; how it differs from what is pinned is stored and shown. Two studies for the same place
in the table with different settings are refused, since one would hide the other.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from audits.config.tables import build, require_table
from audits.report.text import flatten
from audits.reproduction.engine import chosen
from audits.reproduction.papers import read_paper
from audits.reproduction.progress import StudyFolder
from secure_fedrec.algorithms.furl.configurations import CONFIGURATIONS
from secure_fedrec.data.refusals import refused
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.settings import Filled, Settings
from secure_fedrec.studies.furl.results import TASKS, StudyTexts, read_study, write_study
from secure_fedrec.studies.furl.study import FURLStudyConfig, run_furl_study
from secure_fedrec.studies.resumed import once

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
        same_users: whether the texts of all seeds are by the same users.
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
        """What differs between two repetitions, and so contributes to their spread."""
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

    def select(self, names: Sequence[str] | None) -> tuple[PaperTask, ...]:
        """Some of the tasks; None for all.

        Raises:
            ConfigError: there is no task of that name.
        """
        return tuple(self.tasks[name] for name in chosen("--task", names, self.tasks))


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
        each: _training(f"{section}.settings.{each}", each, settings)
        for each, settings in task.settings.items()
    }
    return replace(task, settings=settings)


def _training(section: str, configuration: str, raw: object) -> FURLStudyConfig:
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
        each: _training("quick.settings", each, {**raw[each], **quick.settings})
        for each in task.settings
    }
    build(StudyTexts, "quick.texts", quick.texts)
    small = replace(task, our_data=_QUICK_DATA, texts=quick.texts, settings=settings)
    return replace(paper, repetitions=quick.repetitions, tasks={quick.task: small})


class Needed(NamedTuple):
    """The place of a study in the tables.

    Attributes:
        task: name of the task.
        configuration: name of the configuration.
        seed: of training.
    """

    task: str
    configuration: str
    seed: int

    def __str__(self) -> str:
        return f"{self.configuration} on {self.task}, seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One study that there is.

    Args:
        path: of its summary.
        place: where it belongs.
        texts: what it learnt from.
        config: settings of its training.
        summary: everything that was measured.
        copies: further files with a study of the same place and settings, which are not used.
    """

    path: Path
    place: Needed
    texts: StudyTexts
    config: FURLStudyConfig
    summary: Mapping[str, Any] = field(repr=False)
    copies: tuple[Path, ...] = ()

    def settings(self) -> dict[str, Any]:
        """All settings by dotted name, those of the texts under ``texts``."""
        return _settings(self.texts, self.config)


Studies: TypeAlias = Mapping[Needed, Stored]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySource(StudyFolder[Needed]):
    """The library of studies: those of a folder, and those made now.

    Args:
        paper: holds the pinned settings.
    """

    paper: FURLPaper

    def path(self, needed: Needed) -> Path:
        """File name of a report of a study that is run here; others may have other names."""
        return self.folder / f"{needed.task}-{needed.configuration}-{needed.seed}.json"


def needed_studies(
    tasks: Sequence[PaperTask], configurations: Iterable[str], seeds: Sequence[int]
) -> list[Needed]:
    """Every study that the tables need."""
    return [
        Needed(task.name, configuration, seed)
        for task in tasks
        for configuration in configurations
        for seed in seeds
    ]


def studies_of(
    task: PaperTask, configuration: str, studies: Studies, seeds: Sequence[int]
) -> list[Stored]:
    """The studies that there are of one configuration, by seed."""
    places = needed_studies([task], [configuration], seeds)
    return [studies[place] for place in places if place in studies]


def find_studies(needed: Sequence[Needed], source: StudySource) -> dict[Needed, Stored]:
    """The studies that are needed, from the folder or, where it has none, run now.

    A study that was run is in the folder at once: an interrupted reproduction goes on where it was.

    Raises:
        ConfigError: a pinned setting is out of range.
        DataError: a file is damaged, two files are studies of one place with different settings, or
            the data are missing.
        EncodingError: training left the ring.
    """
    claims: dict[Needed, list[Stored]] = defaultdict(list)
    for path in sorted(source.folder.glob("*.json")):
        stored = _read(path)
        if stored.place in needed:
            claims[stored.place].append(stored)
    return source.completed(
        {place: _only(studies) for place, studies in claims.items()},
        needed,
        lambda each, bar: _run(each, source, bar.set_postfix_str),
    )


def pinned_settings(task: PaperTask, place: Needed) -> dict[str, Any]:
    """The settings that the paper's file pins for a place, by dotted name."""
    return _settings(task.texts_of(place.seed), task.settings[place.configuration])


def differences(stored: Stored, task: PaperTask) -> dict[str, tuple[Any, Any]]:
    """Settings of a study that are not as pinned: (its value, the pinned one) by dotted name."""
    return _differences(stored.settings(), pinned_settings(task, stored.place))


def _read(path: Path) -> Stored:
    summary = read_study(path)
    with refused(path, "is not a study of FURL: {}", ConfigError):
        config = build(FURLStudyConfig, "config", summary["config"])
        texts = StudyTexts(
            task=summary["task"],
            seed=summary["data_seed"],
            length=summary["length"],
            users=summary["users"],
        )
    if config.configuration != summary["configuration"]:
        raise DataError(path, "is not a study of FURL: it names two configurations")
    place = Needed(texts.task, config.configuration, summary["seed"])
    return Stored(path=path, place=place, texts=texts, config=config, summary=summary)


def _only(studies: Sequence[Stored]) -> Stored:
    """The study of a place; further ones must be repetitions of it."""
    first, *others = studies
    for other in others:
        differing = _differences(first.settings(), other.settings())
        if differing:
            shown = ", ".join(f"{name} {a!r} and {b!r}" for name, (a, b) in differing.items())
            raise DataError(
                other.path,
                f"and {first.path} are both {first.place}, with different settings ({shown}); "
                "keep one of them in the folder",
            )
    return replace(first, copies=tuple(other.path for other in others))


def _run(each: Needed, source: StudySource, tell: Callable[[str], object]) -> Stored:
    """Run one study under its pinned settings and put it into the folder."""
    task = source.paper.tasks[each.task]
    texts, config = task.texts_of(each.seed), task.settings[each.configuration]
    path = source.path(each)

    def report(point: Mapping[str, float]) -> None:
        tell(f"epoch {point['epoch']:.0f} of {config.epochs}")

    def read() -> Stored | None:
        """What another process has made since the folder was read."""
        stored = _read(path) if path.exists() else None
        if stored is not None and stored.place != each:
            raise DataError(path, f"is of {stored.place}, not of {each}")
        return stored

    def make() -> Stored:
        data = texts.load(source.data_dir)
        result = run_furl_study(config, data, seed=each.seed, report=report)
        write_study(path, texts=texts, data=data, config=config, result=result)
        return Stored(path=path, place=each, texts=texts, config=config, summary=result.summary)

    return once(path, read, make, wait=False)


def _settings(texts: StudyTexts, config: FURLStudyConfig) -> dict[str, Any]:
    return dict(flatten({"texts": texts.settings(), **asdict(config)}))


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (one[name], other[name]) for name in one if one[name] != other[name]}
