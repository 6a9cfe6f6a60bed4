"""FedRec++'s tables 2 (rating error) and 3 (cost), and its figure 2 (fewer clients in a round)."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from audits.report.svg import MUTED, RULE, SERIES, canvas, finish
from audits.reproduction.engine import (
    Parts,
    Result,
    chosen,
    first_seeds,
    seconds_of,
    wanted_parts,
)
from audits.reproduction.numbers import MISSING, Cells, number, summary, table_lines
from audits.reproduction.papers import read_paper
from audits.reproduction.progress import NamedStudies
from audits.reproduction.ratings import ratings_of
from secure_fedrec.data import RatingTable
from secure_fedrec.settings import Settings
from secure_fedrec.studies.fedrecpp.study import METHODS, StudyConfig

_STAND_IN: Final = "NOT ITS DATA: small generated ratings in their place"
_MEASURES: Final = {"mae": "MAE", "rmse": "RMSE"}
_COSTS: Final = ("denoiser", "ordinary", "client")
_NAMES: Final = {"fedrec": "FedRec", "fedrec++": "FedRec++"}
_STYLES: Final = {"fedrec": ("o", "-"), "fedrec++": ("s", (0, (5, 1.6)))}


class Entry(NamedTuple):
    """An entry: what the studies of all folds have in common.

    Attributes:
        data: name of the ratings.
        method: name of the method.
        rho: virtual items per rated one.
        denoisers: eta.
        share: of the clients in a round.
    """

    data: str
    method: str
    rho: int
    denoisers: int = 0
    share: float = 1.0

    @property
    def stem(self) -> str:
        """Words for names of files."""
        parts = [self.data, self.method.replace("+", "p"), f"rho{self.rho}"]
        parts += [f"eta{self.denoisers}"] if self.denoisers else []
        return "-".join([*parts, f"share{self.share:g}"])


class Needed(NamedTuple):
    """One study.

    Attributes:
        entry: of a table or figure.
        fold: held out.
        rounds: of training; one is enough for a cost.
    """

    entry: Entry
    fold: int
    rounds: int

    def __str__(self) -> str:
        return f"{self.entry.stem}, fold {self.fold}"


Studies: TypeAlias = Mapping[Needed, Mapping[str, Any]]
"""Reports."""


class Data(Settings):
    """A data set.

    Args:
        paper_name: what the paper calls it.
        clients: how many there are.
        filling: T_predict and T_local, by rho as a word.
    """

    paper_name: str
    clients: int
    filling: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """The paper's file, with cells of its tables as printed; ``quick`` is empty for its ratings."""

    title: str
    folds: int
    seed: int
    rhos: Sequence[int]
    shares: Sequence[float]
    rounds: int
    learning_rate: float
    data: Mapping[str, Data]
    table2: Mapping[str, Any]
    table3: Mapping[str, Any]
    quick: Mapping[str, Any]

    def only(self, names: Sequence[str] | None) -> "Paper":
        """Some of the data sets; None for all.

        Raises:
            ConfigError: there is no such set.
        """
        kept = chosen("--data", names, self.data)
        return replace(self, data={name: self.data[name] for name in kept})

    def error_entries(self, data: str) -> list[Entry]:
        """Entries of table 2, in order."""
        return [_entry(data, method, rho) for method, rho, *_ in self.table2[data]]

    def cost_entries(self, data: str) -> list[Entry]:
        """Entries of table 3, in order."""
        clients = self.data[data].clients
        counts = [clients // share if share > 0 else abs(share) for share, *_ in self.table3[data]]
        return [Entry(data, "fedrec++" if eta else "fedrec", 1, eta) for eta in counts]

    def figure_entries(self, data: str) -> list[Entry]:
        """Entries of figure 2."""
        methods = [("fedrec", 0), *((name, rho) for rho in self.rhos for name in METHODS)]
        return [_entry(data, name, rho, share) for share in self.shares for name, rho in methods]

    def needed(self, parts: Parts, folds: int) -> list[Needed]:
        """Every study, fold by fold; cheap and important ones first."""
        needed: list[Needed] = []
        for name in self.data:
            if 3 in parts.tables:
                needed += _folds(self.cost_entries(name), folds, 1)
            if 2 in parts.tables:
                needed += _folds(self.error_entries(name), folds, self.rounds)
        for name in self.data:
            if parts.figures:
                needed += _folds(self.figure_entries(name), folds, self.rounds)
        return needed


def load_paper(*, quick: bool) -> Paper:
    """Read the paper's numbers.

    Args:
        quick: whether small generated ratings stand in for the smallest set.
    """
    raw = read_paper("fedrecpp")
    small = raw.pop("quick")
    data = {name: Data(**each) for name, each in raw.pop("data").items()}
    if not quick:
        return Paper(**raw, data=data, quick={})
    first, own = next(iter(data.items()))
    raw |= {name: small[name] for name in ("folds", "rounds", "learning_rate")}
    return Paper(
        **raw, data={first: replace(own, clients=small["ratings"]["clients"])}, quick=small
    )


def _entry(data: str, method: str, rho: int, share: float = 1.0) -> Entry:
    return Entry(data, method, rho, 1 if method == "fedrec++" else 0, share)


def _folds(entries: Iterable[Entry], folds: int, rounds: int) -> list[Needed]:
    once = dict.fromkeys(entries)
    return [Needed(entry, fold, rounds) for fold in range(folds) for entry in once]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySource(NamedStudies[Needed]):
    """The library of studies: those of a folder, and those made now."""

    paper: Paper

    def path(self, needed: Needed) -> Path:
        """Of the report of a study."""
        length = "" if needed.rounds == self.paper.rounds else f"-rounds{needed.rounds}"
        return self.folder / f"{needed.entry.stem}{length}-fold{needed.fold}.json"

    def config(self, needed: Needed) -> StudyConfig:
        """Settings of a study."""
        entry, paper = needed.entry, self.paper
        filling = paper.data[entry.data].filling
        predict_after, local_steps = filling[str(entry.rho)] if entry.rho else (0, 1)
        return StudyConfig(
            method=entry.method,
            data="generated" if paper.quick else entry.data,
            fold=needed.fold,
            folds=paper.folds,
            seed=paper.seed,
            rho=float(entry.rho),
            predict_after=predict_after,
            local_steps=local_steps,
            denoisers=entry.denoisers,
            share=entry.share,
            rounds=needed.rounds,
            learning_rate=paper.learning_rate,
        )

    def data(self, needed: Needed) -> RatingTable:
        """The ratings."""
        return ratings_of(needed.entry.data, self.data_dir, self.paper.quick)


def reproduce(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run what is missing, compare the tables, draw the figure; see ``papers.Run``."""
    parts = wanted_parts(arguments, tables=(2, 3), figures=("2",))
    paper = load_paper(quick=arguments.quick).only(arguments.data)
    folds = len(first_seeds(range(paper.folds), arguments.seeds, default=paper.folds))
    source = StudySource(paper=paper, **StudySource.options(arguments))
    studies = source.found(paper.needed(parts, folds))
    source.require(studies, "FedRec++")
    values = {"paper": paper.title, "quick": arguments.quick, "folds": folds}
    values |= {"tables": [], "points": [], "figures": []}
    result = Result(arguments.out, values, _STAND_IN if arguments.quick else "")
    long = {each: report for each, report in studies.items() if each.rounds == paper.rounds}
    short = {each: report for each, report in studies.items() if each.rounds == 1}
    for name in paper.data:
        if 2 in parts.tables:
            errors = error_table(paper, name, long)
            result.tell("tables", errors, error_lines(errors))
        if 3 in parts.tables:
            costs = cost_table(paper, name, short)
            result.tell("tables", costs, cost_lines(costs))
        if parts.figures:
            points = [_of_entry(entry, long) for entry in paper.figure_entries(name)]
            shown = {"figure": "2", "data": name, "points": points}
            result.tell("points", shown, share_lines(shown))
            if any(point["folds"] for point in points):
                result.draw("figures", f"fedrecpp-shares-{name}", shares_chart(shown))
    result.values["seconds"] = seconds_of(studies.values())
    return result.ended([*studies.values()])


def error_table(paper: Paper, data: str, studies: Studies) -> dict[str, Any]:
    """Table 2 of one data set as JSON values."""
    entries, plain = paper.error_entries(data), Entry(data, "fedrec", 0)
    rows = [
        {
            **_of_entry(entry, studies),
            "paper": dict(zip(("mae", "mae_sd", "rmse", "rmse_sd"), cells, strict=True)),
            "same_bits_as_no_virtual_ratings": _same_bits(entry, plain, studies),
        }
        for entry, (_, _, *cells) in zip(entries, paper.table2[data], strict=True)
    ]
    return {"number": 2, "data": data, "paper_data": paper.data[data].paper_name, "rows": rows}


def cost_table(paper: Paper, data: str, studies: Studies) -> dict[str, Any]:
    """Table 3 of one data set as JSON values."""
    rows = []
    for entry, (share, *cells) in zip(paper.cost_entries(data), paper.table3[data], strict=True):
        found = [report["vectors"] for _, report in _reports(entry, studies)]
        printed = (None if cell == MISSING else float(cell) for cell in cells)
        rows.append(
            {
                "denoisers": f"n/{share}" if share > 0 else str(abs(share)),
                "count": entry.denoisers,
                "folds": len(found),
                "paper": dict(zip(_COSTS, printed, strict=True)),
                "ours": {name: summary([each[name] for each in found])["mean"] for name in _COSTS},
            }
        )
    return {"number": 3, "data": data, "paper_data": paper.data[data].paper_name, "rows": rows}


def error_lines(table: Mapping[str, Any]) -> list[str]:
    """Table 2 as text."""
    bits = {True: "yes", False: "no", None: ""}
    cells = {
        "": _name,
        "MAE": lambda row: f"{number(row['paper']['mae'], 4)} | {_ours(row, 'mae')}",
        "RMSE": lambda row: f"{number(row['paper']['rmse'], 4)} | {_ours(row, 'rmse')}",
        "folds": lambda row: str(row["folds"]),
        "bits of rho = 0": lambda row: bits[row["same_bits_as_no_virtual_ratings"]],
    }
    title = f"Table 2, {table['data']} ({table['paper_data']}): paper | ours, mean over folds"
    return table_lines(title, cells, table["rows"])


def cost_lines(table: Mapping[str, Any]) -> list[str]:
    """Table 3 as text."""

    def beside(name: str, row: Mapping[str, Any]) -> str:
        return f"{number(row['paper'][name], 0)} | {number(row['ours'][name], 1)}"

    cells: Cells = {
        "": lambda row: f"eta = {row['denoisers']}",
        **{name: partial(beside, name) for name in _COSTS},
        "folds": lambda row: str(row["folds"]),
    }
    title = f"Table 3, {table['data']} ({table['paper_data']}): vectors a round, paper | ours"
    return table_lines(title, cells, table["rows"])


def share_lines(found: Mapping[str, Any]) -> list[str]:
    """The points of figure 2 as text; the paper draws them and prints none."""
    cells = {
        "": lambda point: f"{_name(point)}, c = {point['share']:g} n",
        "MAE": lambda point: _ours(point, "mae"),
        "RMSE": lambda point: _ours(point, "rmse"),
        "folds": lambda point: str(point["folds"]),
    }
    title = f"Figure 2, {found['data']}: ours, mean over folds (the paper prints no numbers)"
    return table_lines(title, cells, found["points"])


def _of_entry(entry: Entry, studies: Studies) -> dict[str, Any]:
    """Error of the last round over the folds that there are."""
    last = [report["rounds"][-1] for _, report in _reports(entry, studies)]
    return {
        "method": entry.method,
        "rho": entry.rho,
        "denoisers": entry.denoisers,
        "share": entry.share,
        "folds": len(last),
        "ours": {measure: summary([each[measure] for each in last]) for measure in _MEASURES},
    }


def _reports(entry: Entry, studies: Studies) -> list[tuple[int, Mapping[str, Any]]]:
    """Studies with their folds, in order."""
    own = [(needed.fold, report) for needed, report in studies.items() if needed.entry == entry]
    return sorted(own, key=lambda each: each[0])


def _same_bits(entry: Entry, plain: Entry, studies: Studies) -> bool | None:
    """Whether every fold ended in the item vectors of training without virtual ratings."""
    own, other = (
        {fold: report["digest"] for fold, report in _reports(each, studies)}
        for each in (entry, plain)
    )
    both = own.keys() & other.keys()
    if entry == plain or not both:
        return None
    return all(own[fold] == other[fold] for fold in both)


def _name(row: Mapping[str, Any]) -> str:
    return f"{_NAMES[row['method']]}, rho = {row['rho']}"


def _ours(row: Mapping[str, Any], measure: str) -> str:
    found = row["ours"][measure]
    spread = "" if found["deviation"] is None else f" ± {found['deviation']:.4f}"
    return number(found["mean"], 4) + spread


def shares_chart(found: Mapping[str, Any]) -> str:
    """Draw rating error by rho, for every share of clients in a round; one panel per measure.

    Args:
        found: ``data``, and ``points`` as rows of table 2.

    Returns:
        One ``<svg>`` element.
    """
    points = [point for point in found["points"] if point["folds"]]
    shares = sorted({point["share"] for point in points})
    told = []
    with canvas(7.2, 3.0) as figure:
        for place, (measure, name) in enumerate(_MEASURES.items()):
            axes = figure.add_axes((0.08 + place * 0.385, 0.16, 0.3, 0.76))
            for colour, share in zip(SERIES, shares, strict=False):
                for method, (marker, dash) in _STYLES.items():
                    # FedRec without virtual ratings is where both begin.
                    own = [
                        (point["rho"], point["ours"][measure]["mean"])
                        for point in points
                        if point["share"] == share
                        and (point["method"] == method or not point["rho"])
                    ]
                    rhos, values = zip(*sorted(own), strict=True)
                    axes.plot(
                        rhos,
                        values,
                        color=colour,
                        linestyle=dash,
                        marker=marker,
                        markersize=3.5,
                        linewidth=1.3,
                        label=f"{_NAMES[method]}, {share:g} n",
                    )
                    ends = f"{values[0]:.4f} to {values[-1]:.4f}"
                    told.append(f"{name} of {_NAMES[method]} at {share:g} n: {ends}")
            axes.set_xlabel("rho")
            axes.set_ylabel(name)
            axes.set_xticks(sorted({point["rho"] for point in points}))
            axes.grid(axis="y", color=RULE, linewidth=0.6)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.78, 0.94), frameon=False)
        figure.text(0.785, 0.16, found["data"], color=MUTED)
        title = f"Rating error with fewer clients in a round, {found['data']}"
        return finish(figure, "shares", title, "; ".join(told))
