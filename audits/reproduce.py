"""``reproduce PAPER``: a paper's tables, its numbers beside those of this toolkit."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audits.reproduction.paper import Paper, PaperTable, load_paper
from secure_fedrec.errors import ConfigError, DataError

if TYPE_CHECKING:
    from audits.reproduction.studies import Found, Needed

__all__ = ["add_reproduce", "reproduce"]

_STAND_IN = "NOT ITS DATA: generated organisations in its place, one setting per method"


def add_reproduce(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument("paper", metavar="PAPER", help="hpfl")
    command.add_argument(
        "--table", type=int, action="append", metavar="N", help="only this table; may be repeated"
    )
    command.add_argument("--seeds", type=int, metavar="N", help="repetitions (default: 5)")
    command.add_argument(
        "--form",
        default="published-start",
        help="of the user model: paper, published-start (default) or published",
    )
    command.add_argument(
        "--quick",
        action="store_true",
        help="generated data, one seed, one setting per method: minutes, and no download",
    )
    command.add_argument(
        "--out", type=Path, default=Path("reproduce-out"), help="folder of tables and drawings"
    )
    command.add_argument(
        "--results",
        type=Path,
        help="folder of finished studies, to read and to add to (default: OUT/studies)",
    )


def reproduce(arguments: argparse.Namespace) -> int:
    """Run what is missing, print the tables, draw the figures."""
    # The studies compile their loops and import clustering: only who runs them waits for that.
    from audits.reproduction.studies import StudySource, find_studies  # noqa: PLC0415
    from audits.reproduction.tables import as_lines, compare_table, needed_studies  # noqa: PLC0415

    paper = load_paper(arguments.paper)
    tables = paper.select(tuple(arguments.table) if arguments.table else None)
    seeds = _seeds(paper, arguments)
    folder = arguments.results or arguments.out / (
        "studies-quick" if arguments.quick else "studies"
    )
    source = StudySource(
        folder=folder,
        data_dir=arguments.data_dir,
        form=arguments.form,
        quick=arguments.quick,
        progress=not arguments.quiet,
    )
    studies = find_studies(needed_studies(tables, seeds), source)
    compared = [compare_table(table, studies, seeds) for table in tables]
    if arguments.quick:
        compared = [{**table, "paper_data": _STAND_IN} for table in compared]
    result: dict[str, Any] = {
        "paper": paper.title,
        "form": arguments.form,
        "quick": arguments.quick,
        "tables": compared,
        "figures": _draw(paper, tables, studies, seeds[0], arguments.out),
    }
    text = [line for table in compared for line in [*as_lines(table), ""]]
    _write(arguments.out / f"{arguments.paper}.json", json.dumps(result, indent=2))
    _write(arguments.out / f"{arguments.paper}.txt", "\n".join(text) + "\n")
    print(json.dumps(result, indent=2) if arguments.json else "\n".join(text))
    return 0


def _seeds(paper: Paper, arguments: argparse.Namespace) -> tuple[int, ...]:
    if arguments.seeds is None:
        return paper.seeds[:1] if arguments.quick else paper.seeds
    if not 1 <= arguments.seeds <= len(paper.seeds):
        raise ConfigError("--seeds", arguments.seeds, f"must be 1 to {len(paper.seeds)}")
    return paper.seeds[: arguments.seeds]


def _draw(
    paper: Paper,
    tables: Sequence[PaperTable],
    studies: "Mapping[Needed, Found]",
    seed: int,
    out: Path,
) -> list[str]:
    """One drawing per data set, of the figure's methods that the tables needed; the files."""
    from audits.reproduction.drawing import characteristics_chart  # noqa: PLC0415
    from audits.reproduction.studies import Needed  # noqa: PLC0415
    from secure_fedrec.engines.hpfl_results import read_characteristics  # noqa: PLC0415

    drawn = []
    for data in dict.fromkeys(table.data for table in tables):
        wanted = {method: Needed(data, method, seed) for method in paper.figure_methods}
        panels = {
            method: read_characteristics(studies[each].path)
            for method, each in wanted.items()
            if each in studies
        }
        path = out / f"characteristics-{data}.svg"
        _write(path, _standalone(characteristics_chart(panels, data=data)))
        drawn.append(str(path))
    return drawn


def _standalone(svg: str) -> str:
    """An inline drawing as a file of its own."""
    return svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as refused:
        raise DataError(path, f"cannot be written ({refused.strerror or refused})") from refused
