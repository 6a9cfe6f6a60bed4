"""What FedDMF's figures show, and the studies they take."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from audits.reproduction.files import read_paper
from secure_fedrec.settings import Settings
from secure_fedrec.studies.feddmf.figures import FIGURES
from secure_fedrec.studies.feddmf.study import PAPER, StudyConfig

_MARGINS = ("feddmf-exchanged", "feddmf-summed")


class Shown(Settings):
    """A figure.

    Args:
        title: what it shows.
        varied: key of the split along its axis; without one its bars are methods.
        apart: whether organisations are drawn apart.
        hours: whether it is run only where it is asked for.
    """

    title: str
    varied: str | None = None
    apart: bool = False
    hours: bool = False


class Point(NamedTuple):
    """What all seeds of a point of a figure have in common.

    Attributes:
        name: of the method.
        at: where along the axis; 0 without one.
    """

    name: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A paper.

    Args:
        title: short citation.
        repetitions: seeds.
        share_of_central: of the F1 of a model on all data, as printed.
        names: what a method is called.
        figures: by number or name.
        quick: size of the generated table; empty for the paper's data.
    """

    title: str
    repetitions: int
    share_of_central: float
    names: Mapping[str, str]
    figures: Mapping[str, Shown]
    quick: Mapping[str, Any]

    def studies(self, figure: str, seeds: int) -> dict[StudyConfig, Point]:
        """The studies of a figure, point by point."""
        shown, found = self.figures[figure], {}
        for each in FIGURES[figure]:
            if each.split.seed < seeds:
                found[self._sized(each)] = self._point(each, shown)
        if not self.quick:
            return found
        places = sorted({point.at for point in found.values()})
        outer = {places[0], places[-1]}
        return {each: point for each, point in found.items() if point.at in outer}

    def _sized(self, study: StudyConfig) -> StudyConfig:
        return replace(study.quick(), data="generated") if self.quick else study

    def _point(self, study: StudyConfig, shown: Shown) -> Point:
        name = self.names[study.method]
        if study.method in _MARGINS:
            algorithm = study.algorithm
            name = f"{name}, margin {algorithm.margin:g}"
            name += ", separate starts" if algorithm.start != PAPER.start else ""
            name += ", a batch's pairs" if algorithm.similarity != PAPER.similarity else ""
        value = getattr(study.split, shown.varied) if shown.varied else 0
        return Point(name, 0.5 if value is None else float(value))


def load_paper(*, quick: bool) -> Paper:
    """Read what is known of the paper.

    Args:
        quick: whether a small generated table stands in for the data.
    """
    raw = read_paper("feddmf")
    small = raw.pop("quick") if quick else {}
    raw.pop("quick", None)
    figures = {name: Shown(**each) for name, each in raw.pop("figures").items()}
    paper = Paper(**raw, figures=figures, quick=small)
    if not quick:
        return paper
    shown = {name: figures[name] for name in small["figures"]}
    return replace(paper, repetitions=small["repetitions"], figures=shown)
