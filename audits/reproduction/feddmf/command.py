"""FedDMF's reproduction from first study to last drawing."""

import argparse
from typing import Any

from audits.reproduction.feddmf.drawing import figure_chart
from audits.reproduction.feddmf.paper import load_paper
from audits.reproduction.feddmf.studies import StudySource, find_studies
from audits.reproduction.feddmf.tables import figure_lines, figure_values
from audits.reproduction.files import write_drawing
from audits.reproduction.parts import wanted_parts
from audits.reproduction.seeds import first_seeds
from secure_fedrec.errors import DataError

_STAND_IN = "NOT ITS DATA: a generated table in its place, three epochs of a smaller model"


def reproduce_feddmf(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run what is missing, tell and draw the figures.

    Args:
        arguments: of the command, see ``audits.reproduce``.

    Returns:
        The result as JSON values, and as lines of text.

    Raises:
        ConfigError: an option has no such value.
        DataError: a data set is missing, a study of the folder is damaged or of other settings, or
            nothing is to be run and there is no study.
    """
    paper = load_paper(quick=arguments.quick)
    usual = [name for name, shown in paper.figures.items() if not shown.hours]
    parts = wanted_parts(arguments, tables=(), figures=tuple(paper.figures), usual=usual)
    seeds = len(first_seeds(range(3), arguments.seeds, default=paper.repetitions))
    source = StudySource(paper=paper, **StudySource.options(arguments))
    wanted = {figure: paper.studies(figure, seeds) for figure in parts.figures}
    studies = find_studies((each for points in wanted.values() for each in points), source)
    if not studies:
        raise DataError(source.folder, "holds no study of FedDMF that is needed")
    found, drawn = [], []
    for figure, points in wanted.items():
        values = figure_values(paper, figure, studies, points)
        found.append(values)
        if values["points"]:
            path = arguments.out / f"feddmf-figure-{figure}.svg"
            write_drawing(path, figure_chart(values, apart=paper.figures[figure].apart))
            drawn.append(str(path))
    lines = [_STAND_IN, ""] if arguments.quick else []
    lines += [line for values in found for line in [*figure_lines(values), ""]]
    seconds = sum(report["seconds"] for report in studies.values())
    result = {
        "paper": paper.title,
        "quick": arguments.quick,
        "seeds": seeds,
        "figures": found,
        "drawings": drawn,
        "seconds": seconds,
    }
    return result, [*lines, f"{len(studies)} studies, {seconds:.0f} s of training"]
