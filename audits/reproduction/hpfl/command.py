"""HPFL's reproduction from first study to last drawing."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from audits.reproduction.files import write_drawing
from audits.reproduction.hpfl.drawing import characteristics_chart
from audits.reproduction.hpfl.paper import Paper, PaperTable, load_paper
from audits.reproduction.hpfl.studies import Found, Needed, StudySource, find_studies
from audits.reproduction.hpfl.tables import as_lines, compare_table, needed_studies
from audits.reproduction.seeds import first_seeds
from audits.systems.hpfl_organisations import organisation_rules
from secure_fedrec.engines.hpfl_results import read_characteristics
from secure_fedrec.errors import DataError
from secure_fedrec.evaluation import Rule

__all__ = ["reproduce_hpfl"]

_FORM = "published-start"
_STAND_IN = "NOT ITS DATA: generated organisations in its place, one setting per method"


def reproduce_hpfl(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run what is missing, compare the tables, draw the figures.

    Args:
        arguments: of the command, see ``audits.reproduce``.

    Returns:
        The result as JSON values, and as lines of text.

    Raises:
        ConfigError: an option has no such value.
        DataError: a data set is missing, a study of the folder is damaged, or nothing is to be run
            and there is no study.
    """
    paper = load_paper()
    tables = paper.select(tuple(arguments.table) if arguments.table else None)
    default = 1 if arguments.quick else len(paper.seeds)
    seeds = first_seeds(paper.seeds, arguments.seeds, default=default)
    source = StudySource(
        folder=arguments.results
        or arguments.out / ("studies-quick" if arguments.quick else "studies"),
        data_dir=arguments.data_dir,
        form=_FORM if arguments.form is None else arguments.form,
        quick=arguments.quick,
        run=not arguments.no_run,
        progress=not arguments.quiet,
    )
    studies = find_studies(needed_studies(tables, seeds), source)
    if not studies:
        raise DataError(source.folder, "holds no study of HPFL that the tables need")
    rules = {data: _rules(source, data, seeds) for data in {table.data for table in tables}}
    compared = [compare_table(table, studies, seeds, rules[table.data]) for table in tables]
    if arguments.quick:
        compared = [{**table, "paper_data": _STAND_IN} for table in compared]
    result: dict[str, Any] = {
        "paper": paper.title,
        "form": source.form,
        "quick": arguments.quick,
        "tables": compared,
        "figures": _draw(paper, tables, studies, seeds[0], arguments.out),
    }
    return result, [line for table in compared for line in [*as_lines(table), ""]]


def _rules(source: StudySource, data: str, seeds: Sequence[int]) -> list[dict[str, Rule]]:
    """What trivial rules reach on the splits of all seeds; none if only studies are here."""
    try:
        return [organisation_rules(source.data(data, seed)) for seed in seeds]
    except DataError:
        if source.run:
            raise
        return []


def _draw(
    paper: Paper,
    tables: Sequence[PaperTable],
    studies: Mapping[Needed, Found],
    seed: int,
    out: Path,
) -> list[str]:
    """One drawing per data set, of the figure's methods that the tables needed; the files."""
    drawn = []
    for data in dict.fromkeys(table.data for table in tables):
        wanted = {method: Needed(data, method, seed) for method in paper.figure_methods}
        panels = {
            method: read_characteristics(studies[each].path)
            for method, each in wanted.items()
            if each in studies
        }
        if not panels:
            continue
        path = out / f"characteristics-{data}.svg"
        write_drawing(path, characteristics_chart(panels, data=data))
        drawn.append(str(path))
    return drawn
