"""FedRec++'s reproduction from first study to last drawing."""

import argparse
from typing import Any

from audits.reproduction.fedrecpp.drawing import shares_chart
from audits.reproduction.fedrecpp.paper import Needed, Paper, load_paper
from audits.reproduction.fedrecpp.studies import Studies, StudySource, find_studies
from audits.reproduction.fedrecpp.tables import (
    cost_lines,
    cost_table,
    error_lines,
    error_table,
    share_lines,
    share_points,
)
from audits.reproduction.files import write_drawing
from audits.reproduction.parts import Parts, wanted_parts
from audits.reproduction.seeds import first_seeds
from secure_fedrec.errors import DataError

_STAND_IN = "NOT ITS DATA: small generated ratings in their place"


def reproduce_fedrecpp(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run what is missing, compare the tables, draw the figure.

    Args:
        arguments: of the command, see ``audits.reproduce``.

    Returns:
        The result as JSON values, and as lines of text.

    Raises:
        ConfigError: an option has no such value.
        DataError: a data set is missing, a study of the folder is damaged or of other settings, or
            nothing is to be run and there is no study.
        EncodingError: training left the ring.
    """
    parts = wanted_parts(arguments, tables=(2, 3), figures=("2",))
    paper = load_paper(quick=arguments.quick).only(arguments.data)
    folds = len(first_seeds(range(paper.folds), arguments.seeds, default=paper.folds))
    source = StudySource(paper=paper, **StudySource.options(arguments))
    studies = find_studies(_needed(paper, parts, folds), source)
    if not studies:
        raise DataError(source.folder, "holds no study of FedRec++ that is needed")
    result: dict[str, Any] = {"paper": paper.title, "quick": arguments.quick, "folds": folds}
    result |= {"tables": [], "points": [], "figures": []}
    lines = [_STAND_IN, ""] if arguments.quick else []
    for name in paper.data:
        _compare(paper, name, parts, studies, result, lines)
        if parts.figures:
            points = share_points(paper, name, _as_long(paper, studies))
            path = arguments.out / f"fedrecpp-shares-{name}.svg"
            lines += [*share_lines(points), ""]
            result["points"].append(points)
            if any(point["folds"] for point in points["points"]):
                write_drawing(path, shares_chart(points))
                result["figures"].append(str(path))
    seconds = sum(report["seconds"] for report in studies.values())
    result["seconds"] = seconds
    return result, [*lines, f"{len(studies)} studies, {seconds:.0f} s of training"]


def _compare(
    paper: Paper,
    name: str,
    parts: Parts,
    studies: Studies,
    result: dict[str, Any],
    lines: list[str],
) -> None:
    """The tables of one data set."""
    long = _as_long(paper, studies)
    short = {each: report for each, report in studies.items() if each.rounds == 1}
    if 2 in parts.tables:
        table = error_table(paper, name, long)
        result["tables"].append(table)
        lines += [*error_lines(table), ""]
    if 3 in parts.tables:
        table = cost_table(paper, name, short)
        result["tables"].append(table)
        lines += [*cost_lines(table), ""]


def _as_long(paper: Paper, studies: Studies) -> Studies:
    """Studies of whole trainings."""
    return {each: report for each, report in studies.items() if each.rounds == paper.rounds}


def _needed(paper: Paper, parts: Parts, folds: int) -> list[Needed]:
    """Every study, the cheap and the telling first."""
    needed: list[Needed] = []
    for name in paper.data:
        if 3 in parts.tables:
            needed += paper.needed(paper.cost_entries(name), folds, rounds=1)
        if 2 in parts.tables:
            needed += paper.needed(paper.error_entries(name), folds)
    for name in paper.data:
        if parts.figures:
            needed += paper.needed(paper.figure_entries(name), folds)
    return needed
