"""Tables 2 and 3 of FedRec++ and the points of its figure 2, the paper's numbers beside ours."""

from collections.abc import Mapping
from typing import Any, Final

from audits.reproduction.columns import in_columns, number
from audits.reproduction.fedrecpp.paper import Entry, Paper, denoisers_named, printed
from audits.reproduction.fedrecpp.studies import Studies
from audits.reproduction.seeds import summary

MEASURES: Final = ("mae", "rmse")


def error_table(paper: Paper, data: str, studies: Studies) -> dict[str, Any]:
    """Table 2 of one data set as JSON values."""
    entries, plain = paper.error_entries(data), Entry(data, "fedrec", 0)
    rows = []
    for entry, (_, _, *cells) in zip(entries, paper.errors[data], strict=True):
        rows.append(
            {
                **_of_entry(entry, studies),
                "paper": dict(zip(("mae", "mae_sd", "rmse", "rmse_sd"), cells, strict=True)),
                "same_bits_as_no_virtual_ratings": _same_bits(entry, plain, studies),
            }
        )
    return {"number": 2, "data": data, "paper_data": paper.data[data].paper_name, "rows": rows}


def cost_table(paper: Paper, data: str, studies: Studies) -> dict[str, Any]:
    """Table 3 of one data set as JSON values."""
    names = ("denoiser", "ordinary", "client")
    rows = []
    for entry, cells in zip(paper.cost_entries(data), paper.costs[data], strict=True):
        found = [report["vectors"] for report in _reports(entry, studies)]
        ours = {name: summary([each[name] for each in found])["mean"] for name in names}
        theirs = dict(zip(names, map(printed, cells[1:]), strict=True))
        rows.append(
            {
                "denoisers": denoisers_named(cells[0]),
                "count": entry.denoisers,
                "folds": len(found),
                "paper": theirs,
                "ours": ours,
            }
        )
    return {"number": 3, "data": data, "paper_data": paper.data[data].paper_name, "rows": rows}


def share_points(paper: Paper, data: str, studies: Studies) -> dict[str, Any]:
    """The points of figure 2 of one data set as JSON values."""
    points = [_of_entry(entry, studies) for entry in paper.figure_entries(data)]
    return {"figure": "2", "data": data, "points": points}


def error_lines(table: Mapping[str, Any]) -> list[str]:
    """Table 2 as text."""
    rows = [
        [
            _name(row),
            *(
                f"{number(row['paper'][measure], 4)} | {_with_deviation(row['ours'][measure])}"
                for measure in MEASURES
            ),
            str(row["folds"]),
            {True: "yes", False: "no", None: ""}[row["same_bits_as_no_virtual_ratings"]],
        ]
        for row in table["rows"]
    ]
    return [
        f"Table 2, {table['data']} ({table['paper_data']}): paper | ours, mean over folds",
        *in_columns(["", "MAE", "RMSE", "folds", "bits of rho = 0"], rows),
    ]


def cost_lines(table: Mapping[str, Any]) -> list[str]:
    """Table 3 as text."""
    names = ("denoiser", "ordinary", "client")
    rows = [
        [
            f"eta = {row['denoisers']}",
            *(
                f"{number(row['paper'][name], 0)} | {number(row['ours'][name], 1)}"
                for name in names
            ),
            str(row["folds"]),
        ]
        for row in table["rows"]
    ]
    return [
        f"Table 3, {table['data']} ({table['paper_data']}): vectors a round, paper | ours",
        *in_columns(["", *names, "folds"], rows),
    ]


def share_lines(found: Mapping[str, Any]) -> list[str]:
    """The points of figure 2 as text; the paper draws them and prints none."""
    rows = [
        [
            f"{_name(point)}, c = {point['share']:g} n",
            *(_with_deviation(point["ours"][measure]) for measure in MEASURES),
            str(point["folds"]),
        ]
        for point in found["points"]
    ]
    head = f"Figure 2, {found['data']}: ours, mean over folds (the paper prints no numbers)"
    return [head, *in_columns(["", "MAE", "RMSE", "folds"], rows)]


def _of_entry(entry: Entry, studies: Studies) -> dict[str, Any]:
    """Error of the last round over the folds that there are."""
    found = _reports(entry, studies)
    last = [report["rounds"][-1] for report in found]
    ours = {measure: summary([each[measure] for each in last]) for measure in MEASURES}
    return {
        "method": entry.method,
        "rho": entry.rho,
        "denoisers": entry.denoisers,
        "share": entry.share,
        "folds": len(found),
        "ours": ours,
    }


def _reports(entry: Entry, studies: Studies) -> list[Mapping[str, Any]]:
    """In the order of the folds."""
    own = [(needed.fold, report) for needed, report in studies.items() if needed.entry == entry]
    return [report for _, report in sorted(own, key=lambda each: each[0])]


def _same_bits(entry: Entry, plain: Entry, studies: Studies) -> bool | None:
    """Whether every fold ended in the item vectors of training without virtual ratings."""
    own = {each.fold: report["digest"] for each, report in studies.items() if each.entry == entry}
    other = {each.fold: report["digest"] for each, report in studies.items() if each.entry == plain}
    both = own.keys() & other.keys()
    if entry == plain or not both:
        return None
    return all(own[fold] == other[fold] for fold in both)


def _name(row: Mapping[str, Any]) -> str:
    return f"{'FedRec++' if row['method'] == 'fedrec++' else 'FedRec'}, rho = {row['rho']}"


def _with_deviation(found: Mapping[str, Any]) -> str:
    spread = "" if found["deviation"] is None else f" ± {found['deviation']:.4f}"
    return number(found["mean"], 4) + spread
