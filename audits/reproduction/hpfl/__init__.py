"""HPFL's tables 2 to 5 and the users' characteristics of its figures 5 and 6."""

import argparse
from collections.abc import Sequence
from itertools import product
from typing import Any, Final

from audits.reproduction.engine import Result, first_seeds
from audits.reproduction.hpfl.drawing import characteristics_chart
from audits.reproduction.hpfl.paper import (
    Needed,
    Paper,
    StudySource,
    find_studies,
    load_paper,
    needed_study,
)
from audits.reproduction.hpfl.tables import (
    as_lines,
    chosen_settings,
    compare_starts,
    compare_table,
    compare_variants,
    needed_studies,
    needed_variants,
    starts_as_lines,
    tuning_as_lines,
    variants_as_lines,
)
from audits.reproduction.progress import Found
from audits.systems.hpfl.organisations import organisation_rules
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.evaluation import Rule
from secure_fedrec.models.gum.model import STARTS
from secure_fedrec.studies.files import arrays_beside
from secure_fedrec.studies.hpfl.table_entry import read_characteristics

_FORM: Final = "paper"
_STAND_IN: Final = "NOT ITS DATA: generated organisations in its place, one setting per method"


def reproduce(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run what is missing, compare the tables, draw the figures; see ``papers.Run``."""
    paper, form = load_paper(), _FORM if arguments.form is None else arguments.form
    source = StudySource(form=form, quick=arguments.quick, **StudySource.options(arguments))
    starts = _starts(arguments.start)
    head = {"paper": paper.title, "form": form, "quick": source.quick, "starts": starts}
    result = Result(arguments.out, head)
    (_variants if arguments.variants else _tables)(result, paper, source, starts, arguments)
    return result.values, result.lines


def _tables(
    result: Result,
    paper: Paper,
    source: StudySource,
    starts: Sequence[str],
    arguments: argparse.Namespace,
) -> None:
    """The paper's tables, each under every start; one drawing per data set and start."""
    tables = paper.select(arguments.table, data=arguments.data, methods=arguments.method)
    default = 1 if arguments.quick else len(paper.seeds)
    seeds = first_seeds(paper.seeds, arguments.seeds, default=default)
    studies = _found(needed_studies(tables, seeds, starts), source)
    names = dict.fromkeys(table.data for table in tables)
    rules = {data: _rules(source, data, seeds) for data in names}
    result.values["tables"] = []
    for table, start in product(tables, starts):
        compared = compare_table(table, studies, seeds, start, rules[table.data])
        compared |= {"paper_data": _STAND_IN} if arguments.quick else {}
        result.tell("tables", compared, as_lines(compared))
    effects = [compare_starts(table, studies, seeds, starts) for table in tables]
    tuning = [each for start in starts for each in chosen_settings(tables, studies, seeds, start)]
    result.values |= {"starts_compared": effects, "tuning": tuning, "figures": []}
    result.lines += [line for effect in effects for line in starts_as_lines(effect)]
    result.lines += ["", *tuning_as_lines(tuning)]
    for data, start in product(names, starts):
        panels = {
            method: read_characteristics(studies[place].path)
            for method in paper.figure_methods
            if (place := needed_study(data, method, seeds[0], start)) in studies
            and arrays_beside(studies[place].path).exists()  # records are without
        }
        if panels:
            chart = characteristics_chart(panels, data=f"{data}, start {start}")
            result.draw("figures", f"characteristics-{data}-{start}", chart)


def _variants(
    result: Result,
    paper: Paper,
    source: StudySource,
    starts: Sequence[str],
    arguments: argparse.Namespace,
) -> None:
    """Variants that the tables do not have, one setting each."""
    for option in ("quick", "table", "data", "method"):
        if getattr(arguments, option):
            raise ConfigError(f"--{option}", getattr(arguments, option), "is not for --variants")
    variants, seeds = paper.variants, first_seeds(paper.seeds, arguments.seeds, default=1)
    studies = _found(needed_variants(variants, seeds, starts), source)
    compared = compare_variants(variants, studies, seeds, starts)
    result.values |= {"data": variants.data, "seeds": list(seeds), "variants": compared}
    result.lines += variants_as_lines(variants, compared, seeds)


def _starts(asked: Sequence[str] | None) -> list[str]:
    """The starts that were asked for, the paper's first; all of them by default."""
    for start in asked or ():
        if start not in STARTS:
            raise ConfigError("--start", start, "is not a way to start the user model", STARTS)
    return [start for start in STARTS if not asked or start in asked]


def _found(needed: Sequence[Needed], source: StudySource) -> dict[Needed, Found]:
    studies = find_studies(needed, source)
    source.require(studies, "HPFL")
    return studies


def _rules(source: StudySource, data: str, seeds: Sequence[int]) -> list[dict[str, Rule]]:
    """Figures of trivial rules on the splits of all seeds; empty if the data are not available."""
    try:
        return [organisation_rules(source.organisations(data, seed)) for seed in seeds]
    except DataError:
        if source.run:
            raise
        return []
