"""Tables of a reproduction's page as read from it, and as made from what the command says.

A page's row counts as made when a row of the command's result, written as the page writes it, is
the same cell for cell. Columns that name somebody else's code or log are not ours, and are left out
of the comparison.

    python -m tests.reproduction.page_rows fedrecpp

prints the rows that a page can have.
"""

import json
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias

from audits import cli
from audits.reproduction.numbers import number, with_interval
from tests.reproduction.fed3cr_page import along_block, methods_block, varied_block

DOCS = Path(__file__).parents[2] / "docs"

Row = tuple[str, ...]
Tell: TypeAlias = Callable[..., dict[str, Any]]
"""What the command says with such options."""

_FOREIGN = re.compile("public code|authors")
_FIGURE = re.compile(r"\d?\.\d|\d,\d{3}")
HIT, NDCG = "hit_rate_at_10", "ndcg_at_10"


class Table(NamedTuple):
    """A table of a page.

    Attributes:
        name: heading above it, if that is not the paper's, and its first cell.
        rows: cells that are ours; rows without a figure are left out.
    """

    name: str
    rows: tuple[Row, ...]


def tables_of(text: str) -> list[Table]:
    """All tables of a page that have figures."""
    found: list[Table] = []
    heading, header = "", Row()
    rows: list[Row] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if line.startswith("|"):
            cells = _cells(line)
            if not header:
                header = cells
            elif _FIGURE.search(line) and not set(cells) <= {"---"}:
                rows.append(_ours(header, cells))
        elif header:
            if rows:
                found.append(Table(": ".join(filter(None, (heading, header[0]))), tuple(rows)))
            header, rows = Row(), []
    return found


def section_of(page: str, heading: str) -> str:
    """What stands under a heading of the second level."""
    _, _, after = page.partition(f"\n## {heading}")
    return after.partition("\n## ")[0]


def _ours(header: Row, cells: Row) -> Row:
    named = zip(header, cells, strict=True)
    return tuple("" if _FOREIGN.search(name) else cell for name, cell in named)


def teller(paper: str, folder: Path) -> Tell:
    """The command with nothing run, on the records that the repository has.

    What it has no study of is empty.
    """
    studies, nothing = folder / "studies", folder / "no data"
    nothing.mkdir()
    with zipfile.ZipFile(DOCS / "records" / f"{paper}.zip") as packed:
        packed.extractall(studies)

    def tell(*words: str) -> dict[str, Any]:
        given = ["--no-run", "--quiet", "--results", str(studies), "--out", str(folder)]
        given += ["--data-dir", str(nothing)]
        if cli.main(["reproduce", paper, *words, *given]):
            return defaultdict(list)  # there is no such study
        apart = "-variants" if "--variants" in words else ""
        found: dict[str, Any] = json.loads((folder / f"{paper}{apart}.json").read_text())
        return found

    return tell


def _cells(line: str) -> Row:
    return tuple(cell.strip() for cell in line[1:-1].split("|"))


