"""Studies of a reproduction: taken from a folder of results, or run and put there."""

import argparse
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from tqdm import tqdm

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import DataError, DivergedError
from secure_fedrec.studies.files import read_arrays
from secure_fedrec.studies.resumed import (
    BeingMadeError,
    StudySettings,
    being_made,
    read_study,
    require_one_source,
    run_study,
)

Wanted = TypeVar("Wanted")
Made = TypeVar("Made")
Report: TypeAlias = dict[str, Any]

_LOOK_SECONDS: Final = 1.0
"""Seconds between two checks of what other processes are making, when waiting for them."""


class Found(NamedTuple):
    """A study that there is.

    Attributes:
        report: everything measured.
        path: its file; its arrays are beside it.
    """

    report: Mapping[str, Any]
    path: Path

    @property
    def diverged(self) -> bool:
        """Whether it ended with a loss that was not a number."""
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
class StudyFolder(ABC, Generic[Wanted]):
    """The folder of studies, and whether missing ones are made.

    Args:
        folder: of the results; made where it is missing.
        data_dir: folder of the data sets, see ``secure_fedrec.data.locate``.
        run: whether to run studies that are missing; otherwise they are left out.
        progress: whether to draw a progress bar.
    """

    folder: Path
    data_dir: Path | None = None
    run: bool = True
    progress: bool = True

    @abstractmethod
    def path(self, needed: Wanted) -> Path:
        """Of the report of a study."""

    @staticmethod
    def options(arguments: argparse.Namespace) -> dict[str, Any]:
        """The fields as the command line has them."""
        # A folder per paper, since some papers search all reports of the folder.
        beside = f"studies-{arguments.paper}{'-quick' if arguments.quick else ''}"
        return {
            "folder": arguments.results or arguments.out / beside,
            "data_dir": arguments.data_dir,
            "run": not arguments.no_run,
            "progress": not arguments.quiet,
        }

    def require(self, studies: Sized, paper: str, by: str = "is needed") -> None:
        """Refuse an empty result.

        Raises:
            DataError: the result is empty.
        """
        if not studies:
            raise DataError(self.folder, f"holds no study of {paper} that {by}")

    def completed(
        self,
        found: dict[Wanted, Made],
        needed: Iterable[Wanted],
        make: Callable[[Wanted, "tqdm[Any]"], Made],
    ) -> dict[Wanted, Made]:
        """The studies that were found and, if wanted, the missing ones, run now.

        In order, except that studies that other processes are making come last: they are read when
        finished, and one that another process abandons is continued here. A study that diverges
        with all of its settings is left out, with a message.

        Args:
            found: studies that there are.
            needed: all of them.
            make: runs one of them, or raises ``BeingMadeError`` where another process does; may
                refresh the bar and add to it.

        Returns:
            The studies that then exist, in the order of ``needed``.
        """
        wanted = list(needed)
        missing = [each for each in wanted if each not in found] if self.run else []
        if self.progress and missing:
            told = f"{len(wanted)} studies asked for, {len(missing)} to run"
            tqdm.write(told, file=sys.stderr)
        hidden, waits = not self.progress or None, False
        with tqdm(total=len(missing), unit="study", file=sys.stderr, disable=hidden) as bar:
            while missing:
                free = (each for each in missing if not being_made(self.path(each)))
                each = min(free, key=lambda each: self.path(each).exists(), default=None)
                if each is None:
                    if self.progress and not waits:
                        told = f"waits: others make all that is asked for, {self.path(missing[0])}"
                        bar.write(told, file=sys.stderr)
                    waits = True
                    sleep(_LOOK_SECONDS)
                    continue
                bar.set_description(str(each))
                try:
                    found[each] = make(each, bar)
                except BeingMadeError:  # another process began it meanwhile
                    continue
                except DivergedError as diverged:
                    bar.write(f"left out, {each}: {diverged.problem}", file=sys.stderr)
                missing.remove(each)
                bar.update()
        return {each: found[each] for each in wanted if each in found}


class NamedStudies(StudyFolder[Wanted]):
    """Studies that are found by their file names and made by ``run_study``."""

    @abstractmethod
    def config(self, needed: Wanted) -> StudySettings:
        """The settings of a study."""

    @abstractmethod
    def data(self, needed: Wanted) -> Any:
        """The data of a study, with a ``fingerprint``."""

    def told(self, needed: Wanted, bar: "tqdm[Any]") -> dict[str, Callable[..., object]]:
        """A function that a study calls to show its progress."""
        return {"on_round": bar.refresh}

    def make(self, needed: Wanted, bar: "tqdm[Any]") -> Report:
        """Run a study; see ``completed``."""
        data, config, told = self.data(needed), self.config(needed), self.told(needed, bar)
        return run_study(data, config, self.path(needed), wait=False, **told)

    def found(self, needed: Iterable[Wanted]) -> dict[Wanted, Report]:
        """The reports of studies, from the folder or, where that is wanted, made now.

        Raises:
            ConfigError: a setting does not fit the data or the method.
            DataError: a file is of other settings or damaged, the data are missing, or studies of
                one data set are of different data.
        """
        wanted = list(dict.fromkeys(needed))
        read = {each: read_study(self.path(each), self.config(each)) for each in wanted}
        there = {each: report for each, report in read.items() if report is not None}
        found = self.completed(there, wanted, self.make)
        require_one_source({self.path(each): report for each, report in found.items()})
        return found
