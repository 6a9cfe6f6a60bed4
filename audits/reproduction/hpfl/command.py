"""HPFL's reproduction from first study to last drawing."""

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from audits.reproduction.files import write_drawing
from audits.reproduction.hpfl.drawing import characteristics_chart
from audits.reproduction.hpfl.paper import Paper, PaperTable, load_paper
from audits.reproduction.hpfl.studies import (
    Found,
    Needed,
    Studies,
    StudySource,
    find_studies,
    needed_study,
)
from audits.reproduction.hpfl.tables import (
    as_lines,
    compare_starts,
    compare_table,
    needed_studies,
    starts_as_lines,
)
from audits.reproduction.hpfl.tuning import chosen_settings, tuning_as_lines
from audits.reproduction.hpfl.variants import (
    compare_variants,
    needed_variants,
    variants_as_lines,
)
from audits.reproduction.seeds import first_seeds
from audits.systems.hpfl.organisations import organisation_rules
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.evaluation import Rule
from secure_fedrec.models.gum.model import STARTS
from secure_fedrec.studies.files import arrays_beside
from secure_fedrec.studies.hpfl.results import read_characteristics

_FORM = "paper"
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
    paper, source = load_paper(), _source(arguments)
    starts = _starts(arguments.start)
    run = _variants if arguments.variants else _tables
    result, lines = run(paper, source, starts, arguments)
    head = {"paper": paper.title, "form": source.form, "quick": source.quick, "starts": starts}
    return {**head, **result}, lines


def _tables(
    paper: Paper, source: StudySource, starts: Sequence[str], arguments: argparse.Namespace
) -> tuple[dict[str, Any], list[str]]:
    """The paper's tables, each under every start."""
    tables = paper.select(arguments.table, data=arguments.data, methods=arguments.method)
    default = 1 if arguments.quick else len(paper.seeds)
    seeds = first_seeds(paper.seeds, arguments.seeds, default=default)
    studies = _found(needed_studies(tables, seeds, starts), source)
    rules = {data: _rules(source, data, seeds) for data in {table.data for table in tables}}
    compared = [
        compare_table(table, studies, seeds, start, rules[table.data])
        for table in tables
        for start in starts
    ]
    if arguments.quick:
        compared = [{**table, "paper_data": _STAND_IN} for table in compared]
    effects = [compare_starts(table, studies, seeds, starts) for table in tables]
    tuning = [each for start in starts for each in chosen_settings(tables, studies, seeds, start)]
    lines = [line for table in compared for line in [*as_lines(table), ""]]
    lines += [line for effect in effects for line in starts_as_lines(effect)]
    return {
        "tables": compared,
        "starts_compared": effects,
        "tuning": tuning,
        "figures": _draw(paper, tables, studies, seeds[0], starts, arguments.out),
    }, [*lines, "", *tuning_as_lines(tuning)]


def _variants(
    paper: Paper, source: StudySource, starts: Sequence[str], arguments: argparse.Namespace
) -> tuple[dict[str, Any], list[str]]:
    """What the tables do not vary, one setting each."""
    for option in ("quick", "table", "data", "method"):
        if getattr(arguments, option):
            raise ConfigError(f"--{option}", getattr(arguments, option), "is not for --variants")
    variants, seeds = paper.variants, first_seeds(paper.seeds, arguments.seeds, default=1)
    studies = _found(needed_variants(variants, seeds, starts), source)
    compared = compare_variants(variants, studies, seeds, starts)
    found = {"data": variants.data, "seeds": list(seeds), "variants": compared}
    return found, variants_as_lines(variants, compared, seeds)


def _source(arguments: argparse.Namespace) -> StudySource:
    form = _FORM if arguments.form is None else arguments.form
    return StudySource(form=form, quick=arguments.quick, **StudySource.options(arguments))


def _starts(asked: Sequence[str] | None) -> list[str]:
    """The starts that were asked for, the paper's first; all of them by default."""
    for start in asked or ():
        if start not in STARTS:
            raise ConfigError("--start", start, "is no start of the user model", STARTS)
    return [start for start in STARTS if not asked or start in asked]


def _found(needed: Sequence[Needed], source: StudySource) -> dict[Needed, Found]:
    studies = find_studies(needed, source)
    if not studies:
        raise DataError(source.folder, "holds no study of HPFL that is needed")
    return studies


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
    studies: Studies,
    seed: int,
    starts: Sequence[str],
    out: Path,
) -> list[str]:
    """One drawing per data set and start, of the methods that the tables needed; the files."""
    drawn = []
    for data, start in product(dict.fromkeys(table.data for table in tables), starts):
        panels = {
            method: read_characteristics(studies[place].path)
            for method in paper.figure_methods
            if (place := needed_study(data, method, seed, start)) in studies
            and arrays_beside(studies[place].path).exists()  # records are without
        }
        if not panels:
            continue
        path = out / f"characteristics-{data}-{start}.svg"
        write_drawing(path, characteristics_chart(panels, data=f"{data}, start {start}"))
        drawn.append(str(path))
    return drawn
