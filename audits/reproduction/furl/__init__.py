"""FURL's table 3, its learning curves (figure 3) and its user embeddings (figures 4 and 5).

Reading order: ``paper``, ``tables`` (as values and as text), ``spaces``.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from audits.reproduction.engine import Result, chosen, first_seeds
from audits.reproduction.furl.paper import (
    TABLE,
    FURLPaper,
    PaperTask,
    Stored,
    Studies,
    StudySource,
    differences,
    find_studies,
    load_paper,
    needed_studies,
    pinned_settings,
)
from audits.reproduction.furl.spaces import (
    Pair,
    compare_spaces,
    curves_chart,
    pair_chart,
    pair_studies,
)
from audits.reproduction.furl.tables import as_lines, compare_task, learning_curves, notes_on
from secure_fedrec.errors import ConfigError


def reproduce(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run what is missing, compare the table, draw the figures; see ``papers.Run``."""
    chosen("--table", arguments.table, [TABLE])
    if arguments.quick and arguments.results is not None:
        raise ConfigError("--results", str(arguments.results), "has no place beside --quick")
    paper = load_paper(quick=arguments.quick)
    tasks = paper.select(arguments.task)
    seeds = first_seeds(paper.seeds, arguments.seeds, default=paper.repetitions)
    source = StudySource(paper=paper, **StudySource.options(arguments))
    studies = find_studies(needed_studies(tasks, paper.rows, seeds), source)
    source.require(studies, "FURL", "the table needs")
    head = {"paper": paper.title, "quick": arguments.quick, "tasks": [], "figures": []}
    result = Result(arguments.out, head)
    for task in tasks:
        pairs = pair_studies(task, studies, seeds)
        found = _task(paper, task, studies, seeds, pairs)
        result.tell("tasks", found, as_lines(found))
        named = {"task": task.name, "measure": task.measures[0]}
        chart = curves_chart(found["curves"], paper.rows, **named)
        result.draw("figures", f"furl-curves-{task.name}", chart)
        if pairs:
            chart = pair_chart(pairs[0], paper.rows, task)
            result.draw("figures", f"furl-users-{task.name}", chart)
    return result.values, result.lines


def _task(
    paper: FURLPaper,
    task: PaperTask,
    studies: Studies,
    seeds: Sequence[int],
    pairs: Sequence[Pair],
) -> dict[str, Any]:
    """Everything about one task as JSON values."""
    needed = needed_studies([task], paper.rows, seeds)
    return {
        "task": task.name,
        "paper_data": task.paper_data,
        "our_data": task.our_data,
        "seeds": list(seeds),
        "between_seeds": task.between_seeds,
        **compare_task(paper, task, studies, seeds),
        "curves": learning_curves(task, tuple(paper.rows), studies, seeds),
        "similarity": [compare_spaces(pair) for pair in pairs],
        "studies": [_provenance(task, studies[place]) for place in needed if place in studies],
        "notes": notes_on(task, needed, studies),
    }


def _provenance(task: PaperTask, study: Stored) -> dict[str, Any]:
    """Origin of a number: file, settings, and those that differ from the pinned ones."""
    return {
        "configuration": study.place.configuration,
        "seed": study.place.seed,
        "file": str(study.path),
        "settings": study.settings(),
        "pinned": pinned_settings(task, study.place),
        "differs": sorted(differences(study, task)),
    }
