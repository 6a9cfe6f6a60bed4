"""``reproduce PAPER``: a paper's tables and figures, its numbers beside those of this toolkit."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from audits.reproduction.files import read_paper, write_text
from secure_fedrec.errors import ConfigError

_OWN: Final[Mapping[str, str]] = {
    **dict.fromkeys(("start", "form", "data", "method", "variants"), "hpfl"),
    "task": "furl",
}
"""Paper by the option that it alone has."""


def add_reproduce(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = command.add_argument
    add("paper", metavar="PAPER", help="hpfl or furl")
    add("--table", type=int, action="append", metavar="N", help="only this table; may be repeated")
    add("--task", action="append", metavar="NAME", help="furl: only this task; may be repeated")
    add("--seeds", type=int, metavar="N", help="repetitions (default: 5 of hpfl, 3 of furl)")
    add(
        "--start",
        action="append",
        help="hpfl, of training: xavier (the paper's) or identity (its code's); may be repeated "
        "(default: both)",
    )
    add("--form", help="hpfl, of the user model: paper (default) or published")
    add("--data", action="append", metavar="NAME", help="hpfl: only this data set; repeatable")
    add("--method", action="append", metavar="NAME", help="hpfl: only this method; repeatable")
    add(
        "--variants",
        action="store_true",
        help="hpfl: in place of the tables, choices that they do not vary, on one seed",
    )
    add(
        "--quick",
        action="store_true",
        help="small generated data in place of the paper's, and no download: a minute or some",
    )
    add("--out", type=Path, default=Path("reproduce-out"), help="folder of tables and drawings")
    add(
        "--results",
        type=Path,
        help="folder of finished studies, to read and to add to (default: OUT/studies)",
    )
    add("--no-run", action="store_true", help="run nothing, leave out what is missing")


def reproduce(arguments: argparse.Namespace) -> int:
    """Run what is missing, print the tables, draw the figures."""
    read_paper(arguments.paper)  # refuses what is no paper
    _refuse_foreign_options(arguments)
    result, lines = _run(arguments)
    as_json, stem = json.dumps(result, indent=2), arguments.paper
    if arguments.variants:
        stem = f"{stem}-variants"
    write_text(arguments.out / f"{stem}.json", as_json)
    write_text(arguments.out / f"{stem}.txt", "\n".join(lines) + "\n")
    print(as_json if arguments.json else "\n".join(lines))
    return 0


def _run(arguments: argparse.Namespace) -> tuple[dict[str, Any], Sequence[str]]:
    # The studies compile their loops and import torch: only who runs them waits for that.
    if arguments.paper == "furl":
        from audits.reproduction.furl.command import reproduce_furl  # noqa: PLC0415

        return reproduce_furl(arguments)
    from audits.reproduction.hpfl.command import reproduce_hpfl  # noqa: PLC0415

    return reproduce_hpfl(arguments)


def _refuse_foreign_options(arguments: argparse.Namespace) -> None:
    """Refuse an option of another paper: ignored, it would seem to have had an effect."""
    for name, paper in _OWN.items():
        value = getattr(arguments, name)
        if value not in (None, False) and arguments.paper != paper:
            raise ConfigError(f"--{name}", value, f"is an option of {paper} only")
