"""FURL's reproduction from first study to last drawing."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from audits.reproduction.files import write_drawing
from audits.reproduction.furl.drawing import Group, curves_chart, groups_of, spaces_chart
from audits.reproduction.furl.lines import as_lines, notes_on
from audits.reproduction.furl.paper import TABLE, FURLPaper, PaperTask, load_paper
from audits.reproduction.furl.similarity import Pair, compare_spaces, pair_studies, read_pair
from audits.reproduction.furl.studies import (
    Stored,
    Studies,
    StudySource,
    differences,
    find_studies,
    needed_studies,
    pinned_settings,
)
from audits.reproduction.furl.tables import compare_task, learning_curves
from audits.reproduction.seeds import first_seeds, require_reproduced
from secure_fedrec.errors import ConfigError, DataError


def reproduce_furl(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run what is missing, compare the table, draw the figures.

    Args:
        arguments: of the command, see ``audits.reproduce``.

    Returns:
        The result as JSON values, and as lines of text.

    Raises:
        ConfigError: an option or a pinned setting has no such value.
        DataError: a data set is missing, a study of the folder is damaged, or two studies of one
            place differ in their settings.
        EncodingError: training left the ring.
    """
    require_reproduced("--table", arguments.table, [TABLE])
    if arguments.quick and arguments.results is not None:
        raise ConfigError("--results", str(arguments.results), "has no place beside --quick")
    paper = load_paper(quick=arguments.quick)
    tasks = paper.select(tuple(arguments.task) if arguments.task else None)
    seeds = first_seeds(paper.seeds, arguments.seeds, default=paper.repetitions)
    source = StudySource(paper=paper, **StudySource.options(arguments))
    studies = find_studies(needed_studies(tasks, paper.rows, seeds), source)
    if not studies:
        raise DataError(source.folder, "holds no study of FURL that the table needs")
    reproduced = [_task(paper, task, studies, seeds) for task in tasks]
    figures = [
        path
        for task, found in zip(tasks, reproduced, strict=True)
        for path in _draw(paper, task, found, pair_studies(task, studies, seeds), arguments.out)
    ]
    result = {
        "paper": paper.title,
        "quick": arguments.quick,
        "tasks": reproduced,
        "figures": figures,
    }
    return result, [line for task in reproduced for line in [*as_lines(task), ""]]


def _task(
    paper: FURLPaper, task: PaperTask, studies: Studies, seeds: Sequence[int]
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
        "similarity": [compare_spaces(pair) for pair in pair_studies(task, studies, seeds)],
        "studies": [_provenance(task, studies[place]) for place in needed if place in studies],
        "notes": notes_on(task, needed, studies),
    }


def _provenance(task: PaperTask, study: Stored) -> dict[str, Any]:
    """Where a number comes from: file, settings, and which of them are not as pinned."""
    return {
        "configuration": study.place.configuration,
        "seed": study.place.seed,
        "file": str(study.path),
        "settings": study.settings(),
        "pinned": pinned_settings(task, study.place),
        "differs": sorted(differences(study, task)),
    }


def _draw(
    paper: FURLPaper,
    task: PaperTask,
    found: Mapping[str, Any],
    pairs: Sequence[Pair],
    out: Path,
) -> list[str]:
    """The drawings of one task; the files."""
    curves = out / f"furl-curves-{task.name}.svg"
    chart = curves_chart(found["curves"], paper.rows, task=task.name, measure=task.measures[0])
    write_drawing(curves, chart)
    if not pairs:
        return [str(curves)]
    server, federation, learnt = read_pair(pairs[0])
    spaces = {
        f"{paper.rows[study.place.configuration]}, seed {study.place.seed}": vectors[learnt]
        for study, vectors in (
            (pairs[0].server, server.embeddings),
            (pairs[0].federation, federation.embeddings),
        )
    }
    groups = [Group(name, users[learnt]) for name, users in groups_of(federation, task.classes)]
    path = out / f"furl-users-{task.name}.svg"
    write_drawing(path, spaces_chart(spaces, groups, task=task.name))
    return [str(curves), str(path)]
