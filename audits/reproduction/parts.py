"""Which tables and figures of a paper are wanted."""

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from audits.reproduction.seeds import require_reproduced


class Parts(NamedTuple):
    """What is wanted.

    Attributes:
        tables: numbers.
        figures: numbers, as words: a figure may have parts.
    """

    tables: tuple[int, ...]
    figures: tuple[str, ...]


def wanted_parts(
    arguments: argparse.Namespace,
    *,
    tables: Sequence[int],
    figures: Sequence[str],
    usual: Sequence[str] | None = None,
) -> Parts:
    """What ``--table`` and ``--figure`` ask for; all of it where neither is given.

    Args:
        arguments: of the command.
        tables: that are reproduced.
        figures: likewise.
        usual: figures where nothing is asked for; None for all.

    Raises:
        ConfigError: there is no such table or figure.
    """
    require_reproduced("--table", arguments.table, tables)
    require_reproduced("--figure", arguments.figure, figures)
    if not arguments.table and not arguments.figure:
        return Parts(tuple(tables), tuple(figures if usual is None else usual))
    return Parts(tuple(arguments.table or ()), tuple(arguments.figure or ()))
