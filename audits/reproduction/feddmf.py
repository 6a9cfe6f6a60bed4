"""FedDMF's figures 5 to 8, and further figures for federations of several organisations.

A figure in numbers: F1 at the tuned and at the printed threshold, AUC, and F1 of all ones. It is
drawn as bars of methods (5) or lines along what is varied (6 to 8).
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from audits.report.svg import RULE, SERIES, canvas, finish
from audits.reproduction.engine import Result, first_seeds, seconds_of, wanted_parts
from audits.reproduction.numbers import in_columns, number, t_interval, with_interval
from audits.reproduction.papers import read_paper
from audits.reproduction.progress import NamedStudies
from audits.reproduction.ratings import ratings_of
from secure_fedrec.data import RatingTable
from secure_fedrec.data.organisations.common_items import CommonItemsConfig
from secure_fedrec.settings import Settings
from secure_fedrec.studies.feddmf.methods import UNTRAINED
from secure_fedrec.studies.feddmf.quality import KINDS
from secure_fedrec.studies.feddmf.study import PAPER, StudyConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEEDS: Final = (0, 1, 2)
"""Number of repetitions in the paper."""

SIDES: Final = {"within": "own items (training)", "across": "items of others (testing)"}
"""An organisation's own items, on which it trained; and those of others."""

_STAND_IN: Final = "NOT ITS DATA: a generated table in its place, three epochs of a smaller model"
_EXCHANGED, _SUMMED = "feddmf-exchanged", "feddmf-summed"
_OTHERS: Final = ("dmf", "fedavg", "popularity")
_FIGURES: Final = ("tuned", "printed", "best", "auc", "all_ones")
_SHARES: Final = {"share_of_central": "", "popularity_share": " by popularity"}
_HALF: Final = 0.5

_Epochs: TypeAlias = Mapping[int, Mapping[str, Any]]
"""The last epoch's figures, by seed."""


class Shown(Settings):
    """A figure.

    Args:
        title: what it shows.
        methods: of its studies; FedDMF without a margin and with the paper's.
        varied: key of the split along its axis; without one its bars are methods.
        values: of that key.
        settings: of FedDMF, one after the other, where they are not as pinned.
        data: name of the table that is cut.
        all_pairs: whether training is on all pairs.
        apart: whether organisations are drawn apart.
        hours: whether it is run only where it is asked for.
    """

    title: str
    methods: tuple[str, ...]
    varied: str | None = None
    values: tuple[Any, ...] = (None,)
    settings: tuple[Any, ...] = ({},)
    data: str = "ml-latest-small"
    all_pairs: bool = False
    apart: bool = False
    hours: bool = False

    def studies(self) -> Iterator[StudyConfig]:
        """Studies of all seeds, each once."""
        training = replace(PAPER.training, negatives=None) if self.all_pairs else PAPER.training
        others = replace(PAPER, training=training)
        for value in self.values:
            # A share of one half means equal parts.
            equal = value == _HALF and self.varied in ("items", "users")
            split: dict[str, Any] = {}
            if self.varied:
                split = {self.varied: None if equal else value}
            for settings in self.settings:
                feddmf = replace(others, **settings)
                margins = replace(feddmf, margin=0.0), feddmf
                for seed, name in product(SEEDS, self.methods):
                    cut = CommonItemsConfig(seed=seed, **split)
                    for own in margins if name in (_EXCHANGED, _SUMMED) else (others,):
                        yield StudyConfig(method=name, data=self.data, split=cut, algorithm=own)


