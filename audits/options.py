"""Options that several commands share, and what their values may be.

Nothing here imports the code of a command: the command line is parsed, and its help printed, before
slow imports.
"""

import argparse
from pathlib import Path

from attacks.scoring.severities import SEVERITIES
from audits.report import FORMATS, WRITERS

LEVELS = (*SEVERITIES[:-1], "inconclusive")
"""Levels that may fail an audit in addition to gates."""


def add_policy(command: argparse.ArgumentParser) -> None:
    """Add the options for writing and judging a report."""
    command.add_argument(
        "--format",
        dest="formats",
        type=_formats,
        default=FORMATS,
        metavar="FORMAT,...",
        help=f"files to write beside report.json, of {', '.join(WRITERS)} (default: html)",
    )
    command.add_argument(
        "--fail-on",
        type=_levels,
        default=(),
        metavar="LEVEL,...",
        help="also fail on findings of this severity or worse that no gate documents "
        f"({', '.join(LEVELS[:-1])}), or on an audit that is {LEVELS[-1]}",
    )
    command.add_argument(
        "--baseline",
        type=Path,
        metavar="RESULT",
        help="an earlier run folder or report.json: only findings that it did not have fail",
    )


def _formats(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((FORMATS[0], *_words(text, tuple(WRITERS)))))


def _levels(text: str) -> tuple[str, ...]:
    return _words(text, LEVELS)


def _words(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word not in known:
            raise argparse.ArgumentTypeError(f"{word!r} is not one of {', '.join(known)}")
    return words


def acceptable(text: str) -> str:
    """The value of ``compare --accept``.

    Raises:
        ArgumentTypeError: no change of that name can be accepted.
    """
    # Imported only with --accept; which attacks may be named is checked by the reports.
    from audits.comparison import ATTACK, LOSSLESS  # noqa: PLC0415

    if text != LOSSLESS and not text.startswith(ATTACK):
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {LOSSLESS}, {ATTACK}NAME")
    return text