def _percent(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{100 * value:.{digits}f}"


def _span(found: Mapping[str, float] | None) -> str:
    if not found:
        return ""
    return f"{100 * found['value']:+.2f} [{100 * found['low']:+.2f}, {100 * found['high']:+.2f}]"


def _printed(row: Mapping[str, Any]) -> Iterator[str]:
    if row["paper"]:
        yield from (f"{row['paper'][name]:.2f}" for name in (HIT, NDCG))


def fed3cr_rows(tell: Tell) -> Iterator[Row]:
    """Table 2 and what was tried, parts of table 3, transfers of table 4, curves, sensitivity."""
    for protocol in ("clean", "published"):
        for table in tell("--protocol", protocol, "--table", "2")["tables"]:
            yield from map(_cells, methods_block(table, "")[2:])
            yield from map(_cells, along_block(table)[2:])
            for row in table["rows"]:
                yield from _curve(row) if row["seeds"] else ()
    tried = ("--data", "ml-100k", "--figure", "sensitivity", "--seeds", "1")
    for figure in tell("--protocol", "published", *tried)["figures"]:
        yield from map(_cells, varied_block(figure)[2:])
    words = ("--protocol", "published", "--seeds", "1")
    for table in tell(*words, "--table", "3")["tables"]:
        for row in table["rows"]:
            parts = tuple("yes" if part else "" for part in row["parts"])
            yield (row["row"], *parts, *_part(row, row["over_c0"]), *_printed(row))
    for table in tell(*words, "--data", "ml-100k", "--table", "4")["tables"]:
        for row in table["rows"]:
            yield (row["row"], *_part(row, row["over_ace"]))


def _part(row: Mapping[str, Any], over: Mapping[str, Any] | None) -> Row:
    if not row["seeds"]:
        return ()
    ours, last = row["ours"], _percent(row["last"][HIT])
    shown = _percent(ours[HIT]), _percent(ours[NDCG]), _span(over["hit"]) if over else ""
    return (*shown, _percent(ours[f"full_{HIT}"]), last, "/".join(map(str, row["chosen"])))


def _curve(row: Mapping[str, Any]) -> Iterator[Row]:
    for point in row["curve"]:
        yield (f"{point['round']:.0f}", "", _percent(point[HIT]), "", _percent(point[NDCG]))


def feddmf_rows(tell: Tell) -> Iterator[Row]:
    """Methods of every figure."""
    figures = [part for name in FEDDMF_FIGURES for part in ("--figure", name)]
    for figure in tell(*figures)["figures"]:
        against, varied = {each["method"]: each["less"] for each in figure["against"]}, ""
        for point in figure["points"]:
            name, told = point["method"], point["method"]
            if varied := figure["varied"]:
                name, told = f"{point['at']:g}, {told}", f"{told}, {varied} {point['at']:g}"
            across, whole = (point["figures"][kind]["across"] for kind in ("sampled", "all"))
            shown = [across[each] for each in ("tuned", "printed", "auc")]
            shown += [point["figures"]["sampled"]["within"]["tuned"], whole["tuned"]]
            less = against.get(told, {})
            others = ("DMF on all data", "FedAvg", "popularity")
            gaps = (with_interval(less[other], 4) if other in less else "" for other in others)
            yield (
                name,
                *(number(each["mean"], 4) for each in shown),
                *gaps,
                str(len(point["seeds"])),
            )


FEDDMF_FIGURES = (
    "5",
    "6",
    "7",
    "8",
    "starts",
    "similarity",
    "organisations",
    "ml-100k",
    "all-pairs",
)


def fedrecpp_rows(tell: Tell) -> Iterator[Row]:
    """Errors of table 2, costs of table 3, and by share of the clients figure 2."""
    found = tell("--data", "ml-100k")
    for told in (found, tell("--data", "ml-1m", "--table", "2", "--table", "3", "--seeds", "3")):
        for table in told["tables"]:
            for row in table["rows"]:
                yield _errors(row) if table["number"] == 2 else _costs(row)
    for points in found["points"]:
        yield from _by_share(points["points"])


_METHODS = {"fedrec": "FedRec", "fedrec++": "FedRec++"}
_BITS = {True: "yes", False: "no", None: ""}


def _with_deviation(found: Mapping[str, Any]) -> str:
    if found["mean"] is None:
        return "-"
    return f"{found['mean']:.4f} ± {found['deviation']:.4f}"


def _errors(row: Mapping[str, Any]) -> Row:
    measures = ("mae", "rmse")
    cells = [(f"{row['paper'][each]:.4f}", _with_deviation(row["ours"][each])) for each in measures]
    name = f"{_METHODS[row['method']]}, rho = {row['rho']}"
    return (name, *cells[0], *cells[1], _BITS[row["same_bits_as_no_virtual_ratings"]])


def _costs(row: Mapping[str, Any]) -> Row:
    cells: list[str] = []
    for name in ("denoiser", "ordinary", "client"):
        for value, digits in ((row["paper"][name], 0), (row["ours"][name], 1)):
            cells.append("-" if value is None else f"{value:,.{digits}f}")
    return (f"eta = {row['denoisers']}", *cells)


def _by_share(points: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """FedRec by rho; FedRec++ of all rho in one row where they are alike, as they must be."""
    by_name: dict[str, list[str]] = {}
    for point in sorted(points, key=lambda each: float(each["share"])):
        name = f"{_METHODS[point['method']]}, rho = {point['rho']}"
        by_name.setdefault(name, []).append(_with_deviation(point["ours"]["mae"]))
    for name, cells in by_name.items():
        yield (name, *cells)
    plus = {tuple(cells) for name, cells in by_name.items() if name.startswith("FedRec++")}
    if len(plus) == 1:
        yield ("FedRec++, rho = 1, 2, 3", *plus.pop())


def furl_rows(tell: Tell) -> Iterator[Row]:
    """Configurations at the epoch that validation chose; on users of several classes beside."""
    for task in tell()["tasks"]:
        first, mixed = task["measures"][0], f"{task['measures'][0]}_mixed"
        for row in task["rows"]:
            found = row["measures"][first]
            paper = "-" if found["paper"] is None else _percent(found["paper"], 1)
            cells = [row["name"], paper, _share(found["best"])]
            yield tuple(cells)
            if mixed in row["measures"]:
                yield (*cells, _share(row["measures"][mixed]["best"]))


def _share(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    low, high = (_percent(found[name], 1) for name in ("low", "high"))
    shown = _percent(found["mean"], 1)
    return shown if low in ("", high) else f"{shown} [{low}, {high}]"


_HPFL = {
    "ncf": "NCF",
    "ncd": "NCD",
    "gum": "GUM, centralised",
    "distributed": "Distributed, last round",
    "distributed-early": "Distributed, stopped early",
    "fedsgd": "FedSGD",
    "fedavg": "FedAvg",
    "fednoise": "Fednoise",
    "fedprox": "FedProx",
    "fedatt": "FedAtt",
    "hpfl-k": "HPFL-K",
    "hpfl-r": "HPFL-R",
    "hpfl": "HPFL",
}
_ERRORS = {"ml-100k-zip": ("accuracy", "mae", "rmse"), "assist2009": ("accuracy", "auc", "rmse")}
_UNTIED = ("doa_untied", "train.doa_untied")


def hpfl_rows(tell: Tell) -> Iterator[Row]:
    """Methods beside the paper's numbers under both starts, paired differences, variants."""
    for data, errors in _ERRORS.items():
        for words in ((), ("--seeds", "3"), ("--seeds", "1")):
            found = tell("--data", data, *words)
            yield from _methods(found["tables"], errors)
            for table in found["tables"]:
                yield from _gaps(table["differences"], errors)
            yield from _less_fedavg(found["tables"])
            for effect in found["starts_compared"]:
                for gap in effect["differences"]:
                    yield (_HPFL[gap["method"]], *_gap(gap, errors))
    for row in tell("--variants")["variants"]:
        starts = row["auc"].values()
        yield (row["variant"], *(_short(each["test"]) for (each,) in starts if each))


def _methods(tables: Sequence[Mapping[str, Any]], errors: Row) -> Iterator[Row]:
    """Of each method: paper, and ours by start, of errors, of orders and Simi, and untied."""
    cells: dict[str, dict[str, list[str]]] = {}
    for table in tables:
        for row in table["rows"]:
            own = cells.setdefault(_HPFL.get(row["method"], row["method"]), {})
            for measure, found in row["ours"].items():
                told = own.setdefault(measure, [_short(row["paper"][measure], measure)])
                told.append(_short(found["mean"], measure, "diverged" if not row["seeds"] else "-"))
    for name, own in cells.items():
        nothing = ["-"] * 3
        yield (name, *(cell for measure in errors for cell in own.get(measure, nothing)))
        ordered = ("doa", "ndcg", "simi")
        yield (name, *(cell for measure in ordered for cell in own.get(measure, nothing)))
        yield (name, *(cell for measure in _UNTIED for cell in own.get(measure, nothing)[1:]))
        yield (name, *(own[measure][-1] for measure in errors if measure in own))


def _gaps(differences: Sequence[Mapping[str, Any]], errors: Row) -> Iterator[Row]:
    for gap in differences:
        if gap["method"] == "hpfl":
            yield (_HPFL[gap["other"]], *_gap(gap, errors))


def _less_fedavg(tables: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """Under both starts, what each method's errors are above FedAvg's."""
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for table in tables:
        for gap in table["differences"]:
            if gap["other"] == "fedavg" and "mae" in gap["measures"]:
                by_method.setdefault(gap["method"], []).append(gap["measures"])
    for method, starts in by_method.items():
        cells = (with_interval(each[name], 4) for name in ("mae", "rmse") for each in starts)
        yield (_HPFL[method], *cells)


def _gap(gap: Mapping[str, Any], errors: Row) -> Row:
    measures = gap["measures"]
    return tuple(with_interval(measures[name], 4) for name in errors if name in measures)


def _short(value: float | None, measure: str = "", missing: str = "-") -> str:
    """Three digits, four of a variant's; a share without its leading 0."""
    if value is None:
        return missing
    shown = f"{value:.{3 if measure else 4}f}"
    return shown if measure == "simi" else shown.removeprefix("0")


PAGES: Mapping[str, tuple[str, str | None, Callable[[Tell], Iterator[Row]]]] = {
    "fed3cr": ("reproduction-fed3cr.md", None, fed3cr_rows),
    "feddmf": ("reproduction-feddmf.md", None, feddmf_rows),
    "fedrecpp": ("reproduction-fedrecpp.md", None, fedrecpp_rows),
    "furl": ("reproduction.md", "FURL", furl_rows),
    "hpfl": ("reproduction.md", "HPFL", hpfl_rows),
}
"""By paper: its page, the section of it, and how rows are made."""


def main() -> None:
    """Print the rows of a paper, from its records, as its page writes them."""
    _, _, rows_of = PAGES[sys.argv[1]]
    with TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        rows = dict.fromkeys(rows_of(teller(sys.argv[1], Path(folder))))
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