class Point(NamedTuple):
    """A point of a figure: what the studies of all seeds have in common.

    Attributes:
        name: of the method.
        at: where along the axis; 0 without one.
    """

    name: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """The paper's file; ``quick`` is empty for the paper's data."""

    title: str
    repetitions: int
    share_of_central: float
    names: Mapping[str, str]
    figures: Mapping[str, Shown]
    quick: Mapping[str, Any]

    def studies(self, figure: str, seeds: int) -> dict[StudyConfig, Point]:
        """The studies of a figure, point by point; of a quick one the outermost points."""
        shown = self.figures[figure]
        found = {
            replace(each.quick(), data="generated") if self.quick else each: self._point(
                each, shown.varied
            )
            for each in shown.studies()
            if each.split.seed < seeds
        }
        places = sorted({point.at for point in found.values()})
        outer = {places[0], places[-1]} if self.quick else places
        return {each: point for each, point in found.items() if point.at in outer}

    def _point(self, study: StudyConfig, varied: str | None) -> Point:
        name, algorithm = self.names[study.method], study.algorithm
        if study.method in (_EXCHANGED, _SUMMED):
            name = f"{name}, margin {algorithm.margin:g}"
            name += ", separate starts" if algorithm.start != PAPER.start else ""
            name += ", a batch's pairs" if algorithm.similarity != PAPER.similarity else ""
        value = getattr(study.split, varied) if varied else 0
        return Point(name, _HALF if value is None else float(value))


def load_paper(*, quick: bool) -> Paper:
    """Read the paper's file.

    Args:
        quick: whether a small generated table stands in for the data.
    """
    raw = read_paper("feddmf")
    small = raw.pop("quick")
    figures = {name: Shown(**each) for name, each in raw.pop("figures").items()}
    if not quick:
        return Paper(**raw, figures=figures, quick={})
    raw |= {"repetitions": small["repetitions"]}
    return Paper(**raw, figures={name: figures[name] for name in small["figures"]}, quick=small)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySource(NamedStudies[StudyConfig]):
    """The library of studies: those of a folder, and those made now."""

    quick: Mapping[str, Any]

    def path(self, study: StudyConfig) -> Path:
        """Of the report of a study."""
        return self.folder / file_name(study)

    def config(self, study: StudyConfig) -> StudyConfig:
        """The settings of a study are its name."""
        return study

    def data(self, study: StudyConfig) -> RatingTable:
        """The table that is cut."""
        return ratings_of(study.data, self.data_dir, self.quick)

    def told(self, study: StudyConfig, bar: Any) -> dict[str, Callable[..., object]]:
        """Which study it is, and its epochs."""
        bar.set_description(self.path(study).stem)
        return {"on_epoch": lambda epoch: bar.set_postfix_str(f"epoch {epoch.epoch}")}


def file_name(study: StudyConfig) -> str:
    """File name of a study's report, by what differs between studies of a figure."""
    split, parts = study.split, [study.data, study.method, f"{study.split.organisations}"]
    parts += [f"common{split.common:g}"]
    parts += [f"items{split.items:g}"] if split.items not in (None, _HALF) else []
    parts += [f"users{split.users:g}"] if split.users not in (None, _HALF) else []
    if study.method in (_EXCHANGED, _SUMMED):
        algorithm = study.algorithm
        parts += [f"margin{algorithm.margin:g}"]
        parts += [f"start-{algorithm.start}"] if algorithm.start != PAPER.start else []
        parts += [algorithm.similarity] if algorithm.similarity != PAPER.similarity else []
    parts += ["all-pairs"] if study.algorithm.training.negatives is None else []
    return "-".join([*parts, f"seed{split.seed}"]) + ".json"


