"""``reproduce PAPER``: a paper's tables and figures, its numbers beside those of this toolkit."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from audits.reproduction.engine import write_text
from audits.reproduction.papers import APART, OPTIONS, entries, read_paper, run_of
from secure_fedrec.errors import ConfigError


def add_reproduce(command: argparse.ArgumentParser) -> None:
    """The options of the command: those of all papers, then what some papers have."""
    add, papers = command.add_argument, entries()
    add("paper", metavar="PAPER", help=f"one of {', '.join(papers)}")
    add("--table", type=int, action="append", metavar="N", help="only this table; may be repeated")
    seeds = ", ".join(f"{entry.seeds} of {name}" for name, entry in papers.items())
    add("--seeds", type=int, metavar="N", help=f"repetitions (default: {seeds})")
    for name, option in OPTIONS.items():
        add(f"--{name}", **{**option, "help": f"{', '.join(_owners(name))}: {option['help']}"})
    add(
        "--quick",
        action="store_true",
        help="small generated data in place of the paper's, and no download: a minute or some",
    )
    add("--out", type=Path, default=Path("reproduce-out"), help="folder of tables and drawings")
    add(
        "--results",
        type=Path,
        help="folder of finished studies, to read and to add to (default: OUT/studies-PAPER)",
    )
    add("--no-run", action="store_true", help="run nothing, leave out what is missing")


def reproduce(arguments: argparse.Namespace) -> int:
    """Run what is missing, print the tables, draw the figures."""
    read_paper(arguments.paper)  # refuses an unknown paper
    _refuse_foreign_options(arguments)
    if arguments.out.exists() and not arguments.out.is_dir():  # otherwise noticed after hours
        raise ConfigError("--out", str(arguments.out), "is not a folder")
    apart = [name for name in APART if _given(arguments, name)]
    stem = "-".join([arguments.paper, *apart])
    for path in (arguments.out / f"{stem}.json", arguments.out / f"{stem}.txt"):
        if path.is_dir():
            raise ConfigError("--out", str(path), "is a folder, where a file is to be written")
    if not arguments.quiet:  # before torch and the compiler are loaded, which takes seconds
        print(_announced(arguments), file=sys.stderr, flush=True)
    result, lines = run_of(arguments.paper)(arguments)
    as_json = json.dumps(result, indent=2)
    write_text(arguments.out / f"{stem}.json", as_json)
    write_text(arguments.out / f"{stem}.txt", "\n".join(lines) + "\n")
    print(as_json if arguments.json else "\n".join(lines))
    return 0


def _announced(arguments: argparse.Namespace) -> str:
    """One line on what a reproduction is about to do."""
    data = "the paper's data"
    if arguments.quick:
        data = "small generated data, so its figures are not the paper's"
    done = "reads finished studies" if arguments.no_run else "runs the studies that are missing"
    kept = arguments.results or arguments.out
    return f"reproduce {arguments.paper}: {done}, on {data}; studies are kept in {kept}"


def _owners(option: str) -> list[str]:
    """Papers that have an option."""
    return [name for name, entry in entries().items() if option in entry.options]


def _refuse_foreign_options(arguments: argparse.Namespace) -> None:
    """Refuse an option of other papers: ignored, it would seem to have had an effect."""
    for name in OPTIONS:
        owners = _owners(name)
        if _given(arguments, name) and arguments.paper not in owners:
            value: Any = getattr(arguments, name)
            raise ConfigError(f"--{name}", value, f"is an option of {' and '.join(owners)} only")


def _given(arguments: argparse.Namespace, name: str) -> bool:
    return getattr(arguments, name) not in (None, False)