def reproduce(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run what is missing, report and draw the figures; see ``papers.Run``."""
    paper = load_paper(quick=arguments.quick)
    usual = [name for name, shown in paper.figures.items() if not shown.hours]
    parts = wanted_parts(arguments, tables=(), figures=tuple(paper.figures), usual=usual)
    seeds = len(first_seeds(SEEDS, arguments.seeds, default=paper.repetitions))
    source = StudySource(quick=paper.quick, **StudySource.options(arguments))
    wanted = {figure: paper.studies(figure, seeds) for figure in parts.figures}
    studies = source.found(each for points in wanted.values() for each in points)
    source.require(studies, "FedDMF")
    values = {"paper": paper.title, "quick": arguments.quick, "seeds": seeds}
    values |= {"figures": [], "drawings": []}
    result = Result(arguments.out, values, _STAND_IN if arguments.quick else "")
    for figure, points in wanted.items():
        values = figure_values(paper, figure, studies, points)
        result.tell("figures", values, figure_lines(values))
        if values["points"]:
            chart = figure_chart(values, apart=paper.figures[figure].apart)
            result.draw("drawings", f"feddmf-figure-{figure}", chart)
    result.values["seconds"] = seconds_of(studies.values())
    return result.ended([*studies.values()])


def figure_values(
    paper: Paper,
    figure: str,
    studies: Mapping[StudyConfig, Mapping[str, Any]],
    points: Mapping[StudyConfig, Point],
) -> dict[str, Any]:
    """A figure as JSON values: by point, kind of pairs and side, the mean over seeds.

    Args:
        paper: says what it shows.
        figure: its number or name.
        studies: reports of those that there are.
        points: points of its studies.
    """
    own: dict[Point, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for study, point in points.items():
        if study in studies:
            own[point][study.split.seed] = studies[study]["epochs"][-1]
    shown = paper.figures[figure]
    return {
        "figure": figure,
        "title": shown.title,
        "varied": shown.varied,
        "missing": sum(study not in studies for study in points),
        "points": [_point(point, found) for point, found in own.items()],
        "against": _against(paper, own, shown.varied),
    }


def figure_lines(values: Mapping[str, Any]) -> list[str]:
    """A figure as text."""
    header = ["F1 across, sampled", "at 0.5", "AUC", "all ones", "F1 within", "AUC", "F1 all pairs"]
    rows = [[_label(point, values["varied"]), *_cells(point)] for point in values["points"]]
    missing = f"; {values['missing']} studies are missing" if values["missing"] else ""
    lines = [
        f"Figure {values['figure']}. {values['title']}; last epoch, common items left out{missing}",
        *in_columns(["", *header, "seeds"], rows),
    ]
    for each in values["against"]:
        gaps = [f"{other} {with_interval(gap, 4)}" for other, gap in each["less"].items()]
        lines.append(f"{each['method']}, F1 across, sampled, less that of: {'; '.join(gaps)}")
        shares = [
            f"{', '.join(f'{share:.1%} on {kind}' for kind, share in each[key].items())}{whose}"
            for key, whose in _SHARES.items()
            if each[key]
        ]
        if shares:
            lines.append(f"  of DMF on all data: {'; '.join(shares)}; paper: {each['printed']:.0%}")
    return lines


def _point(point: Point, found: _Epochs) -> dict[str, Any]:
    """Means over seeds, for the mean over organisations and for each organisation."""
    seeds = sorted(found)

    def mean(*keys: Any) -> dict[str, float | None]:
        values: list[Any] = [found[seed] for seed in seeds]
        for key in keys:
            values = [each[key] for each in values]
        return t_interval(values)

    count = len(found[seeds[0]][KINDS[0]]["organisations"])
    figures = {
        kind: {side: {name: mean(kind, side, name) for name in _FIGURES} for side in SIDES}
        for kind in KINDS
    }
    organisations = [
        {side: mean(KINDS[0], "organisations", place, side, "tuned") for side in SIDES}
        for place in range(count)
    ]
    told = {"method": point.name, "at": point.at, "seeds": seeds}
    return {**told, "figures": figures, "organisations": organisations}


def _against(
    paper: Paper, own: Mapping[Point, _Epochs], varied: str | None
) -> list[dict[str, Any]]:
    """Every model compared with others and popularity on the same splits, seeds paired.

    The summed form of FedDMF is also compared with the exchanged one.
    """
    rows = []
    rules = {paper.names[each] for each in UNTRAINED}
    for point, found in own.items():
        if point.name in rules:
            continue
        others = [paper.names[each] for each in _OTHERS if paper.names[each] != point.name]
        if point.name.startswith(paper.names[_SUMMED]):
            forms = paper.names[_SUMMED], paper.names[_EXCHANGED]
            others.append(point.name.replace(*forms))
        known = {other: own.get(Point(other, point.at), {}) for other in others}
        less = {other: _paired(found, theirs) for other, theirs in known.items()}
        told = {other: gap for other, gap in less.items() if gap is not None}
        if told:
            row = {"method": _label({"method": point.name, "at": point.at}, varied), "less": told}
            central = known.get(paper.names["dmf"], {})
            shares = {
                "share_of_central": _shares(found, central),
                "popularity_share": _shares(known[paper.names["popularity"]], central),
            }
            rows.append({**row, **shares, "printed": paper.share_of_central})
    return rows


def _paired(found: _Epochs, other: _Epochs) -> dict[str, float | None] | None:
    """Difference of F1 across between two methods, for the seeds that both have."""
    seeds = sorted(found.keys() & other.keys())
    if not seeds:
        return None
    return t_interval([_across(found[seed]) - _across(other[seed]) for seed in seeds])


def _shares(found: _Epochs, central: _Epochs) -> dict[str, float]:
    """F1 across as a share of that of a model on all data, for the seeds that both have."""
    seeds, shares = sorted(found.keys() & central.keys()), {}
    for kind in KINDS:
        ours, whole = (sum(_across(each[s], kind) for s in seeds) for each in (found, central))
        if whole:
            shares[f"{kind} pairs"] = ours / whole
    return shares


def _across(epoch: Mapping[str, Any], kind: str = KINDS[0]) -> float:
    return float(epoch[kind]["across"]["tuned"])


def _label(point: Mapping[str, Any], varied: str | None) -> str:
    return point["method"] if varied is None else f"{point['method']}, {varied} {point['at']:g}"


def _cells(point: Mapping[str, Any]) -> Sequence[str]:
    across, within = (point["figures"][KINDS[0]][side] for side in ("across", "within"))
    everything = point["figures"][KINDS[1]]["across"]
    shown = [across[name] for name in ("tuned", "printed", "auc", "all_ones")]
    shown += [within["tuned"], within["auc"], everything["tuned"]]
    return [*(number(each["mean"], 4) for each in shown), str(len(point["seeds"]))]


def figure_chart(values: Mapping[str, Any], *, apart: bool) -> str:
    """Draw F1 at the tuned threshold, own items to the left and items of others to the right.

    Args:
        values: as ``figure_values`` gives them.
        apart: whether organisations are drawn apart.

    Returns:
        One ``<svg>`` element.
    """
    told: list[str] = []
    with canvas(7.6, 3.2) as figure:
        for place, side in enumerate(SIDES):
            axes = figure.add_axes((0.07 + place * 0.34, 0.24, 0.29, 0.66))
            axes.set_title(SIDES[side], fontsize=8.5)
            if values["varied"] is None:
                _bars(axes, values, side, told)
            else:
                _lines(axes, values, side, told, apart=apart)
                axes.set_xlabel(values["varied"])
            axes.grid(axis="y", color=RULE, linewidth=0.6)
        figure.axes[0].set_ylabel("F1")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.72, 0.92), frameon=False)
        title = f"F1 of FedDMF, figure {values['figure']}: {values['title']}"
        return finish(figure, "f1", title, "; ".join(told))


def _bars(axes: "Axes", values: Mapping[str, Any], side: str, told: list[str]) -> None:
    for place, point in enumerate(values["points"]):
        found = point["figures"][KINDS[0]][side]["tuned"]
        colour = SERIES[place % len(SERIES)]
        hatch = "//" if place >= len(SERIES) else None
        label = point["method"]
        axes.bar(place, found["mean"], 0.75, color=colour, hatch=hatch, label=label)
        told.append(f"{label}, {SIDES[side]}: {found['mean']:.3f}")
    axes.set_xticks([])


def _lines(
    axes: "Axes", values: Mapping[str, Any], side: str, told: list[str], *, apart: bool
) -> None:
    curves: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for point in values["points"]:
        if apart:
            for place, own in enumerate(point["organisations"]):
                name = f"{point['method']}, organisation {place + 1}"
                curves[name].append((point["at"], own[side]["mean"]))
        else:
            found = point["figures"][KINDS[0]][side]["tuned"]
            curves[point["method"]].append((point["at"], found["mean"]))
    for place, (name, own) in enumerate(curves.items()):
        along, heights = zip(*sorted(own), strict=True)
        axes.plot(along, heights, marker="o", color=SERIES[place % len(SERIES)], label=name)
        told.append(f"{name}, {SIDES[side]}: " + ", ".join(f"{h:.3f}" for h in heights))
